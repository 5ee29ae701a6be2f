//! Addresses: of listeners, of trusted proxies, and of peers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use http::Uri;
use ipnet::IpNet;
use router_core::pool::PeerKey;

use super::reader::{Reader, short};
use super::scalar::{items, refuse, usable};
use crate::options::Meta;
use crate::tree::{Node, Style};

/// The address of a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    /// `host:port`, host in lower case.
    pub(crate) key: PeerKey,
    /// True for https.
    pub(crate) tls: bool,
    /// Base path without a trailing slash; empty for none.
    pub(crate) base_path: Arc<str>,
}

/// `ip:port`.
pub(crate) fn listen(reader: &mut Reader, node: &Node, meta: &Meta) -> Option<SocketAddr> {
    let text = usable(node).map(|s| s.text.as_str()).unwrap_or_default();
    if let Ok(address) = text.parse() {
        return Some(address);
    }
    let port = text
        .rsplit(':')
        .next()
        .and_then(|port| port.parse::<u16>().ok());
    if let Some(draft) = reader.unexpected(node, &meta.kind.allowed())
        && let Some(port) = port
    {
        draft.help(format!(
            "for every interface write `0.0.0.0:{port}` or `[::]:{port}`"
        ));
    }
    None
}

/// A list of CIDRs; a single address counts as one.
pub(crate) fn cidrs(reader: &mut Reader, node: &Node, meta: &Meta) -> Option<Vec<IpNet>> {
    let items = items(reader, node, meta)?;
    let mut nets = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        let text = usable(item).map(|s| s.text.as_str()).unwrap_or_default();
        match text
            .parse()
            .or_else(|_| text.parse::<IpAddr>().map(IpNet::from))
        {
            Ok(net) => nets.push(net),
            Err(_) => reader.item(index, |reader| {
                reader.unexpected(item, "a CIDR such as `10.0.0.0/8`, or an address");
            }),
        }
    }
    (nets.len() == items.len()).then_some(nets)
}

/// `host:port`.
pub(crate) fn address(reader: &mut Reader, node: &Node, meta: &Meta) -> Option<Endpoint> {
    let Some(text) = usable(node).map(|s| s.text.as_str()) else {
        return refuse(reader, node, meta);
    };
    if text.contains("://") {
        // The text may contain credentials, so it is neither shown nor quoted.
        reader.mask_tree(node);
        reader
            .error(node.span.clone(), "expected `host:port`, found a URL")
            .help("write `url:` instead of `address:`");
        return None;
    }
    let endpoint = host_port(text).and_then(|(host, port)| Some((host, port?)));
    match endpoint {
        Some((host, port)) => Some(Endpoint {
            key: PeerKey::new(format!("{host}:{port}")),
            tls: false,
            base_path: "".into(),
        }),
        None => {
            let help = address_help(text);
            if let Some(draft) = reader.unexpected(node, &meta.kind.allowed())
                && let Some(help) = help
            {
                draft.help(help);
            }
            None
        }
    }
}

fn address_help(text: &str) -> Option<String> {
    if text.parse::<Ipv6Addr>().is_ok() {
        return Some(format!("write `[{text}]:8000`, with the engine's port"));
    }
    if text.matches(':').count() > 1 && !text.starts_with('[') {
        return Some("write an IPv6 host in brackets: `[fd00::1]:8000`".to_owned());
    }
    match text.rsplit_once(':') {
        None => Some(format!("the port is missing: `{}:8000`", short(text))),
        Some(_) => Some("a port is a number from 1 to 65535".to_owned()),
    }
}

/// An http or https URL: host, optional port, optional base path.
pub(crate) fn url(reader: &mut Reader, node: &Node, meta: &Meta) -> Option<Endpoint> {
    let Some(text) = usable(node).map(|s| s.text.as_str()) else {
        return refuse(reader, node, meta);
    };
    let (scheme, rest) = text.split_once("://").unwrap_or_default();
    let tls = match scheme.to_ascii_lowercase().as_str() {
        "http" => false,
        "https" => true,
        _ => return refuse(reader, node, meta),
    };
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let flaw = if authority.contains('@') {
        Some((
            "a peer's URL has no user and no password",
            "put the credential into `api_key`",
        ))
    } else if path.contains(['?', '#']) {
        Some((
            "a peer's URL has no query and no fragment",
            "leave out everything from `?` or `#` on",
        ))
    } else {
        None
    };
    if let Some((message, help)) = flaw {
        reader.mask_tree(node);
        reader.error(node.span.clone(), message).help(help);
        return None;
    }
    let Some((host, port)) = host_port(authority) else {
        return refuse(reader, node, meta);
    };
    let Some(port) =
        port.or_else(|| (!authority_has_port(authority)).then_some(if tls { 443 } else { 80 }))
    else {
        if let Some(draft) = reader.unexpected(node, &meta.kind.allowed()) {
            draft.help("a port is a number from 1 to 65535");
        }
        return None;
    };
    let base_path = path.strip_suffix('/').unwrap_or(path);
    if !base_path.is_empty() && !is_plain_path(base_path) {
        return refuse(reader, node, meta);
    }
    if base_path == "/v1" || base_path.ends_with("/v1") {
        reader
            .warning(
"doubled-v1",node.span.clone(), "the request's own `/v1/…` is appended to the base path, which ends in `/v1` already")
            .help("leave out the `/v1`");
    }
    Some(Endpoint {
        key: PeerKey::new(format!("{host}:{port}")),
        tls,
        base_path: base_path.into(),
    })
}

/// An http or https URL of a page, query allowed.
pub(crate) fn page_url(reader: &mut Reader, node: &Node, meta: &Meta) -> Option<Arc<str>> {
    let text = usable(node).map(|s| s.text.as_str()).unwrap_or_default();
    if text.contains('@') {
        reader.mask_tree(node);
        reader
            .error(
                node.span.clone(),
                "the URL of a page has no user and no password",
            )
            .help("the peer's `api_key` is presented to it");
        return None;
    }
    let uri: Option<Uri> = text.parse().ok();
    let is_page = uri.is_some_and(|uri| {
        matches!(uri.scheme_str(), Some("http" | "https"))
            && uri.host().is_some_and(|host| !host.is_empty())
    });
    if is_page && !text.contains('#') {
        Some(text.into())
    } else {
        refuse(reader, node, meta)
    }
}

/// `host:port`, or null.
pub(crate) fn optional_host_port(
    reader: &mut Reader,
    node: &Node,
    meta: &Meta,
) -> Option<Option<Arc<str>>> {
    if node.is_null() {
        return Some(None);
    }
    let text = usable(node).map(|s| s.text.as_str()).unwrap_or_default();
    // A variable that expands to an empty text means the same as null.
    if text.is_empty() && node.as_scalar().is_some_and(|s| s.style == Style::Expanded) {
        return Some(None);
    }
    match host_port(text) {
        Some((host, Some(port))) => Some(Some(format!("{host}:{port}").into())),
        _ => refuse(reader, node, meta),
    }
}

/// `host` or `host:port` → `host:port`. Without a port in the text, `default` gives the port.
/// `None` when the text is neither.
pub(crate) fn host_port_text(text: &str, default: u16) -> Option<Arc<str>> {
    let (host, found) = host_port(text)?;
    let port = match found {
        Some(port) => port,
        None if authority_has_port(text) => return None,
        None => default,
    };
    Some(format!("{host}:{port}").into())
}

/// Whether an HTTP request may carry the path unchanged. Paths with dot segments are excluded.
pub(super) fn is_plain_path(path: &str) -> bool {
    path.starts_with('/')
        && path
            .split('/')
            .all(|segment| segment != "." && segment != "..")
        && path.bytes().all(|b| b.is_ascii_graphic())
        && path
            .parse::<Uri>()
            .is_ok_and(|uri| uri.path() == path && uri.authority().is_none())
}

fn authority_has_port(authority: &str) -> bool {
    match authority.rsplit_once(']') {
        Some((_, after)) => after.starts_with(':'),
        None => authority.contains(':'),
    }
}

/// Splits `host:port` into the normalized host and the port, if there is a usable one. `None` for
/// an unusable host.
fn host_port(text: &str) -> Option<(String, Option<u16>)> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, after) = rest.split_once(']')?;
        let host: Ipv6Addr = host.parse().ok()?;
        return match after.strip_prefix(':') {
            Some(digits) => Some((format!("[{host}]"), port(digits))),
            None => after.is_empty().then(|| (format!("[{host}]"), None)),
        };
    }
    let (host, digits) = match text.split_once(':') {
        Some((host, digits)) => (host, Some(digits)),
        None => (text, None),
    };
    if !is_host(host) || digits.is_some_and(|digits| digits.contains(':')) {
        return None;
    }
    Some((host.to_ascii_lowercase(), digits.and_then(port)))
}

fn port(digits: &str) -> Option<u16> {
    let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    digits.parse().ok().filter(|port| plain && *port != 0)
}

/// Whether the text is a DNS name (underscores are allowed, because container names have them) or
/// an IPv4 address.
fn is_host(host: &str) -> bool {
    let is_label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && label
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
    };
    let numeric = host.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let name = host.strip_suffix('.').unwrap_or(host);
    if numeric {
        return host.parse::<Ipv4Addr>().is_ok();
    }
    name.len() <= 253 && name.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{ADDRESS, URL};
    use crate::yaml;

    fn read(
        knob: &crate::options::OptionDef<Endpoint>,
        text: &str,
    ) -> Option<(String, bool, String)> {
        let node = yaml::parse(&format!("{text:?}")).unwrap();
        let endpoint = knob.read(&mut Reader::new(), &node)?;
        Some((
            endpoint.key.to_string(),
            endpoint.tls,
            endpoint.base_path.to_string(),
        ))
    }

    #[test]
    fn addresses_are_normalised() {
        let key = |text| read(&ADDRESS, text).map(|e| e.0);
        assert_eq!(key("10.0.0.11:8000").as_deref(), Some("10.0.0.11:8000"));
        assert_eq!(key("GPU_1.Local:1").as_deref(), Some("gpu_1.local:1"));
        assert_eq!(key("[FD00::0:1]:65535").as_deref(), Some("[fd00::1]:65535"));
    }

    #[test]
    fn what_is_no_address_is_refused() {
        let bad = [
            "",
            "10.0.0.11",
            "10.0.0.300:80",
            "host:",
            ":80",
            "host:0",
            "host:65536",
            "host:+80",
            "fd00::1:80",
            "[fd00::1]",
            "[x]:80",
            "ho st:80",
            "a..b:80",
            "http://h:80",
            "user@h:80",
            "h:80/x",
            "-:",
            "h:80:80",
        ];
        for text in bad {
            assert_eq!(read(&ADDRESS, text), None, "{text:?}");
        }
    }

    #[test]
    fn urls_have_default_ports_and_base_paths() {
        let of = |text: &str| read(&URL, text).unwrap();
        assert_eq!(of("http://h"), ("h:80".into(), false, String::new()));
        assert_eq!(of("https://H/"), ("h:443".into(), true, String::new()));
        assert_eq!(
            of("HTTPS://h:8443/base/x/"),
            ("h:8443".into(), true, "/base/x".into())
        );
        assert_eq!(
            of("http://[::1]:80/a"),
            ("[::1]:80".into(), false, "/a".into())
        );
        assert_eq!(
            of("http://[::1]"),
            ("[::1]:80".into(), false, String::new())
        );
    }

    #[test]
    fn what_is_no_url_of_a_peer_is_refused() {
        let bad = [
            "",
            "h:80",
            "ftp://h",
            "http://",
            "http:///x",
            "http://u:p@h",
            "http://h?x=1",
            "http://h/#f",
            "http://h:0",
            "http://h:99999",
            "http://h:",
            "http://h/a b",
            "http://h/../x",
            "://h",
        ];
        for text in bad {
            assert_eq!(read(&URL, text), None, "{text:?}");
        }
    }
}
