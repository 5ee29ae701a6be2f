//! Sentences for both decisions and receipts. Pure text.

use proto::admin::SwitchState;
use router::explain::words::{self, Line};
use router_core::admission::Refusal;
use router_core::balance::Balance;
use router_core::decision::{Mode, PeerFacts};
use router_core::health::{HealthFacts, HealthState};
use router_core::load::Freshness;

use crate::render::{Paint, Screen, tame};

/// Prints labelled lines, with the labels in one column.
pub(super) fn show_lines(screen: &mut Screen, lines: &[Line]) {
    for (label, text) in lines {
        let label = screen.paint(Paint::Dim, &format!("{label:<9}"));
        screen.line(&format!("  {label} {}", tame(text)));
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

/// A refusal in one sentence, with its numbers.
pub(in crate::cmd) fn refusal_line(refusal: &Refusal) -> String {
    tame(&words::refusal_line(refusal)).into_owned()
}
