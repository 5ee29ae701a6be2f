//! A pool's peers as a decision sees them, kept current instead of being looked up anew.
//!
//! A decision goes over the peers of a pool several times, and most of what it looks at changes only
//! when something happens to a peer: a request begins or ends there, a poll or a probe reports. Each
//! such event looks at its own peer again. What time alone changes (a ban ends, a reading grows old)
//! has a deadline; past the earliest one the whole lineup is made anew.

use std::time::Instant;

use super::PeerState;
use super::resolved_route::{Fixed, Resolved};
use super::table::Table;
use crate::admission::concurrency;
use crate::load::{Rest, Standing};
use crate::pool::{Load, PeerKey, PeerSpec, Role, RouteSpec, Slots};

/// Every peer of one pool of one roster, as requests of one role see them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct CandidateSet {
    /// Index = peer, file order. Empty before the first look.
    seats: Vec<CandidateEntry>,
    /// Index = peer; apart from the seats because few policies ask.
    rests: Vec<Rest>,
    /// Sums over each tier's usable peers, by the tier's rank.
    tiers: Vec<Room>,
    /// The first instant at which time alone may have changed something.
    due: Option<Instant>,
    is_made: bool,
    /// The last look, for the check of the invariants.
    seen: Option<Instant>,
}

/// One peer at the moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct CandidateEntry {
    pub(super) load: Load,
    /// What it adds to the pool's in-flight: our requests, and others' up to its own maximum. A queue
    /// of theirs on one engine takes no room from the next one.
    pub(super) counted: u32,
    /// Its tier and its place among equally loaded peers.
    pub(super) fixed: Fixed,
    /// It may get any request.
    pub(super) is_usable: bool,
    /// It may serve those who live there: usable, or draining.
    pub(super) may_keep: bool,
    /// It is under its own maximum.
    pub(super) has_room: bool,
}

/// The usable peers of one tier, or of those that a request may go to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Room {
    pub(super) peers: u32,
    /// Of these, how many are under their own maximum.
    pub(super) with_room: u32,
    pub(super) limit: u64,
    pub(super) in_flight: u64,
    /// Requests on them, whoever sent them.
    pub(super) load: u64,
}

impl CandidateEntry {
    /// A peer that the requests of this role never see.
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
        }
    }
}

impl Room {
    #[inline]
    pub(super) fn add(&mut self, seat: CandidateEntry) {
        if seat.is_usable {
            self.peers += 1;
            self.with_room += u32::from(seat.has_room);
            self.limit += u64::from(seat.load.slots.0);
            self.in_flight += u64::from(seat.counted);
            self.load += u64::from(seat.load.in_flight);
        }
    }

    #[inline]
    fn take(&mut self, seat: CandidateEntry) {
        if seat.is_usable {
            self.peers -= 1;
            self.with_room -= u32::from(seat.has_room);
            self.limit -= u64::from(seat.load.slots.0);
            self.in_flight -= u64::from(seat.counted);
            self.load -= u64::from(seat.load.in_flight);
        }
    }
}

impl CandidateSet {
    /// A look at every peer.
    pub(super) fn new(
        roster: &Resolved,
        (pool, role): (usize, Role),
        states: &Table<PeerKey, PeerState>,
        now: Instant,
    ) -> Self {
        let mut lineup = Self::default();
        lineup.make(roster, (pool, role), states, now);
        lineup
    }

    /// Whether it shows the peers as they are at `now`.
    #[inline]
    pub(super) fn is_current(&self, now: Instant) -> bool {
        self.is_made && self.due.is_none_or(|due| now < due)
    }

    /// When time alone may next change something; `None` also before the first look.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due.filter(|_| self.is_made)
    }

    /// Looks at every peer again. Allocates the first time only.
    pub(super) fn make(
        &mut self,
        roster: &Resolved,
        (pool, role): (usize, Role),
        states: &Table<PeerKey, PeerState>,
        now: Instant,
    ) {
        let members = &roster.members[pool];
        let specs = &roster.spec.pools[pool].peers;
        self.seats.clear();
        self.rests.clear();
        self.tiers.clear();
        self.tiers.resize(members.tiers.len(), Room::default());
        (self.due, self.is_made, self.seen) = (None, true, Some(now));
        for (index, peer) in specs.iter().enumerate() {
            let (state, fixed) = (states.get(members.peers[index]), members.fixed[index]);
            if peer.role != role {
                self.seats.push(CandidateEntry::of_another_role(fixed));
                self.rests.push(Rest::Busy);
                continue;
            }
            let (seat, rest, due) = look(&roster.spec, peer, fixed, state, now);
            self.tiers[seat.fixed.tier as usize].add(seat);
            self.seats.push(seat);
            self.rests.push(rest);
            self.due = earlier(self.due, due);
        }
    }

    /// Looks at one peer again, to which something has happened.
    pub(super) fn touch(
        &mut self,
        roster: &Resolved,
        pool: usize,
        index: usize,
        state: &PeerState,
        now: Instant,
    ) {
        if !self.is_made {
            return;
        }
        let (peer, fixed) = (
            &roster.spec.pools[pool].peers[index],
            roster.members[pool].fixed[index],
        );
        let (seat, rest, due) = look(&roster.spec, peer, fixed, state, now);
        let before = std::mem::replace(&mut self.seats[index], seat);
        self.rests[index] = rest;
        let tier = &mut self.tiers[fixed.tier as usize];
        tier.take(before);
        tier.add(seat);
        self.due = earlier(self.due, due);
        self.seen = self.seen.max(Some(now));
    }

    /// Makes the next look one at every peer.
    pub(super) fn forget(&mut self) {
        self.is_made = false;
    }

    #[inline]
    pub(super) fn seats(&self) -> &[CandidateEntry] {
        &self.seats
    }

    #[inline]
    pub(super) fn rests(&self) -> &[Rest] {
        &self.rests
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

    /// The largest sum of slots that the usable peers of any one tier have.
    pub(super) fn largest_tier_sum(&self) -> u64 {
        let limits = self.tiers.iter().map(|room| room.limit);
        limits.max().unwrap_or(0)
    }

    /// Debug-asserts that a look at every peer would find the same.
    pub(super) fn check(
        &self,
        roster: &Resolved,
        place: (usize, Role),
        states: &Table<PeerKey, PeerState>,
    ) {
        let Some(seen) = self.seen.filter(|seen| self.is_current(*seen)) else {
            return;
        };
        let fresh = Self::new(roster, place, states, seen);
        debug_assert_eq!(self.seats, fresh.seats);
        debug_assert_eq!(self.rests, fresh.rests);
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

/// A peer at `now`, and when time alone may change that.
fn look(
    route: &RouteSpec,
    peer: &PeerSpec,
    fixed: Fixed,
    state: &PeerState,
    now: Instant,
) -> (CandidateEntry, Rest, Option<Instant>) {
    let standing = standing(route, state, now);
    let is_banned = state.ban.is_active(now);
    let is_readable = standing.is_none_or(Standing::is_candidate);
    let may_keep = peer.enabled && !is_banned && is_readable;
    let load = load(route, peer, state, standing);
    let most = most(load.slots, route.rt_limit_factor);
    let seat = CandidateEntry {
        load,
        counted: state.in_flight.max(load.in_flight.min(most)),
        fixed,
        is_usable: may_keep && !peer.draining,
        may_keep,
        has_room: load.has_room(route.rt_limit_factor),
    };
    let (rest, stands_until) = match &route.load {
        Some(rules) => (
            state.reading.rest(load.in_flight),
            state.reading.stands_until(rules, state.in_flight, now),
        ),
        None => (Rest::Busy, None),
    };
    (seat, rest, earlier(state.ban.until(now), stands_until))
}

/// What a peer's reading is worth; `None` where nothing is polled.
pub(super) fn standing(route: &RouteSpec, state: &PeerState, now: Instant) -> Option<Standing> {
    let rules = route.load.as_ref()?;
    Some(state.reading.standing(rules, state.in_flight, now))
}

pub(super) fn load(
    route: &RouteSpec,
    peer: &PeerSpec,
    state: &PeerState,
    standing: Option<Standing>,
) -> Load {
    let slots = slots(peer, state);
    let own = state.in_flight;
    let (Some(rules), Some(standing)) = (&route.load, standing) else {
        return Load {
            in_flight: own,
            slots,
        };
    };
    let load = state.reading.load(rules, standing, own, slots.0);
    let in_flight = match state.reading.is_saturated(standing) {
        // It has no room, whatever its slots and the factor that scales them.
        true => load.max(most(slots, route.rt_limit_factor)),
        false => load,
    };
    Load { in_flight, slots }
}

/// How many requests a peer runs at once, as far as that is known.
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
