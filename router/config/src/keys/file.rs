//! The key file: `key:owner` entries, separated by commas or newlines.
//!
//! `#` begins a comment at the start of an entry or after a blank. The first colon separates key
//! and owner; a key without an owner belongs to `unnamed`. `sha256:<64 hex>:owner` holds a digest
//! instead of a key. An invalid entry is skipped and reported by its line, never by its text.

use std::fmt;
use std::io;
use std::ops::Range;
use std::path::Path;

use super::{Cuts, Digest, HASHED, KeySet};
use crate::load::{ContentHash, read_bounded};

/// Maximum size of a key file, bytes: a hundred thousand hashed keys with long owners.
pub const FILE_MAX: u64 = 32 << 20;

/// Maximum number of problems kept per read.
const PROBLEMS_MAX: usize = 100;

/// The owner of a key without one.
const UNNAMED: &str = "unnamed";

/// The state of a key file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyFileStatus {
    /// The file has at least one key.
    Ok,
    /// The file does not exist.
    Missing,
    /// The file exists, but cannot be used.
    Unreadable,
    /// The file has no key.
    Empty,
}

impl KeyFileStatus {
    /// The spelling in endpoints and log lines.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Missing => "missing",
            Self::Unreadable => "unreadable",
            Self::Empty => "empty",
        }
    }
}

impl fmt::Display for KeyFileStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A problem with one entry, without its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyProblem {
    /// 1-based.
    pub line: usize,
    /// The problem, phrased to follow "line 3: ".
    pub message: &'static str,
    /// True when the entry is valid but its key is there already. Otherwise the entry is invalid
    /// and was skipped.
    pub is_doubled: bool,
}

/// One entry of the file's text, as written.
#[derive(Clone, PartialEq, Eq)]
pub struct Entry<'t> {
    /// 1-based.
    pub line: usize,
    /// Its bytes in the text, without surrounding blanks.
    pub span: Range<usize>,
    /// The part of its line that has entries: up to the comment, or to the end of the line.
    pub list: Range<usize>,
    text: &'t str,
}

/// The content of an entry.
#[derive(Clone)]
pub struct Reading<'t> {
    /// The key; `None` if the file has only its digest.
    pub key: Option<&'t str>,
    /// The key's digest.
    pub digest: Digest,
    /// The owner.
    pub owner: &'t str,
}

/// The entries of a key file's text, valid or not, in file order.
pub fn entries(text: &str) -> impl Iterator<Item = Entry<'_>> {
    let bom = if text.starts_with(BOM) {
        BOM.len_utf8()
    } else {
        0
    };
    let mut start = bom;
    text[bom..]
        .split_inclusive('\n')
        .enumerate()
        .flat_map(move |(index, line)| {
            let at = start;
            start += line.len();
            let list = without_comment(line.strip_suffix('\n').map_or(line, without_return));
            let end = at + list.len();
            let mut entry = at;
            list.split(',').filter_map(move |part| {
                let begin = entry + (part.len() - part.trim_start().len());
                entry += part.len() + 1;
                let text = part.trim();
                (!text.is_empty()).then(|| Entry {
                    line: index + 1,
                    span: begin..begin + text.len(),
                    list: at..end,
                    text,
                })
            })
        })
}

fn without_return(line: &str) -> &str {
    line.strip_suffix('\r').unwrap_or(line)
}

const BOM: char = '\u{feff}';

impl<'t> Entry<'t> {
    /// Parses the entry.
    ///
    /// # Errors
    /// Why the entry is invalid, without its text.
    pub fn read(&self) -> Result<Reading<'t>, &'static str> {
        let (key, digest, owner) = match self.text.strip_prefix(HASHED) {
            Some(rest) => {
                let (hex, owner) = rest.split_once(':').unwrap_or((rest, ""));
                (None, Digest::parse(hex.trim()).ok_or(BAD_HASH)?, owner)
            }
            None => {
                let (key, owner) = self.text.split_once(':').unwrap_or((self.text, ""));
                let key = key.trim();
                if key.is_empty() {
                    return Err("an entry begins with `:`, so it has no key; it is skipped");
                }
                if !key.bytes().all(|b| (0x21..=0x7e).contains(&b)) {
                    return Err(
                        "a key holds blanks or characters that no header may carry; it is skipped",
                    );
                }
                (Some(key), Digest::of(key.as_bytes()), owner)
            }
        };
        let owner = owner.trim();
        let owner = if owner.is_empty() { UNNAMED } else { owner };
        Ok(Reading { key, digest, owner })
    }
}

/// The result of one read of the file.
#[derive(Clone, Debug)]
pub struct KeyRead {
    /// The state of the file.
    pub status: KeyFileStatus,
    /// The reason, when the file is unreadable.
    pub detail: Option<String>,
    /// The keys; empty unless the status is [`KeyFileStatus::Ok`].
    pub keys: KeySet,
    /// Entries that were skipped, and duplicate keys. At most a hundred.
    pub problems: Vec<KeyProblem>,
    /// Hash of the content, to detect a change; `None` when the file could not be read.
    pub hash: Option<ContentHash>,
    /// The last entry is incomplete: the file is still being written, or a copy was truncated.
    pub truncated: bool,
    /// Tells whether the next read is a truncated copy of this one.
    pub cuts: Cuts,
}

/// Reads the key file. Blocking. Never fails: the status of the result reports what went wrong.
pub fn read(path: &Path) -> KeyRead {
    match read_bounded(path, FILE_MAX) {
        Ok(bytes) => parse(&bytes),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            unusable(KeyFileStatus::Missing, None, None)
        }
        Err(error) => unusable(KeyFileStatus::Unreadable, Some(error.to_string()), None),
    }
}

fn unusable(status: KeyFileStatus, detail: Option<String>, hash: Option<ContentHash>) -> KeyRead {
    KeyRead {
        status,
        detail,
        keys: KeySet::default(),
        problems: Vec::new(),
        hash,
        truncated: false,
        cuts: Cuts::default(),
    }
}

/// Reads a key file's bytes.
pub fn parse(bytes: &[u8]) -> KeyRead {
    let hash = Some(ContentHash::of(bytes));
    let text = match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => text,
        Ok(_) => {
            return unusable(
                KeyFileStatus::Unreadable,
                Some("it holds binary data".to_owned()),
                hash,
            );
        }
        Err(_) => {
            return unusable(
                KeyFileStatus::Unreadable,
                Some("it is not UTF-8".to_owned()),
                hash,
            );
        }
    };
    let mut out = unusable(KeyFileStatus::Empty, None, hash);
    let mut last_is_cut = false;
    for entry in entries(text) {
        let read = entry.read();
        last_is_cut = read.as_ref().err() == Some(&BAD_HASH);
        let (message, is_doubled) = match read {
            Ok(read) if out.keys.insert(read.digest, read.owner) => (DOUBLED, true),
            Ok(_) => continue,
            Err(why) => (why, false),
        };
        if out.problems.len() < PROBLEMS_MAX {
            out.problems.push(KeyProblem {
                line: entry.line,
                message,
                is_doubled,
            });
        }
    }
    out.cuts = Cuts::of(text, entries(text));
    out.truncated = last_is_cut && !text.ends_with(['\n', ',']);
    if !out.keys.is_empty() {
        out.status = KeyFileStatus::Ok;
    }
    out
}

const BAD_HASH: &str =
    "a hashed entry is `sha256:`, 64 hexadecimal digits, and `:owner`; it is skipped";

const DOUBLED: &str = "a key is there twice; the last owner counts";

/// The line up to a `#` at its start, after a blank or after a comma. A `#` inside a key belongs to
/// the key.
fn without_comment(line: &str) -> &str {
    let comment = line.match_indices('#').map(|(at, _)| at).find(|at| {
        let before = line[..*at].chars().next_back();
        before.is_none_or(|c| c.is_whitespace() || c == ',')
    });
    comment.map_or(line, |at| &line[..at])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(read: &KeyRead, key: &str) -> Option<String> {
        read.keys
            .owner(key.as_bytes())
            .map(|owner| owner.to_string())
    }

    fn lines(read: &KeyRead) -> Vec<usize> {
        read.problems.iter().map(|p| p.line).collect()
    }

    #[test]
    fn commas_separate_and_the_first_colon_splits() {
        let read = parse(b"sk-a:admin,sk-b:team:x ,  ,sk-c\n");
        assert_eq!(read.status, KeyFileStatus::Ok);
        assert_eq!(owner(&read, "sk-a").as_deref(), Some("admin"));
        assert_eq!(owner(&read, "sk-b").as_deref(), Some("team:x"));
        assert_eq!(owner(&read, "sk-c").as_deref(), Some("unnamed"));
        assert_eq!((read.keys.len(), read.problems.len()), (3, 0));
    }

    /// K2 of the written vectors, with the result that the contract demands: a newline separates.
    #[test]
    fn newlines_separate_keys() {
        let read = parse(b"sk-a:x\nsk-b:y");
        assert_eq!(owner(&read, "sk-a").as_deref(), Some("x"));
        assert_eq!(owner(&read, "sk-b").as_deref(), Some("y"));
    }

    #[test]
    fn statuses_of_a_file_that_gives_no_key() {
        assert_eq!(parse(b"  \n\t, ,\n# sk-a:x\n").status, KeyFileStatus::Empty);
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(
            read(&directory.path().join("none")).status,
            KeyFileStatus::Missing
        );
        // A directory simulates an unreadable file, because permissions do not stop every user that
        // runs tests.
        let unreadable = read(directory.path());
        assert_eq!(unreadable.status, KeyFileStatus::Unreadable);
        assert!(unreadable.detail.is_some());
    }

    #[test]
    fn comments_blanks_bom_and_crlf_are_no_keys() {
        let read = parse(
            "\u{feff}# old: sk-x, sk-y\r\n sk-a : admin # note, sk-z\r\n\r\nsk#b:y,#c\r\n"
                .as_bytes(),
        );
        assert_eq!(owner(&read, "sk-a").as_deref(), Some("admin"));
        assert_eq!(owner(&read, "sk#b").as_deref(), Some("y"));
        assert_eq!((read.keys.len(), read.problems.len()), (2, 0));
    }

    #[test]
    fn hashed_entries_hold_a_digest() {
        let hex = "6f5c76f2f5ae7f2c1a51da4ba17c5cf2d2a0a0b7d6c1c2b1a1f0e1d2c3b4a596";
        let read = parse(format!("sha256:{hex}:ops:eu, sha256:{hex}\n").as_bytes());
        assert_eq!((read.keys.len(), lines(&read)), (1, vec![1]));
        assert!(read.problems[0].message.contains("twice"));
    }

    #[test]
    fn an_entry_that_is_none_is_reported_by_line_and_never_becomes_a_key() {
        let read = parse(b"sk-a:x\n:y\nsha256:12ab:z\nsk b:w\n");
        assert_eq!(lines(&read), [2, 3, 4]);
        assert_eq!(read.keys.len(), 1);
        for text in [":y", "sha256", "sha256:12ab", "12ab", "sk b"] {
            assert_eq!(owner(&read, text), None, "{text}");
        }
        assert!(!read.truncated, "the last line is whole");
    }

    #[test]
    fn a_hashed_entry_that_breaks_off_is_a_truncated_file() {
        assert!(parse(b"sk-a:x\nsha256:12ab").truncated);
        assert!(!parse(b"sha256:12ab\nsk-a:x").truncated);
    }

    #[test]
    fn binary_content_is_unreadable_and_not_quoted() {
        for bytes in [&b"sk-a:x\0\n"[..], b"sk-a:x\n\xff\xfe"] {
            let read = parse(bytes);
            assert_eq!(read.status, KeyFileStatus::Unreadable);
            assert!(read.keys.is_empty() && !format!("{read:?}").contains("sk-a"));
        }
    }

    #[test]
    fn a_hundred_thousand_lines_are_read() {
        let text: String = (0..100_000)
            .map(|i| format!("sk-{i}:owner-{i}\n"))
            .collect();
        let read = parse(text.as_bytes());
        assert_eq!(read.keys.len(), 100_000);
        assert_eq!(owner(&read, "sk-99999").as_deref(), Some("owner-99999"));
    }

    #[test]
    fn an_entry_knows_where_it_stands() {
        let text = "\u{feff}sk-a:x , sk-b # c\r\n,sk-c:z\r\n";
        let found: Vec<_> = entries(text)
            .map(|e| (e.line, &text[e.span.clone()], &text[e.list]))
            .collect();
        assert_eq!(
            found,
            [
                (1, "sk-a:x", "sk-a:x , sk-b "),
                (1, "sk-b", "sk-a:x , sk-b "),
                (2, "sk-c:z", ",sk-c:z"),
            ]
        );
    }

    #[test]
    fn problems_are_bounded() {
        assert_eq!(
            parse(":x\n".repeat(1000).as_bytes()).problems.len(),
            PROBLEMS_MAX
        );
    }
}
