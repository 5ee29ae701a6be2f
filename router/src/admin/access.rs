//! Who may look and who may switch. Pure: everything here is decided from an address and headers.
//!
//! A proxy on the same host must not turn the world into loopback, and no web page may flip a switch
//! through the operator's browser.

use std::net::IpAddr;

use http::header::{self, HeaderMap};
use http::request::Parts;

use router_config::valid::{AdminRead, StatusAccess};

/// What is known about a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// It is on this host, and nobody spoke for it: see [`is_loopback`].
    pub is_loopback: bool,
    /// It may have been sent by a web page: see [`is_from_a_page`].
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

/// Why a caller is turned away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// The path does not exist, at least for this caller.
    Hidden,
    /// A key of the route would help.
    NoKey,
    /// The admin token would help.
    NoToken,
    /// Nothing would help.
    Forbidden,
    /// A page may have sent it.
    FromAPage,
}

/// Whether a caller is on this host and speaks for itself: the TCP peer is a loopback address, no
/// header says that a proxy handed the request on, and the request was addressed to this host by one
/// of its own names. `authority` is the one of an absolute or HTTP/2 target.
pub fn is_loopback(peer: IpAddr, authority: Option<&str>, headers: &HeaderMap) -> bool {
    peer.to_canonical().is_loopback()
        && !is_handed_on(headers)
        && is_addressed_here(authority, headers)
}

/// Whether a browser may have sent this on behalf of a page. Only browsers send these headers, and
/// no page can leave them out.
pub fn is_from_a_page(headers: &HeaderMap) -> bool {
    let own_site = |value: &http::HeaderValue| matches!(value.as_bytes(), b"same-origin" | b"none");
    headers.contains_key(header::ORIGIN) || !headers.get_all("sec-fetch-site").iter().all(own_site)
}

/// Reads below a route, on the public port. `has_key`: the caller's key opens the route.
///
/// # Errors
/// Why not.
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

/// Writes on the public port: loopback callers only, whatever the class.
///
/// # Errors
/// Why not.
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

/// What a caller of the admin port showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token {
    /// The admin token.
    Right,
    /// Nothing, or something else.
    Wrong,
    /// There is no admin token to show.
    NotConfigured,
}

/// Reads on the admin port, beyond health and metrics.
///
/// # Errors
/// Why not.
pub fn admin_read(class: AdminRead, caller: Caller, token: Token) -> Result<(), Denied> {
    match class {
        AdminRead::Open => Ok(()),
        AdminRead::Token => loopback_or_token(caller, token),
    }
}

/// Writes on the admin port.
///
/// # Errors
/// Why not.
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

/// Every name the request was addressed by is one of this host's, and there is at least one.
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
