//! The bounds on a request's head, and the framing that two readers could read differently.

use http::Version;
use http::header::{self, HeaderValue};
use http::request::Parts;

use super::error::ApiError;

/// Bytes of the header block: names, values and four bytes a line.
pub(super) const HEADER_BYTES_MAX: usize = 64 << 10;
/// Headers of one request.
pub(super) const HEADERS_MAX: usize = 128;
/// Bytes of the request line.
pub(super) const REQUEST_LINE_MAX: usize = 16 << 10;

/// What the raw head said about the body's length; hyper resolves some of it silently.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Framing {
    /// `Content-Length` lines.
    pub lengths: u8,
    /// `Transfer-Encoding` lines.
    pub encodings: u8,
}

impl Framing {
    /// More than one statement about the length: another hop may follow the other one.
    pub fn is_ambiguous(self) -> bool {
        usize::from(self.lengths) + usize::from(self.encodings) > 1
    }
}

/// Checks a head.
///
/// # Errors
/// 400, 414 or 431; the connection ends with each.
pub(super) fn check(parts: &Parts, framing: Framing) -> Result<(), ApiError> {
    // hyper wants `chunked` last; what stands before it some readers honour and others do not.
    let encoding = parts
        .headers
        .get(header::TRANSFER_ENCODING)
        .map(HeaderValue::as_bytes);
    let is_plain =
        encoding.is_none_or(|encoding| encoding.trim_ascii().eq_ignore_ascii_case(b"chunked"));
    if framing.is_ambiguous() || !is_plain {
        return Err(ApiError::ambiguous_framing());
    }
    if parts.version == Version::HTTP_11 && parts.headers.get_all(header::HOST).iter().count() != 1
    {
        return Err(ApiError::bad_request(
            "bad_host",
            "a request has exactly one Host header",
        ));
    }
    let target = parts
        .uri
        .path_and_query()
        .map_or(0, |target| target.as_str().len());
    if parts.method.as_str().len() + target + " HTTP/1.1 ".len() > REQUEST_LINE_MAX {
        return Err(ApiError::uri_too_long(REQUEST_LINE_MAX));
    }
    let bytes: usize = parts
        .headers
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len() + 4)
        .sum();
    if parts.headers.len() > HEADERS_MAX || bytes > HEADER_BYTES_MAX {
        return Err(ApiError::headers_too_large(HEADER_BYTES_MAX, HEADERS_MAX));
    }
    Ok(())
}
