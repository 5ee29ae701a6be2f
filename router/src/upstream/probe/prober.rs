//! One probe: sends a request, records its verdict and keeps its model list.

use std::error::Error;
use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use super::verdict::{Outcome, verdict};
use super::{Assignment, models};
use crate::clock::now;
use crate::telemetry::events::Events;
use crate::upstream::here::is_exhausted;
use crate::upstream::probe_client::{Answer, AskError, Endpoint, ProbeClient, Question, Read};

/// The path where engines list their models.
const MODELS_PATH: &str = "/v1/models";

/// Probes peers and records the results.
#[derive(Debug)]
pub(super) struct Prober {
    asker: ProbeClient,
    events: Arc<Events>,
}

/// The reason why no answer came.
#[derive(Debug, thiserror::Error)]
enum NoAnswer {
    #[error("no such address: {0}")]
    Address(#[from] http::Error),
    #[error("{0}")]
    Asked(#[from] AskError),
}

impl Prober {
    pub(super) fn new(asker: ProbeClient, events: Arc<Events>) -> Self {
        Self { asker, events }
    }

    /// Probes one peer. Only the status line decides the verdict; a slow or broken body loses only
    /// the model list.
    pub(super) async fn probe(&self, at: &Assignment) {
        let path = at.path();
        let timeout = at.route.options.health_timeout.value;
        let lists_models = path == MODELS_PATH;
        let asked_at = now();
        let mut heard = None;
        let asked = tokio::time::timeout(timeout, async {
            let answer = self.get(at, path).await?;
            let status = answer.status();
            self.record(at, asked_at, Outcome::Status(status.as_u16()), &status);
            heard = Some(status);
            Ok(body(answer, lists_models).await)
        });
        let asked = asked.await;
        match (heard, asked) {
            (Some(status), asked) if status.is_success() => {
                if lists_models {
                    let list = asked.ok().and_then(Result::ok).flatten();
                    self.learn(at, list);
                } else {
                    self.learn_models(at).await;
                }
            }
            (Some(_), _) => {}
            (None, Ok(Err(NoAnswer::Asked(error)))) if is_exhausted(&error) => {
                self.events
                    .probe_not_sent(at.peer_ref(), &root_cause(&error), now());
            }
            (None, Ok(Err(NoAnswer::Asked(error)))) if !error.is_time_out() => {
                self.record(at, asked_at, Outcome::Failed, &root_cause(&error));
            }
            (None, Ok(Err(NoAnswer::Address(error)))) => {
                self.record(at, asked_at, Outcome::Failed, &error);
            }
            (None, _) => {
                let why = format!("no answer within {timeout:?}");
                self.record(at, asked_at, Outcome::TimedOut, &why);
            }
        }
    }

    fn record(&self, at: &Assignment, asked_at: Instant, outcome: Outcome, why: &dyn Display) {
        let evidence = verdict(outcome);
        let key = &at.peer.spec.key;
        if let Some(change) = at.route.probed(key, evidence, asked_at) {
            self.events.peer_changed(at.peer_ref(), change, why);
        }
        tracing::debug!(route = &*at.route.name, peer = %key, evidence = evidence.as_str(), why = %why, "peer probed");
    }

    /// Fetches the peer's model list when the probe's path does not provide it.
    async fn learn_models(&self, at: &Assignment) {
        let timeout = at.route.options.health_timeout.value;
        let asked = tokio::time::timeout(timeout, async {
            let answer = self.get(at, MODELS_PATH).await?;
            let is_there = answer.status().is_success();
            Ok::<_, NoAnswer>(is_there.then_some(body(answer, is_there).await))
        });
        match asked.await {
            Ok(Ok(Some(list))) => self.learn(at, list),
            Ok(Ok(None)) | Ok(Err(_)) => {}
            Err(_) => self.learn(at, None),
        }
    }

    /// Keeps the peer's model list. An unreadable list leaves the last one in place.
    fn learn(&self, at: &Assignment, body: Option<Vec<u8>>) {
        let (route, key) = (&at.route, &at.peer.spec.key);
        match body.and_then(|body| models::parse(&body)) {
            Some(list) => route.state.models.put(key, list),
            None => {
                tracing::debug!(route = &*route.name, peer = %key, "model list unusable, the last one stays");
            }
        }
    }

    async fn get<'l>(&self, at: &'l Assignment, path: &str) -> Result<Answer<'l>, NoAnswer> {
        let target = &at.peer.target;
        let place = Endpoint::new(target.uri(path)?, target.authorization.as_ref());
        let question = Question {
            place: &place,
            next_within: at.next_within(),
        };
        Ok(self
            .asker
            .ask(&at.line, question, &AtomicBool::default())
            .await?)
    }
}

/// The whole body if it is `wanted`, unless it is longer than a model list may be or breaks off.
async fn body(answer: Answer<'_>, wanted: bool) -> Option<Vec<u8>> {
    if !wanted || !answer.status().is_success() {
        answer.leave();
        return None;
    }
    let mut body = Vec::new();
    let read = answer.read(models::BODY_MAX, |chunk| body.extend_from_slice(chunk));
    (read.await.ok()? == Read::Whole).then_some(body)
}

/// The innermost cause. The outer ones only say that sending a request failed.
fn root_cause(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
