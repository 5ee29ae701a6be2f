//! `x-phanrouter-session`: the turn of a conversation, as reported by the gateway in front.

use std::borrow::Cow;

use http::HeaderMap;
use router_core::session::is_blank;
use serde::Deserialize;

/// The largest turn that is accepted.
const TURN_MAX: u32 = 1_000_000_000;

/// Longest id, in characters.
const ID_CHARS_MAX: usize = 256;

/// A usable header: `{"session_id":"…","turn":N}`.
#[derive(Debug, PartialEq, Eq, Deserialize)]
pub struct Turn<'h> {
    /// Not blank, at most 256 characters.
    #[serde(borrow)]
    pub session_id: Cow<'h, str>,
    /// From 1 to 1 000 000 000.
    pub turn: u32,
}

impl<'h> Turn<'h> {
    /// The name of the header, in lower case.
    pub const NAME: &'static str = "x-phanrouter-session";

    /// Reads the header. `None` when it is missing, occurs twice, is not such a JSON object, or has
    /// values out of bounds.
    pub fn of(headers: &'h HeaderMap) -> Option<Self> {
        let mut values = headers.get_all(Self::NAME).iter();
        let (Some(value), None) = (values.next(), values.next()) else {
            return None;
        };
        let turn: Self = serde_json::from_slice(value.as_bytes()).ok()?;
        let is_usable = (1..=TURN_MAX).contains(&turn.turn)
            && !is_blank(turn.session_id.as_bytes())
            && turn.session_id.chars().count() <= ID_CHARS_MAX;
        is_usable.then_some(turn)
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn turn(value: &str) -> Option<(String, u32)> {
        let mut headers = HeaderMap::new();
        headers.insert(Turn::NAME, HeaderValue::from_str(value).unwrap());
        Turn::of(&headers).map(|turn| (turn.session_id.into_owned(), turn.turn))
    }

    #[test]
    fn a_session_and_a_turn_are_usable() {
        for (value, id, number) in [
            (r#"{"session_id":"s-1","turn":1}"#, "s-1", 1),
            (
                r#" { "turn" : 1000000000 , "session_id" : " ü\u00e9\"" } "#,
                " üé\"",
                TURN_MAX,
            ),
            (r#"{"session_id":"s","turn":7,"more":{"turn":[0]}}"#, "s", 7),
        ] {
            assert_eq!(turn(value), Some((id.to_owned(), number)), "{value}");
        }
        let long = format!(r#"{{"session_id":"{}","turn":2}}"#, "é".repeat(256));
        assert!(turn(&long).is_some());
    }

    #[test]
    fn anything_else_is_unusable() {
        let long = format!(r#"{{"session_id":"{}","turn":2}}"#, "x".repeat(257));
        let deep = format!(r#"{{"x":{}"#, "[".repeat(60_000));
        for value in [
            "",
            "s-1",
            "5",
            "[]",
            "{}",
            r#"{"session_id":"s"}"#,
            r#"{"turn":1}"#,
            r#"{"session_id":"","turn":1}"#,
            r#"{"session_id":" \u3000 ","turn":1}"#,
            r#"{"session_id":5,"turn":1}"#,
            r#"{"session_id":null,"turn":1}"#,
            r#"{"session_id":"s","turn":0}"#,
            r#"{"session_id":"s","turn":-1}"#,
            r#"{"session_id":"s","turn":1000000001}"#,
            r#"{"session_id":"s","turn":4294967297}"#,
            r#"{"session_id":"s","turn":1.0}"#,
            r#"{"session_id":"s","turn":1e3}"#,
            r#"{"session_id":"s","turn":"1"}"#,
            r#"{"session_id":"s","turn":true}"#,
            r#"{"session_id":"s","turn":1} x"#,
            r#"{"session_id":"s","turn":1,"turn":2}"#,
            r#"{"session_id":"\ud800","turn":1}"#,
            &long,
            &deep,
        ] {
            assert_eq!(turn(value), None, "{value}");
        }
        let mut headers = HeaderMap::new();
        assert_eq!(Turn::of(&headers), None);
        let good = HeaderValue::from_static(r#"{"session_id":"s","turn":1}"#);
        headers.append(Turn::NAME, good.clone());
        assert!(Turn::of(&headers).is_some());
        headers.append(Turn::NAME, good);
        assert_eq!(Turn::of(&headers), None, "which of the two?");
    }
}
