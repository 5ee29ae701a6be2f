//! Writes the members of a JSON object one by one, with the same bytes as `serde_json`. Used for
//! the two objects that are written for every exchange.

use serde::Serialize;

/// Texts are escaped in pieces of this many bytes, because the escaping first reserves six times
/// the size of its input.
const PIECE: usize = 8 << 10;

/// Texts up to this many bytes are checked byte by byte.
const SHORT: usize = 48;

/// A name in the form that [`Members`] takes: with the comma before it and the colon after it.
macro_rules! named {
    ($name:ident) => {
        concat!(",\"", stringify!($name), "\":")
    };
}
pub(crate) use named;

/// The members of an open object at the end of `out`.
pub(crate) struct Members<'o> {
    out: &'o mut Vec<u8>,
}

impl<'o> Members<'o> {
    /// Continues the object at the end of `out`.
    pub(crate) fn of(out: &'o mut Vec<u8>) -> Self {
        Self { out }
    }

    fn name(&mut self, name: &'static str) {
        let is_first = self.out.last() == Some(&b'{');
        self.out
            .extend_from_slice(&name.as_bytes()[usize::from(is_first)..]);
    }

    /// Writes a string.
    pub(crate) fn text(&mut self, name: &'static str, value: &str) {
        self.name(name);
        escape(value, self.out);
    }

    /// Writes a string, if there is one.
    pub(crate) fn optional(&mut self, name: &'static str, value: Option<&str>) {
        if let Some(value) = value {
            self.text(name, value);
        }
    }

    /// Writes a string, unless it is empty.
    pub(crate) fn filled(&mut self, name: &'static str, value: &str) {
        if !value.is_empty() {
            self.text(name, value);
        }
    }

    /// Writes `true`, or nothing.
    pub(crate) fn flag(&mut self, name: &'static str, value: bool) {
        if value {
            self.boolean(name, true);
        }
    }

    /// Writes true or false.
    pub(crate) fn boolean(&mut self, name: &'static str, value: bool) {
        self.name(name);
        let word: &[u8] = if value { b"true" } else { b"false" };
        self.out.extend_from_slice(word);
    }

    /// Writes any value. Errors come from `serde_json`.
    pub(crate) fn json(
        &mut self,
        name: &'static str,
        value: &(impl Serialize + ?Sized),
    ) -> serde_json::Result<()> {
        self.name(name);
        serde_json::to_writer(&mut *self.out, value)
    }
}

fn escape(text: &str, out: &mut Vec<u8>) {
    // Most texts are short and plain.
    if text.len() <= SHORT
        && text
            .bytes()
            .all(|byte| byte >= b' ' && !b"\"\\".contains(&byte))
    {
        out.reserve(SHORT + 2);
        out.push(b'"');
        out.extend_from_slice(text.as_bytes());
        return out.push(b'"');
    }
    if text.len() <= PIECE {
        return json_escape_simd::escape_into(text, out);
    }
    let mut piece = Vec::with_capacity(6 * PIECE + 64);
    let mut rest = text;
    out.push(b'"');
    while !rest.is_empty() {
        let (first, others) = rest.split_at(rest.floor_char_boundary(PIECE));
        piece.clear();
        json_escape_simd::escape_into(first, &mut piece);
        out.extend_from_slice(&piece[1..piece.len() - 1]);
        rest = others;
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_escaped_as_a_short_one() {
        for unit in ["plain", "é\"\n", "\u{1}\\😀"] {
            for len in [PIECE - 3, PIECE, PIECE + 1, 5 * PIECE + 7] {
                let text: String = unit.chars().cycle().take(len).collect();
                let mut out = Vec::new();
                escape(&text, &mut out);
                assert_eq!(
                    String::from_utf8(out).unwrap(),
                    serde_json::to_string(&text).unwrap()
                );
            }
        }
    }
}
