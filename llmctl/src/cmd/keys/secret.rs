//! Generates keys, and masks keys for display.

use router_config::keys::Digest;

use crate::exit::Failure;
use crate::nonce::random;

/// Prefix of a new key, as clients of the OpenAI API expect it.
const PREFIX: &str = "sk-";

/// Bytes of randomness in a key.
const KEY_BYTES: usize = 24;

/// Hexadecimal digits of a key's ID.
const ID_DIGITS: usize = 8;

/// Shorter keys are masked completely: their last characters would reveal too much.
const SHOWN_FROM: usize = 16;

/// A new key: `sk-` and 48 hexadecimal digits.
///
/// # Errors
/// When the system has no randomness to give.
pub(super) fn new() -> Result<String, Failure> {
    let bytes = random::<KEY_BYTES>()?;
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("{PREFIX}{digits}"))
}

/// The ID of a key, from its SHA-256. It distinguishes keys and reveals nothing usable.
pub(super) fn id(digest: &Digest) -> String {
    digest.hex()[..ID_DIGITS].to_owned()
}

/// The key with everything but its last characters hidden.
pub(super) fn masked(key: &str) -> String {
    match key.len().checked_sub(4) {
        Some(at) if key.len() >= SHOWN_FROM && key.is_char_boundary(at) => {
            format!("***{}", &key[at..])
        }
        _ => "***".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_long_distinct_and_fit_a_header() {
        let (a, b) = (new().unwrap(), new().unwrap());
        assert_ne!(a, b);
        assert_eq!(a.len(), 51);
        assert!(a.starts_with("sk-") && a[3..].bytes().all(|b| b.is_ascii_hexdigit()));
    }

    #[test]
    fn a_mask_shows_the_end_of_long_keys_alone() {
        assert_eq!(masked("sk-0123456789abcdef"), "***cdef");
        assert_eq!(masked("sk-short"), "***");
        assert_eq!(masked(""), "***");
    }
}
