//! The naive model: the required behaviour of the book, written for clarity, not for speed. It
//! sorts, sums and collects where the book iterates over the peers once.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use md5::{Digest, Md5};
use router_core::admission::{Full, Refusal};
use router_core::affinity::{Affinity, Hash, Saturated};
use router_core::balance::Balance;
use router_core::decision::Mode;
use router_core::pool::{Change, Evidence, FullPolicy, PeerKey, PeerSpec, RouteSpec};

/// The model's state of a peer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Peer {
    pub(crate) in_flight: u32,
    pub(crate) banned_until: Option<Instant>,
}

/// The model's state of a route.
#[derive(Debug, Default)]
pub(crate) struct Model {
    pub(crate) peers: BTreeMap<PeerKey, Peer>,
    /// By model name: number of picks by `round_robin`.
    pub(crate) turns: BTreeMap<Option<Arc<str>>, usize>,
}

/// The result that the model expects for a reservation.
#[derive(Debug)]
pub(crate) enum Expected {
    Refuse(Refusal),
    /// Sent to one of `peers` (pool indices).
    Send {
        peers: Vec<usize>,
        mode: Mode,
        tier: i64,
        limit: u64,
        in_flight: u64,
    },
}

impl Model {
    pub(crate) fn in_flight(&self, key: &PeerKey) -> u32 {
        self.peers.get(key).map_or(0, |peer| peer.in_flight)
    }

    pub(crate) fn is_banned(&self, key: &PeerKey, now: Instant) -> bool {
        self.peers
            .get(key)
            .and_then(|peer| peer.banned_until)
            .is_some_and(|until| now < until)
    }

    pub(crate) fn start(&mut self, key: &PeerKey) {
        self.peers.entry(key.clone()).or_default().in_flight += 1;
    }

    pub(crate) fn end(&mut self, key: &PeerKey) {
        let peer = self
            .peers
            .get_mut(key)
            .expect("a request in flight is known");
        peer.in_flight = peer
            .in_flight
            .checked_sub(1)
            .expect("in-flight is never negative");
    }

    /// Forgets peers that no resolved route names and that have no request.
    pub(crate) fn forget(&mut self, named: &[PeerKey]) {
        self.peers
            .retain(|key, peer| peer.in_flight > 0 || named.contains(key));
    }

    pub(crate) fn observe(
        &mut self,
        key: &PeerKey,
        evidence: Evidence,
        ttl: Duration,
        now: Instant,
    ) -> Option<Change> {
        let before = self.is_banned(key, now);
        let peer = self.peers.get_mut(key)?;
        match evidence {
            Evidence::Healthy => peer.banned_until = None,
            Evidence::Busy | Evidence::Silent => {}
            Evidence::Failed | Evidence::Unreachable => peer.banned_until = Some(now + ttl),
        }
        match (before, self.is_banned(key, now)) {
            (false, true) => Some(Change::Banned),
            (true, false) => Some(Change::Recovered),
            _ => None,
        }
    }

    /// The expected result of a reservation.
    pub(crate) fn expect(
        &self,
        spec: &RouteSpec,
        pool: usize,
        session: Option<&[u8]>,
        now: Instant,
    ) -> Expected {
        let peers = &spec.pools[pool].peers;
        let usable = |peer: &&PeerSpec| peer.enabled && !self.is_banned(&peer.key, now);
        let Some(tier) = peers.iter().filter(usable).map(|peer| peer.priority).max() else {
            let banned = peers
                .iter()
                .filter(|peer| self.is_banned(&peer.key, now))
                .count() as u32;
            return Expected::Refuse(Refusal::NoHealthyPeer {
                peers: peers.len() as u32,
                banned,
                stale: 0,
                ejected: 0,
                draining: 0,
            });
        };
        let candidates: Vec<usize> = (0..peers.len())
            .filter(|i| usable(&&peers[*i]) && peers[*i].priority == tier)
            .collect();
        let limit = candidates
            .iter()
            .map(|i| u64::from(peers[*i].slots.0))
            .sum();
        let in_flight = candidates
            .iter()
            .map(|i| u64::from(self.in_flight(&peers[*i].key)))
            .sum();
        if spec.full_policy == FullPolicy::Reject && in_flight >= most(limit, spec.rt_limit_factor)
        {
            let healthy_peers = candidates.len() as u32;
            let factor = spec.rt_limit_factor;
            let ceiling = most(limit, factor);
            return Expected::Refuse(Refusal::ConcurrencyLimit(Box::new(Full {
                in_flight,
                limit: limit as f64,
                pool_limit: limit,
                factor,
                ceiling,
                must_end: in_flight + 1 - ceiling,
                healthy_peers,
                tier,
                retry_after_s: 1,
                ..Full::default()
            })));
        }
        let (peers, mode) = self.place(spec, pool, session, &candidates, now);
        Expected::Send {
            peers,
            mode,
            tier,
            limit,
            in_flight,
        }
    }

    fn place(
        &self,
        spec: &RouteSpec,
        pool: usize,
        session: Option<&[u8]>,
        candidates: &[usize],
        now: Instant,
    ) -> (Vec<usize>, Mode) {
        let peers = &spec.pools[pool].peers;
        let (Some(session), Affinity::Hash { hash, saturated }) = (session, spec.affinity) else {
            return (
                self.balanced(spec, pool, candidates),
                Mode::Balance(spec.balance),
            );
        };
        let tier = peers[candidates[0]].priority;
        let home = home(hash, session, peers, tier, candidates);
        let banned = self.is_banned(&peers[home].key, now);
        if !banned && (self.has_room(spec, &peers[home]) || saturated == Saturated::Keep) {
            (vec![home], Mode::Hash)
        } else {
            (self.balanced(spec, pool, candidates), Mode::HashFallback)
        }
    }

    /// Every candidate that `balance` may pick.
    fn balanced(&self, spec: &RouteSpec, pool: usize, candidates: &[usize]) -> Vec<usize> {
        let peers = &spec.pools[pool].peers;
        let mut offered: Vec<usize> = candidates
            .iter()
            .copied()
            .filter(|i| self.has_room(spec, &peers[*i]))
            .collect();
        if offered.is_empty() {
            offered = candidates.to_vec();
        }
        let share = |i: &usize| self.share(&peers[*i]);
        match spec.balance {
            Balance::LeastConn => {
                let least = offered
                    .iter()
                    .map(share)
                    .min()
                    .expect("somebody is offered");
                offered.retain(|i| share(i) == least);
            }
            Balance::PowerOfTwo if offered.len() > 1 => {
                // A peer that is busier than every other loses to each of them.
                let others = |i: usize| offered.iter().filter(move |other| **other != i);
                let beaten = |i: usize| others(i).all(|other| share(other) < share(&i));
                offered = offered.iter().copied().filter(|i| !beaten(*i)).collect();
            }
            Balance::PowerOfTwo => {}
            Balance::RoundRobin => {
                let turn = self.turns.get(&spec.pools[pool].model).copied();
                offered.sort_unstable();
                offered = vec![offered[turn.unwrap_or(0) % offered.len()]];
            }
            // No peer is polled here, so no peer is known to be idle.
            Balance::LeastBusy | Balance::IdleAware => {
                let busy = |i: &usize| (self.in_flight(&peers[*i].key), &peers[*i].name);
                offered.sort_by_key(busy);
                offered.truncate(1);
            }
        }
        offered
    }

    /// The expected peer of a retry.
    pub(crate) fn expect_retry(
        &self,
        spec: &RouteSpec,
        pool: usize,
        tier: i64,
        tried: &[usize],
        now: Instant,
    ) -> Option<usize> {
        let peers = &spec.pools[pool].peers;
        let mut list: Vec<usize> = (0..peers.len())
            .filter(|i| peers[*i].enabled && !self.is_banned(&peers[*i].key, now))
            .filter(|i| {
                peers[*i].priority == tier
                    || (spec.cross_tier_fallback && peers[*i].priority < tier)
            })
            .filter(|i| !tried.contains(i))
            .collect();
        list.sort_by_key(|i| {
            let peer = &peers[*i];
            (
                Reverse(peer.priority),
                !self.has_room(spec, peer),
                self.share(peer),
                *i,
            )
        });
        let spent = |i: usize| {
            tried
                .iter()
                .any(|t| peers[*t].priority == peers[i].priority)
        };
        list.into_iter()
            .find(|i| peers[*i].priority == tier || !spent(*i))
    }

    fn has_room(&self, spec: &RouteSpec, peer: &PeerSpec) -> bool {
        u64::from(self.in_flight(&peer.key)) < most(u64::from(peer.slots.0), spec.rt_limit_factor)
    }

    /// In-flight ÷ slots in units of 1/5040, which is divisible by every generated number of slots.
    fn share(&self, peer: &PeerSpec) -> u32 {
        self.in_flight(&peer.key) * (5_040 / peer.slots.0)
    }
}

/// The most requests that may run.
pub(crate) fn most(limit: u64, factor: f64) -> u64 {
    (limit as f64 * factor - 1e-9).ceil() as u64
}

fn home(hash: Hash, session: &[u8], peers: &[PeerSpec], tier: i64, candidates: &[usize]) -> usize {
    let weigh = |i: &usize, separator: &[u8]| {
        [session, separator, peers[*i].key.as_str().as_bytes()].concat()
    };
    match hash {
        Hash::Crc32 => {
            let listed: Vec<usize> = (0..peers.len())
                .filter(|i| peers[*i].enabled && peers[*i].priority == tier)
                .collect();
            listed[crc32fast::hash(session) as usize % listed.len()]
        }
        Hash::Rendezvous => {
            let weight = |i: &usize| xxhash_rust::xxh3::xxh3_64(&weigh(i, b"\0"));
            candidates
                .iter()
                .copied()
                .max_by_key(weight)
                .expect("there are candidates")
        }
        Hash::RendezvousMd5 => {
            let weight = |i: &usize| Md5::digest(weigh(i, b"|"))[..4].to_vec();
            candidates
                .iter()
                .copied()
                .max_by_key(weight)
                .expect("there are candidates")
        }
    }
}
