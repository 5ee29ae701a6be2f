//! One pool at one moment, and the choices made over it. Reads everything, changes nothing.

use std::time::{Duration, Instant};

use rand::Rng;

use super::pool::PoolState;
use super::roster::Roster;
use super::{Ask, PeerState, Ticket};
use crate::admission::Refusal;
use crate::affinity::sticky::Seat;
use crate::affinity::{Affinity, Hash, Saturated, furc, hash};
use crate::balance::Contender;
use crate::book::table::Table;
use crate::decision::{Facts, Home, HomeState, Mode, PeerFacts};
use crate::load::{Idle, Standing};
use crate::pool::{Capacity, Load, PeerKey, PeerNow, PeerSpec, RouteSpec, Slots};

/// Load bound of prefixes where the route sets none: a quarter above the mean keeps most hits and
/// keeps one popular beginning from filling one engine.
const PREFIX_LOAD_FACTOR: f64 = 1.25;

/// A pool's configuration joined with the state of its peers at `now`.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    route: &'a RouteSpec,
    specs: &'a [PeerSpec],
    /// Slot of each peer, file order.
    slots: &'a [u32],
    states: &'a Table<PeerKey, PeerState>,
    pool: &'a PoolState,
    /// The peers that may be chosen for the request's model, ascending; `None`: all.
    pin: Option<&'a [usize]>,
    now: Instant,
}

/// What [`View::place`] settled; nothing is counted yet.
#[derive(Clone, Copy)]
pub(super) struct Pick {
    pub(super) peer: usize,
    pub(super) mode: Mode,
    pub(super) facts: Facts,
    /// Whether the peer was found by `balance`.
    pub(super) balanced: bool,
}

impl<'a> View<'a> {
    pub(super) fn new(
        roster: &'a Roster,
        pool: usize,
        states: &'a Table<PeerKey, PeerState>,
        memory: &'a PoolState,
        pin: Option<&'a [usize]>,
        now: Instant,
    ) -> Self {
        Self {
            route: &roster.spec,
            specs: &roster.spec.pools[pool].peers,
            slots: &roster.members[pool].peers,
            states,
            pool: memory,
            pin,
            now,
        }
    }

    /// The same pool for a request of any model.
    pub(super) fn unpinned(self) -> Self {
        Self { pin: None, ..self }
    }

    /// The same pool for a request that only these peers may serve, indices ascending.
    pub(super) fn pinned(self, pin: &'a [usize]) -> Self {
        Self {
            pin: Some(pin),
            ..self
        }
    }

    /// Chooses for a request that was admitted with `facts`: its session's peer, else by its prefix,
    /// else by `balance`.
    pub(super) fn place(&self, facts: Facts, ask: &Ask<'_>, rng: &mut impl Rng) -> Pick {
        let tier = facts.tier;
        let mut facts = Facts {
            pinned: self.pin.map(|pin| pin.len() as u32),
            ..facts
        };
        let (peer, mode) = match (ask.session, self.route.affinity) {
            (None, _) | (Some(_), Affinity::None) => self.for_nobody(&mut facts, ask, rng),
            (Some(session), Affinity::Sticky) => self.by_seat(session, ask.key, tier),
            (Some(session), Affinity::Hash { .. }) => {
                self.by_hash(&mut facts, session, ask.key, rng)
            }
        };
        let load = self.at(peer).load;
        facts.peer_in_flight = load.in_flight;
        facts.peer_slots = load.slots.0;
        facts.peer_sessions = self
            .route
            .remembers_sessions()
            .then(|| self.pool.sessions.count(self.slots[peer]));
        Pick {
            peer,
            mode,
            facts,
            balanced: matches!(
                mode,
                Mode::HashFallback
                    | Mode::Pin
                    | Mode::LeastConn
                    | Mode::LeastBusy
                    | Mode::RoundRobin
                    | Mode::IdleAware
                    | Mode::PowerOfTwo
            ),
        }
    }

    /// A request that no session places.
    fn for_nobody(&self, facts: &mut Facts, ask: &Ask<'_>, rng: &mut impl Rng) -> (usize, Mode) {
        if let Some((peer, bytes)) = self.by_prefix(ask, facts.tier) {
            facts.prefix_bytes = Some(bytes);
            return (peer, Mode::Prefix);
        }
        let mode = match self.pin {
            Some(_) => Mode::Pin,
            None => self.route.balance.into(),
        };
        (self.balance(facts.tier, rng), mode)
    }

    /// The peer of the longest known prefix, while it has room and no more than its share: at least
    /// half of the request must be known, so that a beginning that all share decides nothing.
    fn by_prefix(&self, ask: &Ask<'_>, tier: i64) -> Option<(usize, u64)> {
        let whole = ask.prefix.last()?.bytes;
        if !self.route.memory.prefixes || ask.session.is_some() {
            return None;
        }
        let factor = self.route.memory.load_factor_max;
        let bound = self.load_bound(tier, factor.unwrap_or(PREFIX_LOAD_FACTOR));
        let accepts = |slot: u32| {
            self.index_of(slot).is_some_and(|index| {
                let peer = self.at(index);
                peer.is_usable()
                    && peer.priority == tier
                    && peer.load.has_room(self.route.rt_limit_factor)
                    && peer.load.in_flight < bound
            })
        };
        let found = self.pool.prefixes.longest(ask.prefix, accepts)?;
        let index = self.index_of(found.peer)?;
        (found.bytes * 2 >= whole).then_some((index, found.bytes))
    }

    /// `sticky_least_loaded`: where the session lives, even above the peer's own maximum; else the
    /// peer with the fewest sessions.
    fn by_seat(&self, session: &[u8], key: Option<&[u8]>, tier: i64) -> (usize, Mode) {
        if let Some(index) = key.and_then(|key| self.seat(key, tier)) {
            return (index, Mode::Sticky);
        }
        let offered = self.within_bound(tier);
        // What is left of the session itself (it expired, or its peer is out) counts for nobody.
        let left = key.and_then(|key| self.pool.sessions.find(key, Duration::MAX, self.now));
        let fewest = |index: usize| {
            let slot = self.slots[index];
            let own = left.is_some_and(|seat| seat.peer == slot);
            self.pool.sessions.count(slot) - u32::from(own)
        };
        let least = offered.clone().map(|(index, _)| fewest(index)).min();
        let mut tied = offered.filter(|(index, _)| Some(fewest(*index)) == least);
        let first = tied.next().expect("the active tier has a usable peer").0;
        let Some((second, _)) = tied.next() else {
            return (first, Mode::StickyNew);
        };
        // Hashed once per tied peer, for a new session only; the earlier wins equal weights.
        let weight = |index: usize| furc::weight(session, &self.specs[index].url);
        let mut best = (first, weight(first));
        for index in std::iter::once(second).chain(tied.map(|(index, _)| index)) {
            let weight = weight(index);
            if weight > best.1 {
                best = (index, weight);
            }
        }
        (best.0, Mode::StickyNew)
    }

    /// `hash`: the session's home. With a load bound the pool remembers sessions, so that one that was
    /// placed elsewhere while its home was hot stays where its cache is.
    fn by_hash(
        &self,
        facts: &mut Facts,
        session: &[u8],
        key: Option<&[u8]>,
        rng: &mut impl Rng,
    ) -> (usize, Mode) {
        let tier = facts.tier;
        let home = self.home(session, tier);
        facts.home = home;
        let Some(home) = home else {
            return (self.balance(tier, rng), Mode::HashFallback);
        };
        let at_home = home.index as usize;
        let seat = key
            .filter(|_| self.route.remembers_sessions())
            .and_then(|key| self.seat(key, tier));
        if let Some(index) = seat.filter(|index| *index != at_home)
            && self.at(index).load.has_room(self.route.rt_limit_factor)
        {
            return (index, Mode::HashFallback);
        }
        let is_new = seat.is_none();
        let is_hot =
            self.route.memory.load_factor_max.is_some_and(|factor| {
                self.at(at_home).load.in_flight >= self.load_bound(tier, factor)
            });
        if self.stays_home(home.state) && !(is_new && is_hot) {
            return (at_home, Mode::Hash);
        }
        (self.balance(tier, rng), Mode::HashFallback)
    }

    /// Where a session lives, if that may still serve it. Draining peers keep their sessions.
    fn seat(&self, key: &[u8], tier: i64) -> Option<usize> {
        let Seat { peer, .. } =
            self.pool
                .sessions
                .find(key, self.route.memory.session_ttl, self.now)?;
        let index = self.index_of(peer)?;
        let peer = self.at(index);
        (peer.enabled && !peer.banned && peer.priority == tier).then_some(index)
    }

    fn index_of(&self, slot: u32) -> Option<usize> {
        self.slots.iter().position(|other| *other == slot)
    }

    /// Load from which on a peer of the tier is above its share: `ceil(factor × (total + 1) ÷ peers)`
    /// (Mirrokni, Thorup and Zadimoghaddam, "Consistent Hashing with Bounded Loads", 2018). One more
    /// request never takes a peer beyond it while another is below.
    fn load_bound(&self, tier: i64, factor: f64) -> u32 {
        let (mut total, mut count) = (0_u64, 0_u32);
        for (_, peer) in self.candidates(tier) {
            total += u64::from(peer.load.in_flight);
            count += 1;
        }
        let share = (total + 1) as f64 / f64::from(count.max(1));
        // A cast beyond the range saturates.
        (factor * share).ceil() as u32
    }

    /// The next peer of a request whose attempt on `ticket`'s peer failed: of its tier first, then,
    /// where allowed, one of each lower tier, the higher tiers first. Within a tier the
    /// smallest load ÷ slots, which puts peers with room before full ones (a peer is full when
    /// that reaches `rt_limit_factor`), then file order.
    pub(super) fn next(&self, ticket: &Ticket, tried: &[usize]) -> Option<usize> {
        let was_tried = |index: usize| index == ticket.peer || tried.contains(&index);
        // A lower tier gives one peer per request, whatever has changed since that one was tried.
        let is_spent = |tier: i64| {
            self.iter()
                .any(|(i, peer)| peer.priority == tier && was_tried(i))
        };
        let may_go = |peer: PeerNow| {
            peer.priority == ticket.tier
                || (self.route.cross_tier_fallback
                    && peer.priority < ticket.tier
                    && !is_spent(peer.priority))
        };
        let next = self
            .iter()
            .filter(|(index, peer)| peer.is_usable() && !was_tried(*index) && may_go(*peer))
            .min_by(|(_, one), (_, other)| {
                let by_tier = other.priority.cmp(&one.priority);
                by_tier.then_with(|| one.load.cmp_ratio(other.load))
            })?;
        Some(next.0)
    }

    /// Every peer as it is now, file order, with its weight for `session`.
    pub(super) fn peer_facts(&self, session: Option<&[u8]>) -> Vec<PeerFacts> {
        let tier = self.capacity().map(|capacity| capacity.tier);
        let facts = |(index, peer): (usize, PeerNow)| {
            let (spec, state) = (&self.specs[index], self.state(index));
            let left = state.ban.left(self.now);
            PeerFacts {
                peer: spec.key.clone(),
                name: spec.name.to_string(),
                priority: peer.priority,
                in_flight: state.in_flight,
                slots: peer.load.slots.0,
                enabled: peer.enabled,
                banned: state.ban.is_active(self.now),
                ban_left_s: left.map(|left| left.as_secs_f64().ceil() as u64),
                load: self.route.load.map(|_| peer.load.in_flight),
                standing: self.standing(state),
                sessions: self
                    .route
                    .remembers_sessions()
                    .then(|| self.pool.sessions.count(self.slots[index])),
                candidate: peer.is_usable() && Some(peer.priority) == tier,
                score: session
                    .and_then(|session| hash::weight(self.hash()?.0, session, spec.key.as_str())),
            }
        };
        self.iter().map(facts).collect()
    }

    pub(super) fn capacity(&self) -> Option<Capacity> {
        Capacity::of_active_tier(self.iter().map(|(_, peer)| peer))
    }

    /// Load over the active tier's usable peers; 0 without any.
    pub(super) fn in_flight(&self) -> u64 {
        self.capacity().map_or(0, |capacity| capacity.in_flight)
    }

    /// Every peer with its index, file order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, PeerNow)> + Clone {
        (0..self.specs.len()).map(|index| (index, self.at(index)))
    }

    /// The usable peers of a tier.
    fn candidates(&self, tier: i64) -> impl Iterator<Item = (usize, PeerNow)> + Clone {
        self.iter()
            .filter(move |(_, peer)| peer.is_usable() && peer.priority == tier)
    }

    #[inline]
    fn at(&self, index: usize) -> PeerNow {
        let (spec, state) = (&self.specs[index], self.state(index));
        let standing = self.standing(state);
        let is_pinned = self.pin.is_none_or(|pin| pin.binary_search(&index).is_ok());
        PeerNow {
            priority: spec.priority,
            load: self.load(spec, state, standing),
            enabled: spec.enabled,
            banned: state.ban.is_active(self.now)
                || !is_pinned
                || standing.is_some_and(|standing| !standing.is_candidate()),
            draining: spec.draining,
        }
    }

    fn standing(&self, state: &PeerState) -> Option<Standing> {
        let spec = self.route.load.as_ref()?;
        Some(state.reading.standing(spec, state.in_flight, self.now))
    }

    fn load(&self, spec: &PeerSpec, state: &PeerState, standing: Option<Standing>) -> Load {
        let slots = match state.learned {
            Some(learned) if spec.learns_slots => Slots(learned),
            _ => spec.slots,
        };
        let (Some(rules), Some(standing)) = (&self.route.load, standing) else {
            return Load {
                in_flight: state.in_flight,
                slots,
            };
        };
        let own = state.in_flight;
        let load = state.reading.load(rules, standing, own, slots.0);
        let is_full = state.reading.is_full(rules, standing, own, slots.0);
        Load {
            // An engine that says it is full has no room, whatever its slots.
            in_flight: if is_full { load.max(slots.0) } else { load },
            slots,
        }
    }

    #[inline]
    fn state(&self, index: usize) -> &PeerState {
        self.states.get(self.slots[index])
    }

    pub(super) fn no_healthy_peer(&self) -> Refusal {
        let banned = (0..self.specs.len())
            .filter(|index| self.state(*index).ban.is_active(self.now))
            .count();
        Refusal::NoHealthyPeer {
            peers: self.specs.len() as u32,
            banned: banned as u32,
        }
    }

    fn hash(&self) -> Option<(Hash, Saturated)> {
        match self.route.affinity {
            Affinity::None | Affinity::Sticky => None,
            Affinity::Hash { hash, saturated } => Some((hash, saturated)),
        }
    }

    /// Where the session lives. With `crc32` a banned peer keeps its place in the list, so that a
    /// ban moves nobody but its own sessions. A draining peer is nobody's home.
    fn home(&self, session: &[u8], tier: i64) -> Option<Home> {
        let (hash, _) = self.hash()?;
        let residents = self.iter().filter(move |(_, peer)| {
            peer.priority == tier
                && peer.enabled
                && (hash == Hash::Crc32 || !(peer.banned || peer.draining))
        });
        let keys = residents
            .clone()
            .map(|(index, _)| self.specs[index].key.as_str());
        let (nth, score) = hash::home(hash, session, keys)?;
        let (index, peer) = residents.clone().nth(nth)?;
        let state = if peer.banned || peer.draining {
            HomeState::Banned
        } else if peer.load.has_room(self.route.rt_limit_factor) {
            HomeState::Usable
        } else {
            HomeState::Saturated
        };
        Some(Home {
            hash,
            index: index as u32,
            score,
            state,
        })
    }

    fn stays_home(&self, state: HomeState) -> bool {
        match state {
            HomeState::Usable => true,
            HomeState::Banned => false,
            HomeState::Saturated => self
                .hash()
                .is_some_and(|(_, saturated)| saturated == Saturated::Keep),
        }
    }

    /// The tier's usable peers, and of those only the ones with room while any has room.
    fn offered(&self, tier: i64) -> impl Iterator<Item = (usize, PeerNow)> + Clone {
        let factor = self.route.rt_limit_factor;
        let any_room = self
            .candidates(tier)
            .any(|(_, peer)| peer.load.has_room(factor));
        self.candidates(tier)
            .filter(move |(_, peer)| peer.load.has_room(factor) == any_room)
    }

    /// The offered peers below the load bound, while any is.
    fn within_bound(&self, tier: i64) -> impl Iterator<Item = (usize, PeerNow)> + Clone {
        let bound = match self.route.memory.load_factor_max {
            Some(factor) => self.load_bound(tier, factor),
            None => u32::MAX,
        };
        let any_below = self
            .offered(tier)
            .any(|(_, peer)| peer.load.in_flight < bound);
        self.offered(tier)
            .filter(move |(_, peer)| (peer.load.in_flight < bound) == any_below)
    }

    fn balance(&self, tier: i64, rng: &mut impl Rng) -> usize {
        let contender = |(index, peer): (usize, PeerNow)| {
            let (spec, state) = (&self.specs[index], self.state(index));
            Contender {
                index,
                load: peer.load,
                idle: match self.route.load {
                    Some(_) => state.reading.idle(peer.load.in_flight, self.now),
                    None => Idle::Busy,
                },
                weight: spec.weight,
                name: &spec.name,
            }
        };
        let offered = self.offered(tier).map(contender);
        self.route
            .balance
            .pick(offered, self.route.normalize, self.pool.turn, rng)
            .expect("the active tier has a usable peer")
    }
}
