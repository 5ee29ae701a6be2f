//! The further settings of the switch `bodylog`: the share of requests that is recorded, and the
//! recorded part of their bodies.

use std::fmt::Display;
use std::str::FromStr;

use proto::admin::{BodylogToggled, Changed};
use router_config::valid::Bodies;
use serde::Serialize;

use crate::render::Paint;

/// A value before and after the command.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Part<T> {
    /// Absent when nothing was changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<T>,
    value: T,
    source: String,
}

/// Both values of one route.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Recording {
    sample_pct: Part<f64>,
    bodies: Part<String>,
}

impl Recording {
    /// The current values.
    pub(super) fn of(now: proto::admin::Recording) -> Self {
        Self {
            sample_pct: Part {
                before: None,
                value: now.sample_pct,
                source: now.sample_pct_source,
            },
            bodies: Part {
                before: None,
                value: now.bodies,
                source: now.bodies_source,
            },
        }
    }

    /// The values after a change.
    pub(super) fn changed(done: BodylogToggled) -> Self {
        Self {
            sample_pct: Part::of(done.sample_pct),
            bodies: Part::of(done.bodies),
        }
    }

    /// The column heads for [`Recording::cells`].
    pub(super) const HEAD: [&str; 2] = ["share %", "bodies"];

    /// Two cells: `100 → 5 (runtime)`, or `100 (default)` when nothing has changed.
    pub(super) fn cells(&self) -> [(String, Paint); 2] {
        [self.sample_pct.cell(), self.bodies.cell()]
    }
}

impl<T: PartialEq + Display> Part<T> {
    fn of(changed: Changed<T>) -> Self {
        Self {
            before: Some(changed.before),
            value: changed.after,
            source: changed.source,
        }
    }

    fn cell(&self) -> (String, Paint) {
        let Self {
            before,
            value,
            source,
        } = self;
        let text = match before.as_ref().filter(|before| *before != value) {
            Some(before) => format!("{before} → {value} ({source})"),
            None => format!("{value} ({source})"),
        };
        (text, paint(source))
    }
}

/// Highlights runtime values.
pub(super) fn paint(source: &str) -> Paint {
    match source {
        "runtime" => Paint::Yellow,
        _ => Paint::Plain,
    }
}

/// Parses a share in the router's range. The comparison is written so that NaN fails.
pub(super) fn percent(text: &str) -> Result<String, String> {
    let is_plain = text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    match text.parse::<f64>() {
        Ok(pct) if is_plain && (0.0..=100.0).contains(&pct) => Ok(text.to_owned()),
        _ => Err("expected a number from 0 to 100".to_owned()),
    }
}

/// Parses the recorded part of bodies in the router's syntax.
pub(super) fn bodies(text: &str) -> Result<String, String> {
    match Bodies::from_str(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(_) => Err("expected full, none, or truncate(SIZE), as truncate(64k)".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_what_the_router_takes() {
        for text in ["0", "0.5", "100", "5."] {
            assert!(percent(text).is_ok(), "{text}");
        }
        for text in ["101", "-1", "nan", "inf", "1e1", "", "five"] {
            assert!(percent(text).is_err(), "{text}");
        }
        for text in ["full", "none", "truncate(64k)"] {
            assert!(bodies(text).is_ok(), "{text}");
        }
        for text in ["all", "truncate(0)", "truncate(x)", "truncate 5k", ""] {
            assert!(bodies(text).is_err(), "{text}");
        }
    }
}
