//! The placement step: asks the core for a slot, and waits for one if the pool is full.

use std::time::{Duration, Instant};

use router_core::admission::Refusal;
use router_core::book::PoolId;
use router_core::decision::Choice;

use super::error::ApiError;
use super::inspect::Question;
use super::local;
use super::phase::{Inspected, Live, Queued, Refused};
use crate::placement::PlacementLookups;
use crate::state::{Admitted, Lifecycle, Phase, Pin, Placed, Waiting};
use crate::telemetry::metrics::{Reason, Unplaced};

/// What became of a request for a slot.
#[expect(
    clippy::large_enum_variant,
    reason = "a slot is the common end, and not worth an allocation"
)]
pub(super) enum Tried {
    /// It has one.
    Placed(Live<Inspected>, Placed),
    /// It waits for one. Boxed, because few requests wait.
    Queued(Box<Queue>),
}

/// A request that waits for a slot.
pub(super) struct Queue {
    inspected: Live<Inspected>,
    waiting: Waiting,
    wanted: Wanted,
}

/// What the end of a placement needs to know of its question.
#[derive(Clone, Copy)]
struct Wanted {
    pool: PoolId,
    /// Some peer lists the model.
    is_listed: bool,
    /// Another peer or route could serve the request.
    may_fall_back: bool,
}

/// Gets a slot for a request, or a place in the queue of a full pool. Dropping the result gives up
/// either.
///
/// # Errors
/// No peer serves the model, or a gate refuses the request.
pub(super) fn place(
    inspected: Live<Inspected>,
    question: &Question<'_>,
) -> Result<Tried, Box<Refused>> {
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
    let wanted = Wanted {
        pool,
        is_listed: lookups.pin.indices().is_some(),
        may_fall_back: question.only.is_none(),
    };
    let outcome = match route.admit(lookups.on(context.ask(pool, question.exempt))) {
        Ok(Admitted::Placed(placed)) => Ok(placed),
        Ok(Admitted::Waiting(waiting)) => {
            return Ok(Tried::Queued(Box::new(Queue {
                inspected,
                waiting,
                wanted,
            })));
        }
        Err(refusal) => Err(refusal),
    };
    let (inspected, placed) = wanted.decided(inspected, outcome)?;
    Ok(Tried::Placed(inspected, placed))
}

impl Queue {
    /// Waits for the slot. Cancel safe: dropping the future gives up the place in the queue.
    ///
    /// # Errors
    /// The wait ends early, or a gate refuses the request at its end.
    pub(super) async fn wait(
        self,
        lifecycle: &Lifecycle,
    ) -> Result<(Live<Inspected>, Placed), Box<Refused>> {
        let ahead = self.waiting.ahead();
        let queued = self.inspected.next(|inspected| Queued { inspected, ahead });
        let request = &queued.inspected.authorised;
        let _timer = request.route.state.metrics.wait();
        let ended = tokio::select! {
            biased;
            outcome = self.waiting.served() => Ok(outcome),
            limit = expired(request.deadline()) => Err(ApiError::queue_timeout(limit)),
            () = lifecycle.reached(Phase::Draining) => Err(ApiError::draining()),
        };
        match ended {
            Ok(outcome) => {
                let inspected = queued.next(|queued| queued.inspected);
                self.wanted.decided(inspected, outcome)
            }
            Err(error) => Err(Refused::new(queued, error)),
        }
    }
}

impl Wanted {
    /// Counts a decision.
    fn decided(
        self,
        inspected: Live<Inspected>,
        outcome: Result<Placed, Refusal>,
    ) -> Result<(Live<Inspected>, Placed), Box<Refused>> {
        let placed = match outcome {
            Ok(placed) => placed,
            Err(refusal) => return Err(self.refused(inspected, refusal)),
        };
        let route = &inspected.authorised.route;
        let reason = Reason::of(placed.mode, &placed.facts, self.is_listed);
        let peer = &route.peers[self.pool.0][placed.peer].spec.key;
        let strategy = route.spec().balance.as_str();
        let metrics = &route.state.metrics;
        metrics.selected(peer.as_str(), strategy, reason);
        Ok((inspected, placed))
    }

    fn refused(self, inspected: Live<Inspected>, refusal: Refusal) -> Box<Refused> {
        let route = &inspected.authorised.route;
        match refusal.gate() {
            Some(gate) => route.state.metrics.refused(gate.into(), refusal.bucket()),
            None => route.state.metrics.unplaced(Unplaced::NoHealthyPeer),
        }
        let served = route.spec().pools[self.pool.0].model.as_deref();
        let full_status = route.options.full_status.value;
        let mut error = ApiError::refused(&refusal, full_status, served).on_route(&route.name);
        if self.may_fall_back {
            error = error.falling_back();
        }
        Refused::decided(inspected, Choice::Refuse(refusal), error)
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
