//! Access rules for reads and writes. Pure: every decision depends only on an address and headers.
//!
//! A proxy on the same host must not make every remote caller a loopback caller, and no web page
//! may set a switch through the operator's browser.

use std::net::IpAddr;

use http::header::{self, HeaderMap};
use http::request::Parts;

use router_config::valid::{AdminRead, StatusAccess};

/// The facts about a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The caller is on this host, and no proxy is in between: see [`is_loopback`].
    pub is_loopback: bool,
    /// A web page may have sent the request: see [`is_from_a_page`].
    pub is_from_a_page: bool,
}

impl Caller {
    /// The caller of a request whose TCP peer is `peer`.
    pub fn of(peer: IpAddr, parts: &Parts) -> Self {
        let authority = parts.uri.authority().map(http::uri::Authority::as_str);
        Self {
            is_loopback: is_loopback(peer, authority, &parts.headers),
            is_from_a_page: is_from_a_page(&parts.headers),
        }
    }
}

/// Why a caller is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// The path does not exist, at least for this caller.
    Hidden,
    /// A key of the route would give access.
    NoKey,
    /// The admin token would give access.
    NoToken,
    /// Nothing would give access.
    Forbidden,
    /// A web page may have sent the request.
    FromAPage,
}

/// Whether a caller is on this host without a proxy in between: the TCP peer is a loopback address,
/// no header indicates a proxy, and the request names this host by one of its own names.
/// `authority` is the one of an absolute or HTTP/2 target.
pub fn is_loopback(peer: IpAddr, authority: Option<&str>, headers: &HeaderMap) -> bool {
    peer.to_canonical().is_loopback()
        && !is_handed_on(headers)
        && is_addressed_here(authority, headers)
}

/// Whether a browser may have sent this for a page. Only browsers send these headers, and a page
/// cannot suppress them.
pub fn is_from_a_page(headers: &HeaderMap) -> bool {
    let own_site = |value: &http::HeaderValue| matches!(value.as_bytes(), b"same-origin" | b"none");
    headers.contains_key(header::ORIGIN) || !headers.get_all("sec-fetch-site").iter().all(own_site)
}

/// The header that the console's script sets on its requests.
pub const CONSOLE_HEADER: &str = "x-llm-router-console";

/// Whether the console's own script sent this. A page of another origin has a different `Origin`,
/// and it cannot set the header without a preflight, which the admin port refuses. A page that
/// reached this port by DNS rebinding passes, but its `Host` is foreign, so it needs the token.
pub fn is_from_the_console(parts: &Parts) -> bool {
    let headers = &parts.headers;
    let origins: Vec<_> = headers.get_all(header::ORIGIN).iter().collect();
    let [origin] = origins[..] else {
        return false;
    };
    let origin = origin.to_str().unwrap_or_default();
    let page = origin
        .strip_prefix("http://")
        .or_else(|| origin.strip_prefix("https://"));
    let hosts = headers
        .get_all(header::HOST)
        .iter()
        .map(|host| host.to_str().unwrap_or_default());
    let authority = parts.uri.authority().map(http::uri::Authority::as_str);
    let mut names = hosts.chain(authority).peekable();
    let is_same_host = names.peek().is_some()
        && names.all(|name| page.is_some_and(|page| page.eq_ignore_ascii_case(name)));
    let sites = headers.get_all("sec-fetch-site");
    is_same_host
        && headers.contains_key(CONSOLE_HEADER)
        && sites.iter().all(|site| site == "same-origin")
}

/// Checks reads below a route, on the public port. `has_key`: the caller's key opens the route.
///
/// # Errors
/// The reason for the refusal.
pub fn public_read(class: StatusAccess, caller: Caller, has_key: bool) -> Result<(), Denied> {
    match class {
        StatusAccess::Off => Err(Denied::Hidden),
        StatusAccess::Open => Ok(()),
        StatusAccess::Key if has_key => Ok(()),
        StatusAccess::Key => Err(Denied::NoKey),
        StatusAccess::Loopback if caller.is_loopback => Ok(()),
        StatusAccess::Loopback => Err(Denied::Forbidden),
    }
}

/// Checks writes on the public port: loopback callers only, whatever the class.
///
/// # Errors
/// The reason for the refusal.
pub fn public_write(class: StatusAccess, caller: Caller) -> Result<(), Denied> {
    match (class, caller) {
        (StatusAccess::Off, _) => Err(Denied::Hidden),
        (
            _,
            Caller {
                is_from_a_page: true,
                ..
            },
        ) => Err(Denied::FromAPage),
        (
            _,
            Caller {
                is_loopback: true, ..
            },
        ) => Ok(()),
        _ => Err(Denied::Forbidden),
    }
}

/// The result of comparing the caller's admin token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token {
    /// The admin token.
    Right,
    /// No token, or a different one.
    Wrong,
    /// No admin token is configured.
    NotConfigured,
}

/// Checks reads on the admin port, beyond health and metrics.
///
/// # Errors
/// The reason for the refusal.
pub fn admin_read(class: AdminRead, caller: Caller, token: Token) -> Result<(), Denied> {
    match class {
        AdminRead::Open => Ok(()),
        AdminRead::Token => loopback_or_token(caller, token),
    }
}

/// Checks writes on the admin port.
///
/// # Errors
/// The reason for the refusal.
pub fn admin_write(caller: Caller, token: Token) -> Result<(), Denied> {
    if caller.is_from_a_page {
        Err(Denied::FromAPage)
    } else {
        loopback_or_token(caller, token)
    }
}

fn loopback_or_token(caller: Caller, token: Token) -> Result<(), Denied> {
    match token {
        _ if caller.is_loopback => Ok(()),
        Token::Right => Ok(()),
        Token::Wrong => Err(Denied::NoToken),
        Token::NotConfigured => Err(Denied::Forbidden),
    }
}

fn is_handed_on(headers: &HeaderMap) -> bool {
    headers.keys().map(http::HeaderName::as_str).any(|name| {
        matches!(name, "forwarded" | "via" | "x-real-ip") || name.starts_with("x-forwarded-")
    })
}

/// Whether the request names at least one host, and every named host is this one.
fn is_addressed_here(authority: Option<&str>, headers: &HeaderMap) -> bool {
    let hosts = headers
        .get_all(header::HOST)
        .iter()
        .map(|host| host.to_str().unwrap_or_default());
    let mut names = authority.into_iter().chain(hosts).peekable();
    names.peek().is_some() && names.all(is_own_name)
}

fn is_own_name(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    };
    name.eq_ignore_ascii_case("localhost") || matches!(name, "127.0.0.1" | "[::1]")
}

#[cfg(test)]
mod tests;
