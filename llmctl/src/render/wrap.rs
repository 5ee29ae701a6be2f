//! Breaks sentences into lines that fit the terminal.

/// Minimum line length. A narrower terminal breaks the lines itself.
pub(super) const WIDTH_MIN: usize = 40;

/// Breaks a text between words into lines of at most `width` columns; a longer word gets its own
/// line. The first line starts after `lead` used columns, the further lines are indented by `rest`
/// columns.
pub(super) fn wrapped(text: &str, lead: usize, rest: usize, width: Option<usize>) -> String {
    let width = width.unwrap_or(usize::MAX);
    let mut out = String::with_capacity(text.len() + 16);
    let mut column = lead;
    for (at, word) in text.split(' ').enumerate() {
        let len = word.chars().count();
        if at == 0 {
            column += len;
        } else if column.saturating_add(1 + len) > width {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', rest));
            column = rest + len;
        } else {
            out.push(' ');
            column += 1 + len;
        }
        out.push_str(word);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_between_words_and_hang_below_the_first() {
        let text = "peer gpu-3 took 41 requests and sent no first byte for 60 s";
        assert_eq!(
            wrapped(text, 2, 6, Some(40)),
            "peer gpu-3 took 41 requests and sent\n      no first byte for 60 s"
        );
        assert_eq!(wrapped(text, 2, 6, None), text);
        assert_eq!(
            wrapped("averyveryverylongword b", 0, 2, Some(10)),
            "averyveryverylongword\n  b"
        );
    }
}
