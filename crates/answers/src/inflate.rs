//! Decodes compressed answers as they arrive, so that they can be rewritten.
//!
//! Supports gzip and deflate, the latter with or without its zlib frame, because some senders leave
//! the frame out (RFC 9110, section 8.4.1). However dense the input is, at most [`PIECE_MAX`] bytes
//! plus the output of one step are produced at a time.

use std::fmt;
use std::io::{self, Write};

use bytes::{Buf, Bytes};
use flate2::write::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};

/// A piece is returned after this many decoded bytes.
pub const PIECE_MAX: usize = 64 << 10;

/// Input decoded at once. Deflate grows a byte to at most 1032, so a step adds 264 KiB at worst.
const STEP: usize = 256;

/// The decoder of one body.
pub struct Inflate {
    decoder: Decoder,
    /// Received but not decoded yet.
    input: Bytes,
    is_empty: bool,
}

enum Decoder {
    Gzip(MultiGzDecoder<Vec<u8>>),
    /// `deflate` before its first byte. Holds the empty output.
    Unknown(Vec<u8>),
    Zlib(ZlibDecoder<Vec<u8>>),
    Raw(DeflateDecoder<Vec<u8>>),
}

impl Inflate {
    /// A decoder for a `Content-Encoding`, if that is supported.
    pub fn of(encoding: &[u8]) -> Option<Self> {
        let encoding = encoding.trim_ascii();
        let is = |name: &str| encoding.eq_ignore_ascii_case(name.as_bytes());
        let decoder = if is("gzip") || is("x-gzip") {
            Decoder::Gzip(MultiGzDecoder::new(Vec::new()))
        } else if is("deflate") {
            Decoder::Unknown(Vec::new())
        } else {
            return None;
        };
        Some(Self {
            decoder,
            input: Bytes::new(),
            is_empty: true,
        })
    }

    /// Takes the next bytes of the body. Drain [`decode`](Self::decode) first.
    pub fn feed(&mut self, chunk: Bytes) {
        self.is_empty &= chunk.is_empty();
        self.input = chunk;
    }

    /// The next decoded piece. `None` when more input is needed.
    ///
    /// # Errors
    ///
    /// When the body does not match its encoding.
    pub fn decode(&mut self) -> io::Result<Option<Bytes>> {
        while !self.input.is_empty() {
            let step = &self.input[..self.input.len().min(STEP)];
            let decoder = self.decoder.opened(step[0]);
            decoder.write_all(step)?;
            self.input.advance(step.len());
            let is_last = self.input.is_empty();
            if is_last {
                // Flush, because an event must not wait in the decoder for the next one.
                decoder.flush()?;
            }
            if is_last || self.decoder.made().len() >= PIECE_MAX {
                let made = std::mem::take(self.decoder.made());
                if !made.is_empty() {
                    return Ok(Some(made.into()));
                }
            }
        }
        Ok(None)
    }

    /// Ends the body and returns the rest of it.
    ///
    /// # Errors
    ///
    /// When the body is cut short, or its checksum does not match.
    pub fn finish(&mut self) -> io::Result<Bytes> {
        if !self.is_empty {
            match &mut self.decoder {
                Decoder::Gzip(decoder) => decoder.try_finish()?,
                Decoder::Zlib(decoder) => decoder.try_finish()?,
                Decoder::Raw(decoder) => decoder.try_finish()?,
                Decoder::Unknown(_) => {}
            }
        }
        Ok(std::mem::take(self.decoder.made()).into())
    }
}

impl Decoder {
    /// The decoder for a body whose next byte is `first`.
    fn opened(&mut self, first: u8) -> &mut dyn Write {
        match self {
            Self::Gzip(decoder) => decoder,
            Self::Zlib(decoder) => decoder,
            Self::Raw(decoder) => decoder,
            Self::Unknown(_) => {
                // A zlib frame begins with its method, 8. A raw body never does: that would be a
                // stored block whose padding is not zero.
                *self = match first & 0x0f == 8 {
                    true => Self::Zlib(ZlibDecoder::new(Vec::new())),
                    false => Self::Raw(DeflateDecoder::new(Vec::new())),
                };
                self.opened(first)
            }
        }
    }

    fn made(&mut self) -> &mut Vec<u8> {
        match self {
            Self::Gzip(decoder) => decoder.get_mut(),
            Self::Zlib(decoder) => decoder.get_mut(),
            Self::Raw(decoder) => decoder.get_mut(),
            Self::Unknown(made) => made,
        }
    }
}

impl fmt::Debug for Inflate {
    /// Leaves the body out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inflate")
            .field("pending", &self.input.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};

    use super::*;

    fn packed(encoding: &str, parts: &[&[u8]]) -> Vec<u8> {
        fn all<W: Write>(mut encoder: W, parts: &[&[u8]]) -> W {
            for part in parts {
                encoder.write_all(part).unwrap();
                encoder.flush().unwrap();
            }
            encoder
        }
        let level = Compression::default();
        match encoding {
            "gzip" => all(GzEncoder::new(Vec::new(), level), parts).finish(),
            "deflate" => all(ZlibEncoder::new(Vec::new(), level), parts).finish(),
            _ => all(DeflateEncoder::new(Vec::new(), level), parts).finish(),
        }
        .unwrap()
    }

    fn of(encoding: &'static str) -> Inflate {
        Inflate::of(encoding.as_bytes()).unwrap()
    }

    fn unpacked(mut inflate: Inflate, chunks: &[&[u8]]) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        for chunk in chunks {
            inflate.feed(Bytes::copy_from_slice(chunk));
            while let Some(piece) = inflate.decode()? {
                out.extend_from_slice(&piece);
            }
        }
        out.extend_from_slice(&inflate.finish()?);
        Ok(out)
    }

    #[test]
    fn a_body_cut_anywhere_is_the_same_body() {
        let events: [&[u8]; 3] = [b"data: {\"a\":1}\n\n", b"", b"data: [DONE]\n\n"];
        for (encoding, form) in [
            ("gzip", "gzip"),
            ("X-GZip", "gzip"),
            ("deflate", "deflate"),
            ("deflate", "raw"),
        ] {
            let body = packed(form, &events);
            for at in 0..=body.len() {
                let cut = unpacked(of(encoding), &[&body[..at], &body[at..]]).unwrap();
                assert_eq!(cut, events.concat(), "{form} cut at {at}");
            }
            let bytes: Vec<&[u8]> = body.chunks(1).collect();
            assert_eq!(unpacked(of(encoding), &bytes).unwrap(), events.concat());
        }
    }

    #[test]
    fn what_a_sender_flushed_is_decoded_at_once() {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        let mut inflate = of("gzip");
        for event in [&b"data: one\n\n"[..], b"data: two\n\n"] {
            encoder.write_all(event).unwrap();
            encoder.flush().unwrap();
            inflate.feed(Bytes::from(std::mem::take(encoder.get_mut())));
            assert_eq!(inflate.decode().unwrap().unwrap(), event);
            assert_eq!(inflate.decode().unwrap(), None);
        }
    }

    #[test]
    fn members_that_follow_each_other_are_one_body() {
        let body = [packed("gzip", &[b"one "]), packed("gzip", &[b"two"])].concat();
        assert_eq!(unpacked(of("gzip"), &[&body]).unwrap(), b"one two");
    }

    #[test]
    fn a_dense_body_comes_in_bounded_pieces() {
        let body = packed("gzip", &[&vec![0; 8 << 20]]);
        let mut inflate = of("gzip");
        inflate.feed(body.into());
        let mut total = 0;
        while let Some(piece) = inflate.decode().unwrap() {
            assert!(piece.len() <= PIECE_MAX + 1032 * STEP + (64 << 10));
            total += piece.len();
        }
        assert_eq!(total + inflate.finish().unwrap().len(), 8 << 20);
    }

    #[test]
    fn a_body_that_is_no_such_thing_is_an_error() {
        let body = packed("gzip", &[b"some text"]);
        let mut bad = body.clone();
        bad[body.len() - 6] ^= 1;
        for wrong in [
            &b"data: plain\n\n"[..],
            &body[..body.len() - 3],
            &body[..9],
            &bad,
        ] {
            assert!(unpacked(of("gzip"), &[wrong]).is_err(), "{wrong:?}");
        }
        assert!(unpacked(of("deflate"), &[&packed("deflate", &[b"text"])[..7]]).is_err());
        assert_eq!(unpacked(of("gzip"), &[]).unwrap(), b"");
        assert_eq!(unpacked(of("deflate"), &[]).unwrap(), b"");
    }

    #[test]
    fn other_encodings_are_none_of_ours() {
        for encoding in ["br", "zstd", "gzip, br", "compress", ""] {
            assert!(Inflate::of(encoding.as_bytes()).is_none());
        }
    }
}
