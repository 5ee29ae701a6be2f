//! `strip_actual_usage`: removes the second token count that some SGLang builds send beside
//! `usage`.

use answers::cursor::{Cursor, Span};

use super::Handler;
use super::shape::{Edits, Role, Shape};

#[derive(Debug)]
pub(super) struct StripActualUsage;

static TOP: Shape = Shape {
    needs: None,
    role: |key| match key {
        b"actual_usage" => Role::Remove,
        _ => Role::Keep,
    },
};

impl Handler for StripActualUsage {
    fn key(&self) -> &'static str {
        "actual_usage"
    }

    fn edit(&self, json: &[u8], cursor: &mut Cursor<'_>, edits: &mut Edits) -> Option<Span> {
        edits.object(json, cursor, &TOP)
    }
}
