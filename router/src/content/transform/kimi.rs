//! `kimi_normalize`: tool-call ids in the form that Kimi K2 itself writes,
//! `functions.<name>:<number>`.
//!
//! The model reads a call's function and its place in the conversation from the id. Ids that other
//! engines and gateways make up (`call_…`, `toolu_…`) confuse it. Calls get new ids; an answer
//! follows the last call before it that had its id. If several calls share an id, the id keeps its
//! first new name as long as these calls name the same function, because an answer must never be
//! attributed to another function. Answers without a call stay as they are.

use std::borrow::Cow;
use std::collections::HashMap;

use answers::cursor::{Cursor, Span, text};
use answers::json::unescaped;
use router_config::valid::IdStrategy;

use super::edit_scan::EditScan;
use super::quoted;
use crate::content::splice::Splices;

/// The models that need these ids, as requests name them.
const MODELS: [&str; 6] = [
    "kimi-k2.5",
    "kimi-k2.6",
    "Kimi-K2.5",
    "Kimi-K2.6",
    "moonshotai/kimi-k2.5",
    "moonshotai/kimi-k2.6",
];

/// Longest function name that is put into an id, in bytes. This is twice what OpenAI's API accepts.
const NAME_MAX: usize = 128;

/// Whether a body's `model` is one of these models.
pub fn is_kimi(model: &str) -> bool {
    MODELS.contains(&model)
}

/// The calls of a conversation and the answers to them, in order.
#[derive(Debug, Default)]
pub(super) struct Calls {
    turns: Vec<Turn>,
    /// Calls so far, including those that are no candidates.
    position: usize,
}

#[derive(Debug)]
enum Turn {
    Call(Call),
    /// The `tool_call_id` of a message.
    Answer(Span),
}

/// A call that has an id and a function name.
#[derive(Debug)]
struct Call {
    id: Span,
    name: Span,
    arguments: Option<Span>,
    position: usize,
}

/// A message that is being read.
#[derive(Debug)]
pub(super) struct Open {
    turns: usize,
    position: usize,
    /// Its `tool_call_id`.
    pub answers: Option<Span>,
}

impl Calls {
    /// The state before a message.
    pub(super) fn open(&self) -> Open {
        Open {
            turns: self.turns.len(),
            position: self.position,
            answers: None,
        }
    }

    /// Takes a message's `tool_calls`. Those that the message had before are forgotten.
    pub(super) fn take(
        &mut self,
        body: &[u8],
        cursor: &mut Cursor<'_>,
        message: &Open,
    ) -> Option<()> {
        self.turns.truncate(message.turns);
        self.position = message.position;
        cursor.items(|cursor| {
            if cursor.peek()? != b'{' {
                cursor.skip()?;
                return Some(());
            }
            if let Some(call) = call(body, cursor, self.position)? {
                self.turns.push(Turn::Call(call));
            }
            self.position += 1;
            Some(())
        })?;
        Some(())
    }

    /// Called after a message.
    pub(super) fn answer(&mut self, message: Open) {
        self.turns.extend(message.answers.map(Turn::Answer));
    }

    fn candidates(&self) -> impl DoubleEndedIterator<Item = &Call> {
        self.turns.iter().filter_map(|turn| match turn {
            Turn::Call(call) => Some(call),
            Turn::Answer(_) => None,
        })
    }
}

/// Takes one call. `Some(None)` when it is no candidate.
fn call(body: &[u8], cursor: &mut Cursor<'_>, position: usize) -> Option<Option<Call>> {
    let (mut id, mut name, mut arguments) = (None, None, None);
    cursor.members(|cursor, key| {
        match &*unescaped(&body[key]) {
            b"id" => id = Some(cursor.skip()?),
            b"function" => {
                (name, arguments) = (None, None);
                cursor.members(|cursor, key| {
                    match &*unescaped(&body[key]) {
                        b"name" => name = Some(cursor.skip()?),
                        b"arguments" => arguments = Some(cursor.skip()?),
                        _ => {
                            cursor.skip()?;
                        }
                    }
                    Some(())
                })?;
            }
            _ => {
                cursor.skip()?;
            }
        }
        Some(())
    })?;
    let candidate = id.zip(name).filter(|(id, name)| {
        text(body, id).is_some_and(|id| !id.trim_ascii().is_empty())
            && text(body, name).is_some_and(|name| is_name(&name))
    });
    Some(candidate.map(|(id, name)| Call {
        id,
        name,
        arguments,
        position,
    }))
}

fn is_name(name: &[u8]) -> bool {
    let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"_.-".contains(byte);
    (1..=NAME_MAX).contains(&name.len()) && name.iter().all(allowed)
}

/// Gives calls and answers their new ids. Returns how many changed.
pub(super) fn rename(
    body: &[u8],
    edit_scan: &EditScan,
    strategy: IdStrategy,
    splices: &mut Splices,
) -> usize {
    let model = edit_scan.model.as_ref().and_then(|model| text(body, model));
    if !model.is_some_and(|model| str::from_utf8(&model).is_ok_and(is_kimi)) {
        return 0;
    }
    let calls = &edit_scan.messages.calls;
    let mut numbers = Numbers::of(body, calls, strategy);
    let mut known: HashMap<Cow<'_, [u8]>, Named> = HashMap::new();
    let mut changes = 0;
    for turn in &calls.turns {
        let (place, new) = match turn {
            Turn::Call(call) => {
                let (Some(old), Some(name)) = (text(body, &call.id), function(body, call)) else {
                    continue;
                };
                let number = numbers.next(body, call, &old, &name);
                let named = known.entry(old).and_modify(|named| {
                    if named.function != name {
                        *named = Named::new(&name, number);
                    }
                });
                let named = named.or_insert_with(|| Named::new(&name, number));
                (&call.id, &named.id)
            }
            Turn::Answer(id) => {
                let named = text(body, id).and_then(|old| known.get(&old));
                let Some(named) = named else { continue };
                (id, &named.id)
            }
        };
        if text(body, place).is_some_and(|old| *old != *new.as_bytes()) {
            splices.replace(place.clone(), quoted(new));
            changes += 1;
        }
    }
    changes
}

/// The new name of an old id.
struct Named {
    function: String,
    id: String,
}

impl Named {
    fn new(function: &str, number: u64) -> Self {
        Self {
            function: function.to_owned(),
            id: format!("functions.{function}:{number}"),
        }
    }
}

fn function(body: &[u8], call: &Call) -> Option<String> {
    String::from_utf8(text(body, &call.name)?.into_owned()).ok()
}

/// Numbers the calls of one conversation, in order.
struct Numbers {
    strategy: IdStrategy,
    /// The next number.
    next: u64,
    /// The position of the last candidate, and its number.
    last: Option<(usize, u64)>,
}

impl Numbers {
    fn of(body: &[u8], calls: &Calls, strategy: IdStrategy) -> Self {
        let last = calls.candidates().next_back();
        let last = last.filter(|_| strategy == IdStrategy::RerankMaxlast);
        Self {
            strategy,
            next: 0,
            last: last.map(|last| {
                let count = calls.candidates().count() as u64;
                let there = calls
                    .candidates()
                    .filter_map(|call| number(&text(body, &call.id)?, &function(body, call)?));
                // A number is never below the position of its call, so numbers stay unique.
                (last.id.start, there.max().unwrap_or(0).max(count - 1))
            }),
        }
    }

    fn next(&mut self, body: &[u8], call: &Call, id: &[u8], function: &str) -> u64 {
        let number = match self.strategy {
            IdStrategy::Rerank => return call.position as u64,
            IdStrategy::Hash => return hash(body, call, function),
            IdStrategy::RerankMaxlast => match self.last {
                Some((at, number)) if at == call.id.start => return number,
                _ => self.next,
            },
            IdStrategy::Keepinc => match number(id, function) {
                Some(number) if number >= self.next => number,
                _ => self.next,
            },
        };
        self.next = number + 1;
        number
    }
}

/// The number in an id that already has the right form.
fn number(id: &[u8], function: &str) -> Option<u64> {
    let digits = id
        .strip_prefix(b"functions.")?
        .strip_prefix(function.as_bytes())?
        .strip_prefix(b":")?;
    let number: u32 = str::from_utf8(digits).ok()?.parse().ok()?;
    // Only one spelling of a number is accepted.
    (number.to_string().as_bytes() == digits).then_some(number.into())
}

fn hash(body: &[u8], call: &Call, function: &str) -> u64 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(function.as_bytes());
    crc.update(&[1]);
    // Arguments that are not a string are hashed as written.
    if let Some(arguments) = &call.arguments {
        match text(body, arguments) {
            Some(text) => crc.update(&text),
            None => crc.update(&body[arguments.clone()]),
        }
    }
    1_000_000 + u64::from(crc.finalize() % 1_000_000)
}
