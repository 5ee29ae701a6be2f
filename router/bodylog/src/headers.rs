//! Copies request headers for a record.

use std::borrow::Cow;
use std::fmt;

use answers::redact::is_secret_header;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::HeaderMap;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

/// Request headers as received, in one allocation: a clone of the map would keep the connection's
/// read buffer alive.
#[derive(Clone, Default)]
pub(super) struct HeaderBlock(Box<[u8]>);

/// Neither of these bytes can occur in a header.
const AFTER_NAME: u8 = 0;
const AFTER_VALUE: u8 = b'\n';

impl HeaderBlock {
    /// Copies headers.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let len = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
            name.as_str().len() + value.len() + 2
        };
        let mut block = Vec::with_capacity(headers.iter().map(len).sum());
        for (name, value) in headers {
            block.extend_from_slice(name.as_str().as_bytes());
            block.push(AFTER_NAME);
            block.extend_from_slice(value.as_bytes());
            block.push(AFTER_VALUE);
        }
        Self(block.into())
    }

    /// Bytes held.
    pub(super) fn cost(&self) -> usize {
        self.0.len()
    }

    /// The recordable headers as JSON. A value that is not UTF-8 becomes `base64:` and its encoded
    /// bytes; a repeated header becomes a list.
    pub(super) fn recorded(&self) -> Recorded<'_> {
        Recorded(&self.0)
    }
}

/// See [`HeaderBlock::recorded`].
#[derive(Default)]
pub(super) struct Recorded<'a>(&'a [u8]);

impl<'a> Recorded<'a> {
    fn each(&self) -> impl Iterator<Item = (&'a str, &'a [u8])> {
        let lines = self.0.split(|byte| *byte == AFTER_VALUE);
        lines.filter_map(|line| {
            let end = line.iter().position(|byte| *byte == AFTER_NAME)?;
            let name = std::str::from_utf8(&line[..end]).ok()?;
            (!is_secret_header(name)).then_some((name, &line[end + 1..]))
        })
    }
}

impl Serialize for Recorded<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        let mut rest = self.each().peekable();
        while let Some((name, first)) = rest.next() {
            // A header map yields all values of a name before the next name.
            if rest.peek().is_none_or(|(next, _)| *next != name) {
                map.serialize_entry(name, &text(first))?;
                continue;
            }
            let mut values = vec![text(first)];
            while let Some((_, value)) = rest.next_if(|(next, _)| *next == name) {
                values.push(text(value));
            }
            map.serialize_entry(name, &values)?;
        }
        map.end()
    }
}

/// Prints only the length, because headers contain credentials.
impl fmt::Debug for HeaderBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HeaderBlock").field(&self.0.len()).finish()
    }
}

fn text(value: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(value) {
        Ok(text) => text.into(),
        Err(_) => format!("base64:{}", BASE64_STANDARD.encode(value)).into(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn headers_are_recorded_without_credentials() {
        let mut headers = HeaderMap::new();
        headers.insert("authorization", "sk-hidden".parse().unwrap());
        headers.insert("accept", "a/b".parse().unwrap());
        for value in ["1", "2", "3"] {
            headers.append("x-two", value.parse().unwrap());
        }
        let odd = http::HeaderValue::from_bytes(b"\xff\xfeA").unwrap();
        headers.insert("x-odd", odd);
        let block = HeaderBlock::of(&headers);
        let recorded = serde_json::to_value(block.recorded()).unwrap();
        assert_eq!(
            recorded,
            json!({"accept": "a/b", "x-two": ["1", "2", "3"], "x-odd": "base64://5B"})
        );
        assert!(!format!("{block:?}").contains("hidden"));
    }
}
