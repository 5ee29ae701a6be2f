//! Session, pool and reservation: the one step that chooses, by asking the core.

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use http::HeaderMap;
use http::request::Parts;
use router_core::admission::Refusal;
use router_core::affinity::Hashed;
use router_core::affinity::prefix::Prefix;
use router_core::book::{PlacementRequest, PoolId, Switches};
use router_core::decision::Choice;
use router_core::rules::Rule;
use router_core::session::{Place, Session, SessionId, is_blank, pick};

use super::error::{ApiError, clip};
use super::exchange::{self, Exchange};
use super::local;
use crate::content::{Inspection, Turn, prefix};
use crate::state::{Admitted, Lifecycle, Phase, Pin, Placed, Route, RouteTable, Switch, Waiting};
use crate::telemetry::metrics::{Gate, Reason, Unplaced};

/// What bounds a wait for a slot besides the route's own `wait_timeout`.
pub(super) struct RetryBounds<'a> {
    /// The end of the whole request, and how long that was.
    pub(super) deadline: Option<(Instant, Duration)>,
    /// Whether the process is going away.
    pub(super) lifecycle: &'a Lifecycle,
}

/// Session, pool and reservation; fills in the exchange. Where the pool is full it may wait.
///
/// Cancel safe: dropping the future gives up the reservation, or the place in the queue.
pub(super) async fn decide(
    table: &RouteTable,
    exchange: &mut Exchange,
    route: &Arc<Route>,
    parts: &Parts,
    body: &[u8],
    patience: RetryBounds<'_>,
) -> Result<(PoolId, usize), ApiError> {
    let inspection = match body {
        [] => Inspection::empty(&table.fields),
        body => Inspection::read(&table.fields, body),
    };
    if let Some(capture) = &mut exchange.capture {
        capture.asked_for_stream(inspection.stream());
    }
    let model = inspection
        .model()
        .or_else(|| local::query_value(parts.uri.query(), "model").map(Cow::Owned));
    // A receipt outlives its request: what it remembers of a client's text is bounded.
    exchange.is_json_object = inspection.is_object();
    exchange.model = model.as_deref().map(|model| Arc::from(clip(model)));
    let asker = RequestContext::of(route, &parts.headers, &inspection);
    let exempt = is_probe(exchange.path());
    if !exempt && let Some((index, rule)) = rule_against(route, body, &inspection) {
        route.rules.hit(index);
        route.state.metrics.refused(Gate::Rule, None);
        asker.show(exchange);
        exchange.choice = Some(Choice::Rule {
            name: Arc::clone(&rule.name),
            condition: Arc::clone(&rule.condition),
        });
        let status = route.options.reject_rules_status.value;
        return Err(ApiError::rejected_by_rule(rule, status).on_route(&route.name));
    }
    let pool = route.pool(model.as_deref());
    let pool = pool.ok_or_else(|| {
        route.state.metrics.unplaced(Unplaced::UnknownModel);
        ApiError::model_not_supported(model.as_deref(), route.models()).on_route(&route.name)
    })?;
    asker.show(exchange);
    let lookups = PlacementLookups::of(route, pool, model.as_deref(), &asker.session, &inspection);
    if lookups.pin == Pin::Unknown {
        route.state.metrics.unplaced(Unplaced::UnknownModel);
        let error = ApiError::model_not_found(model.as_deref().unwrap_or_default());
        return Err(error.on_route(&route.name));
    }
    let placed = match route.admit(lookups.on(asker.ask(pool, exempt))) {
        Ok(Admitted::Placed(placed)) => Ok(placed),
        Ok(Admitted::Waiting(waiting)) => {
            let _timer = route.state.metrics.wait();
            // What is remembered of it should it end here, whoever ends it.
            exchange.choice = Some(Choice::Wait {
                ahead: waiting.ahead(),
            });
            wait(waiting, patience).await?
        }
        Err(refusal) => Err(refusal),
    };
    match placed {
        Ok(placed) => {
            let listed = lookups.pin.indices().is_some();
            let reason = Reason::of(placed.mode, &placed.facts, listed);
            let peer = &route.peers[pool.0][placed.peer].spec.key;
            let strategy = route.spec().balance.as_str();
            route
                .state
                .metrics
                .selected(peer.as_str(), strategy, reason);
            exchange.reservation = Some(placed.reservation);
            exchange.choice = Some(Choice::Send {
                mode: placed.mode,
                facts: placed.facts,
            });
            Ok((pool, placed.peer))
        }
        Err(refusal) => {
            match refusal.gate() {
                Some(gate) => route.state.metrics.refused(gate.into(), refusal.bucket()),
                None => route.state.metrics.unplaced(Unplaced::NoHealthyPeer),
            }
            let served = route.spec().pools[pool.0].model.as_deref();
            let full_status = route.options.full_status.value;
            let error = ApiError::refused(&refusal, full_status, served).on_route(&route.name);
            exchange.choice = Some(Choice::Refuse(refusal));
            Err(error)
        }
    }
}

/// Waits for a slot. Whatever ends the wait early gives the place in the queue up.
async fn wait(
    waiting: Waiting,
    patience: RetryBounds<'_>,
) -> Result<Result<Placed, Refusal>, ApiError> {
    let expired = async {
        match patience.deadline {
            None => std::future::pending().await,
            Some((end, limit)) => {
                tokio::time::sleep_until(end.into()).await;
                limit
            }
        }
    };
    tokio::select! {
        biased;
        outcome = waiting.served() => Ok(outcome),
        limit = expired => Err(ApiError::queue_timeout(limit)),
        () = patience.lifecycle.reached(Phase::Draining) => Err(ApiError::draining()),
    }
}

/// Whether a path is one that health checks ask for: content rules and load gates leave it alone.
pub fn is_probe(path: &str) -> bool {
    matches!(path, "/v1/models" | "/health")
}

/// The content rule that refuses a body, and its index, while the rules are on.
pub fn rule_against<'r>(
    route: &'r Route,
    body: &[u8],
    inspection: &Inspection<'_>,
) -> Option<(usize, &'r Rule)> {
    if !route.switch(Switch::RejectRules).value {
        return None;
    }
    route.rules.first_match(body, inspection.is_object())
}

/// Who asks, as one request says it, under the switches in force.
#[derive(Debug)]
pub struct RequestContext<'a> {
    /// The session it names, with the affinity switch applied.
    pub session: Session<'a>,
    turn: Option<u32>,
    switches: Switches,
}

impl<'a> RequestContext<'a> {
    /// Reads who asks from a request's headers and body.
    pub fn of(route: &Route, headers: &'a HeaderMap, inspection: &Inspection<'a>) -> Self {
        let switches = route.switches();
        // Off, nobody reads the header: nothing differs from a route without the feature.
        let turn = if switches.session_prio {
            Turn::of(headers)
        } else {
            None
        };
        let found = pick(&route.options.session_sources.value, |place| match place {
            Place::Header(name) => headers
                .get_all(&**name)
                .iter()
                .map(|value| value.as_bytes())
                .find(|value| !is_blank(value))
                .map(Cow::Borrowed),
            Place::Body(path) => inspection.text(path),
        });
        let number = turn.as_ref().map(|turn| turn.turn);
        let found = found.or_else(|| {
            Some(SessionId {
                raw: into_bytes(turn?.session_id),
                source: turn_source(),
            })
        });
        Self {
            session: Session::new(found, route.affinity_acts()),
            turn: number,
            switches,
        }
    }

    /// The request as the core sees it; `exempt` for a [probe](is_probe).
    pub fn ask(&self, pool: PoolId, exempt: bool) -> PlacementRequest<'_> {
        PlacementRequest {
            turn: self.turn,
            exempt,
            switches: self.switches,
            ..PlacementRequest::new(pool, self.session.placed())
        }
    }

    fn show(&self, exchange: &mut Exchange) {
        if let (Some(capture), Session::Known(id)) = (&mut exchange.capture, &self.session) {
            capture.session(&id.table_key());
        }
        exchange.session = Arc::from(&*self.session.routed_text());
        exchange.source = match &self.session {
            // Without a copy where it has a label of its own.
            Session::Known(id) => Arc::clone(&id.source),
            Session::None => exchange::no_source(),
            Session::Ignored(_) => Arc::from(self.session.source()),
        };
    }
}

/// What a route's options make of a request's session, model and conversation.
#[derive(Debug)]
pub struct PlacementLookups<'s> {
    hashed: Option<Hashed>,
    key: Option<Cow<'s, [u8]>>,
    prefix: Vec<Prefix>,
    /// Which peers may serve its model.
    pub pin: Pin,
    pin_falls_back: bool,
}

impl<'s> PlacementLookups<'s> {
    /// Allocates only where sessions or prefixes are remembered, models pin, or an id is long.
    pub fn of(
        route: &Route,
        pool: PoolId,
        model: Option<&str>,
        session: &'s Session<'_>,
        inspection: &Inspection<'_>,
    ) -> Self {
        let key = match session {
            Session::Known(id) if route.spec().remembers_sessions() => Some(id.table_key()),
            _ => None,
        };
        let prefix = if session.placed().is_none() && route.places_by_prefix() {
            let fields = prefix::FIELDS.iter();
            prefix::chain(fields.filter_map(|name| inspection.top(name)))
        } else {
            Vec::new()
        };
        let hashed = session.placed().and_then(|id| route.hashed(pool, id));
        Self {
            hashed,
            key,
            prefix,
            pin: route.pin(model),
            pin_falls_back: route.pin_falls_back(),
        }
    }

    /// The request with what was looked up.
    pub fn on<'a>(&'a self, ask: PlacementRequest<'a>) -> PlacementRequest<'a> {
        PlacementRequest {
            hashed: self.hashed.as_ref(),
            key: self.key.as_deref(),
            prefix: &self.prefix,
            pin: self.pin.indices(),
            pin_falls_back: self.pin_falls_back,
            ..ask
        }
    }
}

fn into_bytes(text: Cow<'_, str>) -> Cow<'_, [u8]> {
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    }
}

/// What `X-Routed-Source` says of an id that `session_prio`'s header named.
fn turn_source() -> Arc<str> {
    static SOURCE: LazyLock<Arc<str>> = LazyLock::new(|| format!("header.{}", Turn::NAME).into());
    Arc::clone(&SOURCE)
}
