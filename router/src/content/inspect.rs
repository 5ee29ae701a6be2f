//! Reads the request JSON in one pass: the few top-level values that a route needs, as slices of
//! the body, and where its edits go.
//!
//! Everything else is checked and skipped without allocation or recursion, so the depth of a body
//! costs nothing. A body that is not one JSON object yields nothing: it is forwarded unchanged and
//! only the headers count. Of duplicate keys the last one counts, as in the engines' parsers.

use std::borrow::Cow;
use std::fmt;

use answers::cursor::Span;
use router_core::rules::Fact;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::facts::Wanted;
use super::reader::{Reader, decoded};
use super::transform::{Places, Signs};

/// The wanted top-level keys, built once per route table: [`ALWAYS`] and the first segment of every
/// body path under which some route looks for a session id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fields {
    names: Box<[Box<str>]>,
}

/// The fields that every request is read for.
pub const ALWAYS: [&str; 3] = ["model", "stream", "stream_options"];

impl Fields {
    /// [`ALWAYS`] plus `names`, without duplicates.
    pub fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let mut all: Vec<Box<str>> = ALWAYS.map(Into::into).into();
        for name in names {
            if !all.iter().any(|have| **have == *name) {
                all.push(name.into());
            }
        }
        Self { names: all.into() }
    }

    fn position(&self, key: &[u8]) -> Option<usize> {
        self.names.iter().position(|name| name.as_bytes() == key)
    }
}

/// Most bodies have no more of the wanted fields.
const VALUES_USUAL: usize = 4;

/// The values that one body has for the wanted fields.
#[derive(Debug)]
pub struct Inspection<'b> {
    fields: &'b Fields,
    /// The fields that the body has, by their index in `fields.names`, each once. `None` when the
    /// body is not a JSON object.
    values: Option<Vec<(usize, Value<'b>)>>,
    /// The end of the object.
    end: usize,
    signs: Signs,
    facts: Option<Vec<Fact<'b>>>,
}

/// The value of a field, as written.
#[derive(Clone, Copy, Debug)]
struct Value<'b> {
    /// Where it begins in the body.
    at: usize,
    text: &'b str,
}

impl<'b> Inspection<'b> {
    /// A request without a body, or with one that is not JSON.
    pub fn empty(fields: &'b Fields) -> Self {
        Self {
            fields,
            values: None,
            end: 0,
            signs: Signs::default(),
            facts: None,
        }
    }

    /// Reads a body. Bad JSON is not an error here: it yields nothing, and the engine judges it.
    pub fn read(fields: &'b Fields, body: &'b [u8]) -> Self {
        Self::read_for(fields, None, body)
    }

    /// Reads a body, and in the same walk the facts that content rules need.
    pub fn read_for(fields: &'b Fields, wanted: Option<&Wanted>, body: &'b [u8]) -> Self {
        Self::walk(fields, wanted, body).unwrap_or_else(|| Self::empty(fields))
    }

    /// Reads the fields of a form that is `bytes` long, and the facts that content rules need.
    pub fn read_form(
        fields: &'b Fields,
        wanted: Option<&Wanted>,
        form: &'b [u8],
        bytes: usize,
    ) -> Self {
        let mut read = Self::read_for(fields, wanted, form);
        if let (Some(wanted), Some(facts)) = (wanted, &mut read.facts) {
            wanted.set_bytes(facts, bytes);
        }
        read
    }

    fn walk(fields: &'b Fields, wanted: Option<&Wanted>, body: &'b [u8]) -> Option<Self> {
        let mut reader = Reader::new(body);
        if reader.peek()? != b'{' {
            return None;
        }
        let mut facts = wanted.and_then(|wanted| Some((wanted, wanted.begin(body)?)));
        let mut values: Vec<(usize, Value<'b>)> = Vec::with_capacity(VALUES_USUAL);
        let object = reader.members(|reader, key| {
            let key = decoded(body, key);
            reader.peek()?;
            let start = reader.position();
            match &mut facts {
                Some((wanted, facts)) => wanted.member(facts, reader, &key)?,
                None => {
                    reader.skip()?;
                }
            }
            if let Some(field) = fields.position(&key) {
                let text = str::from_utf8(&body[start..reader.position()]).ok()?;
                let value = Value { at: start, text };
                match values.iter_mut().find(|(known, _)| *known == field) {
                    Some((_, earlier)) => *earlier = value,
                    None => values.push((field, value)),
                }
            }
            Some(())
        })?;
        reader.end()?;
        Some(Self {
            fields,
            values: Some(values),
            end: object.end,
            signs: reader.signs(),
            facts: facts.map(|(_, reading)| reading.facts()),
        })
    }

    /// Whether the body is one JSON object.
    pub fn is_object(&self) -> bool {
        self.values.is_some()
    }

    /// What an edit of the body needs to know. `None` when the body is not one JSON object.
    pub fn places(&self) -> Option<Places> {
        self.is_object().then(|| Places {
            end: self.end,
            is_stream: self.stream() == Some(true),
            stream_options: self.field("stream_options").map(Value::span),
            signs: self.signs,
        })
    }

    /// The facts of an object in UTF-8, if it was read for some.
    pub fn facts(&self) -> Option<&[Fact<'b>]> {
        self.facts.as_deref()
    }

    /// The `model`, when it is a string.
    pub fn model(&self) -> Option<Cow<'b, str>> {
        let raw = self.top("model")?;
        serde_json::from_str::<BorrowedStr<'b>>(raw)
            .ok()
            .map(|s| s.0)
    }

    /// Whether the body asks for a stream. `None` when `stream` is missing or not a boolean.
    pub fn stream(&self) -> Option<bool> {
        match self.top("stream")? {
            "true" => Some(true),
            "false" => Some(false),
            _ => None,
        }
    }

    /// The value under a dotted path in the form of a session id: the decoded bytes of a string or
    /// the digits of an integer; `None` for anything else. A string along the path is parsed as
    /// JSON.
    pub fn text(&self, path: &[Box<str>]) -> Option<Cow<'b, [u8]>> {
        let (first, rest) = path.split_first()?;
        descend(self.top(first)?, rest)
    }

    /// The raw value of a wanted top-level field.
    pub fn top(&self, key: &str) -> Option<&'b str> {
        self.field(key).map(|value| value.text)
    }

    fn field(&self, key: &str) -> Option<Value<'b>> {
        // A body has few of the fields, so this compares few names.
        let mut values = self.values.iter().flatten();
        let (_, value) = values.find(|(field, _)| *self.fields.names[*field] == *key)?;
        Some(*value)
    }
}

impl Value<'_> {
    fn span(self) -> Span {
        self.at..self.at + self.text.len()
    }
}

/// Follows `path` from one value. The owned arm is taken only below a string that contains JSON.
fn descend<'b>(raw: &'b str, path: &[Box<str>]) -> Option<Cow<'b, [u8]>> {
    let Some((key, rest)) = path.split_first() else {
        return scalar(raw);
    };
    match raw.as_bytes().first()? {
        b'{' => {
            let mut json = serde_json::Deserializer::from_str(raw);
            let found = json.deserialize_map(OneKey { key }).ok()??;
            descend(found.get(), rest)
        }
        b'"' => {
            let inner = serde_json::from_str::<BorrowedStr<'_>>(raw).ok()?;
            let inner = inner.0.trim_start();
            if !inner.starts_with('{') {
                return None;
            }
            descend(inner, path).map(|found| Cow::Owned(found.into_owned()))
        }
        _ => None,
    }
}

struct OneKey<'k> {
    key: &'k str,
}

impl<'de> Visitor<'de> for OneKey<'_> {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(key) = map.next_key::<BorrowedBytes<'de>>()? {
            if *key.0 == *self.key.as_bytes() {
                found = Some(map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }
}

fn scalar(raw: &str) -> Option<Cow<'_, [u8]>> {
    let bytes = raw.as_bytes();
    match bytes.first()? {
        b'"' => serde_json::from_str::<BorrowedBytes<'_>>(raw)
            .ok()
            .map(|s| s.0),
        b'-' | b'0'..=b'9' => {
            let digits = bytes.strip_prefix(b"-").unwrap_or(bytes);
            digits
                .iter()
                .all(u8::is_ascii_digit)
                .then_some(Cow::Borrowed(bytes))
        }
        _ => None,
    }
}

/// A JSON string, borrowed unless it holds escapes.
struct BorrowedStr<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for BorrowedStr<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl<'de> Visitor<'de> for Text {
            type Value = BorrowedStr<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(BorrowedStr(Cow::Borrowed(text)))
            }
            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(BorrowedStr(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(Text)
    }
}

/// A JSON string as bytes. A lone surrogate escape, which no `str` can hold, still identifies a
/// session.
pub(super) struct BorrowedBytes<'a>(pub(super) Cow<'a, [u8]>);

impl<'de> Deserialize<'de> for BorrowedBytes<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl<'de> Visitor<'de> for Text {
            type Value = BorrowedBytes<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_borrowed_bytes<E>(self, text: &'de [u8]) -> Result<Self::Value, E> {
                Ok(BorrowedBytes(Cow::Borrowed(text)))
            }
            fn visit_bytes<E>(self, text: &[u8]) -> Result<Self::Value, E> {
                Ok(BorrowedBytes(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_bytes(Text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(dotted: &str) -> Vec<Box<str>> {
        dotted.split('.').map(Into::into).collect()
    }

    fn text(body: &str, dotted: &str) -> Option<String> {
        let path = path(dotted);
        let fields = Fields::new([&*path[0]]);
        let found = Inspection::read(&fields, body.as_bytes()).text(&path);
        found.map(|bytes| String::from_utf8(bytes.into_owned()).unwrap())
    }

    fn model(body: &[u8]) -> Option<String> {
        let fields = Fields::new([]);
        Inspection::read(&fields, body).model().map(Cow::into_owned)
    }

    #[test]
    fn a_request_says_whether_it_asks_for_a_stream() {
        for (body, expected) in [
            (r#"{"stream":true}"#, Some(true)),
            (r#"{"a":1 , "stream" : false}"#, Some(false)),
            (r#"{"stream_options":{"include_usage":true}}"#, None),
            (r#"{"stream":"true"}"#, None),
            (r#"{"stream":null}"#, None),
            (
                r#"{"metadata":{"stream":true},"stream":false}"#,
                Some(false),
            ),
            (r#"{"stream":true"#, None),
        ] {
            let fields = Fields::new([]);
            let found = Inspection::read(&fields, body.as_bytes()).stream();
            assert_eq!(found, expected, "{body}");
        }
    }

    #[test]
    fn the_last_duplicate_counts() {
        assert_eq!(
            model(br#"{"model":"a","x":[],"model":"b"}"#),
            Some("b".into())
        );
        assert_eq!(
            text(
                r#"{"metadata":{"session_id":"a","session_id":"b"}}"#,
                "metadata.session_id"
            ),
            Some("b".into())
        );
    }

    #[test]
    fn integers_keep_every_digit_and_other_scalars_do_not_count() {
        assert_eq!(
            text(r#"{"user":9007199254740993}"#, "user"),
            Some("9007199254740993".into())
        );
        assert_eq!(text(r#"{"user":-12}"#, "user"), Some("-12".into()));
        for body in [
            r#"{"user":1.0}"#,
            r#"{"user":1e3}"#,
            r#"{"user":true}"#,
            r#"{"user":null}"#,
            r#"{"user":{}}"#,
            r#"{"user":[]}"#,
        ] {
            assert_eq!(text(body, "user"), None, "{body}");
        }
    }

    #[test]
    fn a_path_looks_into_an_object_and_into_json_text() {
        let dotted = "metadata.user_id.session_id";
        assert_eq!(
            text(r#"{"metadata":{"user_id":{"session_id":"z"}}}"#, dotted),
            Some("z".into())
        );
        assert_eq!(
            text(
                r#"{"metadata":{"user_id":"{\"session_id\":\"z\"}"}}"#,
                dotted
            ),
            Some("z".into())
        );
        assert_eq!(text(r#"{"metadata":{"user_id":"plain"}}"#, dotted), None);
        assert_eq!(text(r#"{"metadata":{"user_id":"[1]"}}"#, dotted), None);
    }

    #[test]
    fn escapes_in_keys_and_values_are_decoded() {
        assert_eq!(text(r#"{"\u0075ser":"a\"b"}"#, "user"), Some("a\"b".into()));
        assert_eq!(text(r#"{"user":"会话-1"}"#, "user"), Some("会话-1".into()));
    }

    #[test]
    fn a_lone_surrogate_names_a_session_and_as_a_key_hides_none() {
        let fields = Fields::new(["user"]);
        let found = Inspection::read(&fields, br#"{"user":"\ud800"}"#)
            .text(&path("user"))
            .map(Cow::into_owned);
        assert!(found.is_some_and(|bytes| !bytes.is_empty()));
        let body = r#"{"\ud800":1,"metadata":{"\udfff":2,"session_id":"s"}}"#;
        assert_eq!(text(body, "metadata.session_id"), Some("s".into()));
    }

    #[test]
    fn what_is_not_one_json_object_says_nothing() {
        let bodies: [&[u8]; 8] = [
            b"",
            b"null",
            b"[1]",
            b"{",
            br#"{"model":"m""#,
            br#"{"model":"m"} x"#,
            b"\xff\xfe",
            br#"{"model":"m",}"#,
        ];
        for body in bodies {
            assert_eq!(model(body), None, "{body:?}");
        }
        assert_eq!(model(br#"{"model":7}"#), None);
    }

    #[test]
    fn depth_and_length_cost_nothing() {
        let deep = format!(
            r#"{{"model":"m","x":{}{}}}"#,
            "[".repeat(200_000),
            "]".repeat(200_000)
        );
        assert_eq!(model(deep.as_bytes()), Some("m".into()));
        let long = format!(r#"{{"x":"{}","model":"m"}}"#, "y".repeat(10 << 20));
        assert_eq!(model(long.as_bytes()), Some("m".into()));
    }

    #[test]
    fn a_byte_order_mark_in_front_is_skipped() {
        assert_eq!(model(b"\xef\xbb\xbf{\"model\":\"m\"}"), Some("m".into()));
        assert_eq!(model(b" \xef\xbb\xbf{\"model\":\"m\"}"), None);
    }

    #[test]
    fn bytes_that_are_not_utf8_in_a_skipped_value_do_not_hide_the_model() {
        assert_eq!(model(b"{\"x\":\"\xff\",\"model\":\"m\"}"), Some("m".into()));
    }
}
