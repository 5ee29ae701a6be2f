//! The placement step: asks the core for a slot, and waits for one if the pool is full.

use std::time::{Duration, Instant};

use router_core::admission::Refusal;
use router_core::decision::Choice;

use super::error::ApiError;
use super::inspect::Question;
use super::local;
use super::phase::{Inspected, Live, Queued, Refused};
use crate::placement::PlacementLookups;
use crate::state::{Admitted, Lifecycle, Phase, Pin, Placed, Waiting};
use crate::telemetry::metrics::{Reason, Unplaced};

/// Gets a slot for a request.
///
/// Cancel safe: dropping the future gives up the slot, or the place in the queue.
///
/// # Errors
/// No peer serves the model, a gate refuses the request, or the wait for a slot ends early.
pub(super) async fn place(
    inspected: Live<Inspected>,
    question: &Question<'_>,
    lifecycle: &Lifecycle,
) -> Result<(Live<Inspected>, Placed), Box<Refused>> {
    let route = &inspected.authorised.route;
    let (pool, model) = (question.pool, question.model.as_deref());
    let context = &question.context;
    let inspection = &question.inspection;
    let mut lookups = PlacementLookups::of(route, pool, model, &context.session, inspection);
    if let Some(peer) = question.only {
        lookups.only(peer);
    }
    if lookups.pin == Pin::Unknown {
        route.state.metrics.unplaced(Unplaced::UnknownModel);
        let error = ApiError::model_not_found(model.unwrap_or_default())
            .on_route(&route.name)
            .listing_models(local::served_models(route));
        return Err(Refused::new(inspected, error));
    }
    let is_listed = lookups.pin.indices().is_some();
    let admitted = route.admit(lookups.on(context.ask(pool, question.exempt)));
    let (inspected, outcome) = match admitted {
        Ok(Admitted::Placed(placed)) => (inspected, Ok(placed)),
        // Boxed, because few requests wait.
        Ok(Admitted::Waiting(waiting)) => Box::pin(queue(inspected, waiting, lifecycle)).await?,
        Err(refusal) => (inspected, Err(refusal)),
    };
    match outcome {
        Ok(placed) => {
            let route = &inspected.authorised.route;
            let reason = Reason::of(placed.mode, &placed.facts, is_listed);
            let peer = &route.peers[pool.0][placed.peer].spec.key;
            let strategy = route.spec().balance.as_str();
            let metrics = &route.state.metrics;
            metrics.selected(peer.as_str(), strategy, reason);
            Ok((inspected, placed))
        }
        Err(refusal) => Err(refuse(inspected, question, refusal)),
    }
}

fn refuse(inspected: Live<Inspected>, question: &Question<'_>, refusal: Refusal) -> Box<Refused> {
    let route = &inspected.authorised.route;
    match refusal.gate() {
        Some(gate) => route.state.metrics.refused(gate.into(), refusal.bucket()),
        None => route.state.metrics.unplaced(Unplaced::NoHealthyPeer),
    }
    let served = route.spec().pools[question.pool.0].model.as_deref();
    let full_status = route.options.full_status.value;
    let mut error = ApiError::refused(&refusal, full_status, served).on_route(&route.name);
    if question.only.is_none() {
        error = error.falling_back();
    }
    Refused::decided(inspected, Choice::Refuse(refusal), error)
}

/// Waits for a slot. If the wait ends early, the place in the queue is given up.
async fn queue(
    inspected: Live<Inspected>,
    waiting: Waiting,
    lifecycle: &Lifecycle,
) -> Result<(Live<Inspected>, Result<Placed, Refusal>), Box<Refused>> {
    let ahead = waiting.ahead();
    let queued = inspected.next(|inspected| Queued { inspected, ahead });
    let request = &queued.inspected.authorised;
    let _timer = request.route.state.metrics.wait();
    let ended = tokio::select! {
        biased;
        outcome = waiting.served() => Ok(outcome),
        limit = expired(request.deadline()) => Err(ApiError::queue_timeout(limit)),
        () = lifecycle.reached(Phase::Draining) => Err(ApiError::draining()),
    };
    match ended {
        Ok(outcome) => Ok((queued.next(|queued| queued.inspected), outcome)),
        Err(error) => Err(Refused::new(queued, error)),
    }
}

/// Ready at the deadline of the whole request, with the option's value.
async fn expired(deadline: Option<(Instant, Duration)>) -> Duration {
    match deadline {
        None => std::future::pending().await,
        Some((end, limit)) => {
            tokio::time::sleep_until(end.into()).await;
            limit
        }
    }
}
