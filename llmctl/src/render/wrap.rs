//! Sentences that fit the terminal.

/// Narrower terminals get lines of this length, which the terminal breaks itself.
pub(super) const WIDTH_MIN: usize = 40;

/// Breaks a text between words, so that no line is longer than `width` where words allow it. `lead` columns
/// of the first line are taken already, the lines after it stand `rest` columns from the left.
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
