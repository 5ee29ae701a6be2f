//! Edits the members of an object according to a table, by splices in one pass.
//!
//! Of duplicate members the last one counts, as in every parser in use. So the last member of a
//! name decides whether the member is null, and a removed member goes with all its duplicates.

use answers::cursor::{Cursor, Span, is_key};
use answers::json::unescaped;

use crate::content::splice::Splices;

/// What happens to a member.
#[derive(Clone, Copy)]
pub(super) enum Role {
    /// Keep the member.
    Keep,
    /// Keep the member. It holds the text that differs from chunk to chunk.
    Text,
    /// Remove the member.
    Remove,
    /// Remove the member if its value is null.
    RemoveNull,
    /// Rename its key.
    Rename(&'static str, Clash),
    /// Keep the member. If its value is an object, apply this table to it.
    Inside(&'static Shape),
    /// Keep the member. If its value is an array, apply this table to the objects in it.
    Each(&'static Shape),
}

/// What happens to a renamed member when the new name exists already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Clash {
    /// The renamed member replaces the existing one.
    OldWins,
    /// The member with the old name is removed.
    OldGoes,
}

/// A table for the members of one type of object.
pub(super) struct Shape {
    /// A member that must be an object or an array; otherwise nothing in the object is changed.
    pub(super) needs: Option<&'static str>,
    /// The role of each key.
    pub(super) role: fn(&[u8]) -> Role,
}

/// The edits of one JSON text. Reused for the next text to save allocations.
#[derive(Debug, Default)]
pub struct Edits {
    pub(super) splices: Splices,
    /// The range between the quotes of the last string with [`Role::Text`].
    pub(super) text: Option<Span>,
    /// The members of the objects that are being read, the outer ones first.
    marks: Vec<Mark>,
}

/// One member.
#[derive(Clone, Debug)]
struct Mark {
    /// The range between the quotes.
    key: Span,
    value: Span,
    fate: Fate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Stays,
    Goes,
    GoesIfNull,
    Becomes(&'static str, Clash),
}

impl Edits {
    /// Takes the next value. If it is an object, adds the edits that `shape` requires.
    pub(super) fn object(
        &mut self,
        json: &[u8],
        cursor: &mut Cursor<'_>,
        shape: &Shape,
    ) -> Option<Span> {
        let base = self.marks.len();
        let before = self.splices.len();
        let object = cursor.members(|cursor, key| {
            let name = &json[key.clone()];
            let role = match name.contains(&b'\\') {
                false => (shape.role)(name),
                true => (shape.role)(&unescaped(name)),
            };
            let value = match role {
                Role::Inside(inner) => self.object(json, cursor, inner)?,
                Role::Each(item) => self.each(json, cursor, item)?,
                _ => cursor.skip()?,
            };
            if matches!(role, Role::Text) && value.len() > 2 && json[value.start] == b'"' {
                self.text = Some(value.start + 1..value.end - 1);
            }
            self.marks.push(Mark {
                key,
                value,
                fate: role.fate(),
            });
            Some(())
        })?;
        let Self { splices, marks, .. } = self;
        let members = &mut marks[base..];
        let has_it = |name| has_container(json, members, name);
        match shape.needs.is_none_or(has_it) {
            true => splice(json, members, splices),
            false => splices.truncate(before),
        }
        marks.truncate(base);
        Some(object)
    }

    fn each(&mut self, json: &[u8], cursor: &mut Cursor<'_>, shape: &Shape) -> Option<Span> {
        cursor.items(|cursor| self.object(json, cursor, shape).map(|_| ()))
    }

    /// Forgets everything, including an unfinished reading.
    pub(super) fn clear(&mut self) {
        self.splices.truncate(0);
        self.text = None;
        self.marks.clear();
    }
}

impl Role {
    fn fate(self) -> Fate {
        match self {
            Self::Keep | Self::Text | Self::Inside(_) | Self::Each(_) => Fate::Stays,
            Self::Remove => Fate::Goes,
            Self::RemoveNull => Fate::GoesIfNull,
            Self::Rename(to, clash) => Fate::Becomes(to, clash),
        }
    }
}

fn has_container(json: &[u8], members: &[Mark], name: &str) -> bool {
    let last = members.iter().rfind(|m| is_key(&json[m.key.clone()], name));
    last.is_some_and(|last| matches!(json[last.value.start], b'{' | b'['))
}

fn splice(json: &[u8], members: &mut [Mark], splices: &mut Splices) {
    for at in 0..members.len() {
        match members[at].fate {
            Fate::GoesIfNull => members[at].fate = null_fate(json, &members[at..]),
            Fate::Becomes(to, clash) => settle_clash(json, members, at, to, clash),
            Fate::Stays | Fate::Goes => {}
        }
    }
    let mut kept_end = None;
    // The opening quote of the first in a run of removed members.
    let mut run = None;
    for Mark { key, value, fate } in members.iter() {
        if *fate == Fate::Goes {
            run.get_or_insert(key.start - 1);
            continue;
        }
        if let Some(from) = run.take() {
            splices.remove(from..key.start - 1);
        }
        if let Fate::Becomes(to, _) = fate {
            splices.replace(key.clone(), to.as_bytes());
        }
        kept_end = Some(value.end);
    }
    if let (Some(from), Some(last)) = (run, members.last()) {
        // The comma goes with the removed members.
        splices.remove(kept_end.unwrap_or(from)..last.value.end);
    }
}

/// Whether the first of these members is removed, because its last duplicate is null.
fn null_fate(json: &[u8], members: &[Mark]) -> Fate {
    let Some((first, later)) = members.split_first() else {
        return Fate::Stays;
    };
    let name = &json[first.key.clone()];
    let same = |m: &&Mark| m.fate == Fate::GoesIfNull && is_same(&json[m.key.clone()], name);
    let last = later.iter().rfind(same).unwrap_or(first);
    match &json[last.value.clone()] {
        b"null" => Fate::Goes,
        _ => Fate::Stays,
    }
}

fn is_same(a: &[u8], b: &[u8]) -> bool {
    a == b || ((a.contains(&b'\\') || b.contains(&b'\\')) && unescaped(a) == unescaped(b))
}

fn settle_clash(json: &[u8], members: &mut [Mark], at: usize, to: &str, clash: Clash) {
    for other in 0..members.len() {
        if is_key(&json[members[other].key.clone()], to) {
            match clash {
                Clash::OldWins => members[other].fate = Fate::Goes,
                Clash::OldGoes => members[at].fate = Fate::Goes,
            }
        }
    }
}
