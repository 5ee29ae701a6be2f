//! Sentences for both decisions and receipts. Pure text.

use proto::admin::SwitchState;
use router_core::admission::{Refusal, Slow};
use router_core::balance::Balance;
use router_core::decision::{Facts, Mode, PeerFacts};
use router_core::health::{HealthFacts, HealthState};
use router_core::load::Freshness;

use crate::render::{Paint, Screen, tame};

/// One labelled line: label and text.
pub(super) type Line = (&'static str, String);

/// Prints labelled lines, with the labels in one column.
pub(super) fn show_lines(screen: &mut Screen, lines: &[Line]) {
    for (label, text) in lines {
        let label = screen.paint(Paint::Dim, &format!("{label:<9}"));
        screen.line(&format!("  {label} {text}"));
    }
}

/// A peer's name and address; only one of them when they are equal.
pub(super) fn called(name: &str, address: &str) -> String {
    if name == address {
        address.to_owned()
    } else {
        format!("{} ({address})", tame(name))
    }
}

/// The state of a peer in this decision, in words. `active` is the tier from which the router
/// chooses.
pub(super) fn state_of(peer: &PeerFacts, active: Option<i64>) -> (String, Paint) {
    match (peer.enabled, peer.banned, peer.candidate) {
        (false, _, _) => ("disabled".to_owned(), Paint::Dim),
        (true, true, _) => ("banned until a probe succeeds".to_owned(), Paint::Red),
        (true, false, true) if peer.held_s.is_some() => {
            let held_s = peer.held_s.unwrap_or_default();
            let text = format!("held: its metrics have been silent for {held_s} s");
            (text, Paint::Yellow)
        }
        (true, false, _) if peer.health.state != HealthState::Healthy => {
            (health_words(&peer.health), Paint::Red)
        }
        (true, false, true) if peer.in_flight >= peer.slots => ("full".to_owned(), Paint::Yellow),
        (true, false, true) => match peer.probe.and_then(|probe| probe.silent_s) {
            Some(silent_s) => (format!("busy: probe silent {silent_s} s"), Paint::Yellow),
            None => ("candidate".to_owned(), Paint::Green),
        },
        (true, false, false) => passed_over(peer, active),
    }
}

/// A peer's state, since when, and why.
fn health_words(health: &HealthFacts) -> String {
    let since = health
        .since_s
        .map_or(String::new(), |since| format!(" for {since} s"));
    let left = health
        .left_s
        .map_or(String::new(), |left| format!(", {left} s left"));
    let cause = health
        .cause
        .as_deref()
        .map_or(String::new(), |cause| format!(": {cause}"));
    format!("{}{since}{left}{}", health.state.as_str(), tame(&cause))
}

/// Why the router does not choose a peer that is up.
fn passed_over(peer: &PeerFacts, active: Option<i64>) -> (String, Paint) {
    let unread = peer.freshness.and_then(|freshness| match freshness {
        Freshness::Fresh | Freshness::Held => None,
        Freshness::Stale => Some(match peer.stale_s {
            Some(stale_s) => format!("stale: metrics silent for {stale_s} s"),
            None => "stale: its engine's load is not known".to_owned(),
        }),
        Freshness::Dead => Some("dead: its engine refuses connections".to_owned()),
        Freshness::Loading => Some("its engine is loading its model".to_owned()),
        Freshness::Misconfigured => Some("its engine refuses our credential".to_owned()),
    });
    if peer.draining {
        let text = "draining: it keeps its sessions and gets nothing else";
        (text.to_owned(), Paint::Yellow)
    } else if let Some(unread) = unread {
        (unread, Paint::Red)
    } else if active.is_some_and(|active| peer.priority < active) {
        ("standby: a higher tier is active".to_owned(), Paint::Plain)
    } else {
        ("does not list the model".to_owned(), Paint::Plain)
    }
}

/// Whether affinity is on, and which layer decides that.
pub(super) fn affinity_line(affinity: &SwitchState) -> String {
    let who = match affinity.source.as_str() {
        "runtime" => "set on the running router",
        "route" => "the route's file",
        "global" => "defaults of the main file",
        "default" => "built-in default",
        "default (invalid)" => "built-in default, the file's value is invalid",
        other => other,
    };
    let state = if affinity.enabled {
        "on"
    } else {
        "off: every request is balanced"
    };
    format!("{state} ({})", tame(who))
}

/// How the router chose the peer.
pub(super) fn choice_line(mode: Mode, balance: Option<Balance>) -> String {
    let by = |balance: Balance| format!("{}: {}", balance.as_str(), balance.rule());
    match (mode, balance) {
        (Mode::Hash, _) => "hash: the session is at home there".to_owned(),
        (Mode::HashFallback, Some(balance)) => {
            format!("hash_fallback: the home cannot take it, so {}", by(balance))
        }
        (Mode::HashFallback, None) => {
            "hash_fallback: the home cannot take it, so the route's balance chose".to_owned()
        }
        (Mode::Sticky, _) => "sticky: the session lives there".to_owned(),
        (Mode::StickyNew, _) => {
            "sticky_new: the session is new, and this peer has the fewest".to_owned()
        }
        (Mode::Prefix, _) => {
            "prefix: the longest known beginning of the conversation was computed there".to_owned()
        }
        (Mode::Pin, Some(balance)) => {
            format!("pin: among the peers that list the model, {}", by(balance))
        }
        (Mode::Pin, None) => "pin: among the peers that list the model".to_owned(),
        (Mode::Balance(balance), _) => by(balance),
    }
}

/// The numbers of the admission.
pub(super) fn facts_lines(facts: &Facts) -> Vec<Line> {
    vec![
        (
            "tier",
            format!(
                "{} is active, with {} unbanned",
                facts.tier,
                counted(facts.healthy_peers, "peer")
            ),
        ),
        (
            "admitted",
            format!(
                "{} in flight, limit {}{}{}",
                facts.in_flight,
                facts.limit,
                scaled(facts.factor),
                facts.adaptive.map_or(String::new(), |_| format!(
                    " (adaptive, at most {})",
                    facts.pool_limit
                ))
            ),
        ),
        (
            "peer",
            format!(
                "{} in flight of {} before this request",
                facts.peer_in_flight, facts.peer_slots
            ),
        ),
    ]
}

/// A refusal in one sentence, with its numbers.
pub(in crate::cmd) fn refusal_line(refusal: &Refusal) -> String {
    match refusal {
        Refusal::NoHealthyPeer { peers: 0, .. } => {
            "no_healthy_peer: the pool has no peers".to_owned()
        }
        Refusal::NoHealthyPeer {
            peers,
            banned,
            stale,
            ejected,
            draining,
        } => {
            let named = banned + stale + ejected + draining;
            let out = [
                (*stale, "not to be read"),
                (*ejected, "ejected"),
                (*draining, "draining"),
                (peers.saturating_sub(named), "disabled"),
            ];
            let out = out.iter().filter(|(count, _)| *count > 0);
            let out: String = out.map(|(count, why)| format!(", {count} {why}")).collect();
            let peers = counted(*peers, "peer");
            format!("no_healthy_peer: of {peers} {banned} banned{out}")
        }
        Refusal::ConcurrencyLimit(full) => format!(
            "concurrency_limit: {} in flight, limit {}{}{}{} over {} of tier {}",
            full.in_flight,
            full.limit,
            scaled(full.factor),
            full.share
                .map_or(String::new(), |share| format!(" × share {share}")),
            warmth(full.bucket, full.turn),
            counted(full.healthy_peers, "unbanned peer"),
            full.tier,
        ),
        Refusal::TtftLimit(slow) => format!(
            "ttft_limit: {} averages {:.1} ms, threshold {} ms{}",
            tame(&slow.metric),
            slow.ewma,
            slow.threshold,
            graded(slow)
        ),
        Refusal::TpsLimit(slow) => format!(
            "tps_limit: {} averages {:.1} tokens per second, threshold {}{}",
            tame(&slow.metric),
            slow.ewma,
            slow.threshold,
            graded(slow)
        ),
    }
}

/// The amount that `session_prio` adds to a threshold.
fn graded(slow: &Slow) -> String {
    let tolerance = slow.tolerance.map_or(String::new(), |tolerance| {
        format!(", tolerance {tolerance}")
    });
    let held = if slow.held {
        "; turn 1 is held out until the average is low again"
    } else {
        ""
    };
    format!("{tolerance}{}{held}", warmth(slow.bucket, slow.turn))
}

/// The bucket of a request; empty while `session_prio` is off.
fn warmth(bucket: Option<u32>, turn: Option<u32>) -> String {
    match (bucket, turn) {
        (None, _) => String::new(),
        (Some(bucket), Some(turn)) => format!(" (turn {turn}, bucket from turn {bucket})"),
        (Some(bucket), None) => format!(" (no usable header, bucket from turn {bucket})"),
    }
}

fn scaled(factor: f64) -> String {
    if factor == 1.0 {
        String::new()
    } else {
        format!(" × {factor}")
    }
}

fn counted(count: u32, noun: &str) -> String {
    if count == 1 {
        format!("1 {noun}")
    } else {
        format!("{count} {noun}s")
    }
}
