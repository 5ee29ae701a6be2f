//! Reads the meta object of a frame in place, so that the router's bytes can become part of the
//! record. Parsing and serialising it again was most of the cost of a small record.
//!
//! Only the plain form is read here: no space between tokens, each known member at most once and of
//! its type, no null for a known member, and no numeric escape. Everything else, including every
//! error, goes to [`proto::meta::Meta::from_json`], which makes the same record of the plain form,
//! only slower.

use std::borrow::Cow;
use std::ops::Range;
use std::str::FromStr;

use memchr::memchr2;
use proto::meta::{MetaOf, RespMetaOf, SCHEMA, Usage};
use proto::record::Record;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

/// The values of the object. For members that are only passed on, whether they are present.
pub(super) type Facts<'m> = MetaOf<Cow<'m, str>, Json<'m>, ()>;

/// A value that is used.
#[derive(Default, Serialize)]
#[serde(untagged)]
pub(super) enum Json<'m> {
    /// A value that is not used.
    #[default]
    Any,
    /// The sender's own text.
    Raw(&'m RawValue),
    /// Values found in the response.
    Found(Value),
}

impl<'de: 'm, 'm> Deserialize<'de> for Json<'m> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        <&RawValue>::deserialize(from).map(Self::Raw)
    }
}

/// A meta object in its plain form.
pub(super) struct Verbatim<'m> {
    /// Its values.
    pub(super) facts: Facts<'m>,
    text: &'m str,
    /// The offset at which the listener's own members are inserted.
    stamp_at: usize,
    /// The range of the response values, with the comma before them. It is written again.
    resp_meta: Range<usize>,
}

impl Verbatim<'_> {
    /// Appends the object without its closing brace. `stamp` writes the listener's own members,
    /// each with a comma before it; the response values are replaced with those known now.
    pub(super) fn write(&self, out: &mut Vec<u8>, stamp: impl FnOnce(&mut Vec<u8>)) {
        let bytes = self.text.as_bytes();
        out.extend_from_slice(&bytes[..self.stamp_at]);
        stamp(out);
        out.extend_from_slice(&bytes[self.stamp_at..self.resp_meta.start]);
        if let Some(found) = &self.facts.resp_meta {
            out.extend_from_slice(b",\"resp_meta\":");
            serde_json::to_writer(&mut *out, found).expect(super::FINITE);
        }
        out.extend_from_slice(&bytes[self.resp_meta.end..bytes.len() - 1]);
    }
}

/// Parses an object in its plain form. `None` for any other form.
pub(super) fn read(bytes: &[u8]) -> Option<Verbatim<'_>> {
    let text = std::str::from_utf8(bytes).ok()?;
    // Without an early exit the compiler can vectorise this loop.
    if bytes.iter().fold(u8::MAX, |least, byte| least.min(*byte)) < b' ' {
        return None;
    }
    let mut cursor = Cursor { text, at: 0 };
    let mut facts = Facts::default();
    let mut stamp_at = None;
    let mut resp_meta = None;
    let mut next = 0;
    cursor.eat(b'{')?;
    loop {
        let from = cursor.at;
        let name = cursor.name()?;
        let value = cursor.value(DEPTH_MAX)?;
        // Members usually come in the order of the table.
        if let Some(known) = (next..MEMBERS.len())
            .chain(0..next)
            .find(|at| MEMBERS[*at].0 == name)
        {
            let (_, set) = MEMBERS[known];
            set(&mut facts, value)?;
            next = known + 1;
        } else if Record::BESIDE_META.contains(&name) {
            return None;
        }
        match name {
            // A comma precedes it.
            "resp_meta" if stamp_at.is_some() => resp_meta = Some(from - 1..cursor.at),
            "resp_meta" => return None,
            "request_id" if resp_meta.is_none() => stamp_at = Some(cursor.at),
            _ => stamp_at = stamp_at.or(Some(cursor.at)),
        }
        match cursor.next()? {
            b',' => {}
            b'}' => break,
            _ => return None,
        }
    }
    let is_whole = cursor.at == text.len();
    let is_readable = facts.v.is_none_or(|v| v <= SCHEMA);
    let end = text.len() - 1;
    (is_whole && is_readable).then_some(Verbatim {
        facts,
        text,
        stamp_at: stamp_at?,
        resp_meta: resp_meta.unwrap_or(end..end),
    })
}

/// Reads a member. `None` if it is not plain.
type Set = for<'m> fn(&mut Facts<'m>, Token<'m>) -> Option<()>;

/// How a member of a kind is read. A sender must not use the name of a member that the listener sets.
macro_rules! set {
    (receiver $name:ident $kind:ident) => {
        |_, _| None
    };
    (sender $name:ident text) => {
        |facts, value| put(&mut facts.$name, value.text())
    };
    (sender $name:ident number) => {
        |facts, value| put(&mut facts.$name, value.number())
    };
    (sender $name:ident time) => {
        |facts, value| put(&mut facts.$name, value.time())
    };
    (sender $name:ident boolean) => {
        |facts, value| put(&mut facts.$name, value.boolean())
    };
    (sender $name:ident flag) => {
        |facts, value| turn_on(&mut facts.$name, &value)
    };
    (sender $name:ident json) => {
        |facts, value| put(&mut facts.$name, value.some())
    };
    (sender $name:ident headers) => {
        |facts, value| put(&mut facts.$name, value.object().map(drop))
    };
    (sender $name:ident usage) => {
        |facts, value| put(&mut facts.$name, value.object().and_then(usage))
    };
    (sender $name:ident found) => {
        |facts, value| put(&mut facts.$name, value.object().and_then(found))
    };
}

macro_rules! members {
    ($(
        $(#[doc = $doc:literal])+
        $by:ident $kind:ident $name:ident: $Type:ty;
    )*) => {
        /// Every known member, in the order of [`MetaOf`].
        const MEMBERS: &[(&str, Set)] = &[$((stringify!($name), set!($by $name $kind))),*];
    };
}

proto::meta_members!(members);

fn put<T>(slot: &mut Option<T>, value: Option<T>) -> Option<()> {
    if slot.is_some() {
        return None;
    }
    *slot = value;
    slot.is_some().then_some(())
}

/// A record omits these members when they are false.
fn turn_on(slot: &mut bool, value: &Token<'_>) -> Option<()> {
    let is_first = !std::mem::replace(slot, true);
    (is_first && value.boolean()?).then_some(())
}

fn found<'m>(json: &'m str) -> Option<RespMetaOf<Cow<'m, str>, Json<'m>>> {
    serde_json::from_str(json).ok()
}

/// Whether all the counts are present and nothing else. A record always has all of them.
fn usage(json: &str) -> Option<Usage> {
    const NAMES: [&str; 5] = ["prompt", "completion", "cached", "reasoning", "total"];
    let mut counts = [None; 5];
    let mut cursor = Cursor { text: json, at: 0 };
    cursor.eat(b'{')?;
    loop {
        let name = cursor.name()?;
        let at = NAMES.iter().position(|known| *known == name)?;
        put(&mut counts[at], cursor.value(0)?.number())?;
        match cursor.next()? {
            b',' => {}
            _ => break,
        }
    }
    let [prompt, completion, cached, reasoning, total] = counts;
    Some(Usage {
        prompt: prompt?,
        completion: completion?,
        cached: cached?,
        reasoning: reasoning?,
        total: total?,
    })
}

/// Deepest nesting of a plain object. Readers of records accept four times as much.
const DEPTH_MAX: u32 = 32;
/// Longest number and longest exponent. Within these limits no reader overflows to infinity.
const NUMBER_MAX: usize = 40;
/// See [`NUMBER_MAX`].
const EXPONENT_MAX: usize = 2;
/// Longest number that every reader converts to the same time.
const TIME_MAX: usize = 16;

/// The position of the first quote or backslash. Most strings are so short that starting `memchr2`
/// does not pay off.
fn quote_or_escape(bytes: &[u8]) -> Option<usize> {
    const SHORT: usize = 16;
    let (short, long) = bytes.split_at(bytes.len().min(SHORT));
    let is_one = |byte: &u8| matches!(byte, b'"' | b'\\');
    let found = short.iter().position(is_one);
    found.or_else(|| memchr2(b'"', b'\\', long).map(|at| at + SHORT))
}

/// A value, by its range in the text.
#[derive(Clone, Copy)]
enum Token<'m> {
    /// Includes its quotes.
    Text {
        json: &'m str,
        is_escaped: bool,
    },
    Number(&'m str),
    Boolean(bool),
    Object(&'m str),
    List,
    Null,
}

impl<'m> Token<'m> {
    fn text(self) -> Option<Cow<'m, str>> {
        match self {
            Self::Text {
                json,
                is_escaped: false,
            } => Some(json[1..json.len() - 1].into()),
            Self::Text { json, .. } => serde_json::from_str::<String>(json).ok().map(Cow::Owned),
            _ => None,
        }
    }

    fn number<T: FromStr>(self) -> Option<T> {
        match self {
            Self::Number(digits) => digits.parse().ok(),
            _ => None,
        }
    }

    fn time(self) -> Option<f64> {
        match self {
            Self::Number(digits) if digits.len() <= TIME_MAX && !digits.contains(['e', 'E']) => {
                digits.parse().ok()
            }
            _ => None,
        }
    }

    fn boolean(self) -> Option<bool> {
        match self {
            Self::Boolean(value) => Some(value),
            _ => None,
        }
    }

    fn object(self) -> Option<&'m str> {
        match self {
            Self::Object(json) => Some(json),
            _ => None,
        }
    }

    fn some(self) -> Option<Json<'m>> {
        (!matches!(self, Self::Null)).then_some(Json::Any)
    }
}

/// A position in a JSON text. Anything that is not plain ends the parse.
struct Cursor<'m> {
    text: &'m str,
    at: usize,
}

impl<'m> Cursor<'m> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    fn eat(&mut self, wanted: u8) -> Option<()> {
        (self.peek()? == wanted).then(|| self.at += 1)
    }

    fn word(&mut self, word: &str) -> Option<()> {
        self.text[self.at..]
            .starts_with(word)
            .then(|| self.at += word.len())
    }

    /// The name of a member and its colon. A name with escapes is rejected: it could spell any
    /// known name.
    fn name(&mut self) -> Option<&'m str> {
        let (json, is_escaped) = self.string()?;
        self.eat(b':')?;
        (!is_escaped).then(|| &json[1..json.len() - 1])
    }

    fn value(&mut self, depth: u32) -> Option<Token<'m>> {
        let from = self.at;
        Some(match self.peek()? {
            b'"' => {
                let (json, is_escaped) = self.string()?;
                Token::Text { json, is_escaped }
            }
            b'{' => {
                self.members(depth)?;
                Token::Object(&self.text[from..self.at])
            }
            b'[' => {
                self.elements(depth)?;
                Token::List
            }
            b't' => {
                self.word("true")?;
                Token::Boolean(true)
            }
            b'f' => {
                self.word("false")?;
                Token::Boolean(false)
            }
            b'n' => {
                self.word("null")?;
                Token::Null
            }
            _ => Token::Number(self.number()?),
        })
    }

    fn members(&mut self, depth: u32) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        self.eat(b'{')?;
        if self.eat(b'}').is_some() {
            return Some(());
        }
        loop {
            self.string()?;
            self.eat(b':')?;
            self.value(depth)?;
            match self.next()? {
                b',' => {}
                b'}' => return Some(()),
                _ => return None,
            }
        }
    }

    fn elements(&mut self, depth: u32) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        self.eat(b'[')?;
        if self.eat(b']').is_some() {
            return Some(());
        }
        loop {
            self.value(depth)?;
            match self.next()? {
                b',' => {}
                b']' => return Some(()),
                _ => return None,
            }
        }
    }

    /// A string with its quotes, and whether it has escapes. Control characters were already ruled
    /// out.
    fn string(&mut self) -> Option<(&'m str, bool)> {
        let from = self.at;
        let bytes = self.text.as_bytes();
        let mut is_escaped = false;
        self.eat(b'"')?;
        loop {
            self.at += quote_or_escape(&bytes[self.at..])?;
            if bytes[self.at] == b'"' {
                self.at += 1;
                return Some((&self.text[from..self.at], is_escaped));
            }
            is_escaped = true;
            match bytes.get(self.at + 1)? {
                b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => self.at += 2,
                // A numeric escape. Half of a surrogate pair would not be valid text.
                _ => return None,
            }
        }
    }

    fn number(&mut self) -> Option<&'m str> {
        let from = self.at;
        let _ = self.eat(b'-');
        let has_zero = self.peek()? == b'0';
        let whole = self.digits();
        if whole == 0 || has_zero && whole > 1 {
            return None;
        }
        if self.eat(b'.').is_some() && self.digits() == 0 {
            return None;
        }
        if self.eat(b'e').or_else(|| self.eat(b'E')).is_some() {
            let _ = self.eat(b'+').or_else(|| self.eat(b'-'));
            if !(1..=EXPONENT_MAX).contains(&self.digits()) {
                return None;
            }
        }
        let number = &self.text[from..self.at];
        (number.len() <= NUMBER_MAX).then_some(number)
    }

    fn digits(&mut self) -> usize {
        let from = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        self.at - from
    }
}
