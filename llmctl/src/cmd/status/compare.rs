//! Compares several routers: one column per router, and a mark where they should agree and do not.

use std::collections::BTreeSet;

use proto::admin::{Pool, Route, RouteStatus, Routes};

use crate::render::{Paint, Table};

/// One line of the comparison, with the value of every router.
struct Row {
    what: String,
    /// In the order of the routers; `-` for a router without a value.
    said: Vec<String>,
    /// Whether the values should agree: configuration should, load should not.
    alike: bool,
}

/// The table. A router that did not answer keeps its column and does not count as a difference.
pub(super) fn table(replicas: &[(&str, Option<&Routes>)]) -> Table {
    let mut head = vec!["replica"];
    head.extend(replicas.iter().map(|(router, _)| short(router)));
    head.push("alike");
    let mut table = Table::new(&head);
    for row in rows(replicas) {
        let answered = row
            .said
            .iter()
            .zip(replicas)
            .filter(|(_, (_, status))| status.is_some());
        let differs = row.alike
            && answered
                .map(|(said, _)| said)
                .collect::<BTreeSet<_>>()
                .len()
                > 1;
        let paint = if differs { Paint::Yellow } else { Paint::Plain };
        let mut cells = vec![(row.what, Paint::Plain)];
        cells.extend(row.said.into_iter().map(|said| (said, paint)));
        cells.push(match (row.alike, differs) {
            (true, true) => ("DIFFERS".to_owned(), Paint::Yellow),
            (true, false) => ("yes".to_owned(), Paint::Dim),
            (false, _) => ("-".to_owned(), Paint::Dim),
        });
        table.painted_row(cells);
    }
    table
}

/// A router's URL without the common parts. Column heads are upper case.
fn short(router: &str) -> &str {
    router.strip_prefix("http://").unwrap_or(router)
}

fn rows(replicas: &[(&str, Option<&Routes>)]) -> Vec<Row> {
    let row = |what: &str, alike: bool, say: &dyn Fn(&Routes) -> String| Row {
        what: what.to_owned(),
        said: replicas
            .iter()
            .map(|(_, status)| status.map_or("no answer".to_owned(), say))
            .collect(),
        alike,
    };
    let mut rows = vec![
        row("phase", true, &|status| status.phase.as_str().to_owned()),
        row("version", true, &|status| status.version.clone()),
        row("keys in force", true, &|status| {
            status.keys.count.to_string()
        }),
        row("keys", true, &|status| {
            status.keys.fingerprint.clone().unwrap_or("-".to_owned())
        }),
        row("key file", true, &|status| status.keys.status.clone()),
    ];
    let answered = || replicas.iter().filter_map(|(_, status)| *status);
    let names: BTreeSet<&str> = answered()
        .flat_map(|status| status.routes.iter().map(|route| &*route.name))
        .collect();
    for name in names {
        let of = |say: fn(&Route) -> String| {
            move |status: &Routes| {
                let found = status.routes.iter().find(|route| route.name == name);
                found.map_or("-".to_owned(), say)
            }
        };
        rows.push(row(&format!("{name} file"), true, &of(file)));
        rows.push(row(&format!("{name} fingerprint"), true, &of(fingerprint)));
        rows.push(row(&format!("{name} healthy"), true, &of(healthy)));
        rows.push(row(&format!("{name} limit"), true, &of(limit)));
        rows.push(row(&format!("{name} in-flight"), false, &of(in_flight)));
        rows.push(row(
            &format!("{name} refused"),
            false,
            &of(|route| route.refused.total().to_string()),
        ));
        let switches: BTreeSet<&String> = answered()
            .flat_map(|status| &status.routes)
            .filter(|route| route.name == name)
            .flat_map(|route| &route.switches)
            .filter(|(_, state)| state.source == "runtime")
            .map(|(switch, _)| switch)
            .collect();
        for switch in switches {
            rows.push(row(&format!("{name} {switch}"), true, &|status| {
                let route = status.routes.iter().find(|route| route.name == name);
                let state = route.and_then(|route| route.switches.get(switch));
                state.map_or("-".to_owned(), |state| {
                    let on = if state.enabled { "on" } else { "off" };
                    format!("{on} ({})", state.source)
                })
            }));
        }
        for (what, say) in [
            ("share", share as fn(&Route) -> String),
            ("bodies", bodies as fn(&Route) -> String),
        ] {
            let recorded = row(&format!("{name} bodylog {what}"), true, &of(say));
            if recorded.said.iter().any(|said| said.contains("runtime")) {
                rows.push(recorded);
            }
        }
        for signal in ["ttft", "tps"] {
            let layers = row(&format!("{name} {signal} limit"), true, &|status| {
                let route = status.routes.iter().find(|route| route.name == name);
                route.map_or("-".to_owned(), |route| thresholds(route, signal))
            });
            if layers.said.iter().any(|said| said.contains("override")) {
                rows.push(layers);
            }
        }
    }
    // What no router says is no comparison.
    rows.retain(|row| row.said.iter().any(|said| said != "-"));
    rows
}

fn file(route: &Route) -> String {
    match route.status {
        RouteStatus::Ok => "ok",
        RouteStatus::Partly => "partly",
        RouteStatus::Stale => "stale",
        RouteStatus::Invalid => "invalid",
    }
    .to_owned()
}

fn fingerprint(route: &Route) -> String {
    route.fingerprint.clone().unwrap_or("-".to_owned())
}

fn healthy(route: &Route) -> String {
    let peers = || {
        let peers = route.pools.iter().flat_map(|pool| &pool.peers);
        peers.filter(|peer| peer.enabled)
    };
    let up = peers().filter(|peer| !peer.banned && !peer.state.is_out());
    let up = up.count();
    format!("{up}/{}", peers().count())
}

fn limit(route: &Route) -> String {
    of_pools(route, |pool| pool.limit.to_string())
}

fn in_flight(route: &Route) -> String {
    of_pools(route, |pool| pool.in_flight.to_string())
}

/// The values of the pools; `-` without any.
fn of_pools(route: &Route, say: impl Fn(&Pool) -> String) -> String {
    if route.pools.is_empty() {
        return "-".to_owned();
    }
    let said: Vec<_> = route.pools.iter().map(say).collect();
    said.join(" ")
}

/// The recorded share of requests, for example `5 % (runtime)`.
fn share(route: &Route) -> String {
    route.recording.as_ref().map_or("-".to_owned(), |now| {
        format!("{} % ({})", now.sample_pct, now.sample_pct_source)
    })
}

/// The recorded part of bodies, for example `none (runtime)`.
fn bodies(route: &Route) -> String {
    route.recording.as_ref().map_or("-".to_owned(), |now| {
        format!("{} ({})", now.bodies, now.bodies_source)
    })
}

/// The thresholds of the pools, for example `12000 (override)`.
fn thresholds(route: &Route, signal: &str) -> String {
    of_pools(route, |pool| {
        let found = if signal == "ttft" {
            &pool.ttft
        } else {
            &pool.tps
        };
        found.as_ref().map_or("off".to_owned(), |signal| {
            let first = signal.items.first();
            let value = first.and_then(|item| item.threshold_ms.or(item.threshold_tps));
            match value {
                Some(value) => format!("{value} ({})", signal.layer),
                None => "off".to_owned(),
            }
        })
    })
}
