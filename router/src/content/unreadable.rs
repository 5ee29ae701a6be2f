//! Why a body cannot be judged by content rules or by the model that it names.
//!
//! An engine may accept what the router cannot read: Python's JSON parser also takes UTF-16 and
//! UTF-32. Where the contents of a body decide, such a body is refused, so that no encoding slips
//! past a rule.

use std::fmt;

use super::inspect::Inspection;
use super::reader::Reader;

/// What a body is instead of JSON in UTF-8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// UTF-16 or UTF-32, by its byte order mark or by zero bytes where JSON has none.
    WideText,
    /// Bytes that no UTF-8 text contains.
    NotUtf8,
    /// Text that does not parse.
    NotJson,
}

impl Unreadable {
    /// `None` for an empty body and for one JSON value in UTF-8. `inspection` is of this body.
    pub fn of(inspection: &Inspection<'_>, body: &[u8]) -> Option<Self> {
        if body.is_empty() || inspection.facts().is_some() {
            return None;
        }
        let begins_wide = matches!(
            body,
            [0xff, 0xfe, ..] | [0xfe, 0xff, ..] | [0, ..] | [_, 0, ..]
        );
        if begins_wide {
            return Some(Self::WideText);
        }
        if str::from_utf8(body).is_err() {
            return Some(Self::NotUtf8);
        }
        (!inspection.is_object() && !is_json(body)).then_some(Self::NotJson)
    }
}

fn is_json(body: &[u8]) -> bool {
    let mut reader = Reader::new(body);
    reader.skip().is_some() && reader.end().is_some()
}

/// Reads after "the body is".
impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::WideText => "UTF-16 or UTF-32",
            Self::NotUtf8 => "not UTF-8",
            Self::NotJson => "not JSON",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::Fields;

    fn judge(body: &[u8]) -> Option<Unreadable> {
        Unreadable::of(&Inspection::read(&Fields::new([]), body), body)
    }

    #[test]
    fn json_in_utf8_is_readable_with_a_byte_order_mark_too() {
        for body in [
            r"",
            r"{}",
            "\u{feff}{}",
            r" [1] ",
            r#""text""#,
            r#"{"x":"\ud800"}"#,
        ] {
            assert_eq!(judge(body.as_bytes()), None, "{body}");
        }
    }

    #[test]
    fn other_encodings_and_other_texts_are_not() {
        let wide = |order: fn(u16) -> [u8; 2]| -> Vec<u8> {
            r#"{"model":"m"}"#.encode_utf16().flat_map(order).collect()
        };
        let (little, big) = (wide(u16::to_le_bytes), wide(u16::to_be_bytes));
        for body in [
            &*little,
            &*big,
            &[b"\xff\xfe", &*little].concat(),
            &[b"\xfe\xff", &*big].concat(),
            b"{\0\0\0}\0\0\0",
            b"\0\0\0{\0\0\0}",
        ] {
            assert_eq!(judge(body), Some(Unreadable::WideText), "{body:?}");
        }
        assert_eq!(judge(b"{\"x\":\"\xff\"}"), Some(Unreadable::NotUtf8));
        for body in ["{", "model=m", "--boundary\r\n", "{} {}"] {
            assert_eq!(judge(body.as_bytes()), Some(Unreadable::NotJson), "{body}");
        }
    }
}
