//! The page that `llmctl status` prints for one router.

use std::collections::BTreeMap;

use proto::admin::{
    Auth, Keys, KeysInForce, Owner, Peer, PeerSource, PeerState, Pool, Problem, PromptTokens,
    Route, RouteStatus,
};

use super::age::age_words;
use super::recent::{PeerRecent, Recent};
use super::seen::Seen;
use super::{gates, problems};
use crate::render::{Paint, Screen, Table, tame};

pub(super) type Cell = (String, Paint);

/// Prints the page.
pub(super) fn show(router: &str, seen: &Seen, screen: &mut Screen) {
    let Seen { status, recent, .. } = seen;
    screen.heading(&format!(
        "{router}: {}, version {}",
        status.phase.as_str(),
        tame(&status.version)
    ));
    problems::show(&problems::Problems::of(seen), screen);
    screen.paragraph("keys: ", 6, Paint::Plain, &keys(&status.keys));
    if !status.config.last_reload_success {
        let warning =
            "the last load refused a file; its last good version, if there is one, is in force";
        screen.paragraph("configuration: ", 4, Paint::Red, warning);
    }
    for problem in &status.config.errors {
        screen.paragraph("", 4, Paint::Plain, &told(problem));
    }
    screen.line("");
    if status.routes.is_empty() {
        screen.line("no routes");
        screen.line("");
        return;
    }
    screen.table(&routes(&status.routes));
    for route in &status.routes {
        if let Some(source) = &route.peers_from {
            screen.paragraph("  ", 4, Paint::Plain, &found(&route.name, source));
        }
    }
    screen.line("");
    for table in [
        peers(&status.routes, recent),
        gates::signals(&status.routes),
        gates::refusals(&status.routes),
        gates::overrides(&status.routes),
        owners(&seen.owners),
    ] {
        if !table.is_empty() {
            screen.table(&table);
            screen.line("");
        }
    }
    for problem in status.routes.iter().flat_map(|route| &route.errors) {
        screen.paragraph("", 4, Paint::Plain, &told(problem));
    }
}

/// What owners use beside what they may.
fn owners(owners: &[Owner]) -> Table {
    let mut table = Table::new(&[
        "owner",
        "in-flight",
        "at most",
        "per minute",
        "refused",
        "too fast",
    ]);
    for owner in owners {
        let or_dash = |limit: Option<u32>| limit.map_or("-".to_owned(), |limit| limit.to_string());
        let is_full = owner
            .max_concurrency
            .is_some_and(|max| owner.in_flight >= max);
        let in_flight = if is_full { Paint::Yellow } else { Paint::Plain };
        table.painted_row(vec![
            plain(&owner.owner),
            (owner.in_flight.to_string(), in_flight),
            plain(&or_dash(owner.max_concurrency)),
            plain(&or_dash(owner.requests_per_minute)),
            plain(&owner.refused_concurrency.to_string()),
            plain(&owner.refused_rate.to_string()),
        ]);
    }
    table
}

/// What a source of peers gave. That it fails is among the problems.
fn found(route: &str, source: &PeerSource) -> String {
    let age = match source.age_s {
        Some(age) => format!(", {} old", age_words(age)),
        None => String::new(),
    };
    format!(
        "{}: {} peers from {}{age}",
        tame(route),
        source.peers,
        tame(&source.source)
    )
}

fn told(problem: &Problem) -> String {
    format!(
        "{}:{}:{}: {}: {}",
        tame(&problem.file),
        problem.line,
        problem.column,
        tame(&problem.severity),
        tame(&problem.message)
    )
}

fn keys(keys: &Keys) -> String {
    let in_force = match keys.in_force {
        KeysInForce::Keys => format!("{} in force", keys.count),
        KeysInForce::Open => "open to everyone".to_owned(),
        KeysInForce::Closed => "closed to everyone".to_owned(),
    };
    let detail = keys
        .detail
        .as_deref()
        .map_or(String::new(), |detail| format!(" ({})", tame(detail)));
    let skipped = match keys.problems.len() {
        0 => String::new(),
        count => format!(", {count} entries with problems"),
    };
    format!(
        "{in_force}; file {} is {}{detail}{skipped}",
        tame(&keys.file),
        tame(&keys.status)
    )
}

fn routes(routes: &[Route]) -> Table {
    let mut table = Table::new(&[
        "route",
        "model",
        "file",
        "healthy",
        "in-flight",
        "limit",
        "waiting",
        "auth",
        "hits 1m",
        "hits 5m",
        "first",
        "later",
    ]);
    for route in routes {
        let (status, paint) = match route.status {
            RouteStatus::Ok => ("ok", Paint::Green),
            RouteStatus::Partly => ("partly", Paint::Yellow),
            RouteStatus::Stale => ("stale", Paint::Yellow),
            RouteStatus::Invalid => ("invalid", Paint::Red),
        };
        let begin =
            |model: &str| vec![plain(&route.name), plain(model), (status.to_owned(), paint)];
        if route.pools.is_empty() {
            let mut row = begin("-");
            row.extend(["-", "-", "-", "-"].map(plain));
            row.push(plain(auth(route)));
            row.extend(hit_rates(route));
            table.painted_row(row);
        }
        for pool in &route.pools {
            let mut row = begin(pool.model.as_deref().unwrap_or("-"));
            row.extend(room(pool));
            row.push(plain(auth(route)));
            row.extend(hit_rates(route));
            table.painted_row(row);
        }
    }
    table
}

/// The hit rates of a route: the last minute, the last five, and of these the first and the later
/// requests of each session.
fn hit_rates(route: &Route) -> [Cell; 4] {
    let hits = route.hits;
    [
        hits.map(|hits| hits.last_1m),
        hits.map(|hits| hits.last_5m),
        hits.and_then(|hits| hits.first_5m),
        hits.and_then(|hits| hits.again_5m),
    ]
    .map(|hits| plain(&hit_rate(hits)))
}

/// The capacity of a pool: how much of it is up, and how much is taken.
fn room(pool: &Pool) -> [Cell; 4] {
    let enabled = pool.peers.iter().filter(|peer| peer.enabled).count();
    let out = pool
        .peers
        .iter()
        .filter(|peer| peer.enabled && (peer.banned || peer.state.is_out()))
        .count();
    let healthy = match (enabled - out, out) {
        (0, _) => Paint::Red,
        (_, 0) => Paint::Plain,
        _ => Paint::Yellow,
    };
    let limit = pool.adaptive_limit.unwrap_or(pool.limit as f64);
    let full = if pool.limit > 0 && pool.in_flight as f64 >= limit {
        Paint::Yellow
    } else {
        Paint::Plain
    };
    [
        (format!("{}/{enabled}", enabled - out), healthy),
        (pool.in_flight.to_string(), full),
        plain(&match pool.adaptive_limit {
            Some(adaptive) => format!("{adaptive:.1} of {}", pool.limit),
            None => pool.limit.to_string(),
        }),
        match pool.waiting {
            0 => plain("0"),
            waiting => (waiting.to_string(), Paint::Yellow),
        },
    ]
}

/// The authentication of a route.
fn auth(route: &Route) -> &'static str {
    match route.auth {
        Auth::Shared => "shared keys",
        Auth::Own => "own keys",
        Auth::Open => "open",
    }
}

fn peers(routes: &[Route], recent: &BTreeMap<String, Recent>) -> Table {
    let mut table = Table::new(&[
        "route",
        "model",
        "peer",
        "state",
        "address",
        "tier",
        "in-flight",
        "max",
        "ttft p50",
        "failed",
        "hits 1m",
        "hits 5m",
    ]);
    for route in routes {
        for pool in &route.pools {
            for peer in &pool.peers {
                let seen = recent
                    .get(&route.name)
                    .and_then(|recent| recent.peers.get(&peer.peer));
                table.painted_row(vec![
                    plain(&route.name),
                    plain(pool.model.as_deref().unwrap_or("-")),
                    plain(&peer.name),
                    state(peer),
                    plain(&peer.peer),
                    plain(&peer.priority.to_string()),
                    plain(&peer.in_flight.to_string()),
                    plain(&peer.max.to_string()),
                    plain(&first_token(seen)),
                    failed(seen),
                    plain(&hit_rate(peer.hits.map(|hits| hits.last_1m))),
                    plain(&hit_rate(peer.hits.map(|hits| hits.last_5m))),
                ]);
            }
        }
    }
    table
}

/// The median TTFT of the last requests.
fn first_token(seen: Option<&PeerRecent>) -> String {
    let median = seen.and_then(|seen| seen.ttft_p50_ms);
    median.map_or("-".to_owned(), |ms| format!("{ms} ms"))
}

/// The share of prompt tokens that came from a cache.
fn hit_rate(hits: Option<PromptTokens>) -> String {
    let percent = hits.and_then(|hits| hits.percent());
    percent.map_or("-".to_owned(), |percent| format!("{percent} %"))
}

/// The number of failures among the last requests.
fn failed(seen: Option<&PeerRecent>) -> Cell {
    match seen {
        None => plain("-"),
        Some(PeerRecent { failed: 0, .. }) => plain("0"),
        Some(PeerRecent {
            failed, attempts, ..
        }) => (format!("{failed}/{attempts}"), Paint::Red),
    }
}

fn state(peer: &Peer) -> Cell {
    match (peer.enabled, peer.banned) {
        (false, _) => ("disabled".to_owned(), Paint::Dim),
        // The ban ends with the first good probe; the time that is left says nothing.
        (true, true) => ("banned".to_owned(), Paint::Red),
        (true, false) if !peer.state.is_healthy() => {
            let paint = if peer.state.is_out() {
                Paint::Red
            } else {
                Paint::Yellow
            };
            let (state, since) = (peer.state.as_str(), peer.state_s);
            let text = match (&peer.why, peer.state) {
                (Some(why), PeerState::Busy | PeerState::Held | PeerState::Stale) => {
                    format!("{state}: {}", tame(why))
                }
                _ => since.map_or(state.to_owned(), |s| format!("{state} {s} s")),
            };
            (text, paint)
        }
        (true, false) if peer.draining => ("draining".to_owned(), Paint::Yellow),
        (true, false) if peer.in_flight >= peer.max => ("full".to_owned(), Paint::Yellow),
        (true, false) => ("healthy".to_owned(), Paint::Green),
    }
}

pub(super) fn plain(text: &str) -> Cell {
    (text.to_owned(), Paint::Plain)
}
