//! Edits of a body as splices over its original bytes: what no splice names stays the byte it was,
//! so key order, number text, white space and with them an engine's prefix cache survive.

use std::borrow::Cow;
use std::ops::Range;

/// Edits collected in any order.
#[derive(Debug, Default)]
pub struct Splices {
    edits: Vec<Splice>,
}

#[derive(Debug)]
struct Splice {
    at: Range<usize>,
    with: Cow<'static, [u8]>,
}

impl Splices {
    /// Puts `with` in place of a range. Ranges must not overlap; insertions at one place keep
    /// their order.
    pub fn replace(&mut self, at: Range<usize>, with: impl Into<Cow<'static, [u8]>>) {
        let with = with.into();
        self.edits.push(Splice { at, with });
    }

    /// Puts `with` before the byte at `at`.
    pub fn insert(&mut self, at: usize, with: impl Into<Cow<'static, [u8]>>) {
        self.replace(at..at, with);
    }

    /// Whether nothing is to be changed.
    pub fn is_empty(&self) -> bool {
        self.edits.is_empty()
    }

    /// The edited body. `None` when an edit lies outside the body or two overlap: a body whose
    /// edits contradict each other is left alone.
    pub fn apply(mut self, body: &[u8]) -> Option<Vec<u8>> {
        self.edits.sort_by_key(|edit| (edit.at.start, edit.at.end));
        let added: usize = self.edits.iter().map(|edit| edit.with.len()).sum();
        let mut out = Vec::with_capacity(body.len() + added);
        let mut done = 0;
        for Splice { at, with } in &self.edits {
            out.extend_from_slice(body.get(done..at.start)?);
            out.extend_from_slice(with);
            done = at.end.max(at.start);
        }
        out.extend_from_slice(body.get(done..)?);
        Some(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_applied_in_the_order_of_the_body() {
        let mut splices = Splices::default();
        splices.replace(4..5, &b"E"[..]);
        splices.insert(0, &b"<"[..]);
        splices.replace(1..3, &b""[..]);
        splices.insert(6, &b">"[..]);
        splices.insert(6, &b"!"[..]);
        assert_eq!(splices.apply(b"abcdef").unwrap(), b"<adEf>!");
    }

    #[test]
    fn edits_that_contradict_each_other_change_nothing() {
        for ranges in [[0..3, 2..4], [1..2, 5..9], [0..4, 1..1]] {
            let mut splices = Splices::default();
            for range in ranges {
                splices.replace(range, &b"x"[..]);
            }
            assert_eq!(splices.apply(b"abcdef"), None);
        }
    }
}
