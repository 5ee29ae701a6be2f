//! Reports about attempts, and their effect on the peers.

use std::time::{Duration, Instant};

use super::candidate_set::is_readable;
use super::{Book, ResolvedRoute, Ticket};
use crate::health::{
    AnswerKind, AttemptCounts, AttemptEnd, HealthChange, HealthFacts, Siblings, SilenceVerdict,
};
use crate::pool::PeerKey;

/// Time until the next check of a peer that hangs but had to stay.
const HANG_RETRY: Duration = Duration::from_secs(1);

/// Time until the next check of a polled peer on which requests wait.
const POLLED_RETRY: Duration = Duration::from_secs(5);

/// A change of a peer's state.
#[derive(Clone, Debug, PartialEq)]
pub struct PeerChange {
    /// The peer.
    pub peer: PeerKey,
    /// The change.
    pub change: HealthChange,
}

/// The result of a check of all peers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Watched {
    /// Transitions since the last check, including those from attempts that no report returned.
    pub changes: Vec<PeerChange>,
    /// When to check again; `None`: after the next attempt.
    pub next: Option<Instant>,
}

impl Book {
    /// Reports that the first byte of a successful answer has come. Returns the resulting change.
    /// O(the peer's places). `route` is the one under which the ticket was reserved.
    pub fn first_byte(
        &mut self,
        route: &ResolvedRoute,
        ticket: &mut Ticket,
        now: Instant,
    ) -> Vec<HealthChange> {
        let epoch = self.epoch(now);
        let Some(attempt) = &mut ticket.attempt else {
            return Vec::new();
        };
        let health = &mut self.peers.get_mut(ticket.slot).health;
        health.first_byte(attempt, &route.spec.health, epoch, now);
        self.take_changes(ticket.slot, now)
    }

    /// Reports that the attempt on a ticket's peer has ended, before a [retry](Self::retry) or the
    /// [release](Self::release). A second report of one attempt is ignored. Returns the resulting
    /// change. O(the peer's places), O(its tier) after a failure.
    pub fn attempt_ended(
        &mut self,
        route: &ResolvedRoute,
        ticket: &mut Ticket,
        end: AttemptEnd,
        now: Instant,
    ) -> Vec<HealthChange> {
        let Some(mut attempt) = ticket.attempt.take() else {
            return Vec::new();
        };
        let failed = matches!(end, AttemptEnd::Failed(_));
        let may_leave = failed && self.may_leave(route, ticket.slot, now);
        let health = &mut self.peers.get_mut(ticket.slot).health;
        health.end(&mut attempt, end, &route.spec.health, || may_leave, now);
        if attempt.is_probe() {
            // The next request may be a probe, even if the state did not change.
            self.touch(ticket.slot, now);
        }
        self.take_changes(ticket.slot, now)
    }

    /// Does the work on peers that becomes due with time: ends ejections and finds hanging peers.
    /// Call it after a [tick](Self::tick). O(peers), and O(tier) for each peer that hangs.
    pub fn watch(&mut self, route: &ResolvedRoute, now: Instant) -> Watched {
        let epoch = self.epoch(now);
        let mut watched = Watched::default();
        for (pool, members) in route.members.iter().enumerate() {
            let longest = |kind: AnswerKind| {
                let waits = members.peers.iter().map(|slot| {
                    let health = &self.peers.get(*slot).health;
                    health.longest_wait(kind, epoch, now)
                });
                waits.max().unwrap_or_default()
            };
            let (stream, whole) = (longest(AnswerKind::Stream), longest(AnswerKind::Whole));
            let longest = |kind| match kind {
                AnswerKind::Stream => stream,
                AnswerKind::Whole => whole,
                AnswerKind::Other => Duration::ZERO,
            };
            for (index, slot) in members.peers.iter().enumerate() {
                let due = self.watch_peer(route, *slot, &longest, now);
                watched.next = watched.next.into_iter().chain(due).min();
                let peer = &route.spec.pools[pool].peers[index].key;
                let changes = self.take_changes(*slot, now).into_iter();
                watched.changes.extend(changes.map(|change| PeerChange {
                    peer: peer.clone(),
                    change,
                }));
            }
        }
        watched
    }

    /// Returns when to check the peer again.
    fn watch_peer(
        &mut self,
        route: &ResolvedRoute,
        slot: u32,
        longest: &impl Fn(AnswerKind) -> Duration,
        now: Instant,
    ) -> Option<Instant> {
        let spec = &route.spec.health;
        let state = self.peers.get_mut(slot);
        state.health.pass(now);
        let load = route.spec.load.as_ref();
        let is_stuck = load.is_some_and(|load| state.reading.is_stuck(load, now));
        let due = match state.health.silence(spec, is_stuck, longest, now) {
            // The engine's reading may shorten the bound at any time.
            SilenceVerdict::Fine(due) if load.is_some() => {
                due.map(|due| due.min(now + POLLED_RETRY))
            }
            SilenceVerdict::Fine(due) => due,
            SilenceVerdict::TooLong(lasted) => {
                let siblings = self.siblings(route, slot, lasted, now);
                let health = &mut self.peers.get_mut(slot).health;
                health.hang(lasted, spec, siblings, now);
                Some(now + HANG_RETRY)
            }
        };
        let passes = self.peers.get(slot).health.pass_due();
        due.into_iter().chain(passes).min()
    }

    /// The health of a peer for status pages, and the outcomes of its attempts since the start.
    pub fn health(&self, peer: &PeerKey, now: Instant) -> Option<(HealthFacts, AttemptCounts)> {
        let state = self.peers.get(self.peers.find(peer)?);
        Some((state.health.facts(now), state.health.counts()))
    }

    /// What the other peers say about one that has been silent for `lasted`.
    fn siblings(
        &self,
        route: &ResolvedRoute,
        slot: u32,
        lasted: Duration,
        now: Instant,
    ) -> Siblings {
        if !self.may_leave(route, slot, now) {
            return Siblings::Needed;
        }
        let answered = |other: u32| {
            let last = self.peers.get(other).health.last_answer();
            last.is_some_and(|last| now.saturating_duration_since(last) < lasted)
        };
        let places = route.places.of(slot).iter();
        let mut tiers = places.map(|(pool, index)| {
            let members = &route.members[*pool];
            let own = members.fixed[*index].tier;
            let peers = members.peers.iter().zip(&members.fixed);
            let tier = peers.filter(move |(_, fixed)| fixed.tier == own);
            tier.map(|(other, _)| *other).filter(|other| *other != slot)
        });
        match tiers.any(|mut tier| tier.any(answered)) {
            true => Siblings::Answer,
            false => Siblings::Serve,
        }
    }

    /// Whether each tier of a peer can lose it: at most its `max_share` is out afterwards, and
    /// another peer takes requests.
    fn may_leave(&self, route: &ResolvedRoute, slot: u32, now: Instant) -> bool {
        let bounds = route.spec.health.bounds();
        route.places.of(slot).iter().all(|(pool, index)| {
            let specs = &route.spec.pools[*pool].peers;
            let own = &specs[*index];
            let (mut peers, mut out, mut open) = (0, 0, 0);
            for (peer, other) in specs.iter().zip(&route.members[*pool].peers) {
                if !(peer.enabled && peer.role == own.role && peer.priority == own.priority) {
                    continue;
                }
                peers += 1;
                let state = self.peers.get(*other);
                if *other == slot {
                    continue;
                } else if state.health.is_out(now) {
                    out += 1;
                } else if !(peer.draining || state.ban.is_active(now))
                    && is_readable(&route.spec, state, now)
                {
                    open += 1;
                }
            }
            open > 0 && out < bounds.most_out(peers)
        })
    }

    fn take_changes(&mut self, slot: u32, now: Instant) -> Vec<HealthChange> {
        let health = &mut self.peers.get_mut(slot).health;
        if !health.has_changes() {
            return Vec::new();
        }
        let changes = health.take_changes();
        self.touch(slot, now);
        changes
    }
}
