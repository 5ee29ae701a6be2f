//! One pool at one moment, and the choices made over it. Reads everything, changes nothing.

use std::time::Instant;

use rand::Rng;

use super::{PeerState, Roster, Ticket};
use crate::admission::Refusal;
use crate::affinity::{Affinity, Hash, Saturated, hash};
use crate::book::table::Table;
use crate::decision::{Facts, Home, HomeState, Mode, PeerFacts};
use crate::pool::{Capacity, Load, PeerKey, PeerNow, PeerSpec, RouteSpec};

/// A pool's configuration joined with the state of its peers at `now`.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    route: &'a RouteSpec,
    specs: &'a [PeerSpec],
    /// Slot of each peer, file order.
    slots: &'a [u32],
    states: &'a Table<PeerKey, PeerState>,
    now: Instant,
}

/// What [`View::place`] settled; nothing is counted yet.
#[derive(Clone, Copy)]
pub(super) struct Pick {
    pub(super) peer: usize,
    pub(super) mode: Mode,
    pub(super) facts: Facts,
    /// Whether the peer was found by `balance` and not as a home.
    pub(super) balanced: bool,
}

impl<'a> View<'a> {
    pub(super) fn new(
        roster: &'a Roster,
        pool: usize,
        states: &'a Table<PeerKey, PeerState>,
        now: Instant,
    ) -> Self {
        Self {
            route: &roster.spec,
            specs: &roster.spec.pools[pool].peers,
            slots: &roster.members[pool].peers,
            states,
            now,
        }
    }

    /// Chooses for a request that was admitted with `facts`. `cursor`: see
    /// [`Balance::pick`](crate::balance::Balance::pick).
    pub(super) fn place(
        &self,
        facts: Facts,
        session: Option<&[u8]>,
        cursor: usize,
        rng: &mut impl Rng,
    ) -> Pick {
        let tier = facts.tier;
        let home = session.and_then(|session| self.home(session, tier));
        let (peer, mode) = match home {
            Some(home) if self.stays_home(home.state) => (home.index as usize, Mode::Hash),
            Some(_) => (self.balance(tier, cursor, rng), Mode::HashFallback),
            None => (self.balance(tier, cursor, rng), self.route.balance.into()),
        };
        let load = self.at(peer).load;
        Pick {
            peer,
            mode,
            facts: Facts {
                home,
                peer_in_flight: load.in_flight,
                peer_slots: load.slots.0,
                ..facts
            },
            balanced: mode != Mode::Hash,
        }
    }

    /// The next peer of a request whose attempt on `ticket`'s peer failed: of its tier first, then,
    /// where allowed, one of each lower tier, the higher tiers first. Within a tier the
    /// smallest in-flight ÷ slots, which puts peers with room before full ones (a peer is full when
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
            let spec = &self.specs[index];
            PeerFacts {
                peer: spec.key.clone(),
                name: spec.name.to_string(),
                priority: peer.priority,
                in_flight: peer.load.in_flight,
                slots: peer.load.slots.0,
                enabled: peer.enabled,
                banned: peer.banned,
                ban_left_s: self
                    .state(index)
                    .ban
                    .left(self.now)
                    .map(|left| left.as_secs_f64().ceil() as u64),
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

    /// In-flight over the active tier's usable peers; 0 without any.
    pub(super) fn in_flight(&self) -> u64 {
        self.capacity().map_or(0, |capacity| capacity.in_flight)
    }

    /// Every peer with its index, file order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, PeerNow)> + Clone {
        (0..self.specs.len()).map(|index| (index, self.at(index)))
    }

    #[inline]
    fn at(&self, index: usize) -> PeerNow {
        let (spec, state) = (&self.specs[index], self.state(index));
        PeerNow {
            priority: spec.priority,
            load: Load {
                in_flight: state.in_flight,
                slots: spec.slots,
            },
            enabled: spec.enabled,
            banned: state.ban.is_active(self.now),
        }
    }

    #[inline]
    fn state(&self, index: usize) -> &PeerState {
        self.states.get(self.slots[index])
    }

    pub(super) fn no_healthy_peer(&self) -> Refusal {
        let banned = self.iter().filter(|(_, peer)| peer.banned).count();
        Refusal::NoHealthyPeer {
            peers: self.specs.len() as u32,
            banned: banned as u32,
        }
    }

    fn hash(&self) -> Option<(Hash, Saturated)> {
        match self.route.affinity {
            Affinity::None => None,
            Affinity::Hash { hash, saturated } => Some((hash, saturated)),
        }
    }

    /// Where the session lives. With `crc32` a banned peer keeps its place in the list, so that a
    /// ban moves nobody but its own sessions.
    fn home(&self, session: &[u8], tier: i64) -> Option<Home> {
        let (hash, _) = self.hash()?;
        let residents = self.iter().filter(move |(_, peer)| {
            peer.priority == tier && peer.enabled && (hash == Hash::Crc32 || !peer.banned)
        });
        let keys = residents
            .clone()
            .map(|(index, _)| self.specs[index].key.as_str());
        let (nth, score) = hash::home(hash, session, keys)?;
        let (index, peer) = residents.clone().nth(nth)?;
        let state = if peer.banned {
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

    fn balance(&self, tier: i64, cursor: usize, rng: &mut impl Rng) -> usize {
        let candidates = self
            .iter()
            .filter(move |(_, peer)| peer.is_usable() && peer.priority == tier);
        let has_room = |peer: &PeerNow| peer.load.has_room(self.route.rt_limit_factor);
        let any_room = candidates.clone().any(|(_, peer)| has_room(&peer));
        let offered = candidates
            .filter(|(_, peer)| has_room(peer) == any_room)
            .map(|(index, peer)| (index, peer.load));
        self.route
            .balance
            .pick(offered, cursor, rng)
            .expect("the active tier has a usable peer")
    }
}
