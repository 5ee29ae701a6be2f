//! The text of a key file, changed one entry at a time. All other bytes (comments, order, blanks)
//! stay the same.

use std::ops::Range;

use router_config::keys::Digest;
use router_config::keys::file::{Entry, KeyRead, entries, parse};

use super::secret;

/// Longest owner, characters: the owner is a metric label and a table column.
const OWNER_CHARS_MAX: usize = 64;

/// The text of a key file.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct KeyText(String);

/// One key of the file, without its secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Key {
    /// Line of the entry, 1-based.
    pub(super) line: usize,
    /// The owner of the key.
    pub(super) owner: String,
    /// The masked key, for display.
    pub(super) masked: String,
    /// Whether the file holds only the key's SHA-256.
    pub(super) hashed: bool,
    /// The key's ID.
    pub(super) id: String,
    /// Byte range of the entry in the text.
    span: Range<usize>,
}

/// Parses an owner's name from the command line.
///
/// # Errors
/// When a key file could not hold the name.
pub(super) fn owner(text: &str) -> Result<String, String> {
    let fits = |c: char| !c.is_control() && !c.is_whitespace() && !",#".contains(c);
    match text.chars().count() {
        0 => Err("an owner has a name".to_owned()),
        1..=OWNER_CHARS_MAX if text.chars().all(fits) && !text.starts_with(':') => {
            Ok(text.to_owned())
        }
        1..=OWNER_CHARS_MAX => {
            Err("a name holds no blank, no comma, no `#`, and begins with no `:`".to_owned())
        }
        _ => Err(format!("a name has at most {OWNER_CHARS_MAX} characters")),
    }
}

/// The text of an entry.
pub(super) fn entry(key: &str, owner: &str, hashed: bool) -> String {
    if hashed {
        format!("sha256:{}:{owner}", Digest::of(key.as_bytes()).hex())
    } else {
        format!("{key}:{owner}")
    }
}

impl KeyText {
    /// Reads the text from bytes.
    ///
    /// # Errors
    /// When a router could not read it either.
    pub(super) fn of(bytes: Vec<u8>) -> Result<Self, &'static str> {
        match String::from_utf8(bytes) {
            Ok(text) if !text.contains('\0') => Ok(Self(text)),
            Ok(_) => Err("it holds binary data"),
            Err(_) => Err("it is not UTF-8"),
        }
    }

    /// Parses the text with the router's reader.
    pub(super) fn read(&self) -> KeyRead {
        parse(self.0.as_bytes())
    }

    /// The bytes of the text.
    pub(super) fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// The keys in file order, without invalid entries.
    pub(super) fn keys(&self) -> Vec<Key> {
        let key = |entry: Entry<'_>| {
            let read = entry.read().ok()?;
            let masked = match read.key {
                Some(key) => secret::masked(key),
                None => "sha256".to_owned(),
            };
            Some(Key {
                line: entry.line,
                owner: read.owner.to_owned(),
                masked,
                hashed: read.key.is_none(),
                id: secret::id(&read.digest),
                span: entry.span,
            })
        };
        entries(&self.0).filter_map(key).collect()
    }

    /// Whether a reader of the file learns a usable key.
    pub(super) fn holds_secrets(&self) -> bool {
        self.keys().iter().any(|key| !key.hashed)
    }

    /// Adds an entry at the end, on its own line.
    pub(super) fn push(&mut self, entry: &str) {
        let end = self.0.len();
        self.insert_line(end, entry);
    }

    /// Adds an entry on its own line below the line of `key`.
    pub(super) fn push_below(&mut self, key: &Key, entry: &str) {
        let end = self.0[key.span.end..].find('\n');
        let at = end.map_or(self.0.len(), |end| key.span.end + end + 1);
        self.insert_line(at, entry);
    }

    fn insert_line(&mut self, at: usize, entry: &str) {
        let newline = match self.0.find('\n') {
            Some(end) if self.0[..end].ends_with('\r') => "\r\n",
            _ => "\n",
        };
        let before = &self.0[..at];
        let open = !before.is_empty() && !before.ends_with(['\n', '\u{feff}']);
        let lead = if open { newline } else { "" };
        self.0.insert_str(at, &format!("{lead}{entry}{newline}"));
    }

    /// Removes the entries of these keys.
    pub(super) fn remove(&mut self, keys: &[Key]) {
        let mut spans: Vec<_> = keys.iter().map(|key| key.span.clone()).collect();
        spans.sort_by_key(|span| span.start);
        // Go from the end, so that the remaining byte ranges stay valid.
        for span in spans.into_iter().rev() {
            self.remove_one(&span);
        }
    }

    /// Removes one entry: with the comma next to it, or with its line when it is alone on the line.
    fn remove_one(&mut self, span: &Range<usize>) {
        let Some(list) = entries(&self.0)
            .find(|entry| entry.span == *span)
            .map(|e| e.list)
        else {
            return;
        };
        let text = &self.0;
        let comma_before = text[list.start..span.start]
            .rfind(',')
            .map(|at| list.start + at);
        let comma_after = text[span.end..list.end].find(',').map(|at| span.end + at);
        let cut = match (comma_before, comma_after) {
            (Some(before), Some(after)) => before..after,
            // Keep the blank before a comment: without it the text is no comment.
            (Some(before), None) => before..span.end,
            (None, Some(after)) => list.start..after + 1,
            (None, None) => list.clone(),
        };
        let left = text[list.start..cut.start]
            .chars()
            .chain(text[cut.end..list.end].chars());
        let is_bare = left.into_iter().all(|c| c == ',' || c.is_whitespace());
        let rest = &text[list.end..];
        let has_comment = rest.starts_with('#');
        if is_bare && !has_comment {
            let end = rest.find('\n').map_or(text.len(), |at| list.end + at + 1);
            self.0.replace_range(list.start..end, "");
        } else {
            self.0.replace_range(cut, "");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> KeyText {
        KeyText::of(text.as_bytes().to_vec()).unwrap()
    }

    /// The text without the keys of `owner`.
    fn without(before: &str, owner: &str) -> String {
        let mut text = text(before);
        let keys: Vec<_> = text
            .keys()
            .into_iter()
            .filter(|key| key.owner == owner)
            .collect();
        assert!(!keys.is_empty(), "{before:?}");
        text.remove(&keys);
        text.0
    }

    #[test]
    fn only_the_entry_goes() {
        for (before, after) in [
            ("sk-a:x\n", ""),
            ("# top\nsk-a:x\nsk-b:y\n", "# top\nsk-b:y\n"),
            ("sk-b:y\nsk-a:x", "sk-b:y\n"),
            ("sk-a:x,sk-b:y\n", "sk-b:y\n"),
            ("sk-b:y , sk-a:x, sk-c:z\n", "sk-b:y , sk-c:z\n"),
            ("sk-b:y,sk-a:x # note\n", "sk-b:y # note\n"),
            ("sk-a:x,#c\nsk-b:y\n", "#c\nsk-b:y\n"),
            ("sk-a:x # laptop\nsk-b:y\n", "# laptop\nsk-b:y\n"),
            (",sk-a:x,\nsk-b:y\n", "sk-b:y\n"),
            ("sk-a:x,sk-aa:x\r\nsk-b:y\r\n", "sk-b:y\r\n"),
            ("\u{feff}sk-a:x\nsk-b:y\n", "\u{feff}sk-b:y\n"),
            ("  sk-a:x\n\n\tsk-b:y\n", "\n\tsk-b:y\n"),
        ] {
            let left = without(before, "x");
            assert_eq!(left, after, "{before:?}");
            assert!(text(&left).keys().iter().all(|key| key.owner != "x"));
            assert_eq!(
                text(&left).keys().len(),
                before.matches("sk-b").count() + before.matches("sk-c").count()
            );
        }
    }

    #[test]
    fn a_new_entry_has_a_line_of_its_own() {
        for (before, after) in [
            ("", "N:n\n"),
            ("sk-a:x\n", "sk-a:x\nN:n\n"),
            ("sk-a:x", "sk-a:x\nN:n\n"),
            ("# c\r\nsk-a:x\r\n", "# c\r\nsk-a:x\r\nN:n\r\n"),
            ("sk-a:x # no end", "sk-a:x # no end\nN:n\n"),
            ("\u{feff}", "\u{feff}N:n\n"),
        ] {
            let mut text = text(before);
            text.push("N:n");
            assert_eq!(text.0, after, "{before:?}");
        }
    }

    #[test]
    fn an_entry_is_added_below_the_line_of_another() {
        let mut text = text("sk-a:x, sk-b:y # c\nsk-c:z");
        let keys = text.keys();
        text.push_below(&keys[2], "N:z");
        text.push_below(&keys[0], "M:x");
        assert_eq!(text.0, "sk-a:x, sk-b:y # c\nM:x\nsk-c:z\nN:z\n");
    }

    #[test]
    fn an_owner_is_what_the_file_can_hold() {
        for fine in ["alice", "team:x", "a.b-c_d@e", "m\u{fc}ller"] {
            assert_eq!(owner(fine).as_deref(), Ok(fine));
            let read = text(&entry("sk-k", fine, false)).keys();
            assert_eq!(read[0].owner, fine);
        }
        for wrong in ["", "a b", "a,b", "a#b", "a\nb", ":a", &"x".repeat(65)] {
            assert!(owner(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_hashed_entry_opens_by_its_key() {
        let hashed = text(&entry("sk-k", "ops", true));
        assert!(hashed.read().keys.owner(b"sk-k").is_some());
        assert!(
            hashed.keys()[0].hashed && !String::from_utf8_lossy(hashed.as_bytes()).contains("sk-k")
        );
    }

    #[test]
    fn a_listed_key_does_not_show_itself() {
        let keys = text("sk-0123456789abcdef0123:x\n").keys();
        assert!(!format!("{keys:?}").contains("0123456789"));
    }
}
