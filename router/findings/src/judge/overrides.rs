//! Switches, limits and slots that an operator set on the running router.

use std::time::{Duration, Instant};

use proto::admin::{FindingCode, PoolSignal, Route, Severity};

use super::Cause;
use super::words::span;
use crate::traffic::Events;

pub(super) fn judge(route: &Route, now: Instant, found: &mut Vec<Cause>) {
    let mut add = |name: &str, age_s: Option<u64>, text: String, look: String| {
        let cause = Cause::new(FindingCode::OverrideInForce, Severity::Info, text);
        let events = Events {
            since: age_s.and_then(|age| now.checked_sub(Duration::from_secs(age))),
            ..Events::default()
        };
        let cause = cause.route(&route.name).named(name).counted(events);
        found.push(cause.look(look));
    };
    for (name, switch) in &route.switches {
        if switch.source == "runtime" {
            let state = if switch.enabled { "on" } else { "off" };
            let text = format!(
                "switch {name} is {state} by hand, until it is reset or the router restarts"
            );
            let look = format!("llmctl toggle {name} --reset --route {}", route.name);
            add(name, switch.age_s, text, look);
        }
    }
    for pool in &route.pools {
        let signals = [("ttft-limit", &pool.ttft), ("tps-limit", &pool.tps)];
        for (name, signal) in signals {
            let Some(signal) = signal.as_ref().filter(|signal| is_overridden(signal)) else {
                continue;
            };
            let left = signal.override_left_s.map_or_else(
                || ", until it is reset".to_owned(),
                |left| format!(", {} left", span(Duration::from_secs(left))),
            );
            let item = signal.items.first();
            let value = item.and_then(|item| item.threshold_ms.or(item.threshold_tps));
            let value = value.map_or(String::new(), |value| format!(" is {value}"));
            let text = format!("{name}{value} by hand{left}");
            let kind = name.trim_end_matches("-limit");
            let look = format!("llmctl limit {kind} --reset --route {}", route.name);
            add(
                &format!("{name} {}", signal.model),
                signal.override_age_s,
                text,
                look,
            );
        }
        for peer in pool.peers.iter().filter(|peer| peer.held_back > 0) {
            let text = format!(
                "{} units of peer {} ({}) are held back by hand",
                peer.held_back, peer.name, peer.peer
            );
            let look = format!("POST /{}/_active_conns_set?flush=1", route.name);
            add(&format!("active-conns {}", peer.peer), None, text, look);
        }
    }
    if let Some(recording) = &route.recording {
        let set = [
            (
                "bodylog share",
                &recording.sample_pct_source,
                format!("{} %", recording.sample_pct),
            ),
            (
                "bodylog bodies",
                &recording.bodies_source,
                recording.bodies.clone(),
            ),
        ];
        for (name, _, value) in set.iter().filter(|(_, source, _)| *source == "runtime") {
            let text = format!("{name} is {value} by hand");
            let look = format!("llmctl toggle bodylog --reset --route {}", route.name);
            add(name, recording.age_s, text, look);
        }
    }
}

fn is_overridden(signal: &PoolSignal) -> bool {
    signal.override_age_s.is_some()
}
