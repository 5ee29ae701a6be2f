//! HTTP client for a router's admin port.
//!
//! One try, no proxy, no redirect, time-outs on everything: an operator's command shows what
//! happened and does not smooth over it. This module interprets only the errors of a router's
//! answer.

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

use http::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use http::{Method, StatusCode};
use proto::admin::Routes;
use reqwest::Url;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::exit::Failure;
use crate::render::tame;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// The router builds a status page from memory, and a reload reads a few files. A slower answer
/// means that something is broken.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);
/// Maximum size of one answer, bytes: 256 receipts a route, and room for a thousand routes.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Maximum size of a token file, bytes.
const TOKEN_BYTES_MAX: u64 = 8 * 1024;

/// The admin token as a header value. Never shown.
#[derive(Clone)]
pub struct Token(HeaderValue);

impl Token {
    /// Reads a token file: one line; white space around it is ignored.
    ///
    /// # Errors
    /// When the file cannot be read, is empty, too long, or not printable ASCII.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let wrong = |why: &str| Failure::Wrong(format!("token file {}: {why}", path.display()));
        let file =
            File::open(path).map_err(|error| Failure::file("read token file", path, &error))?;
        let mut text = String::new();
        file.take(TOKEN_BYTES_MAX + 1)
            .read_to_string(&mut text)
            .map_err(|error| Failure::file("read token file", path, &error))?;
        let token = text.trim();
        if token.is_empty() {
            return Err(wrong("it is empty"));
        }
        if text.len() as u64 > TOKEN_BYTES_MAX {
            return Err(wrong("longer than 8 KiB"));
        }
        let mut value = HeaderValue::from_str(&format!("Bearer {token}"))
            .map_err(|_| wrong("expected one line of printable ASCII"))?;
        value.set_sensitive(true);
        Ok(Self(value))
    }
}

impl From<Token> for HeaderValue {
    fn from(token: Token) -> Self {
        token.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// A client for the scheme of `url`, without proxies, redirects and retries: the caller sees
/// exactly what happened.
///
/// # Errors
/// When TLS cannot be set up: an https URL on a machine without root certificates.
pub fn plain_client(url: &Url) -> Result<reqwest::ClientBuilder, Failure> {
    service::tls::install_crypto_provider();
    let builder = reqwest::Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .connect_timeout(CONNECT_TIMEOUT);
    // Plain http must work on a machine that has no root certificates.
    Ok(if url.scheme() == "https" {
        builder
    } else {
        builder.tls_certs_only([])
    })
}

/// The admin port of one router.
#[derive(Debug)]
pub struct Router {
    base: Url,
    http: reqwest::Client,
    token: Option<Token>,
}

impl Router {
    /// A client for the admin port at `base`.
    ///
    /// # Errors
    /// When TLS cannot be set up.
    pub fn new(base: &Url, token: Option<Token>) -> Result<Self, Failure> {
        let http = plain_client(base)?
            .timeout(ANSWER_TIMEOUT)
            .build()
            .map_err(|error| {
                Failure::Wrong(format!("cannot set up HTTP: {}", root_cause(&error)))
            })?;
        Ok(Self {
            base: base.clone(),
            http,
            token,
        })
    }

    /// The router's URL, for messages.
    pub fn url(&self) -> &str {
        self.base.as_str().trim_end_matches('/')
    }

    /// Reads a JSON document.
    ///
    /// # Errors
    /// [`Failure::Unreachable`] when nothing answers, [`Failure::Refused`] when the status is not
    /// 2xx or the body does not have the expected form.
    ///
    /// # Cancel safety
    /// Dropping the future ends the request.
    pub async fn get<T: DeserializeOwned>(
        &self,
        path: &[&str],
        query: &[(&str, &str)],
    ) -> Result<T, Failure> {
        self.call(Method::GET, path, query, HeaderMap::new(), Vec::new())
            .await
    }

    /// Sends a body and reads a JSON document.
    ///
    /// # Errors
    /// As [`Router::get`].
    ///
    /// # Cancel safety
    /// Dropping the future ends the request; the router may have acted on it.
    pub async fn post<T: DeserializeOwned>(
        &self,
        path: &[&str],
        query: &[(&str, &str)],
        headers: HeaderMap,
        body: Vec<u8>,
    ) -> Result<T, Failure> {
        self.call(Method::POST, path, query, headers, body).await
    }

    /// Sends a `POST`. The status `also` carries the same JSON document as a 2xx status does. An
    /// answer in the common error form counts as a refusal, with that status too.
    ///
    /// # Errors
    /// As [`Router::get`].
    ///
    /// # Cancel safety
    /// Dropping the future ends the request; the router may have acted on it.
    pub async fn post_or<T: DeserializeOwned>(
        &self,
        path: &[&str],
        query: &[(&str, &str)],
        headers: HeaderMap,
        body: Vec<u8>,
        also: StatusCode,
    ) -> Result<T, Failure> {
        let (status, body) = self
            .exchange(Method::POST, path, query, headers, body)
            .await?;
        if let Some(failure) = self.unknown_route(status, &body).await {
            return Err(failure);
        }
        let is_answer = status == also && !is_error(&body);
        self.document(status, &body, is_answer)
    }

    async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &[&str],
        query: &[(&str, &str)],
        headers: HeaderMap,
        body: Vec<u8>,
    ) -> Result<T, Failure> {
        let (status, body) = self.exchange(method, path, query, headers, body).await?;
        if let Some(failure) = self.unknown_route(status, &body).await {
            return Err(failure);
        }
        self.document(status, &body, false)
    }

    /// The failure for a route that the router does not have, with the names of its routes; `None`
    /// for any other answer, or when the names cannot be read.
    async fn unknown_route(&self, status: StatusCode, body: &[u8]) -> Option<Failure> {
        let said: Value = serde_json::from_slice(body).ok()?;
        if status != StatusCode::NOT_FOUND || said["error"]["code"] != "route_not_found" {
            return None;
        }
        let listing = self.exchange(Method::GET, &["_routes"], &[], HeaderMap::new(), Vec::new());
        let (_, page) = listing.await.ok()?;
        let page: Routes = serde_json::from_slice(&page).ok()?;
        let names = page.routes.iter().take(ROUTES_NAMED);
        let names: Vec<_> = names.map(|route| tame(&route.name)).collect();
        let reason = reason_of(status, body);
        Some(self.refused(match names.as_slice() {
            [] => format!("{reason}; it has no routes"),
            names => format!("{reason}; its routes: {}", names.join(", ")),
        }))
    }

    async fn exchange(
        &self,
        method: Method,
        path: &[&str],
        query: &[(&str, &str)],
        headers: HeaderMap,
        body: Vec<u8>,
    ) -> Result<(StatusCode, Vec<u8>), Failure> {
        let mut request = self
            .http
            .request(method, self.address(path, query))
            .headers(headers)
            .body(body);
        if let Some(Token(token)) = &self.token {
            request = request.header(AUTHORIZATION, token.clone());
        }
        let response = request
            .send()
            .await
            .map_err(|error| self.unreachable(&error))?;
        let status = response.status();
        Ok((status, self.read(response).await?))
    }

    fn document<T: DeserializeOwned>(
        &self,
        status: StatusCode,
        body: &[u8],
        is_answer: bool,
    ) -> Result<T, Failure> {
        if !status.is_success() && !is_answer {
            let advice = advice(status, self.token.is_some());
            return Err(self.refused(format!("{}{advice}", reason_of(status, body))));
        }
        serde_json::from_slice(body).map_err(|error| self.foreign(&error))
    }

    /// Converts an answer that was read as arbitrary JSON into the expected type.
    ///
    /// # Errors
    /// [`Failure::Refused`] when the answer has another form.
    pub fn read_as<T: DeserializeOwned>(&self, answer: Value) -> Result<T, Failure> {
        serde_json::from_value(answer).map_err(|error| self.foreign(&error))
    }

    fn foreign(&self, error: &serde_json::Error) -> Failure {
        self.refused(format!(
            "its answer is not what the admin port of a router of this version says ({error})"
        ))
    }

    async fn read(&self, mut response: reqwest::Response) -> Result<Vec<u8>, Failure> {
        let mut body = Vec::new();
        while let Some(chunk) = response
            .chunk()
            .await
            .map_err(|error| self.unreachable(&error))?
        {
            if body.len() + chunk.len() > ANSWER_BYTES_MAX {
                return Err(self.refused(format!(
                    "its answer is longer than {ANSWER_BYTES_MAX} bytes"
                )));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }

    fn address(&self, path: &[&str], query: &[(&str, &str)]) -> Url {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        url
    }

    fn unreachable(&self, error: &reqwest::Error) -> Failure {
        Failure::Unreachable {
            router: self.url().to_owned(),
            reason: root_cause(error),
        }
    }

    fn refused(&self, reason: String) -> Failure {
        Failure::Refused {
            router: self.url().to_owned(),
            reason,
        }
    }
}

/// Maximum number of routes named in the refusal of an unknown one.
const ROUTES_NAMED: usize = 50;

/// The innermost cause: "connection refused" tells more than "error sending request".
pub fn root_cause(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return "no answer in time".to_owned();
    }
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

/// Whether this document has the common error form, and no other member.
fn is_error(body: &[u8]) -> bool {
    let said = serde_json::from_slice::<Value>(body).ok();
    said.is_some_and(|said| said["error"].is_object())
}

/// The router's own error text if there is one, else the status.
fn reason_of(status: StatusCode, body: &[u8]) -> String {
    let said = serde_json::from_slice::<Value>(body).ok();
    let message = said.as_ref().and_then(|said| match &said["error"] {
        Value::String(text) => Some(text.as_str()),
        error => error["message"].as_str(),
    });
    match message {
        Some(message) => format!("{} (HTTP {})", tame(message), status.as_u16()),
        None => format!("HTTP {status}"),
    }
}

fn advice(status: StatusCode, has_token: bool) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN if has_token => {
            "; the token that was sent is not the one in the router's server.admin_token_file, or it has none"
        }
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            "; from another machine the admin port wants the admin token: --token-file FILE"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn router(base: &str) -> Router {
        Router::new(&Url::parse(base).unwrap(), None).unwrap()
    }

    #[test]
    fn paths_and_queries_are_encoded_below_the_base() {
        let address = router("http://r:1/base/").address(&["a/b", "_x"], &[("sid", "ü&=")]);
        assert_eq!(
            address.as_str(),
            "http://r:1/base/a%2Fb/_x?sid=%C3%BC%26%3D"
        );
        assert_eq!(
            router("http://r:1").address(&["_routes"], &[]).as_str(),
            "http://r:1/_routes"
        );
    }

    #[test]
    fn a_refusal_keeps_the_routers_words() {
        let openai = br#"{"error":{"message":"no such route","code":"route_not_found"}}"#;
        assert_eq!(
            reason_of(StatusCode::NOT_FOUND, openai),
            "no such route (HTTP 404)"
        );
        assert_eq!(
            reason_of(StatusCode::FORBIDDEN, br#"{"error":"loopback only"}"#),
            "loopback only (HTTP 403)"
        );
        assert_eq!(
            reason_of(StatusCode::BAD_GATEWAY, b"<html>"),
            "HTTP 502 Bad Gateway"
        );
    }

    #[test]
    fn an_answer_with_the_status_of_an_error_is_told_from_an_error() {
        assert!(is_error(br#"{"error":{"message":"no peers"}}"#));
        for answer in [&br#"{"ok":false,"errors":[]}"#[..], b"{}", b"[]", b"<html>"] {
            assert!(!is_error(answer), "{answer:?}");
        }
    }

    #[tokio::test]
    async fn a_closed_port_is_unreachable_and_says_why() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let failure = router(&format!("http://127.0.0.1:{port}"))
            .get::<Value>(&["_routes"], &[])
            .await
            .unwrap_err();
        assert_eq!(failure.code(), 3);
        assert!(failure.to_string().contains("refused"), "{failure}");
    }

    #[test]
    fn a_token_is_one_printable_line_and_never_shown() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        for (content, fine) in [
            ("s3cret\n", true),
            ("\r\n ", false),
            ("a\nb", false),
            ("\u{fc}", true),
        ] {
            std::fs::write(&path, content).unwrap();
            assert_eq!(Token::read(&path).is_ok(), fine, "{content:?}");
        }
        std::fs::write(&path, "s3cret").unwrap();
        assert_eq!(format!("{:?}", Token::read(&path).unwrap()), "***");
    }

    #[test]
    fn a_refused_token_is_not_asked_for_again() {
        assert!(advice(StatusCode::UNAUTHORIZED, false).contains("--token-file"));
        assert!(advice(StatusCode::UNAUTHORIZED, true).contains("admin_token_file"));
        assert_eq!(advice(StatusCode::NOT_FOUND, true), "");
    }
}
