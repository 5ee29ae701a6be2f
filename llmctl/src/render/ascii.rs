//! Text for a terminal that can show only ASCII.

use std::borrow::Cow;
use std::env;
use std::io::{self, IsTerminal};

/// Whether the locale allows only ASCII. The first of `LC_ALL`, `LC_CTYPE` and `LANG` that is set
/// decides, as in other programs. Without any of them the locale is C: then a terminal gets ASCII.
/// A file or a pipe gets unchanged text, because its reader is unknown.
pub(super) fn wanted() -> bool {
    let set = |name| env::var(name).ok().filter(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set);
    match locale {
        Some(locale) => !is_utf8(&locale),
        None => io::stdout().is_terminal(),
    }
}

fn is_utf8(locale: &str) -> bool {
    let locale = locale.to_ascii_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

/// The text in ASCII: symbols as similar ASCII signs, any other character as its number. So nothing
/// is lost, and different names stay different.
pub(super) fn spelt(text: &str) -> Cow<'_, str> {
    if text.is_ascii() {
        return Cow::Borrowed(text);
    }
    let mut spelt = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            c if c.is_ascii() => spelt.push(c),
            '\u{2026}' => spelt.push_str("..."),
            '\u{2192}' => spelt.push_str("->"),
            '\u{2013}' | '\u{2014}' => spelt.push('-'),
            '\u{d7}' => spelt.push('x'),
            '\u{f7}' => spelt.push('/'),
            '\u{2264}' => spelt.push_str("<="),
            '\u{2265}' => spelt.push_str(">="),
            char::REPLACEMENT_CHARACTER => spelt.push('?'),
            c => spelt.extend(c.escape_unicode()),
        }
    }
    Cow::Owned(spelt)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_but_ascii_is_left_and_two_names_stay_two() {
        assert_eq!(spelt("chat"), "chat");
        assert_eq!(spelt("limit \u{d7} share \u{2026}"), "limit x share ...");
        assert_eq!(spelt("m\u{fc}ller"), "m\\u{fc}ller");
        assert_ne!(spelt("\u{fc}"), spelt("\u{e4}"));
    }

    #[test]
    fn a_locale_says_whether_it_is_utf8() {
        for (locale, utf8) in [
            ("C.UTF-8", true),
            ("de_DE.utf8", true),
            ("C", false),
            ("POSIX", false),
            ("en_US.ISO-8859-1", false),
        ] {
            assert_eq!(is_utf8(locale), utf8, "{locale}");
        }
    }
}
