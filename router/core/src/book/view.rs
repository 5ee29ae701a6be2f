//! One pool at one moment, and the choices over its peers. Reads everything and changes nothing.

use std::borrow::Cow;
use std::time::{Duration, Instant};

use rand::Rng;

use super::candidate_set::{CandidateEntry, CandidateSet, Room, freshness, load};
use super::pool::PoolState;
use super::resolved_route::{PoolMembers, ResolvedRoute};
use super::{PeerState, PlacementRequest, PoolId, Ticket};
use crate::admission::{Refusal, concurrency};
use crate::affinity::sid::Sid;
use crate::affinity::sticky::{Binding, Sessions};
use crate::affinity::{Affinity, Hash, Saturated, consistent_hash, hash};
use crate::balance::{Candidate, Terms};
use crate::book::table::Table;
use crate::decision::{Facts, Home, HomeState, Mode, PeerFacts};
use crate::load::Freshness;
use crate::pool::{Capacity, PeerKey, PeerSpec, Role, RouteSpec};

/// Load bound of prefix placement where the route sets none. A quarter above the mean keeps most
/// hits, and keeps one popular beginning from filling one engine.
const PREFIX_LOAD_FACTOR: f64 = 1.25;

/// A pool's configuration combined with the state of its peers at `now`.
pub(super) struct View<'a> {
    resolved: &'a ResolvedRoute,
    route: &'a RouteSpec,
    /// Index of the pool.
    index: usize,
    role: Role,
    specs: &'a [PeerSpec],
    members: &'a PoolMembers,
    states: &'a Table<PeerKey, PeerState>,
    pool: &'a PoolState,
    candidate_set: Cow<'a, CandidateSet>,
    /// The peers that may serve the request's model, indices ascending; `None`: all.
    pin: Option<&'a [usize]>,
    /// The highest tier that has a peer for the request.
    active: Option<Active>,
    now: Instant,
}

/// The tier in which requests are placed.
#[derive(Clone, Copy)]
struct Active {
    /// Index of the tier.
    tier: u32,
    /// Room of those of its peers that the request may go to.
    room: Room,
}

/// The result of [`View::place`], before anything is counted.
#[derive(Clone, Copy)]
pub(super) struct Pick {
    pub(super) peer: usize,
    pub(super) mode: Mode,
    pub(super) facts: Facts,
    /// Whether the choice used up a turn of the pool's policy.
    pub(super) takes_turn: bool,
}

/// Number of peers that cannot be chosen, by reason.
#[derive(Clone, Copy, Default)]
struct PeersOut {
    banned: u32,
    stale: u32,
    ejected: u32,
    draining: u32,
}

/// A chosen peer and how it was found.
#[derive(Clone, Copy)]
struct Found {
    peer: usize,
    mode: Mode,
    takes_turn: bool,
}

impl Found {
    /// Found without the pool's policy.
    fn at(peer: usize, mode: Mode) -> Self {
        Self {
            peer,
            mode,
            takes_turn: false,
        }
    }
}

impl<'a> View<'a> {
    pub(super) fn new(
        resolved: &'a ResolvedRoute,
        (PoolId(index), role): (PoolId, Role),
        states: &'a Table<PeerKey, PeerState>,
        memory: &'a PoolState,
        candidate_set: Cow<'a, CandidateSet>,
        now: Instant,
    ) -> Self {
        let active = candidate_set.active_tier();
        Self {
            resolved,
            route: &resolved.spec,
            index,
            role,
            specs: &resolved.spec.pools[index].peers,
            members: &resolved.members[index],
            states,
            pool: memory,
            candidate_set,
            pin: None,
            active: active.map(|(tier, room)| Active { tier, room }),
            now,
        }
    }

    /// The same pool for a request that only these peers may serve, indices ascending. When none of
    /// them is usable and the request `falls_back`, any peer may serve it.
    pub(super) fn pinned(self, pin: &'a [usize], falls_back: bool) -> Self {
        let entries = self.candidate_set.entries();
        let mut active: Option<Active> = None;
        for entry in pin.iter().filter_map(|index| entries.get(*index)) {
            if !entry.is_usable {
                continue;
            }
            let tier = entry.fixed.tier;
            if active.is_none_or(|active| tier < active.tier) {
                let room = Room::default();
                active = Some(Active { tier, room });
            }
            if let Some(active) = active.as_mut().filter(|active| active.tier == tier) {
                active.room.add(*entry);
            }
        }
        if active.is_none() && falls_back {
            return self;
        }
        Self {
            pin: Some(pin),
            active,
            ..self
        }
    }

    /// When no peer takes new requests, a session that lives on a draining or suspect peer still
    /// may: such peers of its tier serve it to its end.
    pub(super) fn admit_bound_session(&mut self, request: &PlacementRequest<'_>) {
        if self.active.is_some() {
            return;
        }
        let bound_peer = request
            .session
            .and(request.key)
            .and_then(|key| self.bound_peer(key));
        let Some(bound_peer) = bound_peer else { return };
        let tier = self.candidate_set.entries()[bound_peer].fixed.tier;
        let mut room = Room::default();
        for (index, entry) in self.candidate_set.entries().iter().enumerate() {
            if entry.may_keep && entry.fixed.tier == tier && self.is_pinned(index) {
                room.add(CandidateEntry {
                    is_usable: true,
                    ..*entry
                });
            }
        }
        self.active = Some(Active { tier, room });
    }

    /// Chooses a peer for a request that was admitted with `facts`: the peer of its session, else
    /// the peer of its prefix, else the choice of `balance`.
    pub(super) fn place(
        &self,
        facts: Facts,
        request: &PlacementRequest<'_>,
        rng: &mut impl Rng,
    ) -> Pick {
        let active = self
            .active
            .expect("a request is admitted to an active tier");
        let mut facts = Facts {
            pinned: self.pin.map(|pin| pin.len() as u32),
            ..facts
        };
        let Found {
            peer,
            mode,
            takes_turn,
        } = match (request.session, self.route.affinity) {
            (None, _) | (Some(_), Affinity::None) => {
                self.for_nobody(active, &mut facts, request, rng)
            }
            (Some(session), Affinity::Sticky) => {
                self.by_binding(active, Sid::new(session).with(request.hashed), request.key)
            }
            (Some(session), Affinity::Hash { hash, saturated }) => {
                let sid = Sid::new(session).with(request.hashed);
                let home = self.home(active, hash, sid, request.key);
                facts.home = home;
                self.by_hash(active, home, saturated, request.key, rng)
            }
        };
        let load = self.candidate_set.entries()[peer].load;
        facts.peer_in_flight = load.in_flight;
        facts.peer_slots = load.slots.0;
        facts.peer_sessions = self
            .route
            .remembers_sessions()
            .then(|| self.sessions().count(self.members.peers[peer]));
        Pick {
            peer,
            mode,
            facts,
            takes_turn,
        }
    }

    /// Chooses for a request that no session places.
    fn for_nobody(
        &self,
        active: Active,
        facts: &mut Facts,
        request: &PlacementRequest<'_>,
        rng: &mut impl Rng,
    ) -> Found {
        if let Some((peer, bytes)) = self.by_prefix(active, request) {
            facts.prefix_bytes = Some(bytes);
            return Found::at(peer, Mode::Prefix);
        }
        let mode = match self.pin {
            Some(pin) if self.leaves_out(pin) => Mode::Pin,
            // If every engine serves the model, `balance` alone has chosen.
            _ => Mode::Balance(self.route.balance),
        };
        self.balance(active, mode, rng)
    }

    /// The peer of the longest known prefix, while it has room and no more than its share of the
    /// load. At least half of the request must be known, so that a beginning that all requests
    /// share does not decide.
    fn by_prefix(&self, active: Active, request: &PlacementRequest<'_>) -> Option<(usize, u64)> {
        let whole = request.prefix.last()?.bytes;
        if !self.route.memory.prefixes || request.session.is_some() {
            return None;
        }
        let factor = self.route.memory.load_factor_max;
        let bound = load_bound(active, factor.unwrap_or(PREFIX_LOAD_FACTOR));
        let accepts = |slot: u32| {
            self.index_of(slot).is_some_and(|index| {
                let entry = self.candidate_set.entries()[index];
                entry.is_usable
                    && self.is_pinned(index)
                    && entry.fixed.tier == active.tier
                    && entry.has_room
                    && entry.load.in_flight < bound
            })
        };
        let found = self.pool.prefixes.longest(request.prefix, accepts)?;
        let index = self.index_of(found.peer)?;
        (found.bytes * 2 >= whole).then_some((index, found.bytes))
    }

    /// `sticky_least_loaded`: the peer on which the session lives, even above that peer's own
    /// maximum; else the peer with the fewest sessions.
    fn by_binding(&self, active: Active, session: Sid<'_>, key: Option<&[u8]>) -> Found {
        if let Some(index) = key.and_then(|key| self.entry(active, key)) {
            return Found::at(index, Mode::Sticky);
        }
        // A leftover entry of the session itself (expired, or its peer is out) does not count for
        // any peer.
        let left = key.and_then(|key| self.sessions().find(key, Duration::MAX, self.now));
        let offered = self.within_bound(active).map(|(index, _)| {
            let slot = self.members.peers[index];
            let own = left.is_some_and(|entry| entry.peer == slot);
            (index, self.sessions().count(slot) - u32::from(own))
        });
        let least = offered.clone().map(|(_, sessions)| sessions).min();
        let mut tied = offered.filter(|(_, sessions)| Some(*sessions) == least);
        let first = tied.next().expect("the active tier has a usable peer").0;
        let Some((second, _)) = tied.next() else {
            return Found::at(first, Mode::StickyNew);
        };
        // Hashes once per tied peer, and only for a new session. The earlier peer wins between
        // equal weights.
        let mut weights = consistent_hash::Weights::new(session);
        let mut weight = |index: usize| weights.of(&self.specs[index].url);
        let mut best = (first, weight(first));
        for index in std::iter::once(second).chain(tied.map(|(index, _)| index)) {
            let weight = weight(index);
            if weight > best.1 {
                best = (index, weight);
            }
        }
        Found::at(best.0, Mode::StickyNew)
    }

    /// `hash`: the session's home peer. With a load bound the pool remembers sessions, so that a
    /// session that was placed elsewhere while its home was hot stays where its cache is.
    fn by_hash(
        &self,
        active: Active,
        home: Option<Home>,
        saturated: Saturated,
        key: Option<&[u8]>,
        rng: &mut impl Rng,
    ) -> Found {
        let entries = self.candidate_set.entries();
        let entry = key.and_then(|key| self.entry(active, key));
        if let Some(index) = entry.filter(|index| {
            let entry = entries[*index];
            !(entry.is_usable || entry.is_suspect)
        }) {
            // The peer drains: it is no session's home any more, but serves the sessions that live
            // there.
            return Found::at(index, Mode::HashFallback);
        }
        let Some(home) = home else {
            return self.balance(active, Mode::HashFallback, rng);
        };
        let at_home = home.index as usize;
        if let Some(index) = entry.filter(|index| *index != at_home)
            && entries[index].has_room
        {
            return Found::at(index, Mode::HashFallback);
        }
        let is_new = entry.is_none();
        let is_hot =
            self.route.memory.load_factor_max.is_some_and(|factor| {
                entries[at_home].load.in_flight >= load_bound(active, factor)
            });
        let stays = match home.state {
            HomeState::Usable => true,
            HomeState::Banned | HomeState::Ejected | HomeState::Suspect => false,
            HomeState::Saturated => saturated == Saturated::Keep,
        };
        if stays && !(is_new && is_hot) {
            return Found::at(at_home, Mode::Hash);
        }
        self.balance(active, Mode::HashFallback, rng)
    }

    /// The peer of a session, if it may still serve the session. A draining peer keeps its
    /// sessions, even if it was the last of a tier above the active one.
    fn entry(&self, active: Active, key: &[u8]) -> Option<usize> {
        let index = self.bound_peer(key)?;
        let entry = self.candidate_set.entries()[index];
        // No peer of a higher tier takes new requests.
        (entry.fixed.tier <= active.tier).then_some(index)
    }

    /// The peer of a session in any tier, if it may serve the session at all.
    fn bound_peer(&self, key: &[u8]) -> Option<usize> {
        if !self.route.remembers_sessions() {
            return None;
        }
        let ttl = self.route.memory.session_ttl;
        let Binding { peer, .. } = self.sessions().find(key, ttl, self.now)?;
        let index = self.index_of(peer)?;
        let serves = self.candidate_set.entries()[index].may_keep && self.is_pinned(index);
        serves.then_some(index)
    }

    fn index_of(&self, slot: u32) -> Option<usize> {
        let mut places = self.resolved.places.of(slot).iter();
        let place = places.find(|(pool, _)| *pool == self.index)?;
        Some(place.1)
    }

    /// The next peer of a request whose attempt on `ticket`'s peer failed; only peers in `pin` if
    /// there is a pin. The request's own tier comes first, then, where allowed, one peer of each
    /// lower tier, in descending priority. Within a tier the smallest load ÷ slots wins, which puts
    /// peers with room before full ones (a peer is full when that value reaches `rt_limit_factor`),
    /// then file order.
    pub(super) fn next(
        &self,
        ticket: &Ticket,
        tried: &[usize],
        pin: Option<&[usize]>,
    ) -> Option<usize> {
        let entries = self.candidate_set.entries();
        let priority =
            |entry: &CandidateEntry| self.members.tiers[entry.fixed.tier as usize].priority;
        let was_tried = |index: usize| index == ticket.peer || tried.contains(&index);
        // A lower tier provides one peer per request, whatever has changed since that peer was
        // tried.
        let is_spent = |tier: u32| {
            let mut spent = tried.iter().chain([&ticket.peer]);
            spent.any(|index| {
                entries
                    .get(*index)
                    .is_some_and(|entry| entry.fixed.tier == tier)
            })
        };
        let may_go = |entry: &CandidateEntry| {
            priority(entry) == ticket.tier
                || (self.route.cross_tier_fallback
                    && priority(entry) < ticket.tier
                    && !is_spent(entry.fixed.tier))
        };
        let is_pinned = |index: &usize| pin.is_none_or(|pin| pin.binary_search(index).is_ok());
        let next = entries
            .iter()
            .enumerate()
            .filter(|(index, entry)| {
                entry.is_usable && is_pinned(index) && !was_tried(*index) && may_go(entry)
            })
            .min_by(|(_, one), (_, other)| {
                let by_tier = one.fixed.tier.cmp(&other.fixed.tier);
                by_tier.then_with(|| one.load.cmp_ratio(other.load))
            })?;
        Some(next.0)
    }

    /// Every peer in its current state, file order, with its weight for `session`.
    pub(super) fn peer_facts(&self, session: Option<Sid<'_>>) -> Vec<PeerFacts> {
        let weights = session.and_then(|session| match self.route.affinity {
            Affinity::Hash { hash, .. } => Some(hash::weights(hash, session)),
            Affinity::None | Affinity::Sticky => None,
        });
        let facts = |(index, spec): (usize, &PeerSpec)| {
            let (entry, state) = (self.candidate_set.entries()[index], self.state(index));
            let left = state.ban.left(self.now);
            let freshness = freshness(self.route, state, self.now);
            let load = load(self.route, spec, state, freshness);
            let silent_s = |while_it_is| {
                let silent = state.reading.silent_for(self.now).unwrap_or_default();
                (freshness == Some(while_it_is)).then_some(silent.as_secs())
            };
            PeerFacts {
                peer: spec.key.clone(),
                name: spec.name.to_string(),
                priority: spec.priority,
                in_flight: state.in_flight,
                slots: load.slots.0,
                enabled: spec.enabled && spec.role == self.role,
                draining: spec.draining,
                banned: state.ban.is_active(self.now),
                ban_left_s: left.map(|left| left.as_secs_f64().ceil() as u64),
                load: self.route.load.map(|_| load.in_flight),
                freshness,
                held_s: silent_s(Freshness::Held),
                stale_s: silent_s(Freshness::Stale),
                probe: state.probes.facts(self.now),
                health: state.health.facts(self.now),
                sessions: self
                    .route
                    .remembers_sessions()
                    .then(|| self.sessions().count(self.members.peers[index])),
                candidate: entry.is_usable
                    && self.is_pinned(index)
                    && self
                        .active
                        .is_some_and(|active| active.tier == entry.fixed.tier),
                score: weights
                    .as_ref()
                    .and_then(|weight| weight(&self.members.addresses[index])),
            }
        };
        self.specs.iter().enumerate().map(facts).collect()
    }

    /// The room of the active tier; `None` when no peer is usable.
    pub(super) fn capacity(&self) -> Option<Capacity> {
        let Active { tier, room } = self.active?;
        Some(Capacity {
            tier: self.members.tiers[tier as usize].priority,
            limit: room.limit,
            in_flight: room.in_flight,
            healthy_peers: room.peers,
            tier_in_flight: self.candidate_set.room(tier).in_flight,
        })
    }

    /// Load of the active tier's usable peers; 0 without any.
    pub(super) fn in_flight(&self) -> u64 {
        self.active.map_or(0, |active| active.room.in_flight)
    }

    /// The largest sum of slots of the usable peers of any one tier.
    pub(super) fn largest_tier_sum(&self) -> u64 {
        self.candidate_set.largest_tier_sum()
    }

    /// The usable peers of the active tier, file order.
    fn candidates(&self, active: Active) -> impl Iterator<Item = (usize, CandidateEntry)> + Clone {
        self.tier_entries(active)
            .filter(|(_, entry)| entry.is_usable)
    }

    /// The active tier's peers that serve the request's model, file order.
    fn tier_entries(
        &self,
        active: Active,
    ) -> impl Iterator<Item = (usize, CandidateEntry)> + Clone {
        let entries = self.candidate_set.entries();
        let (all, pinned) = match self.pin {
            None => (
                &*self.members.tiers[active.tier as usize].peers[self.role],
                &[][..],
            ),
            Some(pin) => (&[][..], pin),
        };
        let all = all.iter().map(|index| *index as usize);
        all.chain(pinned.iter().copied())
            .filter_map(move |index| Some((index, *entries.get(index)?)))
            .filter(move |(_, entry)| entry.fixed.tier == active.tier)
    }

    /// Whether the pool has a peer that the request may not use.
    fn leaves_out(&self, pin: &[usize]) -> bool {
        let takes_requests = |spec: &&PeerSpec| spec.enabled && spec.role == self.role;
        pin.len() < self.specs.iter().filter(takes_requests).count()
    }

    fn is_pinned(&self, index: usize) -> bool {
        self.pin.is_none_or(|pin| pin.binary_search(&index).is_ok())
    }

    fn sessions(&self) -> &Sessions {
        &self.pool.sessions[self.role]
    }

    #[inline]
    fn state(&self, index: usize) -> &PeerState {
        self.states.get(self.members.peers[index])
    }

    /// The refusal of a pool without a usable peer. Each peer is counted once, by the first reason
    /// that keeps it out.
    pub(super) fn no_healthy_peer(&self) -> Refusal {
        let mut counts = PeersOut::default();
        for (index, spec) in self.specs.iter().enumerate() {
            let state = self.state(index);
            let freshness = freshness(self.route, state, self.now);
            if state.ban.is_active(self.now) {
                counts.banned += 1;
            } else if !spec.enabled || spec.role != self.role {
                // It never counts.
            } else if freshness.is_some_and(|freshness| !freshness.is_candidate()) {
                counts.stale += 1;
            } else if state.health.is_out(self.now) {
                counts.ejected += 1;
            } else if spec.draining {
                counts.draining += 1;
            }
        }
        let PeersOut {
            banned,
            stale,
            ejected,
            draining,
        } = counts;
        Refusal::NoHealthyPeer {
            peers: self.specs.len() as u32,
            banned,
            stale,
            ejected,
            draining,
        }
    }

    /// Adds the share of held peers to the refusal of a full pool. In-flight counts only our
    /// requests in that case.
    pub(super) fn with_held(&self, refusal: Refusal) -> Refusal {
        let Refusal::ConcurrencyLimit(mut full) = refusal else {
            return refusal;
        };
        let Some(active) = self.active else {
            return Refusal::ConcurrencyLimit(full);
        };
        let (mut held, mut longest, mut own) = (0, Duration::ZERO, 0);
        for (index, _) in self.candidates(active) {
            let state = self.state(index);
            own += u64::from(state.in_flight);
            if freshness(self.route, state, self.now) == Some(Freshness::Held) {
                held += 1;
                longest = state
                    .reading
                    .silent_for(self.now)
                    .unwrap_or_default()
                    .max(longest);
            }
        }
        if held > 0 {
            full.held = held;
            full.held_s = Some(longest.as_secs());
            full.in_flight = own;
        }
        Refusal::ConcurrencyLimit(full)
    }

    /// The home peer of a session. With `crc32` a peer that is out keeps its place in the list, so
    /// that only its own sessions move. A draining peer is the home of no session.
    fn home(
        &self,
        active: Active,
        hash: Hash,
        session: Sid<'_>,
        key: Option<&[u8]>,
    ) -> Option<Home> {
        let (index, score) = match hash {
            Hash::Crc32 => {
                let residents = &self.members.tiers[active.tier as usize].peers[self.role];
                let (nth, score) = hash::modulo(session, residents.len())?;
                (residents[nth] as usize, score)
            }
            Hash::Rendezvous | Hash::RendezvousMd5 => self.heaviest(active, hash, session, key)?,
        };
        Some(Home {
            hash,
            index: index as u32,
            score,
            state: self.home_state(index, session, key),
        })
    }

    /// The home peer by weight. A suspect peer keeps its sessions and gets no new ones.
    fn heaviest(
        &self,
        active: Active,
        hash: Hash,
        session: Sid<'_>,
        key: Option<&[u8]>,
    ) -> Option<(usize, u64)> {
        let among = |with_suspects| {
            let peers = self.tier_entries(active);
            let peers = peers
                .filter(move |(_, entry)| entry.is_usable || (with_suspects && entry.is_suspect));
            let peers = peers.map(|(index, _)| (index, &self.members.addresses[index]));
            hash::highest(hash, session, peers)
        };
        let first = among(true)?;
        let entry = self.candidate_set.entries()[first.0];
        if entry.is_suspect && !self.is_warm(first.0, session, key) {
            return among(false);
        }
        Some(first)
    }

    fn home_state(&self, index: usize, session: Sid<'_>, key: Option<&[u8]>) -> HomeState {
        let entry = self.candidate_set.entries()[index];
        if !self.is_pinned(index) {
            return HomeState::Banned;
        }
        if entry.is_suspect && !self.is_warm(index, session, key) {
            return HomeState::Suspect;
        }
        if !(entry.is_usable || entry.is_suspect) {
            return match entry.is_reserve {
                true => HomeState::Ejected,
                false => HomeState::Banned,
            };
        }
        match entry.has_room {
            true => HomeState::Usable,
            false => HomeState::Saturated,
        }
    }

    /// Whether the peer served the session recently.
    fn is_warm(&self, index: usize, session: Sid<'_>, key: Option<&[u8]>) -> bool {
        if self.route.remembers_sessions() {
            return key.and_then(|key| self.bound_peer(key)) == Some(index);
        }
        let (slot, ttl) = (self.members.peers[index], self.route.memory.session_ttl);
        let warm = &self.pool.warm;
        warm.holds(session.fingerprint(), slot, ttl, self.now)
    }

    /// The tier's usable peers; only those with room while any has room.
    fn offered(&self, active: Active) -> impl Iterator<Item = (usize, CandidateEntry)> + Clone {
        let any_room = active.room.with_room > 0;
        self.candidates(active)
            .filter(move |(_, entry)| entry.has_room == any_room)
    }

    /// The offered peers below the load bound, or all of them if none is below.
    fn within_bound(
        &self,
        active: Active,
    ) -> impl Iterator<Item = (usize, CandidateEntry)> + Clone {
        let bound = match self.route.memory.load_factor_max {
            Some(factor) => load_bound(active, factor),
            None => u32::MAX,
        };
        let mut below = self.offered(active);
        let any_below = below.any(|(_, entry)| entry.load.in_flight < bound);
        self.offered(active)
            .filter(move |(_, entry)| (entry.load.in_flight < bound) == any_below)
    }

    fn balance(&self, active: Active, mode: Mode, rng: &mut impl Rng) -> Found {
        let idles = self.candidate_set.idles();
        let candidate = |(index, entry): (usize, CandidateEntry)| Candidate {
            index,
            load: entry.load,
            rank: entry.fixed.rank,
        };
        let offered = self.offered(active).map(candidate);
        let terms = Terms {
            normalize: self.route.normalize,
            idle: |index: usize| idles[index].idle(self.now),
            turn: self.pool.turn,
        };
        let winner = self.route.balance.pick(offered, &terms, rng);
        let winner = winner.expect("the active tier has a usable peer");
        Found {
            peer: winner.index,
            mode,
            takes_turn: winner.takes_turn,
        }
    }
}

/// Load at which a peer of the tier exceeds its share: `ceil(factor × (total + 1) ÷ peers)`
/// (Mirrokni, Thorup and Zadimoghaddam, "Consistent Hashing with Bounded Loads", 2018). Another
/// request never lifts a peer above this bound while another peer is below it.
fn load_bound(active: Active, factor: f64) -> u32 {
    let Room { peers, load, .. } = active.room;
    let share = (load + 1) as f64 / f64::from(peers.max(1));
    u32::try_from(concurrency::ceiling(share, factor)).unwrap_or(u32::MAX)
}
