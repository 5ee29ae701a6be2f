//! Redacts what must not be recorded: credentials in headers and queries, and the values of JSON
//! bodies that a route names.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use serde::Deserializer as _;
use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// The replacement for a value.
pub const REDACTED: &str = "[REDACTED]";

/// Headers that are never recorded.
const SECRET_HEADERS: [&str; 11] = [
    "authorization",
    "cookie",
    "x-api-key",
    "x-litellm-api-key",
    "x-auth-token",
    "proxy-authorization",
    "api-key",
    "x-goog-api-key",
    "set-cookie",
    "x-amz-security-token",
    // A WebSocket of a page offers its key as a protocol.
    "sec-websocket-protocol",
];

/// Headers and query parameters with such a part in their names, in any case, are not recorded
/// either. Clouds and gateways each have their own name for a key, and signed URLs for the
/// signature.
const SECRET_WORDS: [&str; 11] = [
    "secret",
    "token",
    "passw",
    "authorization",
    "cookie",
    "api-key",
    "api_key",
    "apikey",
    "subscription-key",
    "credential",
    "signature",
];

/// Query parameters whose values are not recorded.
const SECRET_PARAMETERS: [&str; 4] = ["key", "token", "api_key", "sig"];

/// Whether the values of a header are never recorded.
pub fn is_secret_header(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET_HEADERS.contains(&&*name) || sounds_secret(&name)
}

fn sounds_secret(lower: &str) -> bool {
    // Every header of every record is asked. A search for each word would prepare itself longer than
    // a name is.
    let starts = (0..lower.len()).filter(|at| begins_word(lower.as_bytes()[*at]));
    let mut rests = starts.map(|at| &lower.as_bytes()[at..]);
    rests.any(|rest| {
        SECRET_WORDS
            .iter()
            .any(|word| rest.starts_with(word.as_bytes()))
    })
}

/// Whether one of [`SECRET_WORDS`] begins with this byte.
const fn begins_word(byte: u8) -> bool {
    const FIRSTS: u128 = {
        let (mut set, mut at) = (0, 0);
        while at < SECRET_WORDS.len() {
            set |= 1 << SECRET_WORDS[at].as_bytes()[0];
            at += 1;
        }
        set
    };
    byte < 128 && FIRSTS >> byte & 1 == 1
}

/// A path and query with the values of secret parameters replaced.
pub fn target(path_and_query: &str) -> Cow<'_, str> {
    let Some((path, query)) = path_and_query.split_once('?') else {
        return path_and_query.into();
    };
    let is_secret = |pair: &str| {
        let name = pair.split('=').next().unwrap_or_default();
        let name = percent_decoded(name).to_ascii_lowercase();
        SECRET_PARAMETERS.contains(&&*name) || sounds_secret(&name)
    };
    if !query.split('&').any(is_secret) {
        return path_and_query.into();
    }
    let pairs = query.split('&').map(|pair| match pair.split_once('=') {
        Some((name, _)) if is_secret(pair) => format!("{name}={REDACTED}"),
        _ => pair.to_owned(),
    });
    let query: Vec<String> = pairs.collect();
    format!("{path}?{}", query.join("&")).into()
}

fn percent_decoded(text: &str) -> String {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let escape = (*first == b'%')
            .then(|| after.get(..2))
            .flatten()
            .and_then(|hex| std::str::from_utf8(hex).ok())
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        decoded.push(escape.unwrap_or(*first));
        rest = if escape.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

/// The form of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// One JSON document.
    Document,
    /// Server-sent events whose data are JSON.
    Events,
    /// Unreadable, because compressed.
    Opaque,
}

/// A body with the values at `paths` replaced; all other bytes stay the same. A document or event
/// that cannot be read is replaced whole, because a guess could leak a value that must not be
/// stored. If bytes are missing from the middle, `cut_at` is the position where the end of the body
/// begins.
pub fn body<P: AsRef<[Box<str>]>>(
    body: &Bytes,
    form: Form,
    paths: &[P],
    cut_at: Option<usize>,
) -> Bytes {
    if paths.is_empty() || body.is_empty() {
        return body.clone();
    }
    match form {
        Form::Document => {
            document(body, paths).unwrap_or_else(|| Bytes::from_static(REDACTED.as_bytes()))
        }
        Form::Events => events(body, paths, cut_at),
        Form::Opaque => Bytes::from_static(REDACTED.as_bytes()),
    }
}

/// Whether a session id comes from a place that is not recorded. The place is `header.<name>` or
/// `body.<path>`.
pub fn hides<P: AsRef<[Box<str>]>>(paths: &[P], source: &str) -> bool {
    if let Some(header) = source.strip_prefix("header.") {
        return is_secret_header(header);
    }
    let Some(place) = source.strip_prefix("body.") else {
        return false;
    };
    paths.iter().any(|path| {
        let mut names = place.split('.');
        let is_next = |segment: &str| {
            names
                .next()
                .is_some_and(|name| segment == name || segment == "*")
        };
        path.as_ref().iter().map(|segment| &**segment).all(is_next)
    })
}

fn document<P: AsRef<[Box<str>]>>(body: &[u8], paths: &[P]) -> Option<Bytes> {
    let text = std::str::from_utf8(body).ok()?;
    let root: &RawValue = serde_json::from_str(text).ok()?;
    let mut spans = Vec::new();
    for path in paths {
        let segments: Vec<&str> = path.as_ref().iter().map(|segment| &**segment).collect();
        find(root, &segments, text, &mut spans)?;
    }
    // One path may lead into the value of another. The outer path then covers it.
    spans.sort_by_key(|(from, to)| (*from, std::cmp::Reverse(*to)));
    let mut redacted = String::with_capacity(text.len());
    let mut at = 0;
    for (from, to) in spans {
        if from < at {
            continue;
        }
        redacted.push_str(&text[at..from]);
        redacted.push_str("\"[REDACTED]\"");
        at = to;
    }
    redacted.push_str(&text[at..]);
    Some(redacted.into())
}

/// A line of an event stream.
#[derive(Clone, Copy, Debug)]
enum Line<'b> {
    /// A line without content of the answer: another field, a comment, the end of an event, or our
    /// own marker.
    Plain(&'b [u8]),
    /// A `data` field.
    Data(&'b [u8]),
    /// Not a field, such as the rest of a line whose beginning is missing.
    Unknown(&'b [u8]),
}

impl<'b> Line<'b> {
    fn of(line: &'b [u8]) -> Self {
        const FIELDS: [&[u8]; 4] = [b"event:", b"id:", b"retry:", b":"];
        let is_plain = is_blank(line) || FIELDS.iter().any(|field| line.starts_with(field));
        match line.starts_with(b"data:") {
            true => Self::Data(line),
            false if is_plain => Self::Plain(line),
            false => Self::Unknown(line),
        }
    }

    /// The content that the line adds to its event, if any.
    fn content(self) -> Option<&'b [u8]> {
        let Self::Data(line) = self else { return None };
        let content = line["data:".len()..].trim_ascii();
        (!content.is_empty() && content != b"[DONE]").then_some(content)
    }
}

fn is_blank(line: &[u8]) -> bool {
    line.trim_ascii().is_empty()
}

/// Redacts event by event (HTML Standard, 9.2). A fragment is replaced, because behind the cut
/// nothing tells which value it belongs to.
fn events<P: AsRef<[Box<str>]>>(body: &[u8], paths: &[P], cut_at: Option<usize>) -> Bytes {
    let mut redacted = Vec::with_capacity(body.len());
    let mut event = Vec::new();
    let mut at = 0;
    for text in body.split_inclusive(|byte| *byte == b'\n') {
        let (begins, ends) = (at, at + text.len());
        at = ends;
        if cut_at == Some(ends) {
            // The marker separates: what came before it is not part of the event that follows.
            event_into(&mut event, paths, &mut redacted);
            redacted.extend_from_slice(text);
            continue;
        }
        event.push(match cut_at {
            Some(cut) if cut == begins && !is_blank(text) => Line::Unknown(text),
            _ => Line::of(text),
        });
        if is_blank(text) {
            event_into(&mut event, paths, &mut redacted);
        }
    }
    event_into(&mut event, paths, &mut redacted);
    redacted.into()
}

/// Appends the lines of one event and empties it.
fn event_into<P: AsRef<[Box<str>]>>(
    event: &mut Vec<Line<'_>>,
    paths: &[P],
    redacted: &mut Vec<u8>,
) {
    let contents = || event.iter().filter_map(|line| line.content());
    // Several lines may be several documents, if the sender left out the empty lines between them.
    // Otherwise they are one document spread over lines, which is not put together here.
    let is_readable =
        |content: &[u8]| content.starts_with(b"{") && document(content, paths).is_some();
    let is_spread = contents().count() > 1 && !contents().all(is_readable);
    for line in event.drain(..) {
        let (text, content, new) = match (line, line.content()) {
            (Line::Unknown(text), _) => (text, text.trim_ascii(), None),
            (Line::Data(text), Some(content)) if is_spread => (text, content, None),
            (Line::Data(text), Some(content)) => (text, content, document(content, paths)),
            (Line::Plain(text) | Line::Data(text), _) => {
                redacted.extend_from_slice(text);
                continue;
            }
        };
        let before = content.as_ptr() as usize - text.as_ptr() as usize;
        redacted.extend_from_slice(&text[..before]);
        redacted.extend_from_slice(new.as_deref().unwrap_or(REDACTED.as_bytes()));
        redacted.extend_from_slice(&text[before + content.len()..]);
    }
}

/// Adds the span of every value that a path leads to. `None` when the text cannot be read.
fn find(
    value: &RawValue,
    path: &[&str],
    text: &str,
    spans: &mut Vec<(usize, usize)>,
) -> Option<()> {
    let Some((first, rest)) = path.split_first() else {
        let from = value.get().as_ptr() as usize - text.as_ptr() as usize;
        spans.push((from, from + value.get().len()));
        return Some(());
    };
    let mut json = serde_json::Deserializer::from_str(value.get());
    let inner = match value.get().as_bytes().first() {
        Some(b'{') => json.deserialize_map(Members { wanted: first }).ok()?,
        Some(b'[') => json.deserialize_seq(Elements { wanted: first }).ok()?,
        _ => return Some(()),
    };
    inner
        .into_iter()
        .try_for_each(|value| find(value, rest, text, spans))
}

/// The values of all members of an object with one name, duplicates included.
struct Members<'w> {
    wanted: &'w str,
}

impl<'de> Visitor<'de> for Members<'_> {
    type Value = Vec<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = Vec::new();
        while let Some(name) = map.next_key::<Cow<'de, str>>()? {
            if self.wanted == "*" || self.wanted == name {
                found.push(map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }
}

/// The element of a list at one index, or all of them.
struct Elements<'w> {
    wanted: &'w str,
}

impl<'de> Visitor<'de> for Elements<'_> {
    type Value = Vec<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut all: Vec<&'de RawValue> = Vec::new();
        while let Some(value) = list.next_element()? {
            all.push(value);
        }
        if self.wanted == "*" {
            return Ok(all);
        }
        // `-1` is the last element.
        let at = self.wanted.parse::<i64>().ok().and_then(|index| {
            let index = if index < 0 {
                index + all.len() as i64
            } else {
                index
            };
            usize::try_from(index).ok()
        });
        Ok(at.and_then(|at| all.get(at).copied()).into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(paths: &[&str]) -> Vec<Vec<Box<str>>> {
        let path = |path: &&str| path.split('.').map(Box::from).collect();
        paths.iter().map(path).collect()
    }

    fn redacted(text: &str, form: Form, at: &[&str]) -> String {
        let text = Bytes::copy_from_slice(text.as_bytes());
        String::from_utf8(body(&text, form, &paths(at), None).to_vec()).unwrap()
    }

    #[test]
    fn headers_and_what_sounds_like_them_are_secret() {
        for name in SECRET_HEADERS {
            assert!(is_secret_header(name), "{name}");
        }
        for (name, is_secret) in [
            ("x-my-secret-thing", true),
            ("X-CSRF-Token", true),
            ("x-password", true),
            ("apikey", true),
            ("x-openai-api-key", true),
            ("ocp-apim-subscription-key", true),
            ("x-forwarded-authorization", true),
            ("x-amz-signature", true),
            ("accept", false),
            ("x-two", false),
        ] {
            assert_eq!(is_secret_header(name), is_secret, "{name}");
        }
    }

    #[test]
    fn credentials_in_a_query_are_replaced() {
        for (asked, recorded) in [
            ("/v1/x", "/v1/x"),
            ("/v1/x?model=a&n=1", "/v1/x?model=a&n=1"),
            ("/v1/x?key=s&model=a", "/v1/x?key=[REDACTED]&model=a"),
            (
                "/v1/x?a=1&API_KEY=s=s&sig=",
                "/v1/x?a=1&API_KEY=[REDACTED]&sig=[REDACTED]",
            ),
            (
                "/v1/x?api%5fkey=s&access_token=t",
                "/v1/x?api%5fkey=[REDACTED]&access_token=[REDACTED]",
            ),
            (
                "/v1/x?api-key=s&ApiKey=s&X-Amz-Credential=s&X-Amz-Signature=s",
                "/v1/x?api-key=[REDACTED]&ApiKey=[REDACTED]&X-Amz-Credential=[REDACTED]&X-Amz-Signature=[REDACTED]",
            ),
            ("/v1/x?keyboard=1&key", "/v1/x?keyboard=1&key"),
        ] {
            assert_eq!(target(asked), recorded);
        }
    }

    #[test]
    fn named_values_of_a_document_are_replaced_and_the_rest_stays_as_it_is() {
        let text = r#"{ "user":"u", "messages": [ {"role":"a","content":"x"}, {"content":["y",{"k":1}]} ] }"#;
        for (at, expected) in [
            (&["user"][..], text.replace(r#""u""#, r#""[REDACTED]""#)),
            (
                &["messages.0.content"],
                text.replace(r#""x""#, r#""[REDACTED]""#),
            ),
            (
                &["messages.-1.content.1.k"],
                text.replace(r#""k":1"#, r#""k":"[REDACTED]""#),
            ),
            (
                &["messages.*.content", "messages.1.content.0"],
                text.replace(r#""x""#, r#""[REDACTED]""#)
                    .replace(r#"["y",{"k":1}]"#, r#""[REDACTED]""#),
            ),
            (&["none", "user.deeper", "messages.7"], text.to_owned()),
        ] {
            assert_eq!(redacted(text, Form::Document, at), expected, "{at:?}");
        }
    }

    #[test]
    fn a_name_given_twice_or_escaped_hides_nothing() {
        let text = r#"{"us\u0065r":"one","user":"two"}"#;
        let expected = r#"{"us\u0065r":"[REDACTED]","user":"[REDACTED]"}"#;
        assert_eq!(redacted(text, Form::Document, &["user"]), expected);
    }

    #[test]
    fn what_cannot_be_read_is_not_recorded() {
        for text in [r#"{"user":"u""#, "plain", "{]"] {
            assert_eq!(redacted(text, Form::Document, &["user"]), REDACTED);
            assert_eq!(redacted(text, Form::Document, &[]), text);
        }
        assert_eq!(redacted(r#"{"a":1}"#, Form::Opaque, &["user"]), REDACTED);
    }

    #[test]
    fn each_event_of_a_stream_is_a_document() {
        let text = "event: x\ndata: {\"c\":\"a\"}\r\n\ndata:{\"c\":\"b\",\"d\":1}\n\ndata: {\"c\":\ndata: [DONE]\n\n";
        let expected = "event: x\ndata: {\"c\":\"[REDACTED]\"}\r\n\ndata:{\"c\":\"[REDACTED]\",\"d\":1}\n\ndata: [REDACTED]\ndata: [DONE]\n\n";
        assert_eq!(redacted(text, Form::Events, &["c"]), expected);
    }

    #[test]
    fn what_a_cut_left_of_an_event_is_not_recorded() {
        let head = "data: {\"c\":\"a\"}\n\nevent: x\ndata: {\"c\":\"sec";
        let marker = "\n[BODYLOG_TRUNCATED 9 BYTES MISSING IN MIDDLE]\n";
        // On a line of its own, each of these could be taken for something else.
        for fragment in [
            "ret\"}",
            ": \"secret\"}",
            "data: {\"d\":\"secret\"}",
            "{\"d\":\"secret\"}",
        ] {
            let tail = format!("{fragment}\n\ndata: {{\"c\":\"b\"}}\n\n");
            let text = Bytes::from(format!("{head}{marker}{tail}"));
            let cut_at = head.len() + marker.len();
            let redacted = body(&text, Form::Events, &paths(&["c"]), Some(cut_at));
            let expected = format!(
                "data: {{\"c\":\"[REDACTED]\"}}\n\nevent: x\ndata: [REDACTED]{marker}[REDACTED]\n\n\
                 data: {{\"c\":\"[REDACTED]\"}}\n\n"
            );
            assert_eq!(String::from_utf8_lossy(&redacted), expected, "{fragment}");
        }
    }

    #[test]
    fn an_event_whose_document_is_spread_over_lines_is_not_recorded() {
        let text = "data: {\"c\":\ndata: \"secret\"\ndata: }\n\ndata: {\"d\":1}\n\n";
        let expected =
            "data: [REDACTED]\ndata: [REDACTED]\ndata: [REDACTED]\n\ndata: {\"d\":1}\n\n";
        assert_eq!(redacted(text, Form::Events, &["c"]), expected);
        // Events without an empty line between them.
        let text = "data: {\"c\":1}\ndata: {\"d\":1}\ndata: [DONE]\n";
        let expected = "data: {\"c\":\"[REDACTED]\"}\ndata: {\"d\":1}\ndata: [DONE]\n";
        assert_eq!(redacted(text, Form::Events, &["c"]), expected);
    }

    #[test]
    fn a_line_that_is_no_field_is_not_recorded() {
        let text = "\u{feff}data: {\"c\":\"secret\"}\n\n: ping\nid: 7\nsecret\n\n";
        let expected = "[REDACTED]\n\n: ping\nid: 7\n[REDACTED]\n\n";
        assert_eq!(redacted(text, Form::Events, &["c"]), expected);
    }

    #[test]
    fn a_session_id_is_hidden_with_the_place_it_is_from() {
        let paths = paths(&["user", "metadata.*", "a.b"]);
        for (source, is_hidden) in [
            ("body.user", true),
            ("body.metadata.user_id", true),
            ("body.metadata.user_id.session_id", true),
            ("body.a", false),
            ("body.a.b", true),
            ("body.session_id", false),
            ("header.x-session-id", false),
            ("header.x-session-token", true),
            ("none", false),
        ] {
            assert_eq!(hides(&paths, source), is_hidden, "{source}");
        }
    }
}
