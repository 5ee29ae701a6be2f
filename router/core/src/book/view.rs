//! One pool at one moment, and the choices made over it. Reads everything, changes nothing.

use std::time::Instant;

use rand::Rng;

use super::{PeerState, Roster, Ticket};
use crate::admission::{Full, Refusal, concurrency};
use crate::affinity::{Affinity, Hash, Saturated, hash};
use crate::book::table::Table;
use crate::decision::{Facts, Home, HomeState, Mode, PeerFacts};
use crate::pool::{Capacity, FullPolicy, Load, PeerKey, PeerNow, PeerSpec, RouteSpec};

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

/// What [`View::decide`] settled; nothing is counted yet.
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

    /// Admits and chooses. `cursor`: see [`Balance::pick`](crate::balance::Balance::pick).
    pub(super) fn decide(
        &self,
        session: Option<&[u8]>,
        cursor: usize,
        rng: &mut impl Rng,
    ) -> Result<Pick, Refusal> {
        let capacity = self.capacity().ok_or_else(|| self.no_healthy_peer())?;
        self.admit(&capacity)?;
        let home = session.and_then(|session| self.home(session, capacity.tier));
        let (peer, mode) = match home {
            Some(home) if self.stays_home(home.state) => (home.index as usize, Mode::Hash),
            Some(_) => (self.balance(capacity.tier, cursor, rng), Mode::HashFallback),
            None => (
                self.balance(capacity.tier, cursor, rng),
                self.route.balance.into(),
            ),
        };
        let facts = self.facts(&capacity, home, peer);
        Ok(Pick {
            peer,
            mode,
            facts,
            balanced: mode != Mode::Hash,
        })
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

    /// Every peer with its index, file order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, PeerNow)> + Clone {
        (0..self.specs.len()).map(|index| (index, self.at(index)))
    }

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

    fn state(&self, index: usize) -> &PeerState {
        self.states.get(self.slots[index])
    }

    fn no_healthy_peer(&self) -> Refusal {
        let banned = self.iter().filter(|(_, peer)| peer.banned).count();
        Refusal::NoHealthyPeer {
            peers: self.specs.len() as u32,
            banned: banned as u32,
        }
    }

    fn admit(&self, capacity: &Capacity) -> Result<(), Refusal> {
        let factor = self.route.rt_limit_factor;
        let &Capacity {
            tier,
            limit,
            in_flight,
            healthy_peers,
        } = capacity;
        match self.route.full_policy {
            FullPolicy::Overflow => Ok(()),
            FullPolicy::Reject if concurrency::admits(in_flight, limit as f64, factor) => Ok(()),
            FullPolicy::Reject => {
                let ceiling = concurrency::ceiling(limit as f64, factor);
                Err(Refusal::ConcurrencyLimit(Box::new(Full {
                    in_flight,
                    limit: limit as f64,
                    pool_limit: limit,
                    factor,
                    ceiling,
                    must_end: (in_flight + 1).saturating_sub(ceiling),
                    healthy_peers,
                    tier,
                    retry_after_s: 1,
                    ..Full::default()
                })))
            }
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

    fn facts(&self, capacity: &Capacity, home: Option<Home>, peer: usize) -> Facts {
        let load = self.at(peer).load;
        Facts {
            tier: capacity.tier,
            limit: capacity.limit as f64,
            pool_limit: capacity.limit,
            factor: self.route.rt_limit_factor,
            in_flight: capacity.in_flight,
            healthy_peers: capacity.healthy_peers,
            home,
            peer_in_flight: load.in_flight,
            peer_slots: load.slots.0,
            ..Facts::default()
        }
    }
}
