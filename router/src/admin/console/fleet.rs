//! The fleet at a glance: problems, overrides, and one row for each route.

use maud::{Markup, html};
use proto::admin::{Finding, Pool, Route, RouteStatus, Severity, SwitchState};

use super::facts::{Fleet, Live, RECENT};
use super::parts::{bar, duration, hit_rate, millis, or_dash, rate, sparkline};
use crate::state::{SAMPLES_MAX, Sample, Switch};
use crate::telemetry::metrics::Gate;

/// Time between two samples, seconds.
const SAMPLE_S: u64 = 5;

pub(super) fn render(fleet: &Fleet) -> Markup {
    let routes = fleet.status.routes.iter().zip(&fleet.live);
    html! {
        h1 { "Fleet" }
        p.quiet { (fleet.status.phase.as_str()) " · version " (fleet.status.version) " · " (count(fleet.status.routes.len(), "route")) }
        (overrides(&fleet.status.routes))
        (problems(&fleet.problems))
        section aria-labelledby="routes" {
            h2 #routes { "Routes" }
            @if fleet.status.routes.is_empty() { p.quiet { "No route file was found." } }
            @else {
                div.scroll tabindex="0" role="region" aria-label="Routes" {
                    table {
                        thead { tr {
                            th scope="col" { "Route" }
                            th scope="col" { "In flight" }
                            th.spark-head scope="col" { "15 minutes" }
                            th.n scope="col" { "Waiting" }
                            th.n scope="col" { "Requests/s" }
                            th.n scope="col" { "Refused/s" }
                            th.n scope="col" { "Hit rate" }
                            th.n scope="col" { "TTFT" }
                            th.spark-head scope="col" { "15 minutes" }
                            th.n scope="col" { "Tokens/s" }
                        } }
                        tbody { @for (route, live) in routes { (row(route, live.as_ref())) } }
                    }
                }
            }
        }
    }
}

pub(super) fn count(n: usize, noun: &str) -> String {
    let plural = if n == 1 { "" } else { "s" };
    format!("{n} {noun}{plural}")
}

/// Findings, worst first.
pub(super) fn problems(findings: &[Finding]) -> Markup {
    html! {
        section.problems aria-labelledby="problems" {
            h2 #problems { "PROBLEMS" }
            @if findings.is_empty() { p.fine { "None." } }
            @else { ul { @for finding in findings { (problem(finding)) } } }
        }
    }
}

fn problem(finding: &Finding) -> Markup {
    let severity = finding.severity.as_str();
    let is_over = finding.severity != Severity::Info && finding.last_s > 30;
    html! {
        li class=(severity) {
            span.mark { (severity) }
            div {
                p.text {
                    @if let Some(route) = &finding.route { a href=(link(route)) { (route) } " " }
                    (finding.text)
                }
                p.quiet {
                    "since " time datetime=(finding.since) { (duration(finding.age_s)) }
                    @if is_over { " · last " (duration(finding.last_s)) " ago" }
                    " · " code { (finding.look) }
                }
            }
        }
    }
}

/// Where a route is shown. Names of routes need no escapes in a URL.
pub(super) fn link(route: &str) -> String {
    format!("#/route/{route}")
}

/// Everything that was set by hand, with a way back.
fn overrides(routes: &[Route]) -> Markup {
    let all: Vec<Markup> = routes.iter().flat_map(overrides_of).collect();
    html! {
        @if !all.is_empty() {
            section.overrides aria-labelledby="overrides" {
                h2 #overrides { "Set by hand" }
                ul { @for one in all { li { (one) } } }
            }
        }
    }
}

fn overrides_of(route: &Route) -> Vec<Markup> {
    let name = &route.name;
    let switches = route
        .switches
        .iter()
        .filter(|(_, state)| state.source == "runtime");
    let switches = switches.filter_map(|(switch, state)| {
        let endpoint = Switch::ALL.into_iter().find(|s| s.name() == switch)?.endpoint();
        let now = on_off(state);
        Some(html! {
            span { a href=(link(name)) { (name) } " " strong { (switch) " " (now) }
                @if let Some(age) = state.age_s { span.quiet { " for " (duration(age)) ", until reset" } } }
            (reset(&format!("/{name}/{endpoint}?reset=1"), &format!("{switch} on {name}"), now))
        })
    });
    let limits = route.pools.iter().flat_map(|pool| {
        let signals = [("ttft", "_ttft_limit", &pool.ttft), ("tps", "_tps_limit", &pool.tps)];
        signals.into_iter().filter_map(move |(word, endpoint, signal)| {
            let signal = signal.as_ref()?;
            let age = signal.override_age_s?;
            let left = signal.override_left_s.map_or("until reset".to_owned(), |s| format!("{} left", duration(s)));
            Some(html! {
                span { a href=(link(name)) { (name) } " " strong { (word) " limit" }
                    @if let Some(model) = &pool.model { " of " (model) }
                    span.quiet { " for " (duration(age)) ", " (left) } }
                (reset(&format!("/{name}/{endpoint}?reset=1"), &format!("{word} limit on {name}"), "set by hand"))
            })
        })
    });
    let held = route
        .pools
        .iter()
        .flat_map(|pool| &pool.peers)
        .filter(|peer| peer.held_back > 0);
    let held = held.map(|peer| html! {
        span { a href=(link(name)) { (name) } " " (peer.name) ": " strong { (peer.held_back) " slots held back" } }
    });
    switches.chain(limits).chain(held).collect()
}

fn reset(action: &str, what: &str, before: &str) -> Markup {
    html! {
        button type="button" data-action=(action) data-title=(what) data-before=(before) data-after="as in the files"
            aria-label=(format!("Reset {what}")) { "Reset" }
    }
}

pub(super) fn on_off(state: &SwitchState) -> &'static str {
    if state.enabled { "on" } else { "off" }
}

/// Requests in flight and the limit in force, over all pools.
fn room(pools: &[Pool]) -> (u64, f64) {
    let limit = |pool: &Pool| pool.adaptive_limit.unwrap_or(pool.limit as f64);
    let in_flight = pools.iter().map(|pool| pool.in_flight).sum();
    (
        in_flight,
        pools.iter().map(limit).fold(0.0, |sum, one| sum + one),
    )
}

fn row(route: &Route, live: Option<&Live>) -> Markup {
    let (in_flight, limit) = room(&route.pools);
    let waiting: u32 = route.pools.iter().map(|pool| pool.waiting).sum();
    let room = format!("{in_flight} of {limit:.0}");
    html! {
        tr data-key=(route.name) {
            th scope="row" {
                a href=(link(&route.name)) { (route.name) }
                @if let Some(word) = standing(route) { " " span.tag.bad[fails(route)] { (word) } }
            }
            td.room { (bar(in_flight as f64, limit, &format!("{room} slots taken"))) span.n { (in_flight) " / " (format!("{limit:.0}")) } }
            @match live {
                Some(live) => (numbers(route, live, waiting)),
                None => td.quiet colspan="8" { "Answers 503: its file is invalid." },
            }
        }
    }
}

/// Whether every request of the route is answered 503.
fn fails(route: &Route) -> bool {
    route.pools.iter().all(|pool| pool.healthy_peers == 0)
}

fn standing(route: &Route) -> Option<&'static str> {
    match route.status {
        RouteStatus::Ok if fails(route) => Some("no peer"),
        RouteStatus::Ok => None,
        RouteStatus::Partly => Some("partly in force"),
        RouteStatus::Stale => Some("old version in force"),
        RouteStatus::Invalid => Some("invalid"),
    }
}

fn numbers(route: &Route, live: &Live, waiting: u32) -> Markup {
    let samples = &live.samples;
    let last = samples.last().copied().unwrap_or_default();
    let (refused, by_gate) = refusals(samples);
    html! {
        td { (sparkline(samples.iter().map(|s| Some(s.in_flight as f64)), &spoken("In flight", samples, |s| Some(s.in_flight as f64)))) }
        td.n { (waiting) }
        td.n { (rate(live.requests_per_s)) }
        td.n.bad[refused > 0.0] { (rate(refused)) @if !by_gate.is_empty() { br; small { (by_gate) } } }
        td.n { (or_dash(hit_rate(route.hits.as_ref()))) }
        td.n { (or_dash(last.ttft_ms.map(millis))) }
        td { (sparkline(samples.iter().map(|s| s.ttft_ms), &spoken("TTFT in milliseconds", samples, |s| s.ttft_ms))) }
        td.n { (or_dash(last.tps.map(|tps| format!("{tps:.0}")))) }
    }
}

/// Refusals per second in the last minute, and the gates that refused.
fn refusals(samples: &[Sample]) -> (f64, String) {
    let recent = (RECENT.as_secs() / SAMPLE_S) as usize;
    let mut by_gate = [0; Gate::ALL.len()];
    for sample in samples.iter().rev().take(recent) {
        for (sum, one) in by_gate.iter_mut().zip(sample.refused) {
            *sum += one;
        }
    }
    let total: u64 = by_gate.iter().sum();
    let named = Gate::ALL
        .iter()
        .zip(by_gate)
        .filter(|(_, count)| *count > 0);
    let named: Vec<_> = named.map(|(gate, _)| gate.as_str()).collect();
    (total as f64 / RECENT.as_secs_f64(), named.join(", "))
}

/// A sparkline for a screen reader.
fn spoken(what: &str, samples: &[Sample], of: fn(&Sample) -> Option<f64>) -> String {
    let top = samples.iter().filter_map(of).fold(0.0, f64::max);
    let minutes = samples.len().min(SAMPLES_MAX) as u64 * SAMPLE_S / 60;
    match samples.last().and_then(of) {
        Some(now) => format!("{what} over {minutes} minutes: now {now:.0}, at most {top:.0}"),
        None => format!("{what} over {minutes} minutes: no value now, at most {top:.0}"),
    }
}
