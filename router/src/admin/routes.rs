//! `GET /_routes`: every route, whether its file is in force, and the reason if not.

use std::path::Path;
use std::time::Instant;

use proto::admin::{
    Auth, CacheHits, Config, FLAT_POOL, KeyProblem, Keys, KeysAnswer, KeysInForce, Peer,
    PeerSource, PeerState, Pool, Problem, ProcessPhase, Reasons, Route, RouteStatus, Routes,
    SwitchState, Trips,
};
use router_core::book::PoolId;
use router_core::book::status::{Protection, SignalState};
use router_core::decision::PeerFacts;
use router_core::health::HealthState;
use router_core::load::Freshness;
use router_core::pool::PeerKey;
use router_core::signal::Signal;

use super::status;
use crate::clock::now;
use crate::state::{self, Entry, Phase, RouteKeys, RouteTable, Switch};
use crate::telemetry::metrics::ReloadTally;
use router_config::keys::{Digest, InForce, KeyState};
use router_config::report;

/// Builds the answer.
pub(super) fn routes(table: &RouteTable, reloads: &ReloadTally, phase: Phase) -> Routes {
    let last_success = reloads.last_success_unix_ms();
    Routes {
        routes: table
            .entries
            .iter()
            .map(|entry| route(table, entry))
            .collect(),
        keys: keys(&table.keys),
        config: Config {
            last_reload_success: reloads.is_last_success(),
            last_success_unix_ms: (last_success > 0).then_some(last_success),
            errors: problems(table.problems.iter().filter(|problem| problem.is_error())),
        },
        phase: match phase {
            Phase::Serving => ProcessPhase::Serving,
            Phase::DrainDelay | Phase::Draining => ProcessPhase::Draining,
            Phase::Stopped => ProcessPhase::Stopped,
        },
        version: env!("CARGO_PKG_VERSION").to_owned(),
    }
}

/// Problems in the form for programs.
pub(super) fn problems<'p>(
    problems: impl IntoIterator<Item = &'p report::Problem>,
) -> Vec<Problem> {
    let problem = |problem: &report::Problem| {
        let report::Machine {
            file,
            line,
            column,
            severity,
            code,
            message,
        } = problem.machine();
        Problem {
            file,
            line,
            column,
            message,
            severity: severity.to_owned(),
            code: code.map(str::to_owned),
        }
    };
    problems.into_iter().map(problem).collect()
}

/// The source of a route's peers, as it is now.
fn source(route: &state::Route) -> Option<PeerSource> {
    let source = route.peers_from.as_ref()?;
    let now = now();
    let since = |then: Instant| now.saturating_duration_since(then).as_secs();
    let state = route.state.found.state();
    let error = state.as_ref().and_then(|state| state.error.as_ref());
    Some(PeerSource {
        source: source.to_string(),
        peers: state.as_ref().map_or(0, |state| state.peers),
        age_s: state.as_ref().and_then(|state| state.at).map(since),
        error: error.map(|error| error.text.to_string()),
        failing_s: error.map(|error| since(error.since)),
    })
}

fn route(table: &RouteTable, entry: &Entry) -> Route {
    match entry {
        Entry::Ready {
            route,
            stale,
            flaws,
        } => Route {
            fingerprint: Some(route.fingerprint.clone()),
            hits: route_hits(route),
            peers_from: source(route),
            name: route.name.to_string(),
            path: shown(&route.path),
            status: match (stale.is_empty(), flaws.is_empty()) {
                (false, _) => RouteStatus::Stale,
                (true, false) => RouteStatus::Partly,
                (true, true) => RouteStatus::Ok,
            },
            errors: problems(stale.iter().chain(flaws.iter())),
            pools: pools(route),
            auth: auth(table, &route.keys),
            switches: Switch::ALL
                .into_iter()
                .map(|switch| (switch.name().to_owned(), switch_state(route, switch)))
                .collect(),
            recording: Some(status::recording(route)),
            refused: status::refused(route),
            trips: status::trips(route),
        },
        Entry::Invalid {
            name,
            path,
            problems: errors,
        } => Route {
            fingerprint: None,
            hits: None,
            peers_from: None,
            name: name.to_string(),
            path: shown(path),
            status: RouteStatus::Invalid,
            errors: problems(errors.iter()),
            pools: Vec::new(),
            auth: auth(table, &RouteKeys::Shared),
            switches: Default::default(),
            recording: None,
            refused: Reasons::default(),
            trips: Trips::default(),
        },
    }
}

fn switch_state(route: &state::Route, switch: Switch) -> SwitchState {
    let now = route.switch(switch);
    SwitchState {
        enabled: now.value,
        source: now.source.as_str().to_owned(),
        age_s: route.state.overrides.age(switch).map(|age| age.as_secs()),
    }
}

/// The state of a peer: what its requests told, else what its load page tells, else what its probes
/// tell.
fn peer_state(facts: &PeerFacts) -> PeerState {
    let is_silent = facts.probe.is_some_and(|probe| probe.silent_s.is_some());
    match (facts.health.state, facts.freshness) {
        (HealthState::Suspect, _) => PeerState::Suspect,
        (HealthState::Ejected, _) => PeerState::Ejected,
        (HealthState::Probing, _) => PeerState::Probing,
        (HealthState::Returning, _) => PeerState::Returning,
        (HealthState::Healthy, None | Some(Freshness::Fresh)) if is_silent => PeerState::Busy,
        (HealthState::Healthy, None | Some(Freshness::Fresh)) => PeerState::Healthy,
        (HealthState::Healthy, Some(Freshness::Held)) => PeerState::Held,
        (HealthState::Healthy, Some(_)) => PeerState::Stale,
    }
}

/// How long the peer has been in its state, and why it is there.
fn since_and_why(facts: &PeerFacts, state: PeerState) -> (Option<u64>, Option<String>) {
    let silent = |what: &str, seconds: Option<u64>| {
        let why = seconds.map(|seconds| format!("{what} silent for {seconds} s"));
        (seconds, why)
    };
    match state {
        PeerState::Busy => {
            let seconds = facts.probe.and_then(|probe| probe.silent_s);
            (seconds, seconds.map(|s| format!("probe silent {s} s")))
        }
        PeerState::Held => silent("metrics", facts.held_s),
        PeerState::Stale => silent("metrics", facts.stale_s),
        _ => (facts.health.since_s, facts.health.cause.clone()),
    }
}

fn route_hits(route: &state::Route) -> Option<CacheHits> {
    route.state.traffic.lock().route_hits(now())
}

fn peer_hits(route: &state::Route, peer: &PeerKey, at: Instant) -> Option<CacheHits> {
    route.state.traffic.lock().cache_hits(peer.as_str(), at)
}

fn pools(route: &state::Route) -> Vec<Pool> {
    let at = now();
    let pool = |(id, now): (PoolId, Protection)| {
        let limits = route.limits(id);
        let configured = &route.peers[id.0];
        let peers = route
            .peer_facts(id)
            .into_iter()
            .zip(configured)
            .map(|(now, peer)| {
                let state = peer_state(&now);
                let (state_s, why) = since_and_why(&now, state);
                (now, peer, state, state_s, why)
            })
            .map(|(now, peer, state, state_s, why)| Peer {
                held_back: route.held_back(&now.peer),
                hits: peer_hits(route, &now.peer, at),
                peer: now.peer.to_string(),
                name: now.name.clone(),
                priority: now.priority,
                max: now.slots,
                in_flight: now.in_flight,
                enabled: now.enabled,
                draining: now.draining,
                banned: now.banned,
                ban_left_s: now.ban_left_s,
                state,
                state_s,
                why: why.filter(|_| !state.is_healthy()),
                gpu: peer.spec.gpu.as_deref().map(str::to_owned),
            });
        let model = route.spec().pools[id.0].model.as_deref();
        let signal = |signal, state: &SignalState| {
            let name = model.unwrap_or(FLAT_POOL).to_owned();
            status::is_compared(state).then(|| status::of_pool(signal, name, state))
        };
        Pool {
            model: model.map(str::to_owned),
            limit: limits.limit,
            in_flight: limits.in_flight,
            healthy_peers: limits.healthy_peers,
            adaptive_limit: now.adaptive.filter(|state| state.acting).map(|_| now.limit),
            waiting: now.waiting,
            ttft: signal(Signal::Ttft, &now.ttft),
            tps: signal(Signal::Tps, &now.tps),
            peers: peers.collect(),
        }
    };
    route
        .pool_ids()
        .zip(route.protections())
        .map(pool)
        .collect()
}

fn auth(table: &RouteTable, keys: &RouteKeys) -> Auth {
    match keys {
        RouteKeys::Shared if table.keys.is_open() => Auth::Open,
        RouteKeys::Shared => Auth::Shared,
        RouteKeys::Own(keys) if keys.is_empty() => Auth::Open,
        RouteKeys::Own(_) => Auth::Own,
    }
}

/// The answer about the shared keys. `asked` is the fingerprint of the key set to compare with.
pub(super) fn keys_answer(state: &KeyState, asked: Option<Digest>) -> KeysAnswer {
    KeysAnswer {
        keys: keys(state),
        matches: asked.map(|asked| match &state.in_force {
            InForce::Keys(set) => set.fingerprint() == asked,
            InForce::Open | InForce::Closed => false,
        }),
    }
}

fn keys(state: &KeyState) -> Keys {
    Keys {
        file: shown(&state.path),
        status: state.status.as_str().to_owned(),
        detail: state.detail.clone(),
        in_force: match state.in_force {
            InForce::Keys(_) => KeysInForce::Keys,
            InForce::Open => KeysInForce::Open,
            InForce::Closed => KeysInForce::Closed,
        },
        count: state.keys_len(),
        fingerprint: match &state.in_force {
            InForce::Keys(set) => Some(set.short_fingerprint()),
            InForce::Open | InForce::Closed => None,
        },
        problems: state
            .problems
            .iter()
            .map(|problem| KeyProblem {
                line: problem.line,
                message: problem.message.to_owned(),
            })
            .collect(),
    }
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}
