//! Label values computed from a row: status class, stream, prompt bucket, cleaned text.

use std::borrow::Cow;

/// Stands for a value that the row lacks.
pub const UNKNOWN: &str = "unknown";

/// The backend of a request that reached no peer.
pub const NO_BACKEND: &str = "(none)";

/// Stands for every value beyond a label's cap.
pub const OTHER: &str = "other";

/// Longest label value, bytes; the rest is cut.
pub const VALUE_BYTES_MAX: usize = 200;

/// `2xx`, `4xx`, `5xx` or `other`, as an index of [`STATUS_CLASSES`].
pub fn status_class(status: u16) -> usize {
    match status {
        200..=299 => 0,
        400..=499 => 1,
        500..=599 => 2,
        _ => 3,
    }
}

/// Values of the label `status_class`.
pub const STATUS_CLASSES: [&str; 4] = ["2xx", "4xx", "5xx", "other"];

/// `true`, `false` or `unknown`, as an index of [`STREAMS`].
pub fn stream(stream: Option<bool>) -> usize {
    match stream {
        Some(true) => 0,
        Some(false) => 1,
        None => 2,
    }
}

/// Values of the label `stream`.
pub const STREAMS: [&str; 3] = ["true", "false", UNKNOWN];

/// Upper ends of the prompt buckets in units of 1024 tokens, exclusive. Frozen: another set would
/// be another series.
const PROMPT_ENDS: [u32; 25] = [
    1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64, 80, 96, 128, 160, 192, 256, 384, 512,
    768, 1024,
];

/// A class of prompt lengths: 0 for unknown, then 1 to 26, ascending.
pub type PromptBucket = u8;

/// The number of [`PromptBucket`]s.
pub const PROMPT_BUCKETS: u8 = PROMPT_ENDS.len() as u8 + 2;

/// The class of a prompt. Zero tokens mean that the usage is missing.
pub fn prompt_bucket(prompt_tokens: u64) -> PromptBucket {
    if prompt_tokens == 0 {
        return 0;
    }
    let thousands = prompt_tokens / 1024;
    let below = PROMPT_ENDS.partition_point(|end| u64::from(*end) <= thousands);
    below as u8 + 1
}

/// The label value of a class. Text order is number order.
pub fn prompt_bucket_label(bucket: PromptBucket) -> Cow<'static, str> {
    let Some(at) = usize::from(bucket).checked_sub(1) else {
        return UNKNOWN.into();
    };
    let from = at
        .checked_sub(1)
        .map_or(0, |before| PROMPT_ENDS[before.min(PROMPT_ENDS.len() - 1)]);
    match PROMPT_ENDS.get(at) {
        Some(end) => format!("{from:04}k_{end:04}k").into(),
        None => format!("{from:04}k_inf").into(),
    }
}

/// The peer without the note that it was not the first choice.
pub fn without_retry(peer: &str) -> &str {
    peer.split_once(" (retry#").map_or(peer, |(peer, _)| peer)
}

/// The number in ` (retry#N)`; 0 without it.
pub fn retries_of(peer: &str) -> u64 {
    peer.split_once(" (retry#")
        .and_then(|(_, rest)| rest.strip_suffix(')'))
        .and_then(|count| count.parse().ok())
        .unwrap_or(0)
}

/// A value that a label may carry: printable and not longer than [`VALUE_BYTES_MAX`]. The page is
/// read line by line, and one value must not become the key of two series.
pub fn clean(value: &str) -> Cow<'_, str> {
    if is_clean(value) {
        return value.into();
    }
    let end = value.floor_char_boundary(VALUE_BYTES_MAX);
    value[..end]
        .chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect::<String>()
        .into()
}

/// Whether [`clean`] would leave a value as it is.
pub fn is_clean(value: &str) -> bool {
    // Bytes of a multi-byte control character (U+0080 to U+009F) start with 0xc2.
    let suspect = |byte: u8| byte < 0x20 || byte == 0x7f || byte == 0xc2;
    // Without an early exit the compiler vectorises the loop.
    let suspects = value
        .bytes()
        .fold(false, |found, byte| found | suspect(byte));
    value.len() <= VALUE_BYTES_MAX && (!suspects || !value.chars().any(char::is_control))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label(tokens: u64) -> String {
        prompt_bucket_label(prompt_bucket(tokens)).into_owned()
    }

    #[test]
    fn buckets_of_prompt_lengths() {
        for (tokens, expected) in [
            (0, "unknown"),
            (1, "0000k_0001k"),
            (1023, "0000k_0001k"),
            (1024, "0001k_0002k"),
            (6143, "0004k_0006k"),
            (6144, "0006k_0008k"),
            (7000, "0006k_0008k"),
            (12288, "0012k_0016k"),
            (16384, "0016k_0020k"),
            (51200, "0048k_0064k"),
            (262_144, "0256k_0384k"),
            (1_048_575, "0768k_1024k"),
            (1_048_576, "1024k_inf"),
            (2_048_000, "1024k_inf"),
            (u64::MAX, "1024k_inf"),
        ] {
            assert_eq!(label(tokens), expected, "{tokens}");
        }
        let all: Vec<_> = (1..PROMPT_BUCKETS).map(prompt_bucket_label).collect();
        assert_eq!(all.len(), 26);
        assert!(all.is_sorted_by(|a, b| a < b), "{all:?}");
    }

    #[test]
    fn status_classes() {
        for (status, class) in [
            (200, "2xx"),
            (299, "2xx"),
            (429, "4xx"),
            (499, "4xx"),
            (503, "5xx"),
            (0, "other"),
            (101, "other"),
            (302, "other"),
            (600, "other"),
        ] {
            assert_eq!(STATUS_CLASSES[status_class(status)], class, "{status}");
        }
    }

    #[test]
    fn the_retry_note_is_no_part_of_a_backend() {
        assert_eq!(without_retry("10.0.0.1:8000 (retry#2)"), "10.0.0.1:8000");
        assert_eq!(without_retry("10.0.0.1:8000"), "10.0.0.1:8000");
        assert_eq!(retries_of("10.0.0.1:8000 (retry#2)"), 2);
        assert_eq!(retries_of("10.0.0.1:8000"), 0);
        assert_eq!(retries_of("x (retry#many)"), 0);
    }

    #[test]
    fn a_label_value_is_short_and_printable() {
        assert_eq!(clean("chat"), "chat");
        assert_eq!(clean("a\nb\u{85}c"), "a\u{fffd}b\u{fffd}c");
        assert_eq!(clean("Ä"), "Ä");
        let long = "ä".repeat(VALUE_BYTES_MAX);
        assert!(clean(&long).len() <= VALUE_BYTES_MAX);
        assert!(is_clean(&clean(&long)));
    }
}
