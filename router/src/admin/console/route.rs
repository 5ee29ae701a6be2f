//! One route: its pools with their gates, its peers, its switches.

use maud::{Markup, html};
use proto::admin::{MetricItem, Peer, PeerState, Pool, PoolSignal, Problem, Route};
use router_core::decision::PeerFacts;

use super::facts::{Fleet, Live};
use super::fleet::{count, link, on_off, problems};
use super::parts::{bar, duration, hit_rate, millis, or_dash};
use crate::state::Switch;

pub(super) fn render(fleet: &Fleet, name: &str) -> Markup {
    let routes = fleet.status.routes.iter().zip(&fleet.live);
    let found = routes.into_iter().find(|(route, _)| route.name == name);
    let Some((route, live)) = found else {
        return html! { h1 { "No such route" } p { "There is no route " strong { (name) } ". " a href="#/fleet" { "See all routes." } } };
    };
    let about = |finding: &&proto::admin::Finding| finding.route.as_deref() == Some(name);
    let findings: Vec<_> = fleet.problems.iter().filter(about).cloned().collect();
    html! {
        p.quiet { a href="#/fleet" { "Fleet" } " / route" }
        h1 { (route.name) }
        p.quiet { code { (route.path) } " · " a href=(format!("#/requests?route={}", route.name)) { "its last requests" } }
        (file_problems(&route.errors))
        (problems(&findings))
        @for (at, pool) in route.pools.iter().enumerate() {
            (pool_section(route, pool, live.as_ref().and_then(|live| live.peers.get(at)), at))
        }
        @if live.is_some() { (gates(route, live.as_ref())) (switches(route)) }
    }
}

fn file_problems(problems: &[Problem]) -> Markup {
    html! {
        @if !problems.is_empty() {
            section aria-label="Problems of the file" {
                h2 { "The file" }
                ul.plain { @for problem in problems { li {
                    code { (problem.file) ":" (problem.line) ":" (problem.column) } " " (problem.severity) ": " (problem.message)
                } } }
            }
        }
    }
}

fn pool_section(route: &Route, pool: &Pool, now: Option<&Vec<PeerFacts>>, at: usize) -> Markup {
    let limit = pool.adaptive_limit.unwrap_or(pool.limit as f64);
    let title = pool.model.as_deref().unwrap_or("Peers");
    let id = format!("pool-{at}");
    html! {
        section aria-labelledby=(id) data-key=(title) {
            h2 id=(id) { (title) }
            p.room.wide {
                (bar(pool.in_flight as f64, limit, &format!("{} of {limit:.0} slots taken", pool.in_flight)))
                span { (pool.in_flight) " in flight, limit " (format!("{limit:.0}"))
                    @if pool.adaptive_limit.is_some() { " (adaptive, at most " (pool.limit) ")" }
                    " · " (pool.waiting) " waiting · " (count(pool.healthy_peers as usize, "usable peer")) }
            }
            (signals(pool))
            div.scroll tabindex="0" role="region" aria-label=(format!("Peers of {} {title}", route.name)) {
                table {
                    thead { tr {
                        th.n scope="col" { "Tier" }
                        th scope="col" { "Peer" }
                        th scope="col" { "State" }
                        th scope="col" { "Slots" }
                        th.n scope="col" { "Load" }
                        th.n scope="col" { "Hit rate" }
                        th.n scope="col" { "Oldest wait" }
                        th scope="col" { "Last probe" }
                    } }
                    tbody {
                        @for (at, peer) in pool.peers.iter().enumerate() { (peer_row(peer, now.and_then(|now| now.get(at)))) }
                    }
                }
            }
        }
    }
}

fn peer_row(peer: &Peer, facts: Option<&PeerFacts>) -> Markup {
    let probe = facts.and_then(|facts| facts.probe);
    let (state, is_bad) = state(peer);
    html! {
        tr data-key=(peer.peer) {
            td.n { (peer.priority) }
            th scope="row" {
                (peer.name)
                @if peer.name != peer.peer { br; small { (peer.peer) } }
                @if let Some(gpu) = &peer.gpu { " " span.tag { (gpu) } }
            }
            td.bad[is_bad] {
                (state)
                @if let Some(seconds) = peer.state_s { span.quiet { " for " (duration(seconds)) } }
                @if let Some(why) = &peer.why { br; small { (why) } }
            }
            td.room { (bar(f64::from(peer.in_flight), f64::from(peer.max), &format!("{} of {} slots taken", peer.in_flight, peer.max)))
                span.n { (peer.in_flight) " / " (peer.max) }
                @if peer.held_back > 0 { br; small { (peer.held_back) " held back" } } }
            td.n { (or_dash(facts.and_then(|facts| facts.load).map(|load| load.to_string()))) }
            td.n { (or_dash(hit_rate(peer.hits.as_ref()))) }
            td.n { (or_dash(facts.and_then(|facts| facts.health.silent_s).map(duration))) }
            td { (or_dash(probe.map(|probe| format!("{} {} ago", probe.outcome.as_str(), duration(probe.age_s))))) }
        }
    }
}

/// The state in one or two words, and whether the peer is out.
fn state(peer: &Peer) -> (String, bool) {
    match peer {
        Peer { enabled: false, .. } => ("disabled".to_owned(), false),
        Peer {
            banned: true,
            ban_left_s: Some(left),
            ..
        } => (format!("banned, {} left", duration(*left)), true),
        Peer { banned: true, .. } => ("banned".to_owned(), true),
        Peer { draining: true, .. } => ("draining".to_owned(), false),
        peer => (
            peer.state.as_str().to_owned(),
            peer.state.is_out() || peer.state == PeerState::Suspect,
        ),
    }
}

/// Averages beside their thresholds.
fn signals(pool: &Pool) -> Markup {
    let both = [("TTFT", &pool.ttft), ("Decode rate", &pool.tps)];
    html! {
        @for (word, signal) in both { @if let Some(signal) = signal { (signal_line(word, signal)) } }
    }
}

fn signal_line(word: &str, signal: &PoolSignal) -> Markup {
    html! {
        p {
            (word) ": "
            @for item in &signal.items { (item_text(item)) " " }
            @if signal.tripped { strong.bad { "refuses requests" } } @else { span.quiet { "refuses nobody" } }
        }
    }
}

fn item_text(item: &MetricItem) -> String {
    let (now, threshold) = match (item.threshold_ms, item.threshold_tps) {
        (Some(ms), _) => (item.ewma_ms.map(millis), millis(ms)),
        (None, tps) => (
            item.ewma_tps.map(|tps| format!("{tps:.0} tokens/s")),
            format!("{:.0} tokens/s", tps.unwrap_or_default()),
        ),
    };
    let now = now.unwrap_or_else(|| "no average yet".to_owned());
    format!("{} {now}, threshold {threshold}", item.metric)
}

/// What the gates refused since the start.
fn gates(route: &Route, live: Option<&Live>) -> Markup {
    let refused = &route.refused;
    let rows = [
        (
            "concurrency",
            refused.concurrency,
            Some(route.trips.concurrency),
        ),
        ("ttft", refused.ttft, Some(route.trips.ttft)),
        ("tps", refused.tps, Some(route.trips.tps)),
        ("rule", refused.rule, None),
    ];
    let in_15_min: u64 = live.map_or(0, |live| live.samples.iter().flat_map(|s| s.refused).sum());
    html! {
        section aria-labelledby="gates" {
            h2 #gates { "Refusals" }
            p.quiet { (in_15_min) " in the last 15 minutes. Trips are requests that passed because the switch rate-limit was off." }
            table.small {
                thead { tr { th scope="col" { "Gate" } th.n scope="col" { "Refused" } th.n scope="col" { "Trips" } } }
                tbody { @for (gate, refused, trips) in rows { tr {
                    th scope="row" { (gate) } td.n { (refused) } td.n { (or_dash(trips.map(|trips| trips.to_string()))) }
                } } }
            }
        }
    }
}

fn switches(route: &Route) -> Markup {
    html! {
        section aria-labelledby="switches" {
            h2 #switches { "Switches" }
            table.small {
                thead { tr { th scope="col" { "Switch" } th scope="col" { "Now" } th scope="col" { "Set by" } th scope="col" { "Change" } } }
                tbody { @for switch in Switch::ALL { @if let Some(state) = route.switches.get(switch.name()) {
                    tr {
                        th scope="row" { (switch.name()) }
                        td { (on_off(state)) }
                        td { (state.source) @if let Some(age) = state.age_s { span.quiet { ", " (duration(age)) " ago" } } }
                        td { (turn(&route.name, switch, state.enabled)) }
                    }
                } } }
            }
            (limit_form(route, "ttft", "ms", "TTFT limit, milliseconds"))
            (limit_form(route, "tps", "tps", "Decode rate limit, tokens per second"))
            p.quiet { a href=(link(&route.name)) { "Switches" } " stay until they are reset or the router restarts. Limits end by themselves." }
        }
    }
}

fn turn(route: &str, switch: Switch, is_on: bool) -> Markup {
    let name = switch.name();
    let (now, then, to) = if is_on {
        ("on", "off", 0)
    } else {
        ("off", "on", 1)
    };
    html! {
        button type="button" data-action=(format!("/{route}/{}?on={to}", switch.endpoint()))
            data-title=(format!("{name} on {route}")) data-before=(now) data-after=(then)
            data-note="Stays until it is reset or the router restarts."
            aria-label=(format!("Turn {name} {then}")) { "Turn " (then) }
    }
}

/// A limit with a time to live, for every pool of the route.
fn limit_form(route: &Route, signal: &str, parameter: &str, label: &str) -> Markup {
    let id = format!("limit-{signal}");
    let now = route.pools.iter().filter_map(|pool| match signal {
        "ttft" => pool.ttft.as_ref(),
        _ => pool.tps.as_ref(),
    });
    let now: Vec<String> = now
        .flat_map(|signal| &signal.items)
        .map(item_text)
        .collect();
    let before = if now.is_empty() {
        "no limit".to_owned()
    } else {
        now.join("; ")
    };
    html! {
        form.limit data-action=(format!("/{}/_{signal}_limit", route.name)) data-parameter=(parameter)
            data-title=(format!("{label}, on {}", route.name)) data-before=(before) {
            label for=(id) { (label) }
            input id=(id) name="value" type="number" min="0" step="any" required;
            button { "Set" }
        }
    }
}
