//! Access control: stored data is for callers on this host and callers with the token.

use std::net::IpAddr;

use axum::Extension;
use axum::extract::{Request, State as Shared};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;

use service::http::PeerAddr;

use super::State;

/// Lets a request through, or rejects it.
pub(super) async fn guard(
    Shared(state): Shared<State>,
    Extension(peer): Extension<PeerAddr>,
    request: Request,
    next: Next,
) -> Response {
    match refusal(&state, peer, &request) {
        None => next.run(request).await,
        Some(refused) => refused,
    }
}

/// The response to a request that may not read stored data.
pub(super) fn refusal(
    state: &State,
    PeerAddr(peer): PeerAddr,
    request: &Request,
) -> Option<Response> {
    let headers = request.headers();
    let authority = request
        .uri()
        .authority()
        .map(|authority| authority.as_str());
    let has_token = state
        .token
        .as_ref()
        .is_some_and(|token| bearer(headers).is_some_and(|shown| token.now().matches(shown)));
    if has_token || is_loopback(peer.ip(), authority, headers) {
        return None;
    }
    if state.token.is_none() {
        return Some(super::error(
            StatusCode::FORBIDDEN,
            "only callers on this host may read this: there is no token",
        ));
    }
    let mut response = super::error(StatusCode::UNAUTHORIZED, "the token is missing or wrong");
    response.headers_mut().insert(
        header::WWW_AUTHENTICATE,
        header::HeaderValue::from_static("Bearer"),
    );
    Some(response)
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme
        .eq_ignore_ascii_case("bearer")
        .then(|| token.trim_ascii())
}

/// Whether the caller is on this host and not behind a proxy. The request must also name this host
/// in its address, so that no web page can make a browser send it.
fn is_loopback(peer: IpAddr, authority: Option<&str>, headers: &HeaderMap) -> bool {
    let handed_on = headers.keys().any(|name| {
        let name = name.as_str();
        matches!(name, "forwarded" | "via" | "x-real-ip") || name.starts_with("x-forwarded-")
    });
    let hosts = headers
        .get_all(header::HOST)
        .iter()
        .map(|host| host.to_str().unwrap_or_default());
    let mut names = authority.into_iter().chain(hosts).peekable();
    peer.to_canonical().is_loopback()
        && !handed_on
        && names.peek().is_some()
        && names.all(is_own_name)
}

fn is_own_name(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    };
    name.eq_ignore_ascii_case("localhost") || matches!(name, "127.0.0.1" | "[::1]")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_local(peer: &str, headers: &[(&str, &str)]) -> bool {
        let headers = headers
            .iter()
            .map(|(name, value)| {
                (
                    name.parse::<header::HeaderName>().unwrap(),
                    value.parse().unwrap(),
                )
            })
            .collect();
        is_loopback(peer.parse().unwrap(), None, &headers)
    }

    #[test]
    fn a_caller_is_local_only_if_nobody_stands_between() {
        assert!(is_local("127.0.0.1", &[("host", "localhost:9998")]));
        assert!(is_local("::1", &[("host", "[::1]:9998")]));
        assert!(!is_local("10.0.0.7", &[("host", "localhost:9998")]));
        assert!(!is_local("127.0.0.1", &[]));
        assert!(!is_local("127.0.0.1", &[("host", "logs.example")]));
        assert!(!is_local(
            "127.0.0.1",
            &[("host", "localhost"), ("x-forwarded-for", "10.0.0.7")]
        ));
        assert!(!is_local(
            "127.0.0.1",
            &[("host", "localhost"), ("via", "1.1 proxy")]
        ));
    }
}
