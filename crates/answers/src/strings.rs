//! Finds the end of a JSON string, 64 bytes at a time.
//!
//! A block becomes masks with one bit per byte: quotes, backslashes, control characters. A few
//! operations on the masks find all escapes of a block, so an escape does not restart the search.
//! The method is the first stage of simdjson (Langdale and Lemire, "Parsing Gigabytes of JSON per
//! Second").
//!
//! Neither function is inlined: the loop over blocks loses a fifth of its speed to the registers of
//! its caller.

use wide::u8x16;

use crate::block::{BLOCK, Block, CONTROL_MAX};

/// Most keys and many values are shorter. They are read as one vector instead of a block.
const SHORT: usize = 16;

/// The position after the closing quote of the string whose opening quote is at `start`. What is
/// between the quotes is not checked.
#[inline(never)]
pub fn end(body: &[u8], start: usize) -> Option<usize> {
    find::<false>(body, start)
}

/// Like [`end`], but `None` also for a control character or an unknown escape between the quotes.
/// Whether the bytes are UTF-8 is not checked.
#[inline(never)]
pub fn checked_end(body: &[u8], start: usize) -> Option<usize> {
    find::<true>(body, start)
}

#[inline(always)]
fn find<const CHECKED: bool>(body: &[u8], start: usize) -> Option<usize> {
    let at = start + 1;
    let text = first_bytes(body, at)?;
    let quotes = text.simd_eq(u8x16::splat(b'"')).to_bitmask();
    let mut others = text.simd_eq(u8x16::splat(b'\\'));
    if CHECKED {
        others |= text.min(u8x16::splat(CONTROL_MAX)).simd_eq(text);
    }
    if others.to_bitmask() & below_lowest(u64::from(quotes | 1 << SHORT)) as u32 != 0 {
        return find_in_blocks::<CHECKED>(body, at);
    }
    match quotes {
        0 => find_in_blocks::<CHECKED>(body, at + SHORT),
        _ => Some(at + quotes.trailing_zeros() as usize + 1),
    }
}

/// `at` is inside the string. The byte there is not escaped.
fn find_in_blocks<const CHECKED: bool>(body: &[u8], mut at: usize) -> Option<usize> {
    let mut carry = 0;
    loop {
        let block = Block::at(body, at)?;
        let (quotes, backslashes) = (block.equal(b'"'), block.equal(b'\\'));
        let escaped = escaped(backslashes, &mut carry);
        let ends = quotes & !escaped;
        if CHECKED {
            let inside = below_lowest(ends);
            if block.has_controls() && block.controls() & inside != 0 {
                return None;
            }
            let escapes = escaped & inside & !(quotes | backslashes);
            if escapes != 0 {
                let rare = escapes & !block.any([b'n', b't']);
                if rare != 0 && !are_known(body, at, rare) {
                    return None;
                }
            }
        }
        if ends != 0 {
            return Some(at + ends.trailing_zeros() as usize + 1);
        }
        at += BLOCK;
    }
}

/// The first bytes of the body from `at` on. Bytes beyond its end are zero.
#[inline]
fn first_bytes(body: &[u8], at: usize) -> Option<u8x16> {
    let rest = body.get(at..).filter(|rest| !rest.is_empty())?;
    if let Some(whole) = rest.first_chunk::<SHORT>() {
        return Some(u8x16::new(*whole));
    }
    let mut bytes = [0; SHORT];
    bytes[..rest.len()].copy_from_slice(rest);
    Some(u8x16::new(bytes))
}

/// The bytes after a backslash that is not escaped itself. `carry` is 1 when the first byte of the
/// next block is one of them.
#[inline]
fn escaped(backslashes: u64, carry: &mut u64) -> u64 {
    const EVEN: u64 = 0x5555_5555_5555_5555;
    let backslashes = backslashes & !*carry;
    let follow = backslashes << 1 | *carry;
    let odd_starts = backslashes & !EVEN & !follow;
    // The addition turns each run of backslashes into the bit behind it.
    let (runs, overflows) = odd_starts.overflowing_add(backslashes);
    *carry = u64::from(overflows);
    (EVEN ^ (runs << 1)) & follow
}

/// Whether each of these bytes continues an escape that JSON knows.
#[inline]
fn are_known(body: &[u8], at: usize, mut escapes: u64) -> bool {
    while escapes != 0 {
        let place = at + escapes.trailing_zeros() as usize;
        let is_known = match body[place] {
            b'/' | b'b' | b'f' | b'r' => true,
            b'u' => {
                let digits = body.get(place + 1..place + 5);
                digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
            }
            _ => false,
        };
        if !is_known {
            return false;
        }
        escapes &= escapes - 1;
    }
    true
}

/// The bits below the lowest one of `mask`. All bits when the mask is zero.
#[inline]
fn below_lowest(mask: u64) -> u64 {
    (mask & mask.wrapping_neg()).wrapping_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The end byte by byte, and whether everything between the quotes is allowed.
    fn naive(body: &[u8]) -> (Option<usize>, bool) {
        let mut at = 1;
        let mut is_allowed = true;
        while let Some(byte) = body.get(at) {
            match byte {
                b'"' => return (Some(at + 1), is_allowed),
                b'\\' => {
                    at += 1;
                    let Some(kind) = body.get(at) else { break };
                    let is_hex = |digits: &[u8]| digits.iter().all(u8::is_ascii_hexdigit);
                    is_allowed &= match kind {
                        b'u' => body.get(at + 1..at + 5).is_some_and(is_hex),
                        kind => br#""\/bfnrt"#.contains(kind),
                    };
                }
                byte => is_allowed &= *byte > CONTROL_MAX,
            }
            at += 1;
        }
        (None, is_allowed)
    }

    fn check(body: &[u8]) {
        let (expected, is_allowed) = naive(body);
        assert_eq!(end(body, 0), expected, "{body:?}");
        let expected = expected.filter(|_| is_allowed);
        assert_eq!(checked_end(body, 0), expected, "{body:?}");
    }

    #[test]
    fn every_length_and_every_place_of_an_escape_is_read_like_byte_by_byte() {
        let pieces: [&[u8]; 13] = [
            b"\"",
            b"\\\"",
            b"\\\\",
            b"\\\\\\\"",
            b"\\n",
            b"\\t\\r\\b\\f\\/",
            b"\\u00e9",
            b"\\u00g9",
            b"\\x",
            b"\\",
            b"\n",
            b"\x1f\x7f",
            b"\xff\xe2",
        ];
        for length in 0..150 {
            for piece in pieces {
                for rest in [&b""[..], b"\"", b"x\" \n\"", &[b'\\'; 70], &[b'y'; 90]] {
                    let text = [b"\"", &*vec![b'x'; length], piece, rest, b"\""].concat();
                    check(&text);
                    check(&text[..text.len() - 1]);
                }
            }
        }
    }

    #[test]
    fn a_control_character_after_the_string_does_not_count() {
        let body = b"\"text\"\n\0\n";
        assert_eq!(checked_end(body, 0), Some(6));
    }
}
