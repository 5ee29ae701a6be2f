//! Describes a decision in sentences: the request, the facts, and the consequence. Pure text.

use proto::admin::{RuleVerdict, SwitchState};
use router::explain::words::{Line, facts_lines, passed_lines};
use router_core::admission::Refusal;
use router_core::affinity::Hash;
use router_core::balance::Balance;
use router_core::decision::{Explanation, Home, HomeState, Outcome, PeerFacts};
use serde::Serialize;

use super::gates::gate_lines;
use super::words::{affinity_line, called, choice_line, refusal_line, show_lines, state_of};
use crate::render::{Paint, Screen, Table, tame};

/// A request and the decision about it; the JSON form is stable.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Case {
    /// The route.
    pub route: String,
    /// The model from the body or from `--model`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The session in the form of `X-Routed-Session`; `-` without one.
    pub session: String,
    /// The source of the session, in the form of `X-Routed-Source`.
    pub source: String,
    /// Whether affinity is on, and which layer decides that.
    pub affinity: SwitchState,
    /// The balance of requests without a home. A running router reports it only through the mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub balance: Option<Balance>,
    /// The content rule that refuses the request before all other decisions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<RuleVerdict>,
    /// The decision and its facts.
    #[serde(flatten)]
    pub explanation: Explanation,
}

impl Case {
    /// Prints the description.
    pub(super) fn show(&self, screen: &mut Screen) {
        screen.heading(&self.verdict());
        screen.line("");
        show_lines(screen, &self.lines());
        screen.line("");
        screen.table(&self.peers());
    }

    fn verdict(&self) -> String {
        let route = &self.route;
        if let Some(rule) = &self.rule {
            return format!("route {route}: refused, rejected_by_rule {}", rule.status);
        }
        match &self.explanation.outcome {
            Outcome::Send {
                peer, name, mode, ..
            } => {
                format!(
                    "route {route}: goes to {}, mode {}",
                    called(name, peer.as_str()),
                    mode.as_str()
                )
            }
            Outcome::Wait { .. } => format!("route {route}: waits for a slot"),
            Outcome::Refuse(refusal) => format!("route {route}: refused, {}", refusal.code()),
        }
    }

    fn lines(&self) -> Vec<Line> {
        let mut lines = vec![("session", self.session_line())];
        if let Some(model) = &self.model {
            lines.push(("model", tame(model).into_owned()));
        }
        if let Some(rule) = &self.rule {
            let (name, cond) = (tame(&rule.name), tame(&rule.cond));
            lines.push(("refused", format!("by content rule `{name}`: {cond}")));
            lines.push((
                "needed",
                "another body; below is what follows without the rule".to_owned(),
            ));
        }
        lines.push(("affinity", affinity_line(&self.affinity)));
        match &self.explanation.outcome {
            Outcome::Send { mode, facts, .. } => {
                lines.extend(
                    facts
                        .home
                        .map(|home| ("home", self.home_line(home, facts.tier))),
                );
                lines.push(("choice", choice_line(*mode, self.balance)));
                lines.extend(facts_lines(facts));
                lines.extend(passed_lines(facts));
            }
            Outcome::Wait {
                ahead,
                wait_max,
                timeout_s,
            } => lines.push((
                "waits",
                format!("behind {ahead} (at most {wait_max} may), at most {timeout_s} s; then it goes past the limit"),
            )),
            Outcome::Refuse(refusal) => {
                lines.push(("refused", refusal_line(refusal)));
                lines.push(("needed", self.remedy(refusal)));
            }
        }
        lines.extend(gate_lines(&self.explanation.gates));
        lines
    }

    fn session_line(&self) -> String {
        match (self.session.as_str(), self.source.as_str()) {
            (_, "affinity_off") => "ignored: affinity is off".to_owned(),
            ("-", _) => "none: no source of the route held a usable id".to_owned(),
            (id, _) => format!("{} (from {})", tame(id), tame(&self.source)),
        }
    }

    /// The steps of the hash that selected this peer, so that a reader can check them by hand.
    fn home_line(&self, home: Home, tier: i64) -> String {
        let peers = &self.explanation.peers;
        let Some(peer) = peers.get(home.index as usize) else {
            return format!("peer {} of the pool", home.index);
        };
        let how = match home.hash {
            Hash::Crc32 => {
                let count = peers
                    .iter()
                    .filter(|p| p.enabled && p.priority == tier)
                    .count() as u64;
                let place = home.score.checked_rem(count).unwrap_or(0);
                format!(
                    "crc32 of the id is {}, modulo {count} peers of the tier is {place}",
                    home.score
                )
            }
            Hash::Rendezvous => format!("the highest xxh3 weight, {}", home.score),
            Hash::RendezvousMd5 => format!("the highest md5 weight, {}", home.score),
        };
        let state = match home.state {
            HomeState::Usable => "it has room",
            HomeState::Banned => "it is banned",
            HomeState::Ejected => "it is ejected for failed answers",
            HomeState::Suspect => "it gives no first byte, and the session is new there",
            HomeState::Saturated => "it is at its own maximum",
        };
        format!("{}: {how}; {state}", called(&peer.name, peer.peer.as_str()))
    }

    /// The change that would let the request in.
    fn remedy(&self, refusal: &Refusal) -> String {
        match refusal {
            Refusal::ConcurrencyLimit(full) => format!(
                "{} of the {} in flight would have to end; or more max_concurrency than {} \
                 (× rt_limit_factor {}), or full_policy: overflow",
                full.must_end, full.in_flight, full.pool_limit, full.factor,
            ),
            Refusal::TtftLimit(slow) => format!(
                "an average below {:.0} ms, or one of the {} probe slots of the window that ends in {} s",
                slow.admits_at, slow.probes.per_window, slow.probes.window_left_s
            ),
            Refusal::TpsLimit(slow) => format!(
                "an average above {:.1} tokens per second, or one of the {} probe slots of the \
                 window that ends in {} s",
                slow.admits_at, slow.probes.per_window, slow.probes.window_left_s
            ),
            Refusal::NoHealthyPeer { peers: 0, .. } => "the route needs a peer".to_owned(),
            Refusal::NoHealthyPeer { .. } => {
                let peers = &self.explanation.peers;
                match peers.iter().any(|peer| peer.enabled && peer.banned) {
                    true => "a probe of a banned peer would have to succeed".to_owned(),
                    false => self.without_bans().to_owned(),
                }
            }
        }
    }

    /// The change that would make a peer usable, when none is banned.
    fn without_bans(&self) -> &'static str {
        let enabled = || self.explanation.peers.iter().filter(|peer| peer.enabled);
        let is_unread = |peer: &PeerFacts| peer.freshness.is_some_and(|now| !now.is_candidate());
        if enabled().any(is_unread) {
            "an engine would have to answer when it is asked for its load"
        } else if enabled().any(|peer| peer.draining) {
            "a peer that is not draining would have to be there"
        } else {
            "a peer would have to be enabled"
        }
    }

    fn peers(&self) -> Table {
        let scored = self
            .explanation
            .peers
            .iter()
            .any(|peer| peer.score.is_some());
        let mut head = vec!["peer", "address", "tier", "in-flight", "max", "state"];
        head.extend(scored.then_some("weight"));
        let mut table = Table::new(&head);
        let candidates = self.explanation.peers.iter().filter(|peer| peer.candidate);
        let active = candidates.map(|peer| peer.priority).max();
        for peer in &self.explanation.peers {
            let (state, paint) = state_of(peer, active);
            let mut row: Vec<(String, Paint)> = [
                peer.name.clone(),
                peer.peer.to_string(),
                peer.priority.to_string(),
                peer.in_flight.to_string(),
                peer.slots.to_string(),
            ]
            .map(|cell| (cell, Paint::Plain))
            .into();
            row.push((state, paint));
            row.extend(scored.then(|| {
                (
                    peer.score.map_or("-".to_owned(), |s| s.to_string()),
                    Paint::Plain,
                )
            }));
            table.painted_row(row);
        }
        table
    }
}
