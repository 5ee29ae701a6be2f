//! One probe: a request on a fresh connection, its verdict recorded, its model list kept.

use std::error::Error;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use http::header;
use reqwest::{Client, ClientBuilder, Response};
use router_core::pool::Evidence;

use super::verdict::{Outcome, verdict};
use super::{Assignment, models};
use crate::telemetry::events::{Events, PeerRef};

/// Where engines list what they serve.
const MODELS_PATH: &str = "/v1/models";

/// Asks peers and records what it learns.
#[derive(Debug)]
pub(super) struct Prober {
    client: Client,
    events: Arc<Events>,
}

/// One answer.
enum Answer {
    /// The head is here; the body is not read yet.
    Head(Response),
    /// None came; why, in a few words.
    None(Outcome, String),
}

impl Prober {
    pub(super) fn new(events: Arc<Events>) -> Self {
        Self {
            client: client(),
            events,
        }
    }

    /// Probes one peer. The verdict is the status line's: a body that is slow or broken costs the
    /// model list alone.
    pub(super) async fn probe(&self, at: &Assignment) {
        let path = at.path();
        let timeout = at.route.options.health_timeout.value;
        match self.get(at, path, timeout).await {
            Answer::None(outcome, why) => self.record(at, outcome, &why),
            Answer::Head(response) => {
                let status = response.status();
                self.record(at, Outcome::Status(status.as_u16()), &status);
                if status.is_success() {
                    self.learn_models(at, path, response, timeout).await;
                }
            }
        }
    }

    fn record(&self, at: &Assignment, outcome: Outcome, why: &dyn Display) {
        let evidence = verdict(outcome);
        let key = &at.peer.spec.key;
        let peer = PeerRef {
            route: &at.route.name,
            peer: key,
            name: &at.peer.spec.name,
        };
        if let Some(change) = at.route.observe(key, evidence) {
            self.events.peer_changed(peer, change, why);
        }
        match evidence {
            Evidence::Busy => {
                self.events
                    .probe_busy(peer, why, tokio::time::Instant::now().into_std());
            }
            Evidence::Healthy | Evidence::Failed => {
                tracing::debug!(route = &*at.route.name, peer = %key, ?evidence, why = %why, "peer probed");
            }
        }
    }

    /// Keeps the peer's model list; one that cannot be read leaves the last one.
    async fn learn_models(&self, at: &Assignment, path: &str, answer: Response, timeout: Duration) {
        let response = if path == MODELS_PATH {
            answer
        } else {
            drop(answer);
            match self.get(at, MODELS_PATH, timeout).await {
                Answer::Head(response) if response.status().is_success() => response,
                Answer::Head(_) | Answer::None(..) => return,
            }
        };
        let list = match body(response).await {
            Some(body) => models::parse(&body),
            None => None,
        };
        let (route, key) = (&at.route, &at.peer.spec.key);
        match list {
            Some(list) => route.state.models.put(key, list),
            None => {
                tracing::debug!(route = &*route.name, peer = %key, "model list unusable, the last one stays");
            }
        }
    }

    async fn get(&self, at: &Assignment, path: &str, timeout: Duration) -> Answer {
        let target = &at.peer.target;
        let url = match target.uri(path) {
            Ok(uri) => uri.to_string(),
            Err(error) => return Answer::None(Outcome::Failed, error.to_string()),
        };
        let mut request = self.client.get(url).timeout(timeout);
        if let Some(authorization) = &target.authorization {
            request = request.header(header::AUTHORIZATION, authorization.clone());
        }
        match request.send().await {
            Ok(response) => Answer::Head(response),
            Err(error) if error.is_timeout() => {
                Answer::None(Outcome::TimedOut, format!("no answer within {timeout:?}"))
            }
            Err(error) => Answer::None(Outcome::Failed, root_cause(&error)),
        }
    }
}

/// The whole body, unless it is longer than a model list may be or breaks off.
async fn body(mut response: Response) -> Option<BytesMut> {
    let mut body = BytesMut::new();
    while let Some(chunk) = response.chunk().await.ok()? {
        if body.len() + chunk.len() > models::BODY_MAX {
            return None;
        }
        body.extend_from_slice(&chunk);
    }
    Some(body)
}

/// The innermost cause: the outer ones only say that sending a request failed.
fn root_cause(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

/// A client that opens a fresh connection for each probe: a kept one may be closed by the engine
/// between two probes, which would look like a failure.
fn client() -> Client {
    client_with(|builder| builder.pool_max_idle_per_host(0))
}

/// A client for questions beside the request path: no proxy, no redirect, no retry.
pub(in crate::upstream) fn client_with(with: impl Fn(ClientBuilder) -> ClientBuilder) -> Client {
    let builder = || {
        let plain = Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .tcp_nodelay(true)
            .user_agent(concat!(
                "llm-router/",
                env!("CARGO_PKG_VERSION"),
                " (probe)"
            ));
        with(plain)
    };
    builder().build().unwrap_or_else(|error| {
        tracing::warn!(error = %root_cause(&error), "no certificate store: probes of https peers fail");
        let trusting_nobody = rustls::ClientConfig::builder()
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth();
        builder()
            .tls_backend_preconfigured(trusting_nobody)
            .build()
            .expect("a client without certificates needs nothing from the system")
    })
}
