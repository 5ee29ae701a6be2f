//! Headers across the hop: removes, sets and forwards them.

use std::net::{IpAddr, SocketAddr};

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use ipnet::IpNet;
use router_config::keys::key_in_protocol;

/// RFC 9110 section 7.6.1, and the older names that still occur.
fn is_hop_by_hop(name: &str) -> bool {
    matches!(
        name,
        "connection"
            | "keep-alive"
            | "proxy-connection"
            | "proxy-authenticate"
            | "te"
            | "trailer"
            | "transfer-encoding"
            | "upgrade"
    )
}

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");

/// The lines that a request gets here: three of forwarding, the request id, `Host`, a credential.
const OWN_LINES: usize = 6;

/// Removes the headers that belong to one connection only (the fixed names, and every name that
/// `Connection` lists), and those whose names `also` has.
pub fn strip(headers: &mut HeaderMap, also: impl Fn(&str) -> bool) {
    if headers.contains_key(header::CONNECTION) {
        let named: Vec<HeaderName> = headers
            .get_all(header::CONNECTION)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .filter_map(|name| name.trim().parse().ok())
            // `Connection: content-length` must not unframe the message.
            .filter(|name| *name != header::CONTENT_LENGTH && *name != header::HOST)
            .collect();
        for name in named {
            headers.remove(name);
        }
    }
    let is_unwanted = |name: &&HeaderName| is_hop_by_hop(name.as_str()) || also(name.as_str());
    // A head has one or two such lines. To walk over it once for each costs less than to look up
    // every name.
    while let Some(name) = headers.keys().find(is_unwanted).cloned() {
        headers.remove(name);
    }
}

/// Prepares a client's headers for the engine: removes hop-by-hop headers, sets this hop's own
/// framing, and names the client. The caller sets `Host` and the credentials.
pub fn prepare_request(headers: &mut HeaderMap, from: Client<'_>) {
    let is_trusted = from.is_trusted(from.peer.ip);
    strip(headers, |name| match name {
        // The router has answered the expectation already, and here the body has one known length.
        "proxy-authorization" | "expect" | "content-length" => true,
        // From an untrusted client these must not look like ours.
        "forwarded" | "x-forwarded-host" => !is_trusted,
        _ => false,
    });
    join_cookies(headers);
    // Room for the lines that are added here and by the callers, so that the table grows once.
    headers.reserve(OWN_LINES);
    match is_trusted {
        true => from.name_behind_proxies(headers),
        false => from.name_in(headers),
    }
}

/// Asks the engine for nothing but what the router can decode: an answer in any other encoding would
/// hide from the counters, the gates and the records. Without a header the engine chooses, as before.
pub fn narrow_encodings(headers: &mut HeaderMap) {
    if !headers.contains_key(header::ACCEPT_ENCODING) {
        return;
    }
    let takes_gzip = headers
        .get_all(header::ACCEPT_ENCODING)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(takes_gzip);
    let narrowed = if takes_gzip { "gzip" } else { "identity" };
    headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(narrowed));
}

/// Whether one coding of an `Accept-Encoding` (RFC 9110 section 12.5.3) lets gzip in.
fn takes_gzip(coding: &str) -> bool {
    let mut parts = coding.split(';').map(str::trim);
    let name = parts.next().unwrap_or_default();
    let is_gzip = ["gzip", "x-gzip", "*"]
        .iter()
        .any(|gzip| name.eq_ignore_ascii_case(gzip));
    let is_refused = parts.any(|parameter| {
        let weight = parameter
            .strip_prefix("q=")
            .or_else(|| parameter.strip_prefix("Q="));
        weight.is_some_and(|weight| weight.trim().parse::<f32>().is_ok_and(|q| q <= 0.0))
    });
    is_gzip && !is_refused
}

/// HTTP/2 may split the cookies over several fields, HTTP/1.1 has one (RFC 9113 section 8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    let mut crumbs = headers.get_all(header::COOKIE).iter();
    let Some(first) = crumbs.next() else { return };
    let mut whole = first.as_bytes().to_vec();
    let before = whole.len();
    for crumb in crumbs {
        whole.extend_from_slice(b"; ");
        whole.extend_from_slice(crumb.as_bytes());
    }
    if whole.len() == before {
        return;
    }
    // Header values joined by visible text are a valid header value.
    if let Ok(whole) = HeaderValue::from_bytes(&whole) {
        headers.insert(header::COOKIE, whole);
    }
}

/// The TCP peer of a client connection.
#[derive(Clone, Debug)]
pub struct Remote {
    /// Its address.
    pub ip: IpAddr,
    /// The address as a header value, made once per connection.
    text: HeaderValue,
}

impl Remote {
    /// The peer at an address.
    pub fn new(ip: IpAddr) -> Self {
        Self {
            ip,
            text: HeaderValue::from_str(&ip.to_string()).expect("an address is a header value"),
        }
    }
}

/// The client of a request, as far as the headers can be trusted.
#[derive(Clone, Copy, Debug)]
pub struct Client<'a> {
    /// The TCP peer.
    pub peer: &'a Remote,
    /// Networks of proxies whose forwarding headers are trusted.
    pub trusted: &'a [IpNet],
}

impl Client<'_> {
    fn is_trusted(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.trusted.iter().any(|net| net.contains(&address))
    }

    /// The client's address. This is the address of the TCP peer or, behind trusted proxies, the
    /// last address of `X-Forwarded-For` that is not a proxy's own, else `X-Real-IP`.
    pub fn address(&self, headers: &HeaderMap) -> IpAddr {
        if !self.is_trusted(self.peer.ip) {
            return self.peer.ip;
        }
        let forwarded = headers
            .get_all(X_FORWARDED_FOR)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .map(hop_address);
        let mut client = None;
        for hop in forwarded.rev() {
            // Nothing beyond an unreadable hop can be trusted.
            let Some(hop) = hop else { break };
            client = Some(hop);
            if !self.is_trusted(hop) {
                break;
            }
        }
        let real_ip = || hop_address(headers.get(X_REAL_IP)?.to_str().ok()?);
        client.or_else(real_ip).unwrap_or(self.peer.ip)
    }

    /// Names a client that comes without a trusted proxy.
    fn name_in(&self, headers: &mut HeaderMap) {
        headers.insert(X_FORWARDED_FOR, self.peer.text.clone());
        headers.insert(X_REAL_IP, self.peer.text.clone());
        headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static("http"));
    }

    /// Names a client behind trusted proxies, whose own lines stay.
    fn name_behind_proxies(&self, headers: &mut HeaderMap) {
        let client = self.address(headers);
        let mut hops = String::new();
        for value in headers.get_all(X_FORWARDED_FOR) {
            if let Ok(value) = value.to_str() {
                hops.push_str(value);
                hops.push_str(", ");
            }
        }
        hops.push_str(&self.peer.ip.to_string());
        set(headers, X_FORWARDED_FOR, &hops);
        set(headers, X_REAL_IP, &client.to_string());
        headers
            .entry(X_FORWARDED_PROTO)
            .or_insert(HeaderValue::from_static("http"));
    }
}

/// Parses an address as proxies write it: some add the port, some put IPv6 in brackets.
fn hop_address(text: &str) -> Option<IpAddr> {
    let text = text.trim();
    let bare = || text.strip_prefix('[')?.strip_suffix(']')?.parse().ok();
    let address = text.parse().ok();
    address
        .or_else(|| Some(text.parse::<SocketAddr>().ok()?.ip()))
        .or_else(bare)
}

fn set(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    // Addresses, and text from a header value, are a valid header value.
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

/// Sets the credential that the engine sees: the peer's own, else the client's. The client's is
/// removed when the router consumed it (`validated`) and may not pass it on.
pub fn credential(
    headers: &mut HeaderMap,
    own: Option<&HeaderValue>,
    validated: bool,
    forward: bool,
) {
    let x_api_key = HeaderName::from_static("x-api-key");
    if let Some(own) = own {
        headers.remove(x_api_key);
        headers.insert(header::AUTHORIZATION, own.clone());
        withdraw_key_protocol(headers);
    } else if validated && !forward {
        headers.remove(x_api_key);
        headers.remove(header::AUTHORIZATION);
        withdraw_key_protocol(headers);
    }
}

/// Takes the key out of the protocols that a WebSocket offers.
fn withdraw_key_protocol(headers: &mut HeaderMap) {
    if !headers.contains_key(header::SEC_WEBSOCKET_PROTOCOL) {
        return;
    }
    let offers = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter();
    let offers = offers.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    let kept: Vec<&[u8]> = offers
        .map(<[u8]>::trim_ascii)
        .filter(|offered| key_in_protocol(offered).is_none())
        .collect();
    // Parts of header values joined by visible text are a valid header value.
    match HeaderValue::from_bytes(&kept.join(&b", "[..])) {
        Ok(kept) if !kept.is_empty() => {
            headers.insert(header::SEC_WEBSOCKET_PROTOCOL, kept);
        }
        _ => {
            headers.remove(header::SEC_WEBSOCKET_PROTOCOL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
        }
        headers
    }

    fn client(peer: &str, trusted: &[IpNet]) -> (Remote, Vec<IpNet>) {
        (Remote::new(peer.parse().unwrap()), trusted.to_vec())
    }

    #[test]
    fn an_engine_is_asked_for_encodings_that_can_be_decoded() {
        for (asked, narrowed) in [
            ("gzip, deflate, br, zstd", "gzip"),
            ("br;q=1.0, *;q=0.5", "gzip"),
            ("br, zstd", "identity"),
            ("gzip;q=0, br", "identity"),
            ("GZIP;q=0.1", "gzip"),
            ("identity", "identity"),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(asked));
            narrow_encodings(&mut headers);
            assert_eq!(headers[header::ACCEPT_ENCODING], narrowed, "{asked}");
        }
        let mut headers = HeaderMap::new();
        narrow_encodings(&mut headers);
        assert!(headers.is_empty());
    }

    #[test]
    fn what_connection_names_ends_here() {
        let mut headers = map(&[
            ("connection", "close, X-Private"),
            ("connection", "x-other,content-length"),
            ("x-private", "1"),
            ("x-other", "1"),
            ("content-length", "3"),
            ("te", "trailers"),
            ("keep-alive", "timeout=5"),
            ("upgrade", "h2c"),
            ("x-kept", "1"),
        ]);
        strip(&mut headers, |_| false);
        let left: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        assert_eq!(left, ["content-length", "x-kept"]);
    }

    #[test]
    fn split_cookies_arrive_as_one() {
        let (peer, trusted) = client("203.0.113.9", &[]);
        let mut headers = map(&[("cookie", "a=1"), ("x-kept", "1"), ("cookie", "b=2")]);
        let from = Client {
            peer: &peer,
            trusted: &trusted,
        };
        prepare_request(&mut headers, from);
        let cookies: Vec<_> = headers.get_all("cookie").iter().collect();
        assert_eq!(cookies, ["a=1; b=2"]);
    }

    #[test]
    fn an_untrusted_client_cannot_name_itself() {
        let (peer, trusted) = client("203.0.113.9", &[]);
        let mut headers = map(&[
            ("x-forwarded-for", "127.0.0.1"),
            ("x-real-ip", "127.0.0.1"),
            ("forwarded", "for=1.1.1.1"),
            ("x-forwarded-proto", "https"),
        ]);
        prepare_request(
            &mut headers,
            Client {
                peer: &peer,
                trusted: &trusted,
            },
        );
        assert_eq!(headers["x-forwarded-for"], "203.0.113.9");
        assert_eq!(headers["x-real-ip"], "203.0.113.9");
        assert_eq!(headers["x-forwarded-proto"], "http");
        assert!(!headers.contains_key("forwarded"));
    }

    #[test]
    fn a_trusted_proxy_is_believed_up_to_the_first_stranger() {
        let (peer, trusted) = client("10.0.0.1", &["10.0.0.0/8".parse().unwrap()]);
        let mut headers = map(&[
            ("x-forwarded-for", "6.6.6.6, 198.51.100.7, 10.0.0.2"),
            ("x-forwarded-proto", "https"),
        ]);
        let from = Client {
            peer: &peer,
            trusted: &trusted,
        };
        assert_eq!(from.address(&headers).to_string(), "198.51.100.7");
        prepare_request(&mut headers, from);
        assert_eq!(
            headers["x-forwarded-for"],
            "6.6.6.6, 198.51.100.7, 10.0.0.2, 10.0.0.1"
        );
        assert_eq!(headers["x-real-ip"], "198.51.100.7");
        assert_eq!(headers["x-forwarded-proto"], "https");
    }

    #[test]
    fn an_address_may_have_a_port_and_brackets() {
        let (peer, trusted) = client("10.0.0.1", &["10.0.0.0/8".parse().unwrap()]);
        let from = Client {
            peer: &peer,
            trusted: &trusted,
        };
        for (said, client) in [
            ("198.51.100.7:4711", "198.51.100.7"),
            ("[2001:db8::1]:4711", "2001:db8::1"),
            ("[2001:db8::1]", "2001:db8::1"),
            ("2001:db8::1", "2001:db8::1"),
            ("198.51.100.7:x", "10.0.0.1"),
            ("unknown", "10.0.0.1"),
        ] {
            for header in ["x-forwarded-for", "x-real-ip"] {
                let headers = map(&[(header, said)]);
                assert_eq!(
                    from.address(&headers).to_string(),
                    client,
                    "{header}: {said}"
                );
            }
        }
    }

    #[test]
    fn a_validated_credential_stops_at_the_router() {
        let sent = [
            ("authorization", "Bearer gateway"),
            ("x-api-key", "gateway"),
        ];
        let own = HeaderValue::from_static("Bearer engine");
        let cases = [
            (None::<&HeaderValue>, true, false, None, false),
            (None, true, true, Some("Bearer gateway"), true),
            (None, false, false, Some("Bearer gateway"), true),
            (Some(&own), false, true, Some("Bearer engine"), false),
        ];
        for (own, validated, forward, bearer, x_api_key) in cases {
            let mut headers = map(&sent);
            credential(&mut headers, own, validated, forward);
            assert_eq!(
                headers.get("authorization").map(|v| v.to_str().unwrap()),
                bearer
            );
            assert_eq!(headers.contains_key("x-api-key"), x_api_key);
        }
    }
}
