//! Evaluates the fields of content rules in one body.
//!
//! One walk over a body that is known to be valid follows the paths that some rule names. It builds
//! no tree and skips everything else without recursion. So the depth of a body costs nothing, and
//! recursion goes only as deep as the longest path, which is bounded. Of duplicate keys the last
//! one counts.

use std::borrow::Cow;
use std::collections::VecDeque;

use answers::cursor::{Cursor, Span, is_key};
use router_core::rules::{Fact, Field, Rules, Step};
use serde::de::IgnoredAny;

use super::inspect::BorrowedBytes;

/// The paths of a route's rules as a tree. Built once per route.
#[derive(Debug, Default)]
pub struct Wanted {
    root: Want,
    fields: usize,
    bytes: Option<usize>,
    counts: Vec<usize>,
}

/// One place in a body: the facts to read there, and the wanted places below it.
#[derive(Debug, Default)]
struct Want {
    /// The value itself.
    value: Option<usize>,
    /// The list's length.
    length: Option<usize>,
    /// The number of characters in the list, read as `messages`.
    chars: Option<usize>,
    below: Vec<(Step, Self)>,
}

impl Wanted {
    /// The places that these rules need.
    pub fn new(rules: &Rules) -> Self {
        let mut wanted = Self {
            fields: rules.fields().len(),
            ..Self::default()
        };
        for (number, field) in rules.fields().iter().enumerate() {
            match field {
                Field::InputBytes => wanted.bytes = Some(number),
                Field::InputChars => wanted.list("messages", number).chars = Some(number),
                Field::MessagesCount => wanted.list("messages", number).length = Some(number),
                Field::ToolsCount => wanted.list("tools", number).length = Some(number),
                Field::Path(steps) => {
                    let place = steps.iter().fold(&mut wanted.root, Want::below);
                    place.value = Some(number);
                }
            }
        }
        wanted
    }

    /// The facts of one body, parallel to the rules' fields. `None` for a body that is not a JSON
    /// object or array in UTF-8; the rules do not apply to it. `is_json` means that the caller has
    /// already checked that the body is JSON, apart from the bytes in its strings; that saves a
    /// pass.
    pub fn read<'b>(&self, body: &'b [u8], is_json: bool) -> Option<Vec<Fact<'b>>> {
        // A check of the first byte saves an upload a pass that cannot find anything.
        let first = body.iter().find(|byte| !byte.is_ascii_whitespace())?;
        if !matches!(first, b'{' | b'[') {
            return None;
        }
        if !is_json {
            serde_json::from_slice::<IgnoredAny>(body).ok()?;
        }
        let text = str::from_utf8(body).ok()?;
        let mut reading = Reading {
            text,
            facts: vec![Fact::Missing; self.fields],
        };
        if let Some(number) = self.bytes {
            reading.facts[number] = Fact::Number(body.len() as f64);
        }
        for number in &self.counts {
            reading.facts[*number] = Fact::Number(0.0);
        }
        reading.value(&self.root, &mut Cursor::new(body))?;
        Some(reading.facts)
    }

    /// A top-level list of which fact `number` counts something.
    fn list(&mut self, name: &str, number: usize) -> &mut Want {
        self.counts.push(number);
        let step = Step {
            name: name.into(),
            index: None,
        };
        self.root.below(&step)
    }
}

impl Want {
    fn below(&mut self, step: &Step) -> &mut Self {
        let at = self.below.iter().position(|(known, _)| known == step);
        let at = at.unwrap_or_else(|| {
            self.below.push((step.clone(), Self::default()));
            self.below.len() - 1
        });
        &mut self.below[at].1
    }

    fn item(&self, at: usize) -> Option<&Self> {
        let is_it =
            |step: &Step| step.index.and_then(|index| usize::try_from(index).ok()) == Some(at);
        let found = self.below.iter().find(|(step, _)| is_it(step));
        found.map(|(_, want)| want)
    }

    /// The places counted from a list's end: the distance, where 1 is the last item, and the wanted
    /// place.
    fn counted_back(&self) -> impl Iterator<Item = (usize, &Self)> {
        self.below.iter().filter_map(|(step, want)| {
            let index = step.index.filter(|index| *index < 0)?;
            Some((usize::try_from(index.unsigned_abs()).ok()?, want))
        })
    }

    /// Resets the facts of this place and of the places below it to "not found".
    fn clear(&self, facts: &mut [Fact<'_>]) {
        if let Some(number) = self.value {
            facts[number] = Fact::Missing;
        }
        for number in [self.length, self.chars].into_iter().flatten() {
            facts[number] = Fact::Number(0.0);
        }
        for (_, want) in &self.below {
            want.clear(facts);
        }
    }
}

/// One walk. Its functions take the value before the cursor. `None` ends the walk, which does not
/// happen in a valid body.
struct Reading<'b> {
    text: &'b str,
    facts: Vec<Fact<'b>>,
}

impl<'b> Reading<'b> {
    fn value(&mut self, want: &Want, cursor: &mut Cursor<'b>) -> Option<()> {
        let first = cursor.peek()?;
        if !matches!(first, b'{' | b'[') {
            let value = cursor.skip()?;
            self.note(want.value, scalar(&self.text[value]));
            return Some(());
        }
        self.note(want.value, Fact::Composite);
        if first == b'{' {
            self.object(want, cursor)
        } else {
            self.list(want, cursor)
        }
    }

    fn note(&mut self, number: Option<usize>, fact: Fact<'b>) {
        if let Some(number) = number {
            self.facts[number] = fact;
        }
    }

    fn object(&mut self, want: &Want, cursor: &mut Cursor<'b>) -> Option<()> {
        if want.below.is_empty() {
            cursor.skip()?;
            return Some(());
        }
        cursor.members(|cursor, key| {
            let key = self.key(key);
            let is_it = |step: &Step| step.name.as_bytes() == &*key;
            match want.below.iter().find(|(step, _)| is_it(step)) {
                Some((_, want)) => {
                    // A duplicate key may have set these facts before.
                    want.clear(&mut self.facts);
                    self.value(want, cursor)
                }
                None => cursor.skip().map(|_| ()),
            }
        })?;
        Some(())
    }

    /// The decoded bytes of a key, from the text between its quotes.
    fn key(&self, key: Span) -> Cow<'b, [u8]> {
        let written = &self.text.as_bytes()[key.clone()];
        if memchr::memchr(b'\\', written).is_none() {
            return Cow::Borrowed(written);
        }
        let quoted = &self.text[key.start - 1..=key.end];
        let decoded = serde_json::from_str::<BorrowedBytes<'_>>(quoted);
        decoded.map_or(Cow::Borrowed(written), |key| key.0)
    }

    fn list(&mut self, want: &Want, cursor: &mut Cursor<'b>) -> Option<()> {
        if want.below.is_empty() && want.length.is_none() && want.chars.is_none() {
            cursor.skip()?;
            return Some(());
        }
        let kept = want.counted_back().map(|(back, _)| back).max().unwrap_or(0);
        let mut last = VecDeque::new();
        let (mut count, mut chars) = (0, 0);
        cursor.items(|cursor| {
            cursor.peek()?;
            let start = cursor.position();
            if want.chars.is_some() {
                let mut ahead = *cursor;
                chars += self.chars_of_message(&mut ahead)?;
                match want.item(count) {
                    Some(item) => self.value(item, cursor)?,
                    None => *cursor = ahead,
                }
            } else {
                match want.item(count) {
                    Some(item) => self.value(item, cursor)?,
                    None => cursor.skip().map(|_| ())?,
                }
            }
            count += 1;
            if kept > 0 {
                if last.len() == kept {
                    last.pop_front();
                }
                last.push_back(start);
            }
            Some(())
        })?;
        self.note(want.length, Fact::Number(count as f64));
        self.note(want.chars, Fact::Number(chars as f64));
        for (back, want) in want.counted_back() {
            if let Some(at) = last.len().checked_sub(back) {
                self.value(want, &mut Cursor::at(self.text.as_bytes(), last[at]))?;
            }
        }
        Some(())
    }

    /// `input_chars`: the code points in the content of a message.
    fn chars_of_message(&self, cursor: &mut Cursor<'b>) -> Option<usize> {
        let body = self.text.as_bytes();
        let mut chars = 0;
        cursor.members(|cursor, key| {
            if is_key(&body[key], "content") {
                chars = self.chars_of_content(cursor)?;
                return Some(());
            }
            cursor.skip().map(|_| ())
        })?;
        Some(chars)
    }

    fn chars_of_content(&self, cursor: &mut Cursor<'b>) -> Option<usize> {
        if cursor.peek()? == b'"' {
            return Some(self.chars(cursor.skip()?));
        }
        let mut chars = 0;
        cursor.items(|cursor| {
            chars += self.chars_of_part(cursor)?;
            Some(())
        })?;
        Some(chars)
    }

    fn chars_of_part(&self, cursor: &mut Cursor<'b>) -> Option<usize> {
        if cursor.peek()? == b'"' {
            return Some(self.chars(cursor.skip()?));
        }
        let body = self.text.as_bytes();
        let (mut text, mut content) = (None, None);
        cursor.members(|cursor, key| {
            let key = &body[key];
            let value = cursor.skip()?;
            let string = (body[value.start] == b'"').then_some(value);
            if is_key(key, "text") {
                text = string;
            } else if is_key(key, "content") {
                content = string;
            }
            Some(())
        })?;
        Some(text.or(content).map_or(0, |string| self.chars(string)))
    }

    fn chars(&self, string: Span) -> usize {
        count_chars(&self.text[string])
    }
}

/// Code points of a JSON string as written. The text includes the quotes, the count does not. A
/// surrogate pair counts as one, and so does a lone surrogate.
fn count_chars(raw: &str) -> usize {
    let text = raw.strip_prefix('"').unwrap_or(raw);
    let text = text.strip_suffix('"').unwrap_or(text);
    let mut chars = text.chars().count();
    let bytes = text.as_bytes();
    let mut at = 0;
    let mut high = None;
    while let Some(found) = memchr::memchr(b'\\', &bytes[at..]) {
        let escape = at + found;
        if bytes.get(escape + 1) != Some(&b'u') {
            // Two escapes that form one character.
            chars -= 1;
            at = escape + 2;
            continue;
        }
        chars -= 5;
        at = escape + 6;
        let unit = text
            .get(escape + 2..at)
            .and_then(|hex| u16::from_str_radix(hex, 16).ok());
        match unit {
            Some(0xd800..=0xdbff) => high = Some(at),
            Some(0xdc00..=0xdfff) if high == Some(escape) => chars -= 1,
            _ => {}
        }
    }
    chars
}

/// The fact of a value that needs no context.
fn scalar(raw: &str) -> Fact<'_> {
    match raw.as_bytes().first() {
        Some(b'"') => serde_json::from_str::<BorrowedBytes<'_>>(raw)
            .map_or(Fact::Missing, |text| Fact::Text(text.0)),
        Some(b'{' | b'[') => Fact::Composite,
        Some(b't') => Fact::Bool(true),
        Some(b'f') => Fact::Bool(false),
        Some(b'n') => Fact::Null,
        _ => raw.parse().map_or(Fact::Missing, Fact::Number),
    }
}

#[cfg(test)]
mod tests;
