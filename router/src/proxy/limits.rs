//! The limits on a request's head, and the check for framing that two readers could read
//! differently.

use http::header::{self, HeaderValue};
use http::request::Parts;
use http::uri::Authority;
use http::{Method, Version};

use service::framing::Framing;

use super::error::ApiError;

/// Maximum bytes of the header block: names, values and four bytes per line.
pub(super) const HEADER_BYTES_MAX: usize = 64 << 10;
/// Maximum number of headers in one request.
pub(super) const HEADERS_MAX: usize = 128;
/// Maximum bytes of the request line.
pub(super) const REQUEST_LINE_MAX: usize = 16 << 10;

/// The methods that engine APIs use. CONNECT and TRACE are for proxies and are refused.
pub(super) const METHODS: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";

/// Checks a head.
///
/// # Errors
/// 400, 414 or 431. Each closes the connection.
pub(super) fn check(parts: &Parts, framing: Framing) -> Result<(), ApiError> {
    // hyper requires `chunked` as the last encoding. Readers disagree on encodings before it.
    let encoding = parts
        .headers
        .get(header::TRANSFER_ENCODING)
        .map(HeaderValue::as_bytes);
    let is_plain =
        encoding.is_none_or(|encoding| encoding.trim_ascii().eq_ignore_ascii_case(b"chunked"));
    if framing.is_ambiguous() || !is_plain {
        return Err(ApiError::ambiguous_framing());
    }
    let hosts = parts.headers.get_all(header::HOST);
    if parts.version == Version::HTTP_11 && hosts.iter().count() != 1 {
        let message = "a request has exactly one Host header";
        return Err(ApiError::bad_request("bad_host", message));
    }
    if !hosts.iter().all(is_host) {
        let message = "the Host header is not a host with an optional port";
        return Err(ApiError::bad_request("bad_host", message));
    }
    if matches!(parts.method, Method::CONNECT | Method::TRACE) {
        return Err(ApiError::method_not_allowed(METHODS).closing());
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

/// Whether a value is `host` or `host:port`.
fn is_host(value: &HeaderValue) -> bool {
    let Ok(authority) = Authority::try_from(value.as_bytes()) else {
        return false;
    };
    let text = authority.as_str();
    let port = text.strip_prefix(authority.host()).unwrap_or("@");
    let is_port = |port: &str| port.is_empty() || port.parse::<u16>().is_ok();
    !text.contains('@') && (port.is_empty() || port.strip_prefix(':').is_some_and(is_port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_a_name_and_perhaps_a_port() {
        for host in [
            "a",
            "a.example:80",
            "10.0.0.1:8080",
            "[::1]",
            "[::1]:80",
            "a_b",
        ] {
            assert!(is_host(&HeaderValue::from_static(host)), "{host}");
        }
        for host in [
            "", "a b", "a/b", "user@a", "a:99999", "a:b", "a?b", "[::1", "a,b c",
        ] {
            assert!(!is_host(&HeaderValue::from_static(host)), "{host}");
        }
    }
}
