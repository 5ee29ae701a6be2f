//! Reads a request's JSON in one pass that checks every byte.
//!
//! A [`Reader`] accepts exactly the texts that `serde_json` accepts as one value whose content is
//! ignored, and a byte order mark in front. So strings may contain bytes that are not UTF-8. It
//! descends where its caller does, checks and skips the rest without recursion, and notes the signs
//! of edits on the way.

use std::borrow::Cow;

use answers::cursor::{Span, blank_end};
use answers::json::unescaped;
use answers::strings;

use super::inspect::BorrowedBytes;
use super::transform::Signs;

/// Some clients put it in front of UTF-8. Parsers of engines skip it.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Where the text of a body begins.
pub(super) fn start(body: &[u8]) -> usize {
    match body.starts_with(BYTE_ORDER_MARK) {
        true => BYTE_ORDER_MARK.len(),
        false => 0,
    }
}

/// A place in a JSON text, before a value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'b> {
    body: &'b [u8],
    at: usize,
    signs: Signs,
}

impl<'b> Reader<'b> {
    /// Before the only value of a body.
    pub(super) fn new(body: &'b [u8]) -> Self {
        Self::at(body, start(body))
    }

    /// Before the value at `at`.
    pub(super) fn at(body: &'b [u8], at: usize) -> Self {
        Self {
            body,
            at,
            signs: Signs::default(),
        }
    }

    /// The current position. After [`peek`](Self::peek) it is at the first byte of the next value.
    pub(super) fn position(&self) -> usize {
        self.at
    }

    /// The signs in the strings that were read so far.
    pub(super) fn signs(&self) -> Signs {
        self.signs
    }

    /// The first byte of the next value, which tells its kind.
    #[inline]
    pub(super) fn peek(&mut self) -> Option<u8> {
        self.at = blank_end(self.body, self.at);
        self.body.get(self.at).copied()
    }

    /// Takes the next value of any kind.
    #[inline]
    pub(super) fn skip(&mut self) -> Option<Span> {
        let first = self.peek()?;
        let start = self.at;
        match first {
            b'{' | b'[' => self.container()?,
            _ => self.scalar(first)?,
        }
        Some(start..self.at)
    }

    /// Takes the next value. If it is an object, calls `on` for each member in order, duplicates
    /// included. `on` gets the key without its quotes, and the reader before the value, which `on`
    /// must take. `None` from `on` ends the walk.
    #[inline]
    pub(super) fn members(
        &mut self,
        mut on: impl FnMut(&mut Self, Span) -> Option<()>,
    ) -> Option<Span> {
        if self.peek()? != b'{' {
            return self.skip();
        }
        let start = self.at;
        if self.is_empty(b'}')? {
            return Some(start..self.at);
        }
        loop {
            let key = self.key()?;
            on(self, key)?;
            if self.is_last(b'}')? {
                return Some(start..self.at);
            }
        }
    }

    /// Takes the next value. If it is an array, calls `on` before each item, which `on` must take.
    /// `None` from `on` ends the walk.
    #[inline]
    pub(super) fn items(&mut self, mut on: impl FnMut(&mut Self) -> Option<()>) -> Option<Span> {
        if self.peek()? != b'[' {
            return self.skip();
        }
        let start = self.at;
        if self.is_empty(b']')? {
            return Some(start..self.at);
        }
        loop {
            on(self)?;
            if self.is_last(b']')? {
                return Some(start..self.at);
            }
        }
    }

    /// `Some` when only white space is left.
    pub(super) fn end(&mut self) -> Option<()> {
        self.peek().is_none().then_some(())
    }

    /// Takes the opening bracket, and the closing one if it comes next.
    #[inline]
    fn is_empty(&mut self, close: u8) -> Option<bool> {
        self.at += 1;
        let is_empty = self.peek()? == close;
        self.at += usize::from(is_empty);
        Some(is_empty)
    }

    /// Takes the comma or the closing bracket.
    #[inline]
    fn is_last(&mut self, close: u8) -> Option<bool> {
        let found = self.peek()?;
        self.at += 1;
        if found == b',' {
            return Some(false);
        }
        (found == close).then_some(true)
    }

    #[inline]
    fn key(&mut self) -> Option<Span> {
        if self.peek()? != b'"' {
            return None;
        }
        let start = self.at + 1;
        self.at = strings::checked_end(self.body, self.at)?;
        let key = start..self.at - 1;
        if self.peek()? != b':' {
            return None;
        }
        self.at += 1;
        Some(key)
    }

    /// Takes an object or array without recursion: its depth costs one bit a level.
    fn container(&mut self) -> Option<()> {
        let mut nest = Nest::default();
        loop {
            match self.peek()? {
                b'{' => {
                    if !self.is_empty(b'}')? {
                        nest.push(Kind::Object);
                        self.key()?;
                        continue;
                    }
                }
                b'[' => {
                    if !self.is_empty(b']')? {
                        nest.push(Kind::Array);
                        continue;
                    }
                }
                first => self.scalar(first)?,
            }
            loop {
                let Some(kind) = nest.innermost() else {
                    return Some(());
                };
                let is_last = self.is_last(kind.close())?;
                if is_last {
                    nest.pop();
                    continue;
                }
                if kind == Kind::Object {
                    self.key()?;
                }
                break;
            }
        }
    }

    #[inline]
    fn scalar(&mut self, first: u8) -> Option<()> {
        match first {
            b'"' => {
                let start = self.at + 1;
                self.at = strings::checked_end(self.body, self.at)?;
                self.signs.note(&self.body[start..self.at - 1]);
                Some(())
            }
            b't' => self.word(b"true"),
            b'f' => self.word(b"false"),
            b'n' => self.word(b"null"),
            _ => self.number(),
        }
    }

    fn word(&mut self, word: &[u8]) -> Option<()> {
        let is_it = self.body[self.at..].starts_with(word);
        self.at += word.len();
        is_it.then_some(())
    }

    fn number(&mut self) -> Option<()> {
        self.takes(|byte| byte == b'-');
        match self.body.get(self.at)? {
            b'0' => self.at += 1,
            _ => self.digits()?,
        }
        if self.takes(|byte| byte == b'.') {
            self.digits()?;
        }
        if self.takes(|byte| matches!(byte, b'e' | b'E')) {
            self.takes(|byte| matches!(byte, b'+' | b'-'));
            self.digits()?;
        }
        Some(())
    }

    fn takes(&mut self, is_it: impl Fn(u8) -> bool) -> bool {
        let is_next = self.body.get(self.at).is_some_and(|byte| is_it(*byte));
        self.at += usize::from(is_next);
        is_next
    }

    fn digits(&mut self) -> Option<()> {
        let start = self.at;
        while self.takes(|byte| byte.is_ascii_digit()) {}
        (self.at > start).then_some(())
    }
}

/// The decoded bytes of a key, given by the span between its quotes.
pub(super) fn decoded(body: &[u8], key: Span) -> Cow<'_, [u8]> {
    let written = &body[key.clone()];
    if memchr::memchr(b'\\', written).is_none() {
        return Cow::Borrowed(written);
    }
    let quoted = &body[key.start - 1..=key.end];
    let decoded = serde_json::from_slice::<BorrowedBytes<'_>>(quoted);
    decoded.map_or(Cow::Borrowed(written), |key| key.0)
}

impl Signs {
    /// Notes what one string value, given as written, means for the edits.
    #[inline]
    fn note(&mut self, text: &[u8]) {
        /// `system` with each letter as an escape of six bytes.
        const ROLE_MAX: usize = 36;
        match text.first() {
            Some(b'x') => self.billing_header |= Self::begins_billing_header(text),
            Some(b's' | b'\\') if text.len() <= ROLE_MAX => {
                self.system_role |= *unescaped(text) == *b"system";
            }
            _ => {}
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Array,
    Object,
}

impl Kind {
    fn close(self) -> u8 {
        match self {
            Self::Array => b']',
            Self::Object => b'}',
        }
    }
}

/// The open brackets, one bit each, in words of 64.
#[derive(Default)]
struct Nest {
    /// The innermost brackets; the lowest bit is the last one.
    word: u64,
    depth: usize,
    /// The words of the outer brackets.
    outer: Vec<u64>,
}

impl Nest {
    #[inline]
    fn push(&mut self, kind: Kind) {
        if self.depth != 0 && self.depth.is_multiple_of(64) {
            self.outer.push(self.word);
        }
        self.word = self.word << 1 | u64::from(kind == Kind::Object);
        self.depth += 1;
    }

    #[inline]
    fn innermost(&self) -> Option<Kind> {
        let kind = match self.word & 1 {
            0 => Kind::Array,
            _ => Kind::Object,
        };
        (self.depth != 0).then_some(kind)
    }

    #[inline]
    fn pop(&mut self) {
        self.depth -= 1;
        self.word >>= 1;
        if self.depth.is_multiple_of(64) {
            self.word = self.outer.pop().unwrap_or(0);
        }
    }
}

#[cfg(test)]
mod tests;
