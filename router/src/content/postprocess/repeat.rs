//! The chunks of a stream usually differ in only one piece of text. If a chunk equals the last one
//! around that text, the same edit applies to it without parsing.

use answers::cursor::Span;

/// If the text around the piece exceeds this many bytes, it is not remembered.
const KEPT_MAX: usize = 4 << 10;

/// A JSON text around one of its strings, and the edited form.
#[derive(Debug, Default)]
pub(super) struct Repeat {
    is_known: bool,
    /// Up to the string's first quote, itself included.
    before: Vec<u8>,
    /// From the string's last quote on.
    after: Vec<u8>,
    is_changed: bool,
    /// The edited forms of `before` and `after`.
    made: [Vec<u8>; 2],
}

impl Repeat {
    /// Forgets the remembered text.
    pub(super) fn forget(&mut self) {
        self.is_known = false;
    }

    /// Remembers that `json` is left unchanged. `text` is the range between the quotes of the
    /// string.
    pub(super) fn unchanged(&mut self, json: &[u8], text: &Span) {
        self.remember(json, text);
        self.is_changed = false;
    }

    /// Remembers that `json` became `made`, in which the same string now begins at `text_at`.
    pub(super) fn changed(&mut self, json: &[u8], text: &Span, made: &[u8], text_at: usize) {
        self.remember(json, text);
        self.is_changed = true;
        if !self.is_known {
            return;
        }
        let ends = [made.get(..text_at), made.get(text_at + text.len()..)];
        for (kept, end) in self.made.iter_mut().zip(ends) {
            self.is_known &= end.is_some();
            kept.clear();
            kept.extend_from_slice(end.unwrap_or_default());
        }
    }

    fn remember(&mut self, json: &[u8], text: &Span) {
        self.is_known = json.len() - text.len() <= KEPT_MAX;
        if self.is_known {
            self.before.clear();
            self.before.extend_from_slice(&json[..text.start]);
            self.after.clear();
            self.after.extend_from_slice(&json[text.end..]);
        }
    }

    /// Looks up the edit for `json`. `None` if it is unknown; otherwise whether `json` changes. A
    /// changed text is appended to `out`.
    pub(super) fn apply(&self, json: &[u8], out: &mut Vec<u8>) -> Option<bool> {
        let text = self.is_known.then_some(json)?;
        let text = text.strip_prefix(&self.before[..])?;
        let text = text.strip_suffix(&self.after[..])?;
        if !is_one_string(text) {
            return None;
        }
        if self.is_changed {
            let [before, after] = &self.made;
            out.reserve(before.len() + text.len() + after.len());
            out.extend_from_slice(before);
            out.extend_from_slice(text);
            out.extend_from_slice(after);
        }
        Some(self.is_changed)
    }
}

/// Whether these bytes between two quotes are a complete string that every parser accepts. Strings
/// with escapes of code points are left to the parsers.
fn is_one_string(text: &[u8]) -> bool {
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        let is_sound = match byte {
            0..0x20 | b'"' => false,
            b'\\' => matches!(
                bytes.next(),
                Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't')
            ),
            _ => true,
        };
        if !is_sound {
            return false;
        }
    }
    true
}
