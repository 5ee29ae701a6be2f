//! Where the parts of a JSON body are: spans, never copies, in one pass over each level looked at.
//!
//! The scanner knows strings, escapes and depth, so a look-alike inside a prompt or in a nested
//! object is none. A value that is skipped is skipped without recursion. What breaks the grammar
//! where the scanner looks is no JSON to it; what it skips it does not judge, the engine does.

use std::ops::Range;

use memchr::memchr2;

use super::json::{is_blank, unescaped};

/// Bytes of the body.
pub type Span = Range<usize>;

/// One member of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Between the quotes.
    pub key: Span,
    /// Its first byte to its last.
    pub value: Span,
}

/// Where the one object that the whole of `body` is would be, white space around it aside. Costs
/// nothing: reading its [`members`] tells whether it is there.
pub fn document(body: &[u8]) -> Option<Span> {
    let start = blank_end(body, 0);
    let end = body.trim_ascii_end().len();
    (start < end).then_some(start..end)
}

/// Tells every member of the object at `object`, in order; `None` when it is no object. Duplicates
/// are told one by one.
pub fn members(body: &[u8], object: &Span, mut on: impl FnMut(Member)) -> Option<()> {
    let mut at = open(body, object, b'{')?;
    if body.get(at) == Some(&b'}') {
        return (at + 1 == object.end).then_some(());
    }
    loop {
        let key_end = text_end(body, at)?;
        let key = at + 1..key_end - 1;
        at = blank_end(body, key_end);
        if body.get(at) != Some(&b':') {
            return None;
        }
        let value = next_value(body, at + 1)?;
        at = blank_end(body, value.end);
        on(Member { key, value });
        at = match body.get(at)? {
            b',' => blank_end(body, at + 1),
            b'}' => return (at + 1 == object.end).then_some(()),
            _ => return None,
        };
    }
}

/// The value of the last member called `name`: the one that counts to an engine's parser.
pub fn member(body: &[u8], object: &Span, name: &str) -> Option<Span> {
    let mut found = None;
    members(body, object, |member| {
        if is_key(&body[member.key], name) {
            found = Some(member.value);
        }
    })?;
    found
}

/// Whether a key, as written, is `name`.
pub fn is_key(key: &[u8], name: &str) -> bool {
    key == name.as_bytes() || (key.contains(&b'\\') && *unescaped(key) == *name.as_bytes())
}

/// The first byte that is no white space, at or after `at`.
pub fn blank_end(body: &[u8], mut at: usize) -> usize {
    while body.get(at).is_some_and(|byte| is_blank(*byte)) {
        at += 1;
    }
    at
}

fn open(body: &[u8], container: &Span, bracket: u8) -> Option<usize> {
    (body.get(container.start) == Some(&bracket)).then(|| blank_end(body, container.start + 1))
}

fn next_value(body: &[u8], at: usize) -> Option<Span> {
    let start = blank_end(body, at);
    Some(start..value_end(body, start)?)
}

/// After the value that begins at `start`.
fn value_end(body: &[u8], start: usize) -> Option<usize> {
    match body.get(start)? {
        b'"' => text_end(body, start),
        b'{' | b'[' => container_end(body, start),
        b',' | b'}' | b']' | b':' => None,
        _ => {
            let ends = |byte: &u8| is_blank(*byte) || matches!(byte, b',' | b'}' | b']');
            let length = body[start..].iter().position(ends);
            Some(length.map_or(body.len(), |length| start + length))
        }
    }
}

/// After the closing quote of the string whose opening quote is at `start`.
fn text_end(body: &[u8], start: usize) -> Option<usize> {
    if body.get(start) != Some(&b'"') {
        return None;
    }
    let mut at = start + 1;
    loop {
        at += memchr2(b'"', b'\\', body.get(at..)?)?;
        if body[at] == b'"' {
            return Some(at + 1);
        }
        at += 2;
    }
}

fn container_end(body: &[u8], start: usize) -> Option<usize> {
    let mut depth = 0_usize;
    let mut at = start;
    loop {
        let mark = |byte: &u8| matches!(byte, b'"' | b'{' | b'[' | b'}' | b']');
        at += body.get(at..)?.iter().position(mark)?;
        match body[at] {
            b'"' => {
                at = text_end(body, at)?;
                continue;
            }
            b'{' | b'[' => depth += 1,
            _ => depth -= 1,
        }
        at += 1;
        if depth == 0 {
            return Some(at);
        }
    }
}
