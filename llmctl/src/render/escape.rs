//! Text from elsewhere, made fit for a terminal.

use std::borrow::Cow;

/// Text from elsewhere made fit for a terminal: what a client named its model must not move the
/// operator's cursor.
pub fn tame(text: &str) -> Cow<'_, str> {
    if text.chars().any(char::is_control) {
        let shown = text.chars().map(|c| {
            if c.is_control() {
                char::REPLACEMENT_CHARACTER
            } else {
                c
            }
        });
        Cow::Owned(shown.collect())
    } else {
        Cow::Borrowed(text)
    }
}
