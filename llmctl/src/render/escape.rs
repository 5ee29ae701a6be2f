//! Makes foreign text safe for a terminal.
//!
//! A model name from a client must not move the cursor, recolour the screen or change the reading
//! direction. [`tame`] escapes one value before it becomes part of a line. [`printable`] filters
//! all output, so a value without [`tame`] does not reach a terminal raw either. Escapes keep
//! different names different.

use std::borrow::Cow;
use std::fmt::Write as _;

/// The notation of an escaped character.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Escapes {
    /// `\u{1b}`, as in Rust and in this program's reports.
    Braced,
    /// `\u001b`, which has the same meaning inside a JSON string.
    Json,
}

/// Escapes one value for one line: control characters, line breaks and direction changes.
pub fn tame(text: &str) -> Cow<'_, str> {
    escaped(text, Escapes::Braced, |_| 0)
}

/// Escapes text of many lines before it is printed. Keeps line breaks and tabs, and colours where
/// `colour` says that we may have set them.
pub(super) fn printable(text: &str, escapes: Escapes, colour: bool) -> Cow<'_, str> {
    escaped(text, escapes, |rest| match rest.as_bytes()[0] {
        b'\n' | b'\t' => 1,
        0x1b if colour => colour_len(rest),
        _ => 0,
    })
}

/// Escapes unprintable characters. `kept` returns the number of bytes at the start of the rest that
/// stay unchanged.
fn escaped(text: &str, escapes: Escapes, kept: impl Fn(&str) -> usize) -> Cow<'_, str> {
    let Some(first) = text.find(is_unprintable) else {
        return Cow::Borrowed(text);
    };
    let mut shown = String::with_capacity(text.len() + 16);
    let (clean, mut rest) = text.split_at(first);
    shown.push_str(clean);
    while let Some(c) = rest.chars().next() {
        let keep = kept(rest);
        if keep > 0 || !is_unprintable(c) {
            let (same, tail) = rest.split_at(keep.max(c.len_utf8()));
            shown.push_str(same);
            rest = tail;
        } else {
            escape(c, escapes, &mut shown);
            rest = &rest[c.len_utf8()..];
        }
    }
    Cow::Owned(shown)
}

fn escape(c: char, escapes: Escapes, shown: &mut String) {
    if escapes == Escapes::Json {
        for unit in c.encode_utf16(&mut [0; 2]) {
            // Writing to a string cannot fail.
            let _ = write!(shown, "\\u{unit:04x}");
        }
    } else if matches!(c, '\n' | '\r' | '\t') {
        shown.extend(c.escape_default());
    } else {
        shown.extend(c.escape_unicode());
    }
}

/// Whether the character is a control (C0, DEL, C1) or changes the layout of the rest of the line:
/// direction changes, line and paragraph separators, zero-width characters.
fn is_unprintable(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{61c}' | '\u{180e}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Length of the colour sequence at the start of the text, `ESC [ digits m`; 0 without one.
fn colour_len(text: &str) -> usize {
    let Some(parameters) = text.strip_prefix("\x1b[") else {
        return 0;
    };
    let len = parameters
        .bytes()
        .take_while(|byte| byte.is_ascii_digit() || *byte == b';')
        .count();
    if parameters.as_bytes().get(len) == Some(&b'm') {
        "\x1b[".len() + len + 1
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: &str = "a\x1b[2J\u{9b}31m\u{202e}b\u{2028}\u{e0041}\x7f";

    #[test]
    fn a_value_cannot_leave_its_line_or_turn_it() {
        assert_eq!(tame("qwen3-32b \u{65e5}"), "qwen3-32b \u{65e5}");
        assert_eq!(tame("a\nb\tc\r"), "a\\nb\\tc\\r");
        assert_eq!(
            tame(HOSTILE),
            "a\\u{1b}[2J\\u{9b}31m\\u{202e}b\\u{2028}\\u{e0041}\\u{7f}"
        );
        assert_eq!(tame("\x1b[31mred"), "\\u{1b}[31mred");
    }

    #[test]
    fn only_colours_lines_and_tabs_pass_the_way_out() {
        let text = "\x1b[1mA\x1b[0m\tb\n\x1b[2Jc\x1b[1;31m";
        let shown = |colour| printable(text, Escapes::Braced, colour);
        assert_eq!(shown(true), "\x1b[1mA\x1b[0m\tb\n\\u{1b}[2Jc\x1b[1;31m");
        assert_eq!(
            shown(false),
            "\\u{1b}[1mA\\u{1b}[0m\tb\n\\u{1b}[2Jc\\u{1b}[1;31m"
        );
    }

    #[test]
    fn json_says_the_same_and_holds_nothing_raw() {
        // serde_json escapes only C0.
        let value = serde_json::json!({ "model": HOSTILE });
        let text = value.to_string();
        let shown = printable(&text, Escapes::Json, false);
        assert!(!shown.chars().any(is_unprintable), "{shown}");
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&shown).unwrap(),
            value
        );
    }
}
