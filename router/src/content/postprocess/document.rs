//! Rewrites a body that is one JSON document. The body is held until it is complete or exceeds the
//! bound.

use bytes::{Bytes, BytesMut};

use super::editor::Editor;
use super::{HELD_MAX, Outcome, Rewriter};

/// The rewriting of one document.
#[derive(Debug)]
pub struct Document {
    editor: Editor,
    held: Held,
    outcome: Outcome,
}

#[derive(Debug)]
enum Held {
    /// The only chunk so far, by reference.
    One(Bytes),
    Many(BytesMut),
    /// The body exceeded the bound; the rest passes.
    Over,
}

impl Document {
    /// The state before the first chunk.
    pub fn new(rewriter: impl Into<Rewriter>) -> Self {
        Self {
            editor: Editor::new(rewriter),
            held: Held::One(Bytes::new()),
            outcome: Outcome::Unchanged,
        }
    }

    /// What may pass with this chunk: nothing until the bound is exceeded.
    pub fn feed(&mut self, chunk: &Bytes) -> Bytes {
        if matches!(self.held, Held::Over) {
            return chunk.clone();
        }
        let before = self.held();
        if before == 0 {
            self.held = Held::One(chunk.clone());
        } else {
            let mut joined = match std::mem::replace(&mut self.held, Held::Over) {
                Held::One(held) => BytesMut::from(&held[..]),
                Held::Many(held) => held,
                Held::Over => BytesMut::new(),
            };
            joined.extend_from_slice(chunk);
            self.held = Held::Many(joined);
        }
        if before + chunk.len() <= HELD_MAX {
            return Bytes::new();
        }
        self.let_go()
    }

    /// Stops holding the body. Returns the held bytes, because the rest passes.
    pub fn let_go(&mut self) -> Bytes {
        self.outcome = Outcome::Passed;
        self.give_up()
    }

    /// Bytes held back.
    pub fn held(&self) -> usize {
        match &self.held {
            Held::One(held) => held.len(),
            Held::Many(held) => held.len(),
            Held::Over => 0,
        }
    }

    /// Whether something is held back.
    pub fn holds(&self) -> bool {
        match &self.held {
            Held::One(held) => !held.is_empty(),
            Held::Many(_) => true,
            Held::Over => false,
        }
    }

    /// At the end of the body: the held bytes, rewritten.
    pub fn finish(&mut self) -> Bytes {
        let whole = self.give_up();
        let mut edited = Vec::new();
        if !self.editor.edit(&whole, 0..whole.len(), &mut edited) {
            return whole;
        }
        self.outcome = Outcome::Changed;
        edited.into()
    }

    /// What happened to the body so far.
    pub fn outcome(&self) -> Outcome {
        self.outcome
    }

    fn give_up(&mut self) -> Bytes {
        match std::mem::replace(&mut self.held, Held::Over) {
            Held::One(held) => held,
            Held::Many(held) => held.freeze(),
            Held::Over => Bytes::new(),
        }
    }
}
