//! Findings for the operator: each with its numbers and with a remedy.

use std::collections::BTreeMap;

use proto::admin::{
    Keys, KeysInForce, Peer, Pool, PoolSignal, ProcessPhase, Route, RouteStatus, Routes,
};
use serde::Serialize;

use super::age::age_words;
use super::gates::{KINDS, Kind, held_back, recorded};
use super::recent::{PeerRecent, Recent};
use crate::cmd::problem::place;
use crate::render::tame;

/// A peer is slow when its median is at least this multiple of the fastest other median.
const SLOW: u64 = 2;

/// A slow peer is also at least this much slower: between two fast peers a factor means little.
const SLOW_BY_MS: u64 = 50;

/// Minimum number of timed streams for a comparison.
const TIMED_MIN: usize = 5;

/// One finding; its JSON form is stable.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    /// A stable identifier of the kind.
    pub(super) about: &'static str,
    /// The route; absent when the finding concerns the whole router.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) route: Option<String>,
    /// The finding, with its numbers.
    pub(super) text: String,
    /// A command that fixes it or shows more, or a line for the configuration file; may be empty.
    #[serde(rename = "try", skip_serializing_if = "String::is_empty")]
    pub(super) attempt: String,
}

/// All findings of one router: those of the router itself first, then by route.
pub(super) fn findings(status: &Routes, recent: &BTreeMap<String, Recent>) -> Vec<Finding> {
    let mut found = Vec::new();
    process(status, &mut found);
    for route in &status.routes {
        let mut add = |about, text: String, attempt: String| {
            found.push(Finding {
                about,
                route: Some(route.name.clone()),
                text,
                attempt,
            });
        };
        file(route, &mut add);
        for pool in &route.pools {
            room(route, pool, &mut add);
            signals(route, pool, &mut add);
        }
        if let Some(recent) = recent.get(&route.name) {
            refused(route, recent, &mut add);
            engines(route, recent, &mut add);
        }
        overrides(route, &mut add);
    }
    found
}

fn process(status: &Routes, found: &mut Vec<Finding>) {
    let mut add = |about, text: String, attempt: &str| {
        found.push(Finding {
            about,
            route: None,
            text,
            attempt: attempt.to_owned(),
        });
    };
    if status.phase != ProcessPhase::Serving {
        add("phase", format!("it is {}", status.phase.as_str()), "");
    }
    if let Some(problem) = status.config.errors.first() {
        let text = format!("{}: {}", place(problem), problem.message);
        add("config", text, "llmctl route check");
    }
    let Keys {
        file,
        status: read,
        in_force,
        ..
    } = &status.keys;
    match (&**read, in_force) {
        ("ok", _) => {}
        (read, KeysInForce::Keys) => add(
            "keys",
            format!("key file {file} is {read}; the keys loaded before stay in force"),
            "llmctl keys check",
        ),
        (read, KeysInForce::Open) => add(
            "keys",
            format!(
                "key file {file} is {read}: every route without keys of its own is open to everyone"
            ),
            "llmctl keys add OWNER",
        ),
        (read, KeysInForce::Closed) => add(
            "keys",
            format!("key file {file} is {read}: nobody gets in"),
            "llmctl keys add OWNER",
        ),
    }
}

fn file(route: &Route, add: &mut impl FnMut(&'static str, String, String)) {
    let why = route.errors.first().map_or(String::new(), |problem| {
        format!(": {}: {}", place(problem), problem.message)
    });
    match route.status {
        RouteStatus::Ok => {}
        RouteStatus::Partly => add(
            "partly_in_force",
            format!("a value of its file is not in force{why}"),
            "llmctl route check".to_owned(),
        ),
        RouteStatus::Stale => add(
            "stale_file",
            format!("its file is refused and an older version is in force{why}"),
            "llmctl route check".to_owned(),
        ),
        RouteStatus::Invalid => add(
            "invalid_file",
            format!("its file is invalid and it answers 503{why}"),
            "llmctl route check".to_owned(),
        ),
    }
}

fn room(route: &Route, pool: &Pool, add: &mut impl FnMut(&'static str, String, String)) {
    let of = of_model(pool);
    let enabled = || pool.peers.iter().filter(|peer| peer.enabled);
    let banned = enabled().filter(|peer| peer.banned);
    for Peer { name, peer, .. } in banned {
        add(
            "banned_peer",
            format!(
                "peer {name} ({peer}) is banned until a probe succeeds: it could not be reached or failed its probe"
            ),
            "llmctl route check --probe".to_owned(),
        );
    }
    if pool.healthy_peers == 0 && !pool.peers.is_empty() {
        let text = format!("no peer{of} is healthy: it answers 503 no_healthy_peer");
        add("no_peer", text, String::new());
    }
    let limit = pool.adaptive_limit.unwrap_or(pool.limit as f64);
    if pool.limit > 0 && pool.in_flight as f64 >= limit {
        let adaptive = pool.adaptive_limit.map_or(String::new(), |limit| {
            format!(", adaptive limit {limit:.1}")
        });
        let counted = if is_on(route, "rate-limit") {
            ""
        } else {
            "; nobody is refused while rate-limit is off"
        };
        let text = format!(
            "full{of}: {} in flight of {}{adaptive}{counted}",
            pool.in_flight, pool.limit
        );
        add("concurrency", text, switch_off("rate-limit", route));
    }
}

fn signals(route: &Route, pool: &Pool, add: &mut impl FnMut(&'static str, String, String)) {
    for kind in KINDS {
        let Some(signal) = (kind.of)(pool) else {
            continue;
        };
        let about = kind.name;
        let limit = |signal: &PoolSignal| {
            let model = pool
                .model
                .as_deref()
                .map_or(String::new(), |m| format!(" --model {m}"));
            match &*signal.layer {
                "declared" => switch_off(kind.switch, route),
                _ => format!(
                    "llmctl limit {} --{} N --route {}{model}",
                    kind.name, kind.parameter, route.name
                ),
            }
        };
        if signal.tripped && is_on(route, kind.switch) {
            let text = format!(
                "{} trips{}: {}",
                kind.name,
                of_model(pool),
                numbers(kind, signal)
            );
            add(about, text, limit(signal));
        } else if signal.held {
            let text = format!(
                "{}{}: turn 1 is held out until the average falls",
                kind.name,
                of_model(pool)
            );
            add(about, text, limit(signal));
        }
    }
}

/// The metric that trips, with its threshold; of several, the worst.
fn numbers(kind: Kind, signal: &PoolSignal) -> String {
    let rows = signal.items.iter().filter_map(|item| {
        let (average, threshold) = (kind.numbers)(item);
        let (average, threshold) = (average?, threshold?);
        (kind.is_past)(average, threshold).then(|| {
            format!(
                "{} averages {average:.1}, threshold {threshold} {} ({})",
                item.metric, kind.unit, signal.layer
            )
        })
    });
    let rows: Vec<_> = rows.collect();
    if rows.is_empty() {
        "its average is past its threshold".to_owned()
    } else {
        rows.join("; ")
    }
}

fn refused(route: &Route, recent: &Recent, add: &mut impl FnMut(&'static str, String, String)) {
    let (Some(last), Some(id)) = (&recent.last_refusal, &recent.last_refused) else {
        return;
    };
    let text = format!(
        "{} of its last {} requests were refused, the last ({id}) for {last}",
        recent.refused, recent.requests
    );
    let is_load = last
        .split(':')
        .next()
        .is_some_and(|code| code.ends_with("_limit"));
    let attempt = if is_load && is_on(route, "rate-limit") {
        switch_off("rate-limit", route)
    } else {
        format!("llmctl route explain {} --request-id {id}", route.name)
    };
    add("refusals", text, attempt);
}

fn engines(route: &Route, recent: &Recent, add: &mut impl FnMut(&'static str, String, String)) {
    let name = |peer: &str| {
        let peers = route.pools.iter().flat_map(|pool| &pool.peers);
        let found = peers.into_iter().find(|known| known.peer == peer);
        found.map_or(peer.to_owned(), |known| format!("{} ({peer})", known.name))
    };
    for (peer, seen) in &recent.peers {
        if seen.failed > 0 {
            let text = format!(
                "peer {} failed {} of its last {} requests, the last with: {}",
                name(peer),
                seen.failed,
                seen.attempts,
                seen.last_error.as_deref().unwrap_or("-")
            );
            add("failing_peer", text, String::new());
        }
        if let Some((own, others)) = slower(peer, seen, recent) {
            let text = format!(
                "peer {} is slow: median time to first token {own} ms, the others {others} ms",
                name(peer)
            );
            add(
                "slow_peer",
                text,
                format!(
                    "draining: true at this peer in {} keeps new sessions off it",
                    tame(&route.path)
                ),
            );
        }
    }
}

/// A peer's median next to the fastest other median, when the difference is large.
fn slower(peer: &str, seen: &PeerRecent, recent: &Recent) -> Option<(u64, u64)> {
    let own = seen.ttft_p50_ms.filter(|_| seen.timed >= TIMED_MIN)?;
    let others = recent.peers.iter().filter(|(other, _)| *other != peer);
    let others = others
        .filter(|(_, other)| other.timed >= TIMED_MIN)
        .filter_map(|(_, other)| other.ttft_p50_ms)
        .min()?;
    (own >= others.saturating_mul(SLOW) && own >= others + SLOW_BY_MS).then_some((own, others))
}

fn overrides(route: &Route, add: &mut impl FnMut(&'static str, String, String)) {
    for (name, switch) in &route.switches {
        if switch.source == "runtime" {
            let state = if switch.enabled { "on" } else { "off" };
            let since = switch
                .age_s
                .map_or(String::new(), |age| format!(" for {}", age_words(age)));
            let text = format!("switch {name} has been {state}{since}, by hand");
            let attempt = format!("llmctl toggle {name} --reset --route {}", route.name);
            add("override", text, attempt);
        }
    }
    for (_, peer) in held_back(route) {
        let text = format!(
            "{} units of peer {} ({}) are held back, by hand",
            peer.held_back, peer.name, peer.peer
        );
        let attempt = format!(
            "curl -X POST '.../{}/_active_conns_set?flush=1'",
            route.name
        );
        add("override", text, attempt);
    }
    for (what, value) in recorded(route) {
        let age = route.recording.as_ref().and_then(|now| now.age_s);
        let since = age.map_or(String::new(), |age| format!(" for {}", age_words(age)));
        let text = format!("{what} has been {value}{since}, by hand");
        let attempt = format!("llmctl toggle bodylog --reset --route {}", route.name);
        add("override", text, attempt);
    }
}

fn is_on(route: &Route, switch: &str) -> bool {
    route.switches.get(switch).is_none_or(|state| state.enabled)
}

fn switch_off(switch: &str, route: &Route) -> String {
    format!("llmctl toggle {switch} --on 0 --route {}", route.name)
}

fn of_model(pool: &Pool) -> String {
    pool.model
        .as_deref()
        .map_or(String::new(), |model| format!(" of model {model}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_slow_beside_others_only_and_on_enough_samples() {
        let peer = |timed, ms| PeerRecent {
            timed,
            ttft_p50_ms: Some(ms),
            ..PeerRecent::default()
        };
        let recent = |peers: [(&str, PeerRecent); 2]| Recent {
            peers: peers
                .into_iter()
                .map(|(name, peer)| (name.to_owned(), peer))
                .collect(),
            ..Recent::default()
        };
        let look = |recent: &Recent| slower("b:1", &recent.peers["b:1"], recent);
        assert_eq!(
            look(&recent([("a:1", peer(9, 100)), ("b:1", peer(9, 250))])),
            Some((250, 100))
        );
        assert_eq!(
            look(&recent([("a:1", peer(9, 100)), ("b:1", peer(9, 190))])),
            None
        );
        assert_eq!(
            look(&recent([("a:1", peer(9, 10)), ("b:1", peer(9, 40))])),
            None
        );
        assert_eq!(
            look(&recent([("a:1", peer(9, 100)), ("b:1", peer(4, 250))])),
            None
        );
    }
}
