//! The client for routers: bounded answers, bounded time, no redirects, no proxy.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use http::header::{AUTHORIZATION, HeaderValue};
use reqwest::redirect::Policy;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;

/// Largest accepted answer.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;

/// Maximum concurrent calls, over all routers.
const CALLS_MAX: usize = 16;

/// Largest token file.
const TOKEN_BYTES_MAX: u64 = 64 * 1024;

/// A router's admin URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouterUrl {
    base: reqwest::Url,
    label: Box<str>,
}

/// The text is not a router's URL.
#[derive(Debug, thiserror::Error)]
#[error("not a router's URL (for example http://127.0.0.1:8090)")]
pub struct NoRouterUrl;

impl FromStr for RouterUrl {
    type Err = NoRouterUrl;

    fn from_str(text: &str) -> Result<Self, NoRouterUrl> {
        let base = reqwest::Url::parse(text).map_err(|_| NoRouterUrl)?;
        let host = base.host_str().ok_or(NoRouterUrl)?;
        let port = base.port_or_known_default().ok_or(NoRouterUrl)?;
        let is_plain = matches!(base.scheme(), "http" | "https")
            && base.username().is_empty()
            && base.password().is_none()
            && base.query().is_none();
        let label = format!("{host}:{port}").into();
        is_plain.then_some(Self { base, label }).ok_or(NoRouterUrl)
    }
}

impl RouterUrl {
    /// `host:port`, its name in labels and logs.
    pub fn label(&self) -> &str {
        &self.label
    }

    fn join(&self, path: &[&str], query: &[(&str, &str)]) -> reqwest::Url {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        url
    }
}

/// The client cannot be built.
#[derive(Debug, thiserror::Error)]
#[error("build the client that asks routers")]
pub struct ClientError(#[source] reqwest::Error);

/// A router gave no usable answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum AskError {
    #[error("send the request")]
    Send(#[source] reqwest::Error),
    #[error("read the answer")]
    Read(#[source] reqwest::Error),
    #[error("take the answer: status {0}")]
    Status(http::StatusCode),
    #[error("take the answer: the route has no peers")]
    NoPeers,
    #[error("take the answer: more than {ANSWER_BYTES_MAX} bytes")]
    TooLarge,
    #[error("understand the answer")]
    Json(#[source] serde_json::Error),
}

/// Calls routers.
#[derive(Debug)]
pub struct Client {
    http: reqwest::Client,
    token_file: Option<PathBuf>,
    calls: Semaphore,
}

impl Client {
    /// `timeout` is per call. `token_file` is read in each round, so that it may change.
    ///
    /// # Errors
    /// TLS cannot be set up.
    pub fn new(timeout: Duration, token_file: Option<PathBuf>) -> Result<Self, ClientError> {
        let http = reqwest::Client::builder()
            .no_proxy()
            .redirect(Policy::none())
            .retry(reqwest::retry::never())
            .connect_timeout(timeout)
            .timeout(timeout)
            .build()
            .map_err(ClientError)?;
        Ok(Self {
            http,
            token_file,
            calls: Semaphore::new(CALLS_MAX),
        })
    }

    /// The credential for the next round; `None` if the file cannot be used, which is logged.
    pub(super) async fn credential(&self) -> Option<HeaderValue> {
        let path = self.token_file.clone()?;
        let shown = path.display().to_string();
        let read = tokio::task::spawn_blocking(move || read_token(&path)).await;
        match read {
            Ok(Ok(value)) => Some(value),
            Ok(Err(error)) => {
                tracing::warn!(path = shown, %error, "the token file cannot be used");
                None
            }
            Err(_) => None,
        }
    }

    /// Makes one call.
    pub(super) async fn ask<T: DeserializeOwned>(
        &self,
        router: &RouterUrl,
        credential: Option<&HeaderValue>,
        path: &[&str],
        query: &[(&str, &str)],
    ) -> Result<T, AskError> {
        // The semaphore is never closed.
        let _call = self.calls.acquire().await;
        let mut request = self.http.get(router.join(path, query));
        if let Some(credential) = credential {
            request = request.header(AUTHORIZATION, credential.clone());
        }
        let mut answer = request.send().await.map_err(AskError::Send)?;
        let status = answer.status();
        if !matches!(
            status,
            http::StatusCode::OK | http::StatusCode::SERVICE_UNAVAILABLE
        ) {
            return Err(AskError::Status(status));
        }
        let mut body = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(AskError::Read)? {
            if body.len() + chunk.len() > ANSWER_BYTES_MAX {
                return Err(AskError::TooLarge);
            }
            body.extend_from_slice(&chunk);
        }
        if status == http::StatusCode::OK {
            return serde_json::from_slice(&body).map_err(AskError::Json);
        }
        Err(match has_no_peers(&body) {
            true => AskError::NoPeers,
            false => AskError::Status(status),
        })
    }
}

/// Whether an error means that a route has no peers, in the words of this router or of
/// llm-openresty.
fn has_no_peers(body: &[u8]) -> bool {
    let Ok(body) = serde_json::from_slice::<serde_json::Value>(body) else {
        return false;
    };
    let error = &body["error"];
    error["code"] == "no_healthy_peer" || error == "no peers configured"
}

fn read_token(path: &std::path::Path) -> std::io::Result<HeaderValue> {
    use std::io::Read;
    let mut text = String::new();
    std::fs::File::open(path)?
        .take(TOKEN_BYTES_MAX)
        .read_to_string(&mut text)?;
    // The error must not contain the value itself.
    let mut value = HeaderValue::from_str(&format!("Bearer {}", text.trim()))
        .map_err(|_| std::io::Error::other("it holds no token"))?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_router_is_named_by_host_and_port() {
        let label = |url: &str| RouterUrl::from_str(url).map(|url| url.label().to_owned());
        assert_eq!(label("http://10.0.0.1:8090").unwrap(), "10.0.0.1:8090");
        assert_eq!(label("http://router/").unwrap(), "router:80");
        assert_eq!(label("https://[::1]/x").unwrap(), "[::1]:443");
        for bad in [
            "router:8090",
            "ftp://a",
            "http://",
            "http://u:p@a",
            "",
            "http://a?b",
        ] {
            assert!(label(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_path_is_put_behind_the_base() {
        let url = RouterUrl::from_str("http://a:1/base/").unwrap();
        assert_eq!(
            url.join(&["chat", "_429_status"], &[("all", "1")]).as_str(),
            "http://a:1/base/chat/_429_status?all=1"
        );
        let url = RouterUrl::from_str("http://a:1").unwrap();
        assert_eq!(url.join(&["_routes"], &[]).as_str(), "http://a:1/_routes");
    }
}
