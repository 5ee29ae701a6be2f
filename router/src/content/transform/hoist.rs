//! `system_hoist`: moves system messages of a `/v1/messages` request to its `system`.
//!
//! That API has no `role: system` inside `messages`, but clients written for another API send it.
//! The messages leave the list and become blocks of `system`, in order, after the existing content.
//! A text becomes one block, list items stay as they are, and bare texts are wrapped; other content
//! is dropped with its message. Messages after the first one of another role stay by default:
//! moving them to the top would change the beginning of the prompt in mid-conversation. If `system`
//! is neither text nor list, it is an unknown extension and nothing moves.

use answers::cursor::{Cursor, Span};

use super::edit_scan::EditScan;
use crate::content::splice::Splices;

/// The system messages of a list.
#[derive(Debug, Default)]
pub(super) struct Moves {
    /// Their bytes, including the commas to remove.
    cuts: Vec<Span>,
    /// Their contents.
    contents: Vec<Span>,
    count: usize,
    /// Whether a message that stays has been seen.
    some_stay: bool,
    /// From the first message to the last one, until one stays.
    leading: Option<Span>,
    /// The position after the last message.
    end: usize,
}

impl Moves {
    /// Takes the next message of the list.
    pub(super) fn message(&mut self, message: Span, is_system: bool, content: Option<Span>) {
        if is_system {
            self.count += 1;
            self.contents.extend(content);
            if self.some_stay {
                self.cuts.push(self.end..message.end);
            } else {
                let start = self.leading.as_ref().map_or(message.start, |l| l.start);
                self.leading = Some(start..message.end);
            }
        } else {
            self.cuts
                .extend(self.leading.take().map(|run| run.start..message.start));
            self.some_stay = true;
        }
        self.end = message.end;
    }

    /// Whether a message that stays has been seen.
    pub(super) fn some_stay(&self) -> bool {
        self.some_stay
    }

    /// Called after the last message.
    pub(super) fn close(&mut self) {
        self.cuts.extend(self.leading.take());
    }
}

/// Moves the system messages. Returns how many.
pub(super) fn hoist(body: &[u8], edit_scan: &EditScan, splices: &mut Splices) -> usize {
    let moves = &edit_scan.messages.moves;
    let Some(blocks) = blocks(body, &moves.contents) else {
        return 0;
    };
    if !blocks.is_empty() && !append(body, edit_scan, blocks, splices) {
        return 0;
    }
    for cut in &moves.cuts {
        splices.remove(cut.clone());
    }
    moves.count
}

/// Appends blocks to those of `system`. Returns whether that is possible.
fn append(body: &[u8], edit_scan: &EditScan, blocks: Vec<u8>, splices: &mut Splices) -> bool {
    let Some(system) = &edit_scan.system else {
        let member = [br#","system":["#, &*blocks, b"]"].concat();
        splices.insert(edit_scan.top.end - 1, member);
        return true;
    };
    let Span { start, end } = system.value;
    match &body[start..end] {
        b"null" => splices.replace(start..end, [b"[", &*blocks, b"]"].concat()),
        [b'"', ..] => {
            splices.insert(start, [b"[", OPEN].concat());
            splices.insert(end, [CLOSE, b",", &*blocks, b"]"].concat());
        }
        [b'[', ..] if system.is_empty => splices.insert(end - 1, blocks),
        [b'[', ..] => splices.insert(end - 1, [b",", &*blocks].concat()),
        _ => return false,
    }
    true
}

/// The text before and after the text of a block.
const OPEN: &[u8] = br#"{"type":"text","text":"#;
const CLOSE: &[u8] = b"}";

/// The contents as blocks, separated by commas. `None` when they are much larger than the body.
fn blocks(body: &[u8], contents: &[Span]) -> Option<Vec<u8>> {
    let mut blocks = Blocks {
        body,
        written: Vec::new(),
    };
    for content in contents {
        match body[content.start] {
            b'"' => blocks.push(content)?,
            b'[' => {
                Cursor::at(body, content.start).items(|cursor| {
                    let item = cursor.skip()?;
                    blocks.push(&item)
                })?;
            }
            _ => {}
        }
    }
    Some(blocks.written)
}

struct Blocks<'b> {
    body: &'b [u8],
    written: Vec<u8>,
}

impl Blocks<'_> {
    fn push(&mut self, item: &Span) -> Option<()> {
        if !self.written.is_empty() {
            self.written.push(b',');
        }
        let item = &self.body[item.clone()];
        match item.first() {
            Some(b'"') => {
                for part in [OPEN, item, CLOSE] {
                    self.written.extend_from_slice(part);
                }
            }
            _ => self.written.extend_from_slice(item),
        }
        let bound = 2 * self.body.len() + super::ADDED_MIN;
        (self.written.len() <= bound).then_some(())
    }
}
