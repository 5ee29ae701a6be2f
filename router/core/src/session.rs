//! The session of a request: its id and the source of the id.
//!
//! The edge looks up values (headers, fields of the body). This module decides which value counts
//! and how it may be shown. It reads neither headers nor JSON.

mod source;

use std::borrow::Cow;
use std::sync::Arc;

use sha2::{Digest, Sha256};

pub use source::{Place, Preset, SessionSource, SourceError, default_sources};

/// Longer ids are keyed and logged by their digest.
pub const TABLE_KEY_BYTES_MAX: usize = 256;
/// Maximum length of the text in `X-Routed-Session`.
pub const ROUTED_TEXT_BYTES_MAX: usize = 128;

/// A usable session id: at least one character that is not white space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionId<'a> {
    /// The raw decoded bytes, untrimmed and of any length, which placement hashes.
    pub raw: Cow<'a, [u8]>,
    /// `header.<name>` or `body.<path>`.
    pub source: Arc<str>,
}

impl SessionId<'_> {
    /// The key of this id in a table, and its only form in a log: the raw bytes up to
    /// [`TABLE_KEY_BYTES_MAX`], for longer ids `sha256:` and 64 hex digits.
    pub fn table_key(&self) -> Cow<'_, [u8]> {
        if self.raw.len() <= TABLE_KEY_BYTES_MAX {
            return Cow::Borrowed(&self.raw);
        }
        let mut key = b"sha256:".to_vec();
        for byte in Sha256::digest(&self.raw) {
            key.extend(hex(byte, b"0123456789abcdef"));
        }
        Cow::Owned(key)
    }

    /// The text of `X-Routed-Session`: at most [`ROUTED_TEXT_BYTES_MAX`] bytes of the id.
    /// Everything except visible ASCII is percent-encoded before the cut, which may split a
    /// triplet.
    pub fn routed_text(&self) -> Cow<'_, str> {
        visible(&self.raw, ROUTED_TEXT_BYTES_MAX)
    }
}

/// What is known about the session of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Session<'a> {
    /// No source had a usable id.
    None,
    /// There was an id, but affinity is switched off: the id does not affect placement and is not
    /// shown.
    Ignored(SessionId<'a>),
    /// The request belongs to this session.
    Known(SessionId<'a>),
}

impl<'a> Session<'a> {
    /// The session of a request, from the id (if any) and from whether affinity is on.
    pub fn new(found: Option<SessionId<'a>>, affinity_on: bool) -> Self {
        match found {
            None => Self::None,
            Some(id) if affinity_on => Self::Known(id),
            Some(id) => Self::Ignored(id),
        }
    }

    /// The bytes that placement hashes; `None` when the request is balanced.
    pub fn placed(&self) -> Option<&[u8]> {
        match self {
            Self::Known(id) => Some(&id.raw),
            Self::None | Self::Ignored(_) => None,
        }
    }

    /// The text of `X-Routed-Source`.
    pub fn source(&self) -> &str {
        match self {
            Self::None => "none",
            Self::Ignored(_) => "affinity_off",
            Self::Known(id) => &id.source,
        }
    }

    /// The text of `X-Routed-Session`; `-` unless the session is known.
    pub fn routed_text(&self) -> Cow<'_, str> {
        match self {
            Self::Known(id) => id.routed_text(),
            Self::None | Self::Ignored(_) => Cow::Borrowed("-"),
        }
    }
}

/// The first usable id in the order of `sources`. `lookup` returns the decoded bytes at a place: a
/// header's value, a JSON string's content, an integer's digits; `None` for anything else.
pub fn pick<'a>(
    sources: &[SessionSource],
    mut lookup: impl FnMut(&Place) -> Option<Cow<'a, [u8]>>,
) -> Option<SessionId<'a>> {
    sources.iter().find_map(|source| {
        let raw = lookup(&source.place).filter(|raw| !is_blank(raw))?;
        Some(SessionId {
            raw,
            source: Arc::clone(&source.label),
        })
    })
}

/// Whether a value contains only white space (including Unicode's). Bytes that are not UTF-8 are
/// content.
pub fn is_blank(raw: &[u8]) -> bool {
    std::str::from_utf8(raw).is_ok_and(|text| text.chars().all(char::is_whitespace))
}

/// Percent-encodes everything in `raw` except visible ASCII, then cuts it to at most `bytes_max`.
fn visible(raw: &[u8], bytes_max: usize) -> Cow<'_, str> {
    let plain = raw
        .iter()
        .take_while(|byte| byte.is_ascii_graphic())
        .take(bytes_max)
        .count();
    if let Ok(text) = std::str::from_utf8(&raw[..plain])
        && (plain == raw.len() || plain == bytes_max)
    {
        return Cow::Borrowed(text);
    }
    let mut text = String::with_capacity(bytes_max.min(raw.len() * 3));
    for &byte in raw {
        if text.len() >= bytes_max {
            break;
        }
        if byte.is_ascii_graphic() {
            text.push(char::from(byte));
        } else {
            text.push('%');
            text.extend(hex(byte, b"0123456789ABCDEF").map(char::from));
        }
    }
    text.truncate(bytes_max);
    Cow::Owned(text)
}

fn hex(byte: u8, digits: &[u8; 16]) -> [u8; 2] {
    [
        digits[usize::from(byte >> 4)],
        digits[usize::from(byte & 15)],
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(raw: &[u8]) -> SessionId<'_> {
        SessionId {
            raw: Cow::Borrowed(raw),
            source: "header.x-session-id".into(),
        }
    }

    #[test]
    fn unicode_white_space_is_blank_and_broken_utf8_is_content() {
        for blank in ["", " ", "\t\r\n", "\u{3000}\u{a0}\u{2003}"] {
            assert!(is_blank(blank.as_bytes()), "{blank:?}");
        }
        assert!(!is_blank(b" x "));
        assert!(!is_blank(b"  \xff"));
        assert!(
            !is_blank("\u{200b}".as_bytes()),
            "a zero-width space is not white space"
        );
    }

    #[test]
    fn an_id_is_never_trimmed() {
        let sources = default_sources();
        let found = pick(&sources, |_| Some(Cow::Borrowed(&b" abc "[..]))).unwrap();
        assert_eq!(&*found.raw, b" abc ");
    }

    #[test]
    fn the_table_key_is_raw_up_to_the_bound_and_a_digest_beyond() {
        let longest = [b'a'; TABLE_KEY_BYTES_MAX];
        assert_eq!(&*id(&longest).table_key(), &longest[..]);
        let longer = [b'a'; TABLE_KEY_BYTES_MAX + 1];
        assert_eq!(
            String::from_utf8(id(&longer).table_key().into_owned()).unwrap(),
            "sha256:e8d95cc2b4bc198c54b40bd214df958afb65f5e73d2c2eafe0593cf5c635c1f0"
        );
    }

    #[test]
    fn visible_ascii_is_shown_as_it_is_and_the_rest_percent_encoded() {
        assert_eq!(id(b"sess-1%~!").routed_text(), "sess-1%~!");
        assert_eq!(id(b"a b\x7f\xff").routed_text(), "a%20b%7F%FF");
        assert_eq!(id("会".as_bytes()).routed_text(), "%E4%BC%9A");
    }

    #[test]
    fn the_cut_follows_the_encoding() {
        assert_eq!(id(&[b'a'; 300]).routed_text(), "a".repeat(128));
        assert_eq!(
            id(&[b' '; 300]).routed_text(),
            format!("{}%2", "%20".repeat(42))
        );
        let mixed = [&[b'a'; 127][..], b"  b"].concat();
        assert_eq!(id(&mixed).routed_text(), format!("{}%", "a".repeat(127)));
    }

    #[test]
    fn switched_off_affinity_hides_the_id_and_says_so() {
        let ignored = Session::new(Some(id(b"s")), false);
        assert_eq!((ignored.placed(), ignored.source()), (None, "affinity_off"));
        assert_eq!(ignored.routed_text(), "-");
        let none = Session::new(None, true);
        assert_eq!((none.placed(), none.source()), (None, "none"));
        let known = Session::new(Some(id(b"s")), true);
        assert_eq!(
            (known.placed(), known.source()),
            (Some(&b"s"[..]), "header.x-session-id")
        );
        assert_eq!(known.routed_text(), "s");
    }
}
