//! Query parameters, parsed strictly: an invalid value is an error and never becomes a default.

use axum::extract::Query;
use http::Uri;

/// Decoded parameters in the order of the query.
#[derive(Debug)]
pub(super) struct Params(Vec<(String, String)>);

/// Why parameters are refused, as text for the client.
pub(super) type Refused = String;

impl Params {
    /// Parses a query.
    pub(super) fn of(uri: &Uri) -> Result<Self, Refused> {
        match Query::<Vec<(String, String)>>::try_from_uri(uri) {
            Ok(Query(pairs)) => Ok(Self(pairs)),
            Err(_) => Err("the query cannot be read".to_owned()),
        }
    }

    /// Returns a parameter. A parameter that is given twice is refused.
    pub(super) fn get(&self, name: &str) -> Result<Option<&str>, Refused> {
        let mut values = self
            .0
            .iter()
            .filter(|(key, _)| key == name)
            .map(|(_, value)| value.as_str());
        let first = values.next();
        if values.next().is_some() {
            Err(format!("'{name}' is given twice"))
        } else {
            Ok(first)
        }
    }

    /// Whether any of these parameters is present.
    pub(super) fn has_any(&self, names: &[&str]) -> bool {
        self.0.iter().any(|(key, _)| names.contains(&key.as_str()))
    }

    /// Refuses parameters beyond `allowed`.
    pub(super) fn only(&self, allowed: &[&str]) -> Result<(), Refused> {
        if self
            .0
            .iter()
            .all(|(key, _)| allowed.contains(&key.as_str()))
        {
            Ok(())
        } else {
            Err(format!(
                "unknown parameter; this endpoint takes {}",
                allowed.join(", ")
            ))
        }
    }

    /// A parameter that is `1` or absent.
    pub(super) fn flag(&self, name: &str) -> Result<bool, Refused> {
        match self.get(name)? {
            None => Ok(false),
            Some("1") => Ok(true),
            Some(_) => Err(format!("'{name}' must be 1")),
        }
    }

    /// A finite number of at least 0.
    pub(super) fn amount(&self, name: &str) -> Result<Option<f64>, Refused> {
        let Some(text) = self.get(name)? else {
            return Ok(None);
        };
        match text.parse::<f64>() {
            Ok(amount) if amount.is_finite() && amount >= 0.0 => Ok(Some(amount)),
            _ => Err(format!("'{name}' must be a number of at least 0")),
        }
    }

    /// A whole number of at least 1, without an upper bound.
    pub(super) fn count(&self, name: &str) -> Result<Option<usize>, Refused> {
        let Some(text) = self.get(name)? else {
            return Ok(None);
        };
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        match text.trim_start_matches('0') {
            number if digits && !number.is_empty() => {
                Ok(Some(number.parse().unwrap_or(usize::MAX)))
            }
            _ => Err(format!("'{name}' must be a whole number of at least 1")),
        }
    }

    /// A whole number within bounds.
    pub(super) fn number(
        &self,
        name: &str,
        bounds: std::ops::RangeInclusive<usize>,
    ) -> Result<Option<usize>, Refused> {
        let Some(text) = self.get(name)? else {
            return Ok(None);
        };
        match text.parse() {
            Ok(number) if bounds.contains(&number) => Ok(Some(number)),
            _ => Err(format!(
                "'{name}' must be a whole number from {} to {}",
                bounds.start(),
                bounds.end()
            )),
        }
    }
}
