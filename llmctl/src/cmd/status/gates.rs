//! The state of the load gates: averages with their thresholds, refusals, and runtime overrides.

use proto::admin::{MetricItem, Peer, Pool, PoolSignal, Reasons, Recording, Route, Trips};

use super::age::age_words;
use super::page::{Cell, plain};
use crate::cmd::limit::holds;
use crate::render::{Paint, Table};

/// One of the two load signals, with its unit.
#[derive(Clone, Copy)]
pub(super) struct Kind {
    pub(super) name: &'static str,
    /// The switch that turns the signal off.
    pub(super) switch: &'static str,
    /// The option of `llmctl limit` for this signal.
    pub(super) parameter: &'static str,
    pub(super) unit: &'static str,
    pub(super) of: fn(&Pool) -> Option<&PoolSignal>,
    /// Returns the average and the threshold.
    pub(super) numbers: fn(&MetricItem) -> (Option<f64>, Option<f64>),
    /// Whether an average is beyond a threshold.
    pub(super) is_past: fn(f64, f64) -> bool,
    /// Returns the value of an override that has no effect.
    ignored: fn(&PoolSignal) -> Option<f64>,
    shadowed: fn(&PoolSignal) -> Option<f64>,
}

pub(super) const KINDS: [Kind; 2] = [
    Kind {
        name: "ttft",
        switch: "ttft",
        parameter: "ms",
        unit: "ms",
        of: |pool| pool.ttft.as_ref(),
        numbers: |item| (item.ewma_ms, item.threshold_ms),
        is_past: |average, threshold| average >= threshold,
        ignored: |signal| signal.ignored_override.as_ref()?.override_ms,
        shadowed: |signal| signal.shadowed.as_ref()?.threshold_ms,
    },
    Kind {
        name: "tps",
        switch: "tps",
        parameter: "tps",
        unit: "tok/s",
        of: |pool| pool.tps.as_ref(),
        numbers: |item| (item.ewma_tps, item.threshold_tps),
        is_past: |average, threshold| average <= threshold,
        ignored: |signal| signal.ignored_override.as_ref()?.override_tps,
        shadowed: |signal| signal.shadowed.as_ref()?.threshold_tps,
    },
];

/// The averages and their thresholds.
pub(super) fn signals(routes: &[Route]) -> Table {
    let mut table = Table::new(&[
        "route",
        "model",
        "signal",
        "metric",
        "average",
        "threshold",
        "from",
        "state",
    ]);
    for (route, pool, kind, signal) in each(routes) {
        for item in &signal.items {
            let (average, threshold) = (kind.numbers)(item);
            let Some(threshold) = threshold else { continue };
            table.painted_row(vec![
                plain(&route.name),
                plain(model(pool)),
                plain(kind.name),
                plain(&item.metric),
                plain(&average.map_or("-".to_owned(), |average| format!("{average:.1}"))),
                plain(&format!("{threshold} {}", kind.unit)),
                plain(&signal.layer),
                state(route, kind, signal, average),
            ]);
        }
    }
    table
}

fn state(route: &Route, kind: Kind, signal: &PoolSignal, average: Option<f64>) -> Cell {
    let is_off = |switch: &str| route.switches.get(switch).is_some_and(|s| !s.enabled);
    if is_off(kind.switch) {
        ("off".to_owned(), Paint::Dim)
    } else if signal.tripped && is_off("rate-limit") {
        ("tripped, counted only".to_owned(), Paint::Yellow)
    } else if signal.tripped {
        let probes = format!("refusing, {} probes used", signal.probe_used);
        (probes, Paint::Red)
    } else if signal.held {
        ("holding turn 1 out".to_owned(), Paint::Yellow)
    } else if average.is_none() {
        ("cold".to_owned(), Paint::Dim)
    } else {
        ("open".to_owned(), Paint::Green)
    }
}

/// Refusals and trips, for the routes that have any.
pub(super) fn refusals(routes: &[Route]) -> Table {
    let mut table = Table::new(&["route", "refused for", "concurrency", "ttft", "tps", "rule"]);
    for route in routes {
        let Reasons {
            concurrency,
            ttft,
            tps,
            rule,
        } = route.refused;
        if route.refused != Reasons::default() {
            let counts = [concurrency, ttft, tps, rule].map(|count| count.to_string());
            let row = [route.name.clone(), "load or rule".to_owned()];
            table.row(row.into_iter().chain(counts));
        }
        if route.trips != Trips::default() {
            let Trips {
                concurrency,
                ttft,
                tps,
            } = route.trips;
            let counts = [concurrency, ttft, tps].map(|count| count.to_string());
            let row = [route.name.clone(), "nobody, tripped".to_owned()];
            table.row(row.into_iter().chain(counts).chain(["-".to_owned()]));
        }
    }
    table
}

/// The runtime overrides, with their remaining time.
pub(super) fn overrides(routes: &[Route]) -> Table {
    let mut table = Table::new(&[
        "route", "model", "override", "value", "set", "holds", "else",
    ]);
    let set =
        |age: Option<u64>| age.map_or("-".to_owned(), |age| format!("{} ago", age_words(age)));
    for route in routes {
        for (name, switch) in &route.switches {
            if switch.source == "runtime" {
                let value = if switch.enabled { "on" } else { "off" };
                let set = set(switch.age_s);
                table.row([
                    &*route.name,
                    "-",
                    name,
                    value,
                    &set,
                    "until reset",
                    "the files",
                ]);
            }
        }
        for (model, peer) in held_back(route) {
            table.row([
                &*route.name,
                model.unwrap_or("-"),
                &format!("{} held back", peer.name),
                &peer.held_back.to_string(),
                "-",
                "until given back",
                "0",
            ]);
        }
        for (name, value) in recorded(route) {
            let age = route.recording.as_ref().and_then(|now| now.age_s);
            table.row([
                &*route.name,
                "-",
                name,
                &value,
                &set(age),
                "until reset",
                "the files",
            ]);
        }
    }
    for (route, pool, kind, signal) in each(routes) {
        let ignored = (kind.ignored)(signal);
        let is_set = matches!(&*signal.layer, "override" | "model_override");
        let first = signal.items.first().and_then(|item| (kind.numbers)(item).1);
        let Some(value) = ignored.or(first.filter(|_| is_set)) else {
            continue;
        };
        let left = signal.override_left_s.or(Some(0));
        let below = match (ignored, (kind.shadowed)(signal)) {
            (Some(_), _) => "no effect: a table is declared".to_owned(),
            (None, Some(below)) => format!("{below} {}", kind.unit),
            (None, None) => "off".to_owned(),
        };
        table.row([
            route.name.clone(),
            model(pool).to_owned(),
            format!("{} limit", kind.name),
            format!("{value} {}", kind.unit),
            set(signal.override_age_s),
            holds(left),
            below,
        ]);
    }
    table
}

/// Peers with held-back units, and their pool's model. A peer that several pools share is listed
/// once.
pub(super) fn held_back(route: &Route) -> Vec<(Option<&str>, &Peer)> {
    let mut held: Vec<(Option<&str>, &Peer)> = Vec::new();
    for pool in &route.pools {
        for peer in pool.peers.iter().filter(|peer| peer.held_back > 0) {
            if held.iter().all(|(_, known)| known.peer != peer.peer) {
                held.push((pool.model.as_deref(), peer));
            }
        }
    }
    held
}

/// The runtime overrides of a route's recording; its switch is listed elsewhere.
pub(super) fn recorded(route: &Route) -> Vec<(&'static str, String)> {
    let Some(Recording {
        sample_pct,
        sample_pct_source,
        bodies,
        bodies_source,
        ..
    }) = &route.recording
    else {
        return Vec::new();
    };
    let mut set = Vec::new();
    if sample_pct_source == "runtime" {
        set.push(("bodylog share", format!("{sample_pct} %")));
    }
    if bodies_source == "runtime" {
        set.push(("bodylog bodies", bodies.clone()));
    }
    set
}

/// Every signal that has a threshold.
fn each(routes: &[Route]) -> impl Iterator<Item = (&Route, &Pool, Kind, &PoolSignal)> {
    let pools = routes
        .iter()
        .flat_map(|route| route.pools.iter().map(move |pool| (route, pool)));
    pools.flat_map(|(route, pool)| {
        let signals = KINDS.into_iter();
        signals.filter_map(move |kind| Some((route, pool, kind, (kind.of)(pool)?)))
    })
}

fn model(pool: &Pool) -> &str {
    pool.model.as_deref().unwrap_or("-")
}
