//! Finds the same members in a document that lies in one piece.
//!
//! Most answers, and all events of a stream, arrive whole. A cursor reads them several times faster
//! than the state machine, which stops at every joint. A document that is cut, broken or unusual is
//! left to the machine, so both always report the same.

use super::{KEY_MAX, Member, Node, OBJECT_MAX, Role, TEXT_MAX, object_only, text_only};
use crate::cursor::{Cursor, Span};
use crate::json::unescaped;

/// The most reports of one document. A document with more is left to the state machine.
const REPORTS_MAX: usize = 16;

/// Calls `on` for every wanted value of a document. Returns `false`, without a call, when the
/// document is not complete.
pub(super) fn read(document: &[u8], on: &mut impl FnMut(Member, &[u8])) -> bool {
    if document.trim_ascii_end().last() != Some(&b'}') {
        return false;
    }
    let mut reports = Reports {
        document,
        found: [const { (Member::Id, 0..0) }; REPORTS_MAX],
        len: 0,
    };
    let mut cursor = Cursor::new(document);
    if cursor.peek() != Some(b'{') || reports.object(&mut cursor, Node::Root).is_none() {
        return false;
    }
    for (member, value) in &reports.found[..reports.len] {
        on(*member, &document[value.clone()]);
    }
    true
}

/// The wanted values of a document so far, in its order.
struct Reports<'d> {
    document: &'d [u8],
    found: [(Member, Span); REPORTS_MAX],
    len: usize,
}

impl Reports<'_> {
    fn object(&mut self, cursor: &mut Cursor<'_>, node: Node) -> Option<()> {
        cursor.members(|cursor, key| {
            let written = &self.document[key];
            let role = match node.member(written) {
                // Hardly any key has an escape, so most need no search for one.
                Role::Skip if written.len() <= KEY_MAX && written.contains(&b'\\') => {
                    node.member(&unescaped(written))
                }
                role => role,
            };
            self.value(cursor, role)
        })?;
        Some(())
    }

    fn value(&mut self, cursor: &mut Cursor<'_>, role: Role) -> Option<()> {
        let first = cursor.peek()?;
        match (first, role) {
            (b'{', Role::Enter(node)) if !node.is_array() => self.object(cursor, node),
            (b'[', Role::Enter(node)) if node.is_array() => {
                cursor.items(|cursor| self.value(cursor, Role::Enter(Node::Choice)))?;
                Some(())
            }
            _ => {
                let value = cursor.skip()?;
                self.report(role, first, value)
            }
        }
    }

    fn report(&mut self, role: Role, first: u8, value: Span) -> Option<()> {
        let (role, value, limit) = match first {
            b'{' | b'[' => (object_only(role, first), value, OBJECT_MAX),
            b'"' => (text_only(role), value.start + 1..value.end - 1, TEXT_MAX),
            _ => (text_only(role), value, TEXT_MAX),
        };
        let Role::Take(member) = role else {
            return Some(());
        };
        // `null` means the same as a missing member.
        if value.len() > limit || (first == b'n' && self.document[value.clone()] == *b"null") {
            return Some(());
        }
        *self.found.get_mut(self.len)? = (member, value);
        self.len += 1;
        Some(())
    }
}
