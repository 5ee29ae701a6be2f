//! The peers of a pool in the form that decisions need, kept current instead of computed for each
//! decision.
//!
//! A decision goes over the peers of a pool several times. Most of the data changes only when
//! something happens to a peer: a request begins or ends, a poll or a probe reports. Each such
//! event evaluates only its own peer again. Changes that come with time alone (a ban ends, a
//! reading becomes stale) have a deadline. Past the earliest deadline the whole candidate set is
//! computed anew.

use std::time::Instant;

use super::PeerState;
use super::resolved_route::{Fixed, Resolved};
use super::table::Table;
use crate::admission::concurrency;
use crate::health::Access;
use crate::load::{Freshness, IdleSince};
use crate::pool::{Load, PeerKey, PeerSpec, Role, RouteSpec, Slots};

/// Every peer of one pool of one resolved route, as requests of one role see them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct CandidateSet {
    /// Index = peer, file order. Empty before the first evaluation.
    entries: Vec<CandidateEntry>,
    /// Index = peer. Kept apart from the entries because few policies need it.
    idles: Vec<IdleSince>,
    /// Sums over each tier's usable peers, by the tier's rank.
    tiers: Vec<Room>,
    /// The first instant at which time alone may have changed something.
    due: Option<Instant>,
    is_made: bool,
    /// No peer is usable, so peers that were taken out because of bad answers serve as a last
    /// resort.
    is_last_resort: bool,
    /// Time of the last evaluation, for the check of the invariants.
    seen: Option<Instant>,
}

/// The current state of one peer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct CandidateEntry {
    pub(super) load: Load,
    /// The peer's contribution to the pool's in-flight: our requests, and requests of others up to
    /// the peer's own maximum. Others' queue on one engine takes no room from the next engine.
    pub(super) counted: u32,
    /// The peer's tier and its place among equally loaded peers.
    pub(super) fixed: Fixed,
    /// The peer may get any request.
    pub(super) is_usable: bool,
    /// The peer may serve sessions that live on it: it is usable or draining.
    pub(super) may_keep: bool,
    /// The peer is below its own maximum.
    pub(super) has_room: bool,
    /// The peer gives no first byte. Sessions that live there stay, no other request goes there.
    pub(super) is_suspect: bool,
    /// Only the peer's health keeps it out. It serves when no other peer is left.
    pub(super) is_reserve: bool,
}

/// The usable peers of one tier, or the subset that a request may go to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Room {
    pub(super) peers: u32,
    /// Number of these peers that are below their own maximum.
    pub(super) with_room: u32,
    pub(super) limit: u64,
    pub(super) in_flight: u64,
    /// Requests on these peers from all senders.
    pub(super) load: u64,
}

impl CandidateEntry {
    /// A peer that requests of this role never see.
    fn of_another_role(fixed: Fixed) -> Self {
        Self {
            load: Load {
                in_flight: 0,
                slots: Slots(0),
            },
            counted: 0,
            fixed,
            is_usable: false,
            may_keep: false,
            has_room: false,
            is_suspect: false,
            is_reserve: false,
        }
    }
}

impl Room {
    #[inline]
    pub(super) fn add(&mut self, entry: CandidateEntry) {
        if entry.is_usable {
            self.peers += 1;
            self.with_room += u32::from(entry.has_room);
            self.limit += u64::from(entry.load.slots.0);
            self.in_flight += u64::from(entry.counted);
            self.load += u64::from(entry.load.in_flight);
        }
    }

    #[inline]
    fn take(&mut self, entry: CandidateEntry) {
        if entry.is_usable {
            self.peers -= 1;
            self.with_room -= u32::from(entry.has_room);
            self.limit -= u64::from(entry.load.slots.0);
            self.in_flight -= u64::from(entry.counted);
            self.load -= u64::from(entry.load.in_flight);
        }
    }
}

impl CandidateSet {
    /// Evaluates every peer.
    pub(super) fn new(
        resolved: &Resolved,
        (pool, role): (usize, Role),
        states: &Table<PeerKey, PeerState>,
        now: Instant,
    ) -> Self {
        let mut candidate_set = Self::default();
        candidate_set.make(resolved, (pool, role), states, now);
        candidate_set
    }

    /// Whether the set shows the peers as they are at `now`.
    #[inline]
    pub(super) fn is_current(&self, now: Instant) -> bool {
        self.is_made && self.due.is_none_or(|due| now < due)
    }

    /// When time alone may next change something; `None` also before the first evaluation.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due.filter(|_| self.is_made)
    }

    /// Evaluates every peer again. Allocates the first time only.
    pub(super) fn make(
        &mut self,
        resolved: &Resolved,
        (pool, role): (usize, Role),
        states: &Table<PeerKey, PeerState>,
        now: Instant,
    ) {
        let members = &resolved.members[pool];
        let specs = &resolved.spec.pools[pool].peers;
        self.entries.clear();
        self.idles.clear();
        self.tiers.clear();
        self.tiers.resize(members.tiers.len(), Room::default());
        (self.due, self.is_made, self.seen) = (None, true, Some(now));
        self.is_last_resort = false;
        for (index, peer) in specs.iter().enumerate() {
            let (state, fixed) = (states.get(members.peers[index]), members.fixed[index]);
            if peer.role != role {
                self.entries.push(CandidateEntry::of_another_role(fixed));
                self.idles.push(IdleSince::Busy);
                continue;
            }
            let (entry, idle, due) = look(&resolved.spec, peer, fixed, state, now);
            self.tiers[entry.fixed.tier as usize].add(entry);
            self.entries.push(entry);
            self.idles.push(idle);
            self.due = earlier(self.due, due);
        }
        self.fall_back();
    }

    /// If no peer is usable, lets the peers serve that are out because of bad answers.
    fn fall_back(&mut self) {
        if self.has_usable() {
            return;
        }
        for entry in self.entries.iter_mut().filter(|entry| entry.is_reserve) {
            (entry.is_usable, entry.may_keep, entry.is_suspect) = (true, true, false);
            self.tiers[entry.fixed.tier as usize].add(*entry);
            self.is_last_resort = true;
        }
    }

    fn has_usable(&self) -> bool {
        self.tiers.iter().any(|room| room.peers > 0)
    }

    /// Evaluates one peer again after an event that concerns it.
    pub(super) fn touch(
        &mut self,
        resolved: &Resolved,
        pool: usize,
        index: usize,
        state: &PeerState,
        now: Instant,
    ) {
        if !self.is_made {
            return;
        }
        let (peer, fixed) = (
            &resolved.spec.pools[pool].peers[index],
            resolved.members[pool].fixed[index],
        );
        let (entry, idle, due) = look(&resolved.spec, peer, fixed, state, now);
        let before = std::mem::replace(&mut self.entries[index], entry);
        self.idles[index] = idle;
        let tier = &mut self.tiers[fixed.tier as usize];
        tier.take(before);
        tier.add(entry);
        if self.is_last_resort || !self.has_usable() {
            // The last resort depends on all peers.
            self.is_made = false;
        }
        self.due = earlier(self.due, due);
        self.seen = self.seen.max(Some(now));
    }

    /// Forces the next evaluation to cover every peer.
    pub(super) fn forget(&mut self) {
        self.is_made = false;
    }

    #[inline]
    pub(super) fn entries(&self) -> &[CandidateEntry] {
        &self.entries
    }

    #[inline]
    pub(super) fn idles(&self) -> &[IdleSince] {
        &self.idles
    }

    /// Rank and room of the highest tier that has a usable peer.
    pub(super) fn active_tier(&self) -> Option<(u32, Room)> {
        let tiers = (0_u32..).zip(&self.tiers);
        let mut usable = tiers.filter(|(_, room)| room.peers > 0);
        usable.next().map(|(rank, room)| (rank, *room))
    }

    /// The room of a tier.
    pub(super) fn room(&self, tier: u32) -> Room {
        self.tiers[tier as usize]
    }

    /// The largest sum of slots of the usable peers of any one tier.
    pub(super) fn largest_tier_sum(&self) -> u64 {
        let limits = self.tiers.iter().map(|room| room.limit);
        limits.max().unwrap_or(0)
    }

    /// Debug-asserts that a fresh evaluation of every peer gives the same result.
    pub(super) fn check(
        &self,
        resolved: &Resolved,
        place: (usize, Role),
        states: &Table<PeerKey, PeerState>,
    ) {
        let Some(seen) = self.seen.filter(|seen| self.is_current(*seen)) else {
            return;
        };
        let fresh = Self::new(resolved, place, states, seen);
        debug_assert_eq!(self.entries, fresh.entries);
        debug_assert_eq!(self.idles, fresh.idles);
        debug_assert_eq!(self.tiers, fresh.tiers);
        debug_assert!(
            fresh
                .due
                .is_none_or(|due| self.due.is_some_and(|known| known <= due)),
            "no deadline is missed"
        );
    }
}

fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// The state of a peer at `now`, and when time alone may change it.
fn look(
    route: &RouteSpec,
    peer: &PeerSpec,
    fixed: Fixed,
    state: &PeerState,
    now: Instant,
) -> (CandidateEntry, IdleSince, Option<Instant>) {
    let freshness = freshness(route, state, now);
    let is_banned = state.ban.is_active(now);
    let is_readable = freshness.is_none_or(Freshness::is_candidate);
    let serves = peer.enabled && !is_banned && is_readable;
    let access = state.health.access(now);
    let takes_new = access.takes_new();
    let load = load(route, peer, state, freshness);
    let most = most(load.slots, route.rt_limit_factor);
    let counted = state.in_flight.max(load.in_flight.min(most));
    let load = under(access, load);
    let entry = CandidateEntry {
        load,
        counted,
        fixed,
        is_usable: serves && takes_new && !peer.draining,
        may_keep: serves && access != Access::Closed,
        // A held peer takes its single request only when no other peer has room.
        has_room: load.has_room(route.rt_limit_factor) && freshness != Some(Freshness::Held),
        is_suspect: serves && access == Access::Warm && !peer.draining,
        is_reserve: serves && !takes_new && !peer.draining,
    };
    let (idle, stands_until) = match &route.load {
        Some(rules) => (
            state.reading.idle_since(load.in_flight),
            state.reading.stands_until(rules, state.in_flight, now),
        ),
        None => (IdleSince::Busy, None),
    };
    let due = earlier(state.ban.until(now), stands_until);
    (entry, idle, earlier(due, state.health.due(now)))
}

/// A peer's load as its health limits it: a peer that is being probed takes one request, whatever
/// still runs there; a returning peer has a part of its slots.
fn under(access: Access, load: Load) -> Load {
    match access {
        Access::Open | Access::Warm | Access::Closed => load,
        Access::One => Load {
            in_flight: 0,
            slots: Slots(1),
        },
        Access::Ramp(tenths) => {
            let slots = u64::from(load.slots.0) * u64::from(tenths);
            Load {
                slots: Slots(slots.div_ceil(10).max(1) as u32),
                ..load
            }
        }
    }
}

/// Whether the reading of the peer's load allows new requests.
pub(super) fn is_readable(route: &RouteSpec, state: &PeerState, now: Instant) -> bool {
    freshness(route, state, now).is_none_or(Freshness::is_candidate)
}

/// Freshness of a peer's reading; `None` where the route does not poll.
pub(super) fn freshness(route: &RouteSpec, state: &PeerState, now: Instant) -> Option<Freshness> {
    let rules = route.load.as_ref()?;
    Some(state.reading.freshness(rules, state.in_flight, now))
}

pub(super) fn load(
    route: &RouteSpec,
    peer: &PeerSpec,
    state: &PeerState,
    freshness: Option<Freshness>,
) -> Load {
    let slots = slots(peer, state);
    let own = state.in_flight;
    let (Some(rules), Some(freshness)) = (&route.load, freshness) else {
        return Load {
            in_flight: own,
            slots,
        };
    };
    let load = state.reading.load(rules, freshness, own, slots.0);
    if freshness == Freshness::Held && own == 0 && !state.reading.shows_saturation() {
        // Requests of others keep the peer busy. One request of ours may wait there. Otherwise one
        // long prefill that blocks the metrics page would refuse all requests.
        let most = most(slots, route.rt_limit_factor);
        return Load {
            in_flight: most.saturating_sub(1),
            slots,
        };
    }
    let in_flight = match state.reading.is_saturated(freshness) {
        // The peer has no room, whatever its slots and the factor that scales them.
        true => load.max(most(slots, route.rt_limit_factor)),
        false => load,
    };
    Load { in_flight, slots }
}

/// How many requests a peer runs at once, as far as known.
pub(super) fn slots(peer: &PeerSpec, state: &PeerState) -> Slots {
    match state.learned {
        Some(learned) if peer.learns_slots => Slots(learned),
        _ => peer.slots,
    }
}

/// A peer's own maximum.
fn most(slots: Slots, factor: f64) -> u32 {
    if factor == 1.0 {
        return slots.0;
    }
    let most = concurrency::ceiling(f64::from(slots.0), factor);
    u32::try_from(most).unwrap_or(u32::MAX)
}
