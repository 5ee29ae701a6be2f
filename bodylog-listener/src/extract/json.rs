//! Reads JSON without building a tree. Unrequested members are skipped, and a member of an
//! unexpected type is ignored instead of failing the rest.

use std::borrow::Cow;
use std::fmt;

use serde::Deserializer;
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// Calls `each` with every member of an object, in order. Returns whether the object is valid to
/// its end. Members before an error are still reported.
pub(super) fn each_member<'a>(json: &'a str, each: impl FnMut(&str, &'a str)) -> bool {
    struct Members<F>(F);
    impl<'a, F: FnMut(&str, &'a str)> Visitor<'a> for Members<F> {
        type Value = ();

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'a>>(mut self, mut map: A) -> Result<(), A::Error> {
            while let Some(name) = map.next_key::<Cow<'a, str>>()? {
                let value: &'a RawValue = map.next_value()?;
                (self.0)(&name, value.get());
            }
            Ok(())
        }
    }
    let mut deserializer = serde_json::Deserializer::from_str(json);
    deserializer.deserialize_map(Members(each)).is_ok() && deserializer.end().is_ok()
}

/// Calls `each` with every element of a list, in order. Does nothing for other values.
pub(super) fn each_element<'a>(json: &'a str, each: impl FnMut(&'a str)) {
    struct Elements<F>(F);
    impl<'a, F: FnMut(&'a str)> Visitor<'a> for Elements<F> {
        type Value = ();

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list")
        }

        fn visit_seq<A: SeqAccess<'a>>(mut self, mut seq: A) -> Result<(), A::Error> {
            while let Some(value) = seq.next_element::<&'a RawValue>()? {
                (self.0)(value.get());
            }
            Ok(())
        }
    }
    let _ = serde_json::Deserializer::from_str(json).deserialize_seq(Elements(each));
}

/// The text of a value, if it is a non-empty string.
pub(super) fn text(json: &str) -> Option<String> {
    if !json.starts_with('"') {
        return None;
    }
    serde_json::from_str::<String>(json)
        .ok()
        .filter(|text| !text.is_empty())
}

/// Appends the text of a value, if it is a string.
pub(super) fn append_text(json: &str, to: &mut String) {
    // Most pieces have no escapes and can be borrowed without a copy.
    if let Ok(text) = serde_json::from_str::<&str>(json) {
        to.push_str(text);
    } else if let Some(text) = text(json) {
        to.push_str(&text);
    }
}

/// The value, unless it is null.
pub(super) fn value(json: &str) -> Option<serde_json::Value> {
    serde_json::from_str(json)
        .ok()
        .filter(|value: &serde_json::Value| !value.is_null())
}

/// Whether the value is a list or an object, by its first byte.
pub(super) fn is_object(json: &str) -> bool {
    json.starts_with('{')
}

/// See [`is_object`].
pub(super) fn is_list(json: &str) -> bool {
    json.starts_with('[')
}
