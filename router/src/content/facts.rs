//! Evaluates the fields of content rules in one body.
//!
//! The paths that some rule names are followed in the same walk that reads the request's fields. It
//! builds no tree and skips everything else without recursion. So the depth of a body costs
//! nothing, and recursion goes only as deep as the longest path, which is bounded. Of duplicate
//! keys the last one counts.

use std::collections::VecDeque;

use answers::cursor::{Span, is_key};
use router_core::rules::{Fact, Field, Rules, Step};

use super::inspect::BorrowedBytes;
use super::reader::{Reader, decoded};

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
    /// object or array in UTF-8; the rules do not apply to it.
    pub fn read<'b>(&self, body: &'b [u8]) -> Option<Vec<Fact<'b>>> {
        let mut reader = Reader::new(body);
        // A check of the first byte saves an upload a pass that cannot find anything.
        if !matches!(reader.peek()?, b'{' | b'[') {
            return None;
        }
        let mut reading = self.begin(body)?;
        reading.value(&self.root, &mut reader)?;
        reader.end()?;
        Some(reading.facts)
    }

    /// Starts to read a body, whose top-level members are then given one by one. `None` when the
    /// body is not UTF-8.
    pub(super) fn begin<'b>(&self, body: &'b [u8]) -> Option<Reading<'b>> {
        let mut reading = Reading {
            text: str::from_utf8(body).ok()?,
            facts: vec![Fact::Missing; self.fields],
        };
        if let Some(number) = self.bytes {
            reading.facts[number] = Fact::Number(body.len() as f64);
        }
        for number in &self.counts {
            reading.facts[*number] = Fact::Number(0.0);
        }
        Some(reading)
    }

    /// Sets the length of the body for a form, whose fields are read in place of it.
    pub(super) fn set_bytes(&self, facts: &mut [Fact<'_>], bytes: usize) {
        if let Some(number) = self.bytes {
            facts[number] = Fact::Number(bytes as f64);
        }
    }

    /// Takes the value of a top-level member.
    #[inline]
    pub(super) fn member<'b>(
        &self,
        reading: &mut Reading<'b>,
        reader: &mut Reader<'b>,
        key: &[u8],
    ) -> Option<()> {
        reading.member(&self.root, reader, key)
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

/// One walk. Its functions take the value before the reader. `None` ends the walk, because the body
/// is not valid.
pub(super) struct Reading<'b> {
    text: &'b str,
    facts: Vec<Fact<'b>>,
}

impl<'b> Reading<'b> {
    fn value(&mut self, want: &Want, reader: &mut Reader<'b>) -> Option<()> {
        let first = reader.peek()?;
        if !matches!(first, b'{' | b'[') {
            let value = reader.skip()?;
            self.note(want.value, scalar(&self.text[value]));
            return Some(());
        }
        self.note(want.value, Fact::Composite);
        if first == b'{' {
            self.object(want, reader)
        } else {
            self.list(want, reader)
        }
    }

    fn note(&mut self, number: Option<usize>, fact: Fact<'b>) {
        if let Some(number) = number {
            self.facts[number] = fact;
        }
    }

    fn object(&mut self, want: &Want, reader: &mut Reader<'b>) -> Option<()> {
        if want.below.is_empty() {
            reader.skip()?;
            return Some(());
        }
        reader.members(|reader, key| {
            let key = decoded(self.text.as_bytes(), key);
            self.member(want, reader, &key)
        })?;
        Some(())
    }

    fn member(&mut self, want: &Want, reader: &mut Reader<'b>, key: &[u8]) -> Option<()> {
        let is_it = |step: &Step| step.name.as_bytes() == key;
        match want.below.iter().find(|(step, _)| is_it(step)) {
            Some((_, want)) => {
                // A duplicate key may have set these facts before.
                want.clear(&mut self.facts);
                self.value(want, reader)
            }
            None => reader.skip().map(|_| ()),
        }
    }

    /// The facts, in the order of the rules' fields.
    pub(super) fn facts(self) -> Vec<Fact<'b>> {
        self.facts
    }

    fn list(&mut self, want: &Want, reader: &mut Reader<'b>) -> Option<()> {
        if want.below.is_empty() && want.length.is_none() && want.chars.is_none() {
            reader.skip()?;
            return Some(());
        }
        let kept = want.counted_back().map(|(back, _)| back).max().unwrap_or(0);
        let mut last = VecDeque::new();
        let (mut count, mut chars) = (0, 0);
        reader.items(|reader| {
            reader.peek()?;
            let start = reader.position();
            if want.chars.is_some() {
                let mut ahead = *reader;
                chars += self.chars_of_message(&mut ahead)?;
                match want.item(count) {
                    Some(item) => self.value(item, reader)?,
                    None => *reader = ahead,
                }
            } else {
                match want.item(count) {
                    Some(item) => self.value(item, reader)?,
                    None => reader.skip().map(|_| ())?,
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
                self.value(want, &mut Reader::at(self.text.as_bytes(), last[at]))?;
            }
        }
        Some(())
    }

    /// `input_chars`: the code points in the content of a message.
    fn chars_of_message(&self, reader: &mut Reader<'b>) -> Option<usize> {
        let body = self.text.as_bytes();
        let mut chars = 0;
        reader.members(|reader, key| {
            if is_key(&body[key], "content") {
                chars = self.chars_of_content(reader)?;
                return Some(());
            }
            reader.skip().map(|_| ())
        })?;
        Some(chars)
    }

    fn chars_of_content(&self, reader: &mut Reader<'b>) -> Option<usize> {
        if reader.peek()? == b'"' {
            return Some(self.chars(reader.skip()?));
        }
        let mut chars = 0;
        reader.items(|reader| {
            chars += self.chars_of_part(reader)?;
            Some(())
        })?;
        Some(chars)
    }

    fn chars_of_part(&self, reader: &mut Reader<'b>) -> Option<usize> {
        if reader.peek()? == b'"' {
            return Some(self.chars(reader.skip()?));
        }
        let body = self.text.as_bytes();
        let (mut text, mut content) = (None, None);
        reader.members(|reader, key| {
            let key = &body[key];
            let value = reader.skip()?;
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
