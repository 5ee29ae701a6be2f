//! What the fields of content rules are in one body.
//!
//! The body is looked at as slices, level by level along the paths that some rule names; no tree is
//! built, and what nobody names is skipped without recursion. So depth costs nothing, and recursion
//! goes as deep as the longest path, which is bounded. Of duplicate keys the last one counts.

use std::fmt;

use router_core::rules::{Fact, Field, Rules, Step};
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::inspect::BorrowedBytes;

/// Where the fields of a route's rules stand in a body. Made once per route.
#[derive(Debug, Default)]
pub struct Wanted {
    root: Want,
    fields: usize,
    bytes: Option<usize>,
    counts: Vec<usize>,
}

/// One place of a body: which facts are read there, and which places below it matter.
#[derive(Debug, Default)]
struct Want {
    /// The value itself.
    value: Option<usize>,
    /// The list's length.
    length: Option<usize>,
    /// The list as `messages`: its characters.
    chars: Option<usize>,
    below: Vec<(Step, Self)>,
}

impl Wanted {
    /// The places that these rules look at.
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
    /// object or array in UTF-8: the rules say nothing about it.
    pub fn read<'b>(&self, body: &'b [u8]) -> Option<Vec<Fact<'b>>> {
        // A look at the first byte spares an upload a pass that cannot find anything.
        let first = body.iter().find(|byte| !byte.is_ascii_whitespace())?;
        if !matches!(first, b'{' | b'[') {
            return None;
        }
        let root: &RawValue = serde_json::from_slice(body).ok()?;
        let mut facts = vec![Fact::Missing; self.fields];
        if let Some(number) = self.bytes {
            facts[number] = Fact::Number(body.len() as f64);
        }
        for number in &self.counts {
            facts[*number] = Fact::Number(0.0);
        }
        self.root.read(root.get(), &mut facts);
        Some(facts)
    }

    /// A top-level list of which something is counted, in fact `number`.
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

    /// Reads a JSON value that is known to be valid.
    fn read<'b>(&self, raw: &'b str, facts: &mut [Fact<'b>]) {
        if let Some(number) = self.value {
            facts[number] = scalar(raw);
        }
        match raw.as_bytes().first() {
            Some(b'{') => self.read_object(raw, facts),
            Some(b'[') => self.read_list(raw, facts),
            _ => {}
        }
    }

    fn read_object<'b>(&self, raw: &'b str, facts: &mut [Fact<'b>]) {
        if self.below.is_empty() {
            return;
        }
        let found = members(raw, self.below.len(), |key| {
            self.below
                .iter()
                .position(|(step, _)| step.name.as_bytes() == key)
        });
        for ((_, want), raw) in self.below.iter().zip(found) {
            if let Some(raw) = raw {
                want.read(raw, facts);
            }
        }
    }

    fn read_list<'b>(&self, raw: &'b str, facts: &mut [Fact<'b>]) {
        let indexes = || self.below.iter().filter_map(|(step, _)| step.index);
        let from_end = indexes().any(|index| index < 0);
        // Which element is the last one is known at the end: lists are measured first.
        let length = (self.length.is_some() || from_end).then(|| length(raw));
        if let (Some(number), Some(length)) = (self.length, length) {
            facts[number] = Fact::Number(length as f64);
        }
        if let Some(number) = self.chars {
            facts[number] = Fact::Number(chars_of_messages(raw) as f64);
        }
        if indexes().next().is_none() {
            return;
        }
        let length = length.unwrap_or_default();
        let wanted: Vec<(usize, &Self)> = self
            .below
            .iter()
            .filter_map(|(step, want)| {
                let index = step.index?;
                let at = if index < 0 {
                    length.checked_sub(usize::try_from(index.unsigned_abs()).ok()?)
                } else {
                    usize::try_from(index).ok()
                };
                Some((at?, want))
            })
            .collect();
        each(
            raw,
            |at| wanted.iter().any(|(wanted, _)| *wanted == at),
            |at, raw| {
                for (_, want) in wanted.iter().filter(|(wanted, _)| *wanted == at) {
                    want.read(raw, facts);
                }
            },
        );
    }
}

/// `input_chars`: code points over the contents of a list of messages.
fn chars_of_messages(raw: &str) -> usize {
    let mut chars = 0;
    each(
        raw,
        |_| true,
        |_, message| {
            let [content] = values_of(message, ["content"]);
            let Some(content) = content else { return };
            match content.as_bytes().first() {
                Some(b'"') => chars += count_chars(content),
                Some(b'[') => each(
                    content,
                    |_| true,
                    |_, part| {
                        chars += chars_of_part(part);
                    },
                ),
                _ => {}
            }
        },
    );
    chars
}

fn chars_of_part(raw: &str) -> usize {
    let is_text = |raw: &&str| raw.starts_with('"');
    if is_text(&raw) {
        return count_chars(raw);
    }
    let [text, content] = values_of(raw, ["text", "content"]);
    let counted = text.filter(is_text).or(content.filter(is_text));
    counted.map_or(0, count_chars)
}

/// The members of these names, of what may be an object.
fn values_of<'b, const N: usize>(raw: &'b str, names: [&str; N]) -> [Option<&'b str>; N] {
    let mut found = [None; N];
    if raw.starts_with('{') {
        let wanted = |key: &[u8]| names.iter().position(|name| name.as_bytes() == key);
        for (slot, value) in found.iter_mut().zip(members(raw, N, wanted)) {
            *slot = value;
        }
    }
    found
}

/// Code points of a JSON string as written, quotes included in the text and not in the count. A
/// surrogate pair is one, and so is a lone surrogate.
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
            // Two characters that are one.
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

/// What a value is by itself.
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

/// The values of some members of an object, by the number that `wanted` gives their key; below
/// `count`.
fn members(raw: &str, count: usize, wanted: impl Fn(&[u8]) -> Option<usize>) -> Vec<Option<&str>> {
    let visitor = Members { count, wanted };
    let found = serde_json::Deserializer::from_str(raw).deserialize_map(visitor);
    found.unwrap_or_default()
}

struct Members<F> {
    count: usize,
    wanted: F,
}

impl<'de, F: Fn(&[u8]) -> Option<usize>> Visitor<'de> for Members<F> {
    type Value = Vec<Option<&'de str>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut values = vec![None; self.count];
        while let Some(key) = map.next_key::<BorrowedBytes<'de>>()? {
            match (self.wanted)(&key.0) {
                Some(at) => values[at] = Some(map.next_value::<&'de RawValue>()?.get()),
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(values)
    }
}

/// Calls `act` with the wanted elements of a list, in order.
fn each<'b>(raw: &'b str, wanted: impl Fn(usize) -> bool, act: impl FnMut(usize, &'b str)) {
    let visitor = Elements { wanted, act };
    // The text is valid, so there is no error to tell.
    let _ = serde_json::Deserializer::from_str(raw).deserialize_seq(visitor);
}

struct Elements<W, A> {
    wanted: W,
    act: A,
}

impl<'de, W: Fn(usize) -> bool, A: FnMut(usize, &'de str)> Visitor<'de> for Elements<W, A> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON array")
    }

    fn visit_seq<S: SeqAccess<'de>>(mut self, mut list: S) -> Result<(), S::Error> {
        for at in 0.. {
            if (self.wanted)(at) {
                let Some(raw) = list.next_element::<&'de RawValue>()? else {
                    break;
                };
                (self.act)(at, raw.get());
            } else if list.next_element::<IgnoredAny>()?.is_none() {
                break;
            }
        }
        Ok(())
    }
}

/// How many elements a list has.
fn length(raw: &str) -> usize {
    let counted = serde_json::Deserializer::from_str(raw).deserialize_seq(Count);
    counted.unwrap_or_default()
}

struct Count;

impl<'de> Visitor<'de> for Count {
    type Value = usize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON array")
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut list: S) -> Result<usize, S::Error> {
        let mut count = 0;
        while list.next_element::<IgnoredAny>()?.is_some() {
            count += 1;
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests;
