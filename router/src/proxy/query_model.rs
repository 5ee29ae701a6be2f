//! The `model` in a query: WebSockets name it there, and requests whose body names none.

use std::borrow::Cow;

use http::Uri;
use http::uri::PathAndQuery;

use super::local::query_value;
use crate::content::alias::Alias;
use crate::state::Route;

/// The model that a query names.
#[derive(Debug)]
pub(super) struct QueryModel {
    /// The name at the engine.
    pub(super) model: String,
    /// Both names, and the target with the served one, where the client asked by an alias.
    pub(super) alias: Option<(Box<Alias>, PathAndQuery)>,
}

impl QueryModel {
    /// Reads the target of a request.
    pub(super) fn of(route: &Route, target: &Uri) -> Option<Self> {
        let asked = query_value(target.query(), "model")?;
        let Some(served) = route.served_for(&asked).map(Cow::into_owned) else {
            return Some(Self {
                model: asked,
                alias: None,
            });
        };
        let alias = Alias {
            asked: asked.as_str().into(),
            served: served.as_str().into(),
        };
        let renamed = renamed(target.path(), target.query()?, &served);
        Some(Self {
            alias: Some((Box::new(alias), renamed?)),
            model: served,
        })
    }
}

/// A target with every `model` of its query replaced. All other bytes stay.
fn renamed(path: &str, query: &str, model: &str) -> Option<PathAndQuery> {
    let pairs = query.split('&').map(|pair| match pair.split_once('=') {
        Some(("model", _)) => Cow::Owned(format!("model={}", encoded(model))),
        _ => Cow::Borrowed(pair),
    });
    let query = pairs.collect::<Vec<_>>().join("&");
    format!("{path}?{query}").parse().ok()
}

/// A name as the value of a query parameter.
fn encoded(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'-' | b'.' | b'_' | b'~' | b'/' | b':' => text.push(byte.into()),
            _ if byte.is_ascii_alphanumeric() => text.push(byte.into()),
            _ => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_model_changes() {
        for (query, expected) in [
            ("model=a", "model=org/b%201"),
            (
                "x=%20&model=a&y&model=c",
                "x=%20&model=org/b%201&y&model=org/b%201",
            ),
            ("my_model=a&model=", "my_model=a&model=org/b%201"),
        ] {
            let found = renamed("/r//v1/realtime", query, "org/b 1").unwrap();
            assert_eq!(found, *format!("/r//v1/realtime?{expected}"), "{query}");
        }
    }
}
