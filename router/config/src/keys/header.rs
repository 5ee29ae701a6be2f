//! The key that a request presents. The code that forwards the request removes it.

use http::HeaderMap;
use http::header::{AUTHORIZATION, HeaderName, SEC_WEBSOCKET_PROTOCOL, UPGRADE};

/// The other header that carries a key.
const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// What OpenAI's clients in browsers put in front of the key in an offered WebSocket protocol. A page
/// cannot set headers of a WebSocket.
const KEY_PROTOCOL: &[u8] = b"openai-insecure-api-key.";

/// The key in `Authorization: Bearer <key>` (scheme in any case, any number of blanks after it), in
/// `x-api-key`, or in a protocol that a WebSocket offers. The first of the three that is present
/// decides, whatever it holds. A duplicate presents no key, because it is unclear which of the two
/// counts.
pub fn presented(headers: &HeaderMap) -> Option<&[u8]> {
    if headers.contains_key(AUTHORIZATION) {
        return single(headers, &AUTHORIZATION).and_then(bearer);
    }
    if headers.contains_key(X_API_KEY) {
        return single(headers, &X_API_KEY)
            .map(<[u8]>::trim_ascii)
            .filter(|key| !key.is_empty());
    }
    if !headers.contains_key(UPGRADE) {
        return None;
    }
    let offers = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter();
    let offers = offers.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    let mut keys = offers.filter_map(key_in_protocol);
    let key = keys.next().filter(|key| !key.is_empty());
    key.filter(|_| keys.next().is_none())
}

/// The key in one offered WebSocket protocol.
pub fn key_in_protocol(offered: &[u8]) -> Option<&[u8]> {
    offered.trim_ascii().strip_prefix(KEY_PROTOCOL)
}

fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a [u8]> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    values.next().is_none().then(|| value.as_bytes())
}

fn bearer(value: &[u8]) -> Option<&[u8]> {
    const SCHEME: &[u8] = b"bearer";
    let value = value.trim_ascii();
    let (scheme, rest) = value.split_at_checked(SCHEME.len())?;
    let separated = rest.first().is_some_and(|b| matches!(b, b' ' | b'\t'));
    (scheme.eq_ignore_ascii_case(SCHEME) && separated).then(|| rest.trim_ascii_start())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(&'static str, &'static str)]) -> Option<String> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        presented(&headers).map(|key| String::from_utf8(key.to_vec()).unwrap())
    }

    /// K4 of the written vectors, with the results that the contract demands: the scheme counts in
    /// any case, and `x-api-key` is a second way.
    #[test]
    fn how_a_key_may_be_presented() {
        assert_eq!(
            of(&[("authorization", "Bearer  sk-a")]).as_deref(),
            Some("sk-a")
        );
        assert_eq!(
            of(&[("authorization", "bearer sk-a")]).as_deref(),
            Some("sk-a")
        );
        assert_eq!(
            of(&[("authorization", "BEARER \t sk-a")]).as_deref(),
            Some("sk-a")
        );
        assert_eq!(of(&[("authorization", "sk-a")]), None);
        assert_eq!(of(&[("x-api-key", "sk-a")]).as_deref(), Some("sk-a"));
    }

    #[test]
    fn authorization_decides_when_both_are_there() {
        assert_eq!(
            of(&[("x-api-key", "x"), ("authorization", "Bearer b")]).as_deref(),
            Some("b")
        );
        assert_eq!(
            of(&[("x-api-key", "x"), ("authorization", "Basic Zm9v")]),
            None
        );
    }

    #[test]
    fn a_websocket_may_offer_its_key_as_a_protocol() {
        let offer = |value| [("upgrade", "websocket"), ("sec-websocket-protocol", value)];
        let key = "realtime, openai-insecure-api-key.sk-a,openai-beta.realtime-v1";
        assert_eq!(of(&offer(key)).as_deref(), Some("sk-a"));
        for other in [
            "realtime",
            "openai-insecure-api-key.",
            "openai-insecure-api-key.a, openai-insecure-api-key.b",
        ] {
            assert_eq!(of(&offer(other)), None, "{other}");
        }
        assert_eq!(of(&offer(key)[1..]), None, "no WebSocket");
        let both = [&offer(key)[..], &[("x-api-key", "x")]].concat();
        assert_eq!(of(&both).as_deref(), Some("x"));
    }

    #[test]
    fn nothing_is_presented_by_a_blank_or_doubled_header() {
        assert_eq!(of(&[]), None);
        for value in ["", "Bearer", "Bearer ", "Bearersk-a", "Bear sk-a"] {
            assert_eq!(of(&[("authorization", value)]), None, "{value:?}");
        }
        assert_eq!(of(&[("x-api-key", "")]), None);
        assert_eq!(of(&[("x-api-key", "a"), ("x-api-key", "b")]), None);
        assert_eq!(
            of(&[("authorization", "Bearer a"), ("authorization", "Bearer b")]),
            None
        );
    }
}
