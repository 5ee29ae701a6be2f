//! Generated requests: `health_check: {kind: generate}` asks a peer for one token.
//!
//! Only a generated answer tells that an engine generates. The core decides when a peer needs such
//! a request, and judges its outcome like that of a client's request.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bytes::Bytes;
use http::StatusCode;
use rand::rngs::StdRng;
use router_config::valid::{GenerateApi, GenerateCheck};
use router_core::health::{AttemptEnd, Failure};
use serde_json::json;
use tokio::sync::watch;

use super::{Assignment, jitter};
use crate::clock::now;
use crate::state::{Reservation, Route};
use crate::telemetry::events::Events;
use crate::upstream::here::is_exhausted;
use crate::upstream::probe_client::{
    AskError, Endpoint, KeptConnection, ProbeClient, Question, Read,
};

/// Largest answer read. One token with its frame is far smaller; an embedding may be larger.
const ANSWER_MAX: usize = 1 << 20;

/// The question. Short, so that its prefill costs nothing.
const PROMPT: &str = "ping";

/// Sends generated requests and records their outcomes.
#[derive(Debug)]
pub(super) struct Generator {
    asker: ProbeClient,
    events: Arc<Events>,
}

/// Sends a generated request to one peer whenever the peer needs one, until the assignment's sender
/// is dropped. Sleeps while the route has no such check. Cancel safe: a request that is dropped
/// says nothing about the peer.
pub(super) async fn generate_for(
    generator: Arc<Generator>,
    mut assigned: watch::Receiver<Assignment>,
    mut rng: StdRng,
) {
    loop {
        let at = assigned.borrow_and_update().clone();
        let options = &at.route.options;
        let Some(check) = &options.health.health_check.value else {
            if assigned.changed().await.is_err() {
                return;
            }
            continue;
        };
        // The pause comes first, so that the first probe has told which models there are.
        let interval = options.health_check_interval.value;
        tokio::select! {
            () = tokio::time::sleep(interval.mul_f64(jitter(&mut rng))) => {}
            changed = assigned.changed() => match changed {
                Ok(()) => continue,
                Err(_) => return,
            }
        }
        generator.ask(&at, check).await;
    }
}

impl Generator {
    pub(super) fn new(asker: ProbeClient, events: Arc<Events>) -> Self {
        Self { asker, events }
    }

    /// Asks a peer for one token if it needs to be asked.
    async fn ask(&self, at: &Assignment, check: &GenerateCheck) {
        let (route, target) = (&at.route, &at.peer.target);
        let Ok(uri) = target.uri(path(check.api)) else {
            return;
        };
        let model = check.model.clone().or_else(|| model_of(at));
        let place = Endpoint::new(uri, target.authorization.as_ref())
            .posting(body(check.api, model.as_deref()));
        let Some(mut slot) = route.generate(&at.peer.spec.key, check.idle) else {
            return;
        };
        let asked = self.outcome(at, &place, &mut slot);
        let end = tokio::time::timeout(check.timeout, asked).await;
        let end = end.unwrap_or(AttemptEnd::Failed(Failure::NoFirstByte));
        for change in route.attempt_ended(&mut slot, end) {
            self.events.peer_health(at.peer_ref(), &change);
        }
        tracing::debug!(route = &*route.name, peer = %at.peer.spec.key, outcome = ?end, "one token was asked for");
    }

    /// Sends the request and reads the whole answer.
    async fn outcome(
        &self,
        at: &Assignment,
        place: &Endpoint,
        slot: &mut Reservation,
    ) -> AttemptEnd {
        // The next request is too far away for the connection to be kept.
        let line = KeptConnection::default();
        let question = Question {
            place,
            next_within: at.route.options.health_check_interval.value,
        };
        let connected = AtomicBool::default();
        let answer = match self.asker.ask(&line, question, &connected).await {
            Ok(answer) => answer,
            Err(error) => return failure(&error),
        };
        match answer.status() {
            status if status.is_success() => {
                self.first_byte(at, &at.route, slot);
                match answer.read(ANSWER_MAX, |_| ()).await {
                    Ok(Read::Whole | Read::TooLong) => AttemptEnd::Served,
                    Err(_) => AttemptEnd::Failed(Failure::Cut),
                }
            }
            status if status.is_server_error() => AttemptEnd::Failed(Failure::ServerError),
            status => {
                if status != StatusCode::TOO_MANY_REQUESTS {
                    self.events
                        .generated_refused(at.peer_ref(), status.as_u16(), now());
                }
                AttemptEnd::Neutral
            }
        }
    }

    fn first_byte(&self, at: &Assignment, route: &Route, slot: &mut Reservation) {
        for change in route.first_byte(slot) {
            self.events.peer_health(at.peer_ref(), &change);
        }
    }
}

/// The outcome of a request without an answer.
fn failure(error: &AskError) -> AttemptEnd {
    if is_exhausted(error) {
        return AttemptEnd::Neutral;
    }
    AttemptEnd::Failed(match error {
        _ if error.is_time_out() => Failure::NoFirstByte,
        AskError::Connect(_) => Failure::NoConnection,
        AskError::Broken(_) => Failure::Reset,
    })
}

fn path(api: GenerateApi) -> &'static str {
    match api {
        GenerateApi::Chat => "/v1/chat/completions",
        GenerateApi::Completions => "/v1/completions",
        GenerateApi::Responses => "/v1/responses",
        GenerateApi::Messages => "/v1/messages",
        GenerateApi::Embeddings => "/v1/embeddings",
    }
}

/// A request for one token. Without a model the engine takes its own, or refuses.
fn body(api: GenerateApi, model: Option<&str>) -> Bytes {
    let messages = || json!([{"role": "user", "content": PROMPT}]);
    let mut body = match api {
        GenerateApi::Chat | GenerateApi::Messages => {
            json!({"messages": messages(), "max_tokens": 1})
        }
        GenerateApi::Completions => json!({"prompt": PROMPT, "max_tokens": 1}),
        GenerateApi::Responses => json!({"input": PROMPT, "max_output_tokens": 1}),
        GenerateApi::Embeddings => json!({"input": PROMPT}),
    };
    if let Some(model) = model {
        body["model"] = json!(model);
    }
    body.to_string().into()
}

/// The model of the peer's pool, else the first one that the peer lists.
fn model_of(at: &Assignment) -> Option<Arc<str>> {
    let key = &at.peer.spec.key;
    let pools = &at.route.spec().pools;
    let of_pool = pools
        .iter()
        .filter(|pool| pool.peers.iter().any(|peer| peer.key == *key))
        .find_map(|pool| pool.model.clone());
    of_pool.or_else(|| {
        let list = at.route.state.models.get(key)?;
        list.entries.first().map(|(id, _)| Arc::from(&**id))
    })
}
