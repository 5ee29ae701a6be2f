//! A configuration bound to the state that it acts on.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use super::status::ThresholdSource;
use crate::affinity::Hashed;
use crate::affinity::hash::Address;
use crate::balance::rank;
use crate::layered::Source;
use crate::pool::{ByRole, GuardSpec, PeerSpec, PoolSpec, RouteSpec};
use crate::signal::{Metric, Signal, SignalSpec, Statistic};

/// A [`RouteSpec`] whose peers are resolved to their state. [`Book::attach`](super::Book::attach)
/// makes it. It belongs to that book alone, and must not be used with the book once detached. Cheap
/// to clone: every waiter keeps one.
#[derive(Clone, Debug)]
pub struct ResolvedRoute(Arc<Resolved>);

/// The contents of a [`ResolvedRoute`].
#[derive(Debug)]
pub struct Resolved {
    pub(super) id: u64,
    pub(super) spec: RouteSpec,
    /// Index = pool, file order.
    pub(super) members: Vec<PoolMembers>,
    /// Slot of the counters of each bucket of `session_prio`, in the table's order.
    pub(super) buckets: Vec<u32>,
    /// The places of each peer.
    pub(super) places: Places,
}

/// The places of the peers of a resolved route, by slot.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// Index = slot: start of its places in `list`. One more entry at the end.
    starts: Vec<u32>,
    /// Pool and index, by slot.
    list: Vec<(usize, usize)>,
}

impl Places {
    fn new(members: &[PoolMembers]) -> Self {
        let pools = members.iter().enumerate();
        let mut all: Vec<(u32, usize, usize)> = pools
            .flat_map(|(pool, members)| {
                let peers = members.peers.iter().enumerate();
                peers.map(move |(index, slot)| (*slot, pool, index))
            })
            .collect();
        all.sort_unstable();
        let slots = all.last().map_or(0, |(slot, _, _)| slot + 1);
        let begins = |slot: u32| all.partition_point(|(other, _, _)| *other < slot) as u32;
        Self {
            starts: (0..=slots).map(begins).collect(),
            list: all.iter().map(|(_, pool, index)| (*pool, *index)).collect(),
        }
    }

    /// Pool and peer indices of the peer whose state has this slot, pools ascending.
    #[inline]
    pub(super) fn of(&self, slot: u32) -> &[(usize, usize)] {
        let slot = slot as usize;
        match (self.starts.get(slot), self.starts.get(slot + 1)) {
            (Some(start), Some(end)) => &self.list[*start as usize..*end as usize],
            _ => &[],
        }
    }
}

impl Deref for ResolvedRoute {
    type Target = Resolved;

    fn deref(&self) -> &Resolved {
        &self.0
    }
}

/// The slots of one pool.
#[derive(Debug)]
pub(super) struct PoolMembers {
    /// Slot of the pool's own state.
    pub(super) pool: u32,
    /// Index = peer, file order.
    pub(super) peers: Vec<u32>,
    /// Index = peer.
    pub(super) fixed: Vec<Fixed>,
    /// Index = peer: its key in the form that session hashing uses.
    pub(super) addresses: Vec<Address<'static>>,
    /// Highest priority first.
    pub(super) tiers: Vec<Tier>,
    pub(super) ttft: Criteria,
    pub(super) tps: Criteria,
}

/// A peer's fixed place among the others of its pool, from the configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fixed {
    /// Index of the peer's tier.
    pub(super) tier: u32,
    /// Place among equally loaded peers, the preferred ones first.
    pub(super) rank: u32,
}

/// The peers of one priority.
#[derive(Debug)]
pub(super) struct Tier {
    pub(super) priority: i64,
    /// Indices of the enabled peers, by role, file order.
    pub(super) peers: ByRole<Vec<u32>>,
}

impl PoolMembers {
    /// A pool whose own state and whose peers have these slots.
    pub(super) fn new(guard: &GuardSpec, spec: &PoolSpec, pool: u32, peers: Vec<u32>) -> Self {
        let tiers = tiers(&spec.peers);
        Self {
            pool,
            peers,
            fixed: fixed(&spec.peers, &tiers),
            addresses: spec.peers.iter().map(address).collect(),
            tiers,
            ttft: Criteria::new(Signal::Ttft, &guard.ttft, spec),
            tps: Criteria::new(Signal::Tps, &guard.tps, spec),
        }
    }

    pub(super) fn criteria(&self, signal: Signal) -> &Criteria {
        match signal {
            Signal::Ttft => &self.ttft,
            Signal::Tps => &self.tps,
        }
    }
}

/// The configured metrics and thresholds of a pool's signal.
#[derive(Debug)]
pub(super) struct Criteria {
    /// The declared table, or the one default metric.
    pub(super) metrics: Arc<[Metric]>,
    /// Whether the metrics' own thresholds apply. They override all other thresholds.
    pub(super) is_declared: bool,
    /// The limit of the model, else of the route or of `defaults:`.
    pub(super) configured: Option<(f64, ThresholdSource)>,
}

impl Criteria {
    fn new(signal: Signal, spec: &SignalSpec, pool: &PoolSpec) -> Self {
        let of_model = pool
            .model
            .as_ref()
            .and_then(|model| spec.by_model.get(model));
        let of_model = of_model.map(|limit| (*limit, ThresholdSource::Model));
        let of_route = spec.limit.map(|limit| {
            let source = match limit.source {
                Source::Route => ThresholdSource::Route,
                _ => ThresholdSource::Global,
            };
            (limit.value, source)
        });
        // An empty table counts as undeclared.
        let declared = spec.table.as_ref().filter(|table| !table.is_empty());
        Self {
            metrics: declared.map_or_else(|| Arc::from([p80(signal)]), Arc::clone),
            is_declared: declared.is_some(),
            configured: of_model.or(of_route),
        }
    }
}

/// The metric of a limit without a table: the value that four of five requests reach or beat.
fn p80(signal: Signal) -> Metric {
    let quantile = match signal {
        Signal::Ttft => 0.8,
        Signal::Tps => 0.2,
    };
    Metric {
        name: Arc::from("p80"),
        statistic: Statistic::Quantile(quantile),
        threshold: 0.0,
    }
}

fn address(peer: &PeerSpec) -> Address<'static> {
    Address::new(peer.key.as_str()).into_owned()
}

fn tiers(peers: &[PeerSpec]) -> Vec<Tier> {
    let mut by_priority: BTreeMap<Reverse<i64>, ByRole<Vec<u32>>> = BTreeMap::new();
    for (index, peer) in (0_u32..).zip(peers) {
        let tier = by_priority.entry(Reverse(peer.priority)).or_default();
        if peer.enabled {
            tier[peer.role].push(index);
        }
    }
    let tiers = by_priority.into_iter();
    tiers
        .map(|(Reverse(priority), peers)| Tier { priority, peers })
        .collect()
}

fn fixed(peers: &[PeerSpec], tiers: &[Tier]) -> Vec<Fixed> {
    let ranks = rank(peers.iter().map(|peer| (peer.weight, &*peer.name)));
    let tier = |peer: &PeerSpec| tiers.partition_point(|tier| tier.priority > peer.priority);
    let peers = peers.iter().zip(ranks);
    peers
        .map(|(peer, rank)| Fixed {
            tier: tier(peer) as u32,
            rank,
        })
        .collect()
}

/// Index of a pool in [`RouteSpec::pools`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolId(pub usize);

impl ResolvedRoute {
    pub(super) fn new(
        id: u64,
        spec: RouteSpec,
        members: Vec<PoolMembers>,
        buckets: Vec<u32>,
    ) -> Self {
        Self(Arc::new(Resolved {
            id,
            places: Places::new(&members),
            spec,
            members,
            buckets,
        }))
    }

    /// The configuration behind this resolved route.
    pub fn spec(&self) -> &RouteSpec {
        &self.spec
    }

    /// The pool of a `peers_by_model` key, or the flat pool.
    pub fn pool(&self, model: Option<&str>) -> Option<PoolId> {
        self.spec
            .pools
            .iter()
            .position(|p| p.model.is_none() || p.model.as_deref() == model)
            .map(PoolId)
    }

    /// Hashes a long session id before any lock is taken. Clients choose their ids, so one may be
    /// megabytes long. `None` for a short id, which is hashed during placement.
    pub fn hashed(&self, pool: PoolId, session: &[u8]) -> Option<Hashed> {
        let peers = self.spec.pools[pool.0].peers.iter();
        Hashed::new(self.spec.affinity, session, peers.map(|peer| &*peer.url))
    }

    /// A peer of a pool.
    ///
    /// # Panics
    ///
    /// Panics if the pool or the index does not belong to this resolved route.
    pub fn peer(&self, pool: PoolId, index: usize) -> &PeerSpec {
        &self.spec.pools[pool.0].peers[index]
    }
}
