//! Two helpers that every reader of raw JSON here needs.

use std::borrow::Cow;

use memchr::memmem::Finder;

/// Whether the byte is white space between tokens.
#[inline]
pub fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

/// The content of a string with its escapes decoded. Undecodable content is returned as it is.
pub fn unescaped(content: &[u8]) -> Cow<'_, [u8]> {
    if memchr::memchr(b'\\', content).is_none() {
        return Cow::Borrowed(content);
    }
    let quoted = [b"\"", content, b"\""].concat();
    match serde_json::from_slice::<String>(&quoted) {
        Ok(text) => Cow::Owned(text.into_bytes()),
        Err(_) => Cow::Borrowed(content),
    }
}

/// Whether a key, given with its closing quote, occurs before a value that begins with `opens`. A
/// text that quotes JSON can match too, so a match is only a reason to parse.
pub fn may_have(data: &[u8], key: &Finder<'_>, opens: u8) -> bool {
    let mut rest = data;
    // Not `find_iter`, which costs more than a search that finds nothing.
    while let Some(at) = key.find(rest) {
        rest = &rest[at + key.needle().len()..];
        let value = rest.trim_ascii_start().strip_prefix(b":");
        if value.is_some_and(|value| value.trim_ascii_start().first() == Some(&opens)) {
            return true;
        }
    }
    false
}
