//! Edits a body by splices over its original bytes. Bytes that no splice names stay as they were,
//! so key order, number text and white space survive, and with them an engine's prefix cache.

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;

/// An edited body as the pieces to send, in order: slices of the original and the bytes between
/// them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parts(Vec<Bytes>);

/// Most pieces of a body. hyper writes up to 16 buffers with one system call, and the first is the
/// head.
const PARTS_MAX: usize = 15;

/// A body up to this length is copied into one piece. That costs less than to send several.
const COPIED_MAX: usize = 4 << 10;

impl Parts {
    /// A body without edits.
    pub fn whole(body: Bytes) -> Self {
        Self(vec![body])
    }

    /// The pieces, none of them empty.
    pub fn as_slice(&self) -> &[Bytes] {
        &self.0
    }

    /// The length of the body.
    pub fn len(&self) -> usize {
        self.0.iter().map(Bytes::len).sum()
    }

    /// Whether the body is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The body in one piece: a copy, unless it is in one piece already.
    pub fn joined(&self) -> Bytes {
        match &*self.0 {
            [whole] => whole.clone(),
            parts => parts.concat().into(),
        }
    }

    fn push(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.0.push(piece);
        }
    }
}

/// Edits collected in any order. The bytes that they add are bounded.
#[derive(Debug)]
pub struct Splices {
    edits: Vec<Splice>,
    /// Bytes that may still be added. `None` once the bound was exceeded.
    room: Option<usize>,
}

impl Default for Splices {
    /// Without a bound.
    fn default() -> Self {
        Self::at_most(usize::MAX)
    }
}

#[derive(Debug)]
struct Splice {
    at: Range<usize>,
    with: Cow<'static, [u8]>,
}

impl Splices {
    /// Edits that may add `added` bytes in total, regardless of what they remove. If they exceed
    /// that, nothing is edited.
    pub fn at_most(added: usize) -> Self {
        Self {
            edits: Vec::new(),
            room: Some(added),
        }
    }

    /// Replaces a range by `with`. Ranges must not overlap. Insertions at one place keep their
    /// order.
    pub fn replace(&mut self, at: Range<usize>, with: impl Into<Cow<'static, [u8]>>) {
        let with = with.into();
        self.room = self.room.and_then(|room| room.checked_sub(with.len()));
        match self.room {
            Some(_) => self.edits.push(Splice { at, with }),
            None => self.edits = Vec::new(),
        }
    }

    /// Inserts `with` before the byte at `at`.
    pub fn insert(&mut self, at: usize, with: impl Into<Cow<'static, [u8]>>) {
        self.replace(at..at, with);
    }

    /// Removes a range.
    pub fn remove(&mut self, at: Range<usize>) {
        self.replace(at, &b""[..]);
    }

    /// Whether there are no edits.
    pub fn is_empty(&self) -> bool {
        self.edits.is_empty()
    }

    /// The edited body. `None` when there are no edits, they add too much, one lies outside the
    /// body, or two overlap: a body with contradictory edits stays unchanged.
    pub fn apply(mut self, body: &Bytes) -> Option<Parts> {
        if self.is_empty() {
            return None;
        }
        if body.len() <= COPIED_MAX || 2 * self.len() + 1 > PARTS_MAX {
            let mut out = Vec::new();
            let is_done = self.drain_into(body, &mut out);
            return is_done.then(|| Parts::whole(out.into()));
        }
        self.sort();
        self.parts(body)
    }

    fn parts(self, body: &Bytes) -> Option<Parts> {
        let mut parts = Parts(Vec::with_capacity(2 * self.len() + 1));
        let mut done = 0;
        for Splice { at, with } in self.edits {
            let next = at.end.max(at.start);
            if at.start < done || body.len() < next {
                return None;
            }
            parts.push(body.slice(done..at.start));
            parts.push(match with {
                Cow::Borrowed(text) => Bytes::from_static(text),
                Cow::Owned(text) => text.into(),
            });
            done = next;
        }
        parts.push(body.slice(done..));
        Some(parts)
    }

    fn sort(&mut self) {
        self.edits.sort_by_key(|edit| (edit.at.start, edit.at.end));
    }

    /// Appends the edited body to `out` and forgets the edits. Returns `false` and leaves `out`
    /// unchanged when an edit lies outside the body or two overlap.
    pub fn drain_into(&mut self, body: &[u8], out: &mut Vec<u8>) -> bool {
        self.sort();
        let before = out.len();
        let added: usize = self.edits.iter().map(|edit| edit.with.len()).sum();
        out.reserve(body.len() + added);
        let is_done = write(&self.edits, body, out).is_some();
        if !is_done {
            out.truncate(before);
        }
        self.edits.clear();
        is_done
    }

    /// The position of the byte at `at` after the edits. `None` if it is in a replaced range.
    pub fn moved(&self, at: usize) -> Option<usize> {
        self.edits.iter().try_fold(at, |moved, edit| {
            if edit.at.contains(&at) {
                return None;
            }
            match edit.at.end <= at {
                true => (moved + edit.with.len()).checked_sub(edit.at.len()),
                false => Some(moved),
            }
        })
    }

    /// The number of edits.
    pub fn len(&self) -> usize {
        self.edits.len()
    }

    /// Forgets all but the first `len` collected.
    pub fn truncate(&mut self, len: usize) {
        self.edits.truncate(len);
    }
}

fn write(edits: &[Splice], body: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let mut done = 0;
    for Splice { at, with } in edits {
        out.extend_from_slice(body.get(done..at.start)?);
        out.extend_from_slice(with);
        done = at.end.max(at.start);
    }
    out.extend_from_slice(body.get(done..)?);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The edited body, in one piece and in several.
    fn apply(edits: impl Fn() -> Splices) -> Option<Vec<u8>> {
        let short = Bytes::from_static(b"abcdef");
        let long = [&short[..], &[b'.'; COPIED_MAX]].concat();
        let copied = edits().apply(&short);
        let sliced = edits().apply(&long.into());
        let copied = copied.map(|parts| {
            assert_eq!(parts.as_slice().len(), 1);
            parts.joined().to_vec()
        });
        let sliced = sliced.map(|parts| {
            assert!(parts.as_slice().len() > 1);
            let joined = parts.joined();
            assert_eq!(parts.len(), joined.len());
            joined[..joined.len() - COPIED_MAX].to_vec()
        });
        assert_eq!(copied, sliced);
        copied
    }

    #[test]
    fn edits_are_applied_in_the_order_of_the_body() {
        let edited = apply(|| {
            let mut splices = Splices::default();
            splices.replace(4..5, &b"E"[..]);
            splices.insert(0, &b"<"[..]);
            splices.remove(1..3);
            splices.insert(6, &b">"[..]);
            splices.insert(6, &b"!"[..]);
            splices
        });
        assert_eq!(edited.unwrap(), b"<adEf>!");
    }

    #[test]
    fn edits_that_contradict_each_other_change_nothing() {
        for ranges in [[0..3, 2..4], [1..2, 5..9_999], [0..4, 1..1]] {
            let edited = apply(|| {
                let mut splices = Splices::default();
                for range in ranges.clone() {
                    splices.replace(range, &b"x"[..]);
                }
                splices
            });
            assert_eq!(edited, None);
        }
    }

    #[test]
    fn edits_that_add_more_than_they_may_change_nothing() {
        for (second, fits) in [(&b"xyz"[..], true), (b"wxyz", false)] {
            let edited = apply(|| {
                let mut splices = Splices::at_most(5);
                splices.replace(0..3, &b"12"[..]);
                splices.insert(6, second);
                splices.remove(4..5);
                splices
            });
            assert_eq!(edited.is_some(), fits);
        }
        assert_eq!(apply(Splices::default), None);
    }

    #[test]
    fn many_edits_make_one_piece() {
        let body = Bytes::from(vec![b'.'; 2 * COPIED_MAX]);
        for (edits, pieces) in [(1, 3), (7, 15), (8, 1)] {
            let mut splices = Splices::default();
            for at in 0..edits {
                splices.replace(10 * at + 1..10 * at + 2, &b"x"[..]);
            }
            let parts = splices.apply(&body).unwrap();
            assert_eq!(parts.as_slice().len(), pieces);
            assert_eq!(parts.len(), body.len());
        }
    }
}
