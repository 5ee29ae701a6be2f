//! What becomes of the members of an object, said by a table, done by splices in one pass.
//!
//! Of duplicate members the last one counts, as it does to every parser in use: whether a member is
//! null is asked of the last of its name, and what goes, goes with all its duplicates.

use answers::cursor::{Cursor, Span, is_key};
use answers::json::unescaped;

use crate::content::splice::Splices;

/// What becomes of a member.
#[derive(Clone, Copy)]
pub(super) enum Role {
    /// It stays.
    Keep,
    /// It stays; it is what differs from chunk to chunk.
    Text,
    /// It goes.
    Remove,
    /// It goes if its value is null.
    RemoveNull,
    /// Its key becomes another.
    Rename(&'static str, Clash),
    /// It stays; an object in it is read by this table.
    Inside(&'static Shape),
    /// It stays; the objects of an array in it are read by this table.
    Each(&'static Shape),
}

/// What becomes of a member that is to be renamed where there is one of the new name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Clash {
    /// It takes the other's place.
    OldWins,
    /// It goes.
    OldGoes,
}

/// A table for the members of one object.
pub(super) struct Shape {
    /// The member that must be an object or an array, or else nothing of the object is changed.
    pub(super) needs: Option<&'static str>,
    /// By key.
    pub(super) role: fn(&[u8]) -> Role,
}

/// The edits of one JSON text. Kept from text to text for its memory.
#[derive(Debug, Default)]
pub struct Edits {
    pub(super) splices: Splices,
    /// Between the quotes of the last string that is a [`Role::Text`].
    pub(super) text: Option<Span>,
    /// The members of the objects being read, those of the outer ones first.
    marks: Vec<Mark>,
}

/// One member.
#[derive(Clone, Debug)]
struct Mark {
    /// Between the quotes.
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
    /// Takes the next value, and if it is an object adds what `shape` makes of it.
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

    /// Forgets everything, a reading broken off included.
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
    // From the opening quote of the first of a run of members that go.
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
        // The comma goes with them.
        splices.remove(kept_end.unwrap_or(from)..last.value.end);
    }
}

/// Whether the first of these members goes: its last duplicate is null.
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
