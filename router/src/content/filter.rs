//! Drops or rewrites some data lines of an event stream.
//!
//! All other bytes pass unchanged, each complete line with the chunk it ended in. If a chunk cuts a
//! line, the beginning is held back only while the line may still be dropped or rewritten; an SSE
//! reader waits for the end of the line anyway. A line longer than the bound passes.

use answers::sse::{self, Lines, Piece, field};
use bytes::{Bytes, BytesMut};

use super::postprocess::{self, Editor, Handler, Outcome, Rewriter};
use super::usage_filter::UsageFilter;

/// Room for the growth of rewritten lines, per chunk. If it is too small, more is allocated.
const GROWTH: usize = 64;

/// The filter of one stream.
#[derive(Debug)]
pub struct Filter {
    lines: Lines,
    /// How many bytes of the line that the last chunk cut are held.
    cut: usize,
    /// Those bytes have passed, and so will the rest of the line.
    passing: bool,
    rules: Rules,
}

#[derive(Debug)]
struct Rules {
    usage_filter: Option<UsageFilter>,
    rewrite: Option<Rewrite>,
}

/// A handler for the data of a stream.
#[derive(Debug)]
struct Rewrite {
    editor: Editor,
    /// The line last rewritten.
    line: Vec<u8>,
    changed: bool,
}

/// What happens to a piece.
enum Fate<'a> {
    Passes,
    Goes,
    /// The piece becomes this text; its line end stays.
    Becomes(&'a [u8]),
}

impl Filter {
    /// The filter at the beginning of a stream. `usage_filter` drops the usage chunk; `handler`
    /// rewrites data.
    pub fn new(usage_filter: bool, handler: Option<&'static dyn Handler>) -> Self {
        Self::rewriting(usage_filter, handler.map(Rewriter::from))
    }

    /// The filter at the beginning of a stream. `usage_filter` drops the usage chunk; `rewriter`
    /// rewrites data.
    pub fn rewriting(usage_filter: bool, rewriter: Option<Rewriter>) -> Self {
        let held_max = match rewriter {
            Some(_) => postprocess::HELD_MAX,
            None => sse::HELD_MAX,
        };
        Self {
            lines: Lines::new(held_max),
            cut: 0,
            passing: false,
            rules: Rules {
                usage_filter: usage_filter.then(UsageFilter::default),
                rewrite: rewriter.map(|rewriter| Rewrite {
                    editor: Editor::new(rewriter),
                    line: Vec::new(),
                    changed: false,
                }),
            },
        }
    }

    /// What may pass with this chunk. This is a slice of the chunk, without a copy, if nothing in
    /// its middle was changed or held back.
    pub fn feed(&mut self, chunk: &Bytes) -> Bytes {
        if self.lines.is_at_start() && self.rules.leave_alone(chunk) {
            return chunk.clone();
        }
        let cut = self.cut;
        let mut passing = self.passing;
        let mut copy = self
            .holds()
            .then(|| BytesMut::with_capacity(chunk.len() + cut + GROWTH));
        // Counted from the beginning of the cut line.
        let mut at = 0;
        let mut feed = self.lines.feed(chunk);
        while let Some(piece) = feed.next() {
            let parts = piece.parts();
            let fate = self.rules.fate(piece, passing);
            if !matches!(fate, Fate::Passes) && copy.is_none() {
                let mut begun = BytesMut::with_capacity(chunk.len() + GROWTH);
                begun.extend_from_slice(&chunk[..at - cut]);
                copy = Some(begun);
            }
            if let Some(copy) = &mut copy {
                let kept = match fate {
                    Fate::Passes => parts,
                    Fate::Goes => [&b""[..]; 2],
                    Fate::Becomes(text) => [text, parts[1]],
                };
                copy.extend_from_slice(kept[0]);
                copy.extend_from_slice(kept[1]);
            }
            at += parts[0].len() + parts[1].len();
            passing = false;
        }
        self.cut = (cut + chunk.len()).saturating_sub(at);
        let open = self.lines.open();
        self.passing = self.cut > 0 && (passing || !self.rules.may_act_on(open));
        match copy {
            Some(mut copy) => {
                if self.passing {
                    copy.extend_from_slice(open);
                }
                copy.freeze()
            }
            None if self.passing => chunk.clone(),
            None => chunk.slice(..at.saturating_sub(cut)),
        }
    }

    /// Whether something is held back.
    pub fn holds(&self) -> bool {
        self.cut > 0 && !self.passing
    }

    /// Bytes kept of the line that the last chunk cut, whether they have passed or not.
    pub fn held(&self) -> usize {
        self.lines.open().len()
    }

    /// Frees what is kept of that line. Returns the bytes that had not passed, because the rest of
    /// the line passes now.
    pub fn let_go(&mut self) -> Bytes {
        let held = self.lines.let_go();
        let passing = std::mem::take(&mut self.passing);
        self.cut = 0;
        if held.is_empty() {
            return Bytes::new();
        }
        // The line passes, so its end must pass too.
        self.rules.fate(Piece::Rest(&held), passing);
        match passing {
            true => Bytes::new(),
            false => held.into(),
        }
    }

    /// At the end of the stream: the bytes that are still held back.
    pub fn finish(&mut self) -> Bytes {
        let passing = self.passing;
        (self.cut, self.passing) = (0, false);
        match self.lines.finish() {
            Some(piece) if !passing => match self.rules.fate(piece, false) {
                Fate::Passes => Bytes::copy_from_slice(piece.parts()[0]),
                Fate::Goes => Bytes::new(),
                Fate::Becomes(text) => Bytes::copy_from_slice(text),
            },
            _ => Bytes::new(),
        }
    }

    /// What happened to the stream so far.
    pub fn outcome(&self) -> Outcome {
        match self.rules.rewrite.as_ref().is_some_and(|rule| rule.changed) {
            true => Outcome::Changed,
            false => Outcome::Unchanged,
        }
    }
}

impl Rules {
    /// Whether nothing in a chunk that begins with a line may be dropped or rewritten, by one
    /// search. The state is then the same after it.
    fn leave_alone(&self, chunk: &[u8]) -> bool {
        let usage_filter = self.usage_filter.as_ref();
        self.rewrite.is_none() && usage_filter.is_none_or(|filter| filter.leaves_alone(chunk))
    }

    /// `passing` means that the line has begun to pass and can no longer be changed.
    fn fate(&mut self, piece: Piece<'_>, passing: bool) -> Fate<'_> {
        if let Some(usage_filter) = &mut self.usage_filter
            && usage_filter.drops(piece, passing)
        {
            return Fate::Goes;
        }
        match (&mut self.rewrite, piece) {
            (Some(rewrite), Piece::Line { text, .. }) if !passing => rewrite.fate(text),
            _ => Fate::Passes,
        }
    }

    /// Whether a line with this beginning may be dropped or rewritten.
    fn may_act_on(&self, start: &[u8]) -> bool {
        let drops = self.usage_filter.is_some() && UsageFilter::may_drop(start);
        drops || (self.rewrite.is_some() && may_be_object(start))
    }
}

impl Rewrite {
    fn fate(&mut self, text: &[u8]) -> Fate<'_> {
        let Some(data) = field(text, b"data") else {
            return Fate::Passes;
        };
        self.line.clear();
        let json = text.len() - data.len()..text.len();
        match self.editor.edit(text, json, &mut self.line) {
            true => {
                self.changed = true;
                Fate::Becomes(&self.line)
            }
            false => Fate::Passes,
        }
    }
}

/// Whether a line with this beginning may be data that is a JSON object.
fn may_be_object(start: &[u8]) -> bool {
    match start.strip_prefix(b"data:") {
        Some(data) => matches!(data.trim_ascii_start().first(), None | Some(b'{')),
        None => b"data:".starts_with(start),
    }
}

#[cfg(test)]
mod tests;
