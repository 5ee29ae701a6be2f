//! Locates the parts of a JSON text as spans, without copies, in one pass from front to back.
//!
//! A [`Cursor`] knows strings, escapes and depth, so a look-alike inside a prompt or a nested
//! object does not count. It descends only where its caller does and skips the rest without
//! recursion, so depth costs nothing. Where it reads, invalid JSON ends the scan; what it skips it
//! does not check.

use std::borrow::Cow;
use std::ops::Range;

use crate::json::{is_blank, unescaped};
use crate::strings;

/// A range of bytes in the body.
pub type Span = Range<usize>;

/// A place in a JSON text, before a value.
#[derive(Clone, Copy, Debug)]
pub struct Cursor<'b> {
    body: &'b [u8],
    at: usize,
}

impl<'b> Cursor<'b> {
    /// Before the first value.
    pub fn new(body: &'b [u8]) -> Self {
        Self::at(body, 0)
    }

    /// Before the value at `at`; white space in front of it is skipped.
    pub fn at(body: &'b [u8], at: usize) -> Self {
        Self { body, at }
    }

    /// The current position. After [`peek`](Self::peek) it is at the first byte of the next value.
    pub fn position(&self) -> usize {
        self.at
    }

    /// The first byte of the next value, which tells its kind.
    #[inline]
    pub fn peek(&mut self) -> Option<u8> {
        self.at = blank_end(self.body, self.at);
        self.body.get(self.at).copied()
    }

    /// Takes the next value of any kind. Returns the span from its first byte to its last.
    pub fn skip(&mut self) -> Option<Span> {
        let first = self.peek()?;
        let start = self.at;
        self.at = value_end(self.body, start, first)?;
        Some(start..self.at)
    }

    /// Takes the next value. If it is an object, calls `on` for each member in order, duplicates
    /// included. `on` gets the key without its quotes, and the cursor before the value, which `on`
    /// must take. `None` from `on` ends the scan.
    pub fn members(&mut self, mut on: impl FnMut(&mut Self, Span) -> Option<()>) -> Option<Span> {
        if self.peek()? != b'{' {
            return self.skip();
        }
        let start = self.at;
        self.at += 1;
        if self.peek()? == b'}' {
            self.at += 1;
            return Some(start..self.at);
        }
        loop {
            if self.peek()? != b'"' {
                return None;
            }
            let key = self.at + 1;
            self.at = strings::end(self.body, self.at)?;
            let key = key..self.at - 1;
            if self.peek()? != b':' {
                return None;
            }
            self.at += 1;
            on(self, key)?;
            if self.next_or(b'}')? {
                return Some(start..self.at);
            }
        }
    }

    /// Takes the next value. If it is an array, calls `on` before each item, which `on` must take.
    /// `None` from `on` ends the scan.
    pub fn items(&mut self, mut on: impl FnMut(&mut Self) -> Option<()>) -> Option<Span> {
        if self.peek()? != b'[' {
            return self.skip();
        }
        let start = self.at;
        self.at += 1;
        if self.peek()? == b']' {
            self.at += 1;
            return Some(start..self.at);
        }
        loop {
            on(self)?;
            if self.next_or(b']')? {
                return Some(start..self.at);
            }
        }
    }

    /// `Some` when only white space is left.
    pub fn end(&mut self) -> Option<()> {
        self.peek().is_none().then_some(())
    }

    /// Takes the comma or the closing bracket. Returns whether it was the bracket.
    fn next_or(&mut self, close: u8) -> Option<bool> {
        let found = self.peek()?;
        self.at += 1;
        if found == b',' {
            return Some(false);
        }
        (found == close).then_some(true)
    }
}

/// One member of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The range between the quotes.
    pub key: Span,
    /// From its first byte to its last.
    pub value: Span,
}

/// The span of `body` without the white space around it, where its only object should be. Does not
/// read the body: [`members`] tells whether an object is there.
pub fn document(body: &[u8]) -> Option<Span> {
    let start = blank_end(body, 0);
    let end = body.trim_ascii_end().len();
    (start < end).then_some(start..end)
}

/// The members of the object at `object`, in order, duplicates included. `None` when there is no
/// object.
pub fn members(body: &[u8], object: &Span, mut on: impl FnMut(Member)) -> Option<()> {
    if body.get(object.start) != Some(&b'{') {
        return None;
    }
    let read = Cursor::at(body, object.start).members(|cursor, key| {
        let value = cursor.skip()?;
        on(Member { key, value });
        Some(())
    })?;
    (read == *object).then_some(())
}

/// The value of the last member called `name`, which is the one that an engine's parser uses.
pub fn member(body: &[u8], object: &Span, name: &str) -> Option<Span> {
    let mut found = None;
    members(body, object, |member| {
        if is_key(&body[member.key], name) {
            found = Some(member.value);
        }
    })?;
    found
}

/// Whether a key, as written, equals `name`.
pub fn is_key(key: &[u8], name: &str) -> bool {
    key == name.as_bytes() || (key.contains(&b'\\') && *unescaped(key) == *name.as_bytes())
}

/// The text of a string value with its escapes decoded. `None` for a value of another kind.
pub fn text<'b>(body: &'b [u8], value: &Span) -> Option<Cow<'b, [u8]>> {
    written(body, value).map(unescaped)
}

/// The text of a string value as written between its quotes. `None` for a value of another kind.
pub fn written<'b>(body: &'b [u8], value: &Span) -> Option<&'b [u8]> {
    body.get(value.clone())?
        .strip_prefix(b"\"")?
        .strip_suffix(b"\"")
}

/// The first byte at or after `at` that is not white space.
#[inline]
pub fn blank_end(body: &[u8], at: usize) -> usize {
    // Most tokens follow without a space. Everything blank is at most a space.
    match body.get(at) {
        Some(..=b' ') => skip_blanks(body, at),
        _ => at,
    }
}

fn skip_blanks(body: &[u8], mut at: usize) -> usize {
    while body.get(at).is_some_and(|byte| is_blank(*byte)) {
        at += 1;
    }
    at
}

/// The position after the value that begins at `start` with `first`.
fn value_end(body: &[u8], start: usize, first: u8) -> Option<usize> {
    match first {
        b'"' => strings::end(body, start),
        b'{' | b'[' => container_end(body, start),
        b',' | b'}' | b']' | b':' => None,
        _ => {
            let ends = |byte: &u8| is_blank(*byte) || matches!(byte, b',' | b'}' | b']');
            let length = body[start..].iter().position(ends);
            Some(length.map_or(body.len(), |length| start + length))
        }
    }
}

/// The position after the bracket that closes the container whose opening bracket is at `start`.
fn container_end(body: &[u8], start: usize) -> Option<usize> {
    let mut depth = 0_usize;
    let mut at = start;
    loop {
        at = mark(body, at)?;
        match body[at] {
            b'"' => {
                at = strings::end(body, at)?;
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

/// The first quote or bracket at or after `at`. Blocks without one are skipped whole: the compiler
/// turns each into a few vector instructions.
fn mark(body: &[u8], mut at: usize) -> Option<usize> {
    const BLOCK: usize = 32;
    // The two kinds of brackets differ in one bit.
    let is_mark = |byte: &u8| *byte == b'"' || matches!(byte | 0x20, b'{' | b'}');
    // Marks are usually close together.
    for byte in body.get(at..)?.iter().take(4) {
        if is_mark(byte) {
            return Some(at);
        }
        at += 1;
    }
    while let Some(block) = body.get(at..at + BLOCK) {
        if block.iter().fold(false, |any, byte| any | is_mark(byte)) {
            break;
        }
        at += BLOCK;
    }
    let found = body[at..].iter().position(is_mark)?;
    Some(at + found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skipped(body: &str) -> Option<&str> {
        Cursor::new(body.as_bytes()).skip().map(|span| &body[span])
    }

    #[test]
    fn a_value_ends_where_its_grammar_says() {
        for (body, value) in [
            (r#" "a\"]}\\" ,"#, r#""a\"]}\\""#),
            (r#"{"a":[1,{"b":"}"}]}]"#, r#"{"a":[1,{"b":"}"}]}"#),
            ("[[],[ ]] x", "[[],[ ]]"),
            ("-1.5e3}", "-1.5e3"),
            ("null\n", "null"),
            ("7", "7"),
        ] {
            assert_eq!(skipped(body), Some(value));
        }
        for body in ["", " ", "\"a", "\"a\\\"", "[1,2", "{\"a\":\"]}", ",", "]"] {
            assert_eq!(skipped(body), None, "{body}");
        }
    }

    #[test]
    fn strings_and_lists_of_every_length_are_measured() {
        for length in 0..100 {
            for end in ["", "\\\"", "\\\\", "\\u0022"] {
                let text = format!("\"{}{end}\"", "x".repeat(length));
                assert_eq!(skipped(&format!("{text}\"")), Some(&*text));
            }
            let list = format!("[{}[\"]\"]]", "1,".repeat(length));
            assert_eq!(skipped(&format!("{list}]")), Some(&*list));
        }
    }

    #[test]
    fn members_and_items_are_told_in_order_and_other_values_are_taken_whole() {
        let body = br#" { "a" : [1, "x" ,{}] ,"a":5, "b":[ ] } "#;
        let mut told = Vec::new();
        let mut cursor = Cursor::new(body);
        let object = cursor.members(|cursor, key| {
            told.push(key);
            cursor.items(|item| {
                told.push(item.skip()?);
                Some(())
            })?;
            Some(())
        });
        let told: Vec<_> = told.into_iter().map(|span| &body[span]).collect();
        assert_eq!(told, [&b"a"[..], b"1", b"\"x\"", b"{}", b"a", b"b"]);
        assert_eq!(object, Some(1..body.len() - 1));
        assert_eq!(cursor.end(), Some(()));
    }

    #[test]
    fn what_breaks_the_grammar_where_it_is_looked_at_is_no_json() {
        for body in [
            "{\"a\":1,}",
            "{\"a\" 1}",
            "{a:1}",
            "{\"a\":}",
            "{,}",
            "[1,]",
            "[,1]",
            "[1 2]",
            "{\"a\":1]",
            "[1}",
            "{\"a\":1 \"b\":2}",
            "{",
            "[",
        ] {
            let mut cursor = Cursor::new(body.as_bytes());
            let taken = match body.starts_with('{') {
                true => cursor.members(|cursor, _| cursor.skip().map(|_| ())),
                false => cursor.items(|cursor| cursor.skip().map(|_| ())),
            };
            assert_eq!(taken, None, "{body}");
        }
    }

    #[test]
    fn depth_costs_nothing() {
        let deep = "[".repeat(200_000) + &"]".repeat(200_000);
        assert_eq!(skipped(&deep), Some(&*deep));
    }
}
