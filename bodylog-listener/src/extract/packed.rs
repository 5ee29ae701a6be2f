//! Decompresses stored bodies.

use std::borrow::Cow;
use std::io::Read;

use flate2::read::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};

/// Largest size of a decompressed body, bytes.
const UNPACKED_MAX: u64 = 64 << 20;
/// Highest compression ratio once a body exceeds [`RATIO_FREE`].
const RATIO_MAX: u64 = 200;
/// Bytes that are decompressed regardless of the ratio.
const RATIO_FREE: u64 = 1 << 20;

/// Decompresses a body. Returns it and whether its end is missing because it was truncated or grew
/// too large. Returns the body unchanged if it is not compressed or the encoding is unknown.
/// `encoding` is its `content-encoding`, if known; gzip is recognised without it.
pub(crate) fn unpacked<'a>(body: &'a [u8], encoding: Option<&str>) -> (Cow<'a, [u8]>, bool) {
    // Coding names are case-insensitive (RFC 9110, section 8.4.1).
    let encoding = encoding.map(|encoding| encoding.trim().to_ascii_lowercase());
    let read = match encoding.as_deref() {
        Some("gzip" | "x-gzip") | None if looks_like_gzip(body) => {
            read_up_to(MultiGzDecoder::new(body), body.len())
        }
        Some("deflate") if body.first().is_some_and(|byte| byte & 0x0f == 8) => {
            read_up_to(ZlibDecoder::new(body), body.len())
        }
        Some("deflate") => read_up_to(DeflateDecoder::new(body), body.len()),
        _ => return (Cow::Borrowed(body), false),
    };
    match read {
        (out, _) if out.is_empty() => (Cow::Borrowed(body), false),
        (out, is_cut) => (Cow::Owned(out), is_cut),
    }
}

/// Whether a body starts with the gzip magic bytes.
pub(crate) fn looks_like_gzip(body: &[u8]) -> bool {
    body.starts_with(&[0x1f, 0x8b])
}

fn read_up_to(decoder: impl Read, packed: usize) -> (Vec<u8>, bool) {
    let limit = (RATIO_MAX * packed as u64).clamp(RATIO_FREE, UNPACKED_MAX);
    let mut out = Vec::new();
    let whole = decoder.take(limit + 1).read_to_end(&mut out).is_ok();
    let fits = out.len() as u64 <= limit;
    out.truncate(limit as usize);
    (out, !(whole && fits))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        out.write_all(bytes).unwrap();
        out.finish().unwrap()
    }

    #[test]
    fn gzip_and_deflate_are_unpacked() {
        let text = b"{\"a\":1}".repeat(10);
        for encoding in [Some("gzip"), Some(" GZip"), None] {
            assert_eq!(
                unpacked(&gzip(&text), encoding),
                (Cow::Borrowed(&text[..]), false)
            );
        }
        let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
        zlib.write_all(&text).unwrap();
        assert_eq!(
            unpacked(&zlib.finish().unwrap(), Some("deflate")).0,
            &text[..]
        );
        let mut raw = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
        raw.write_all(&text).unwrap();
        assert_eq!(
            unpacked(&raw.finish().unwrap(), Some("deflate")).0,
            &text[..]
        );
    }

    #[test]
    fn a_cut_body_gives_what_is_there_and_says_so() {
        let text: Vec<u8> = (0..100_000_u32)
            .flat_map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes())
            .collect();
        let packed = gzip(&text);
        let (out, is_cut) = unpacked(&packed[..packed.len() / 2], Some("gzip"));
        assert!(is_cut && !out.is_empty() && text.starts_with(&out));
    }

    #[test]
    fn a_bomb_is_cut() {
        let packed = gzip(&vec![0; 80 << 20]);
        let (out, is_cut) = unpacked(&packed, None);
        assert!(is_cut);
        assert!(out.len() as u64 <= UNPACKED_MAX);
    }

    #[test]
    fn everything_else_is_left_alone() {
        for (body, encoding) in [
            (&b"plain"[..], None),
            (b"plain", Some("gzip")),
            (b"\x28\xb5\x2f\xfd", Some("zstd")),
        ] {
            assert_eq!(unpacked(body, encoding), (Cow::Borrowed(body), false));
        }
    }
}
