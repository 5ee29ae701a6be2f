//! Random route specs over a few peers. They are small, so that ties, bans and full pools are
//! common.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use router_core::affinity::{Affinity, Hash, Saturated};
use router_core::balance::{Balance, Normalize};
use router_core::health::HealthSpec;
use router_core::pool::{
    FullPolicy, GuardSpec, MemorySpec, PeerKey, PeerSpec, PoolSpec, Role, RouteSpec, Slots, Weight,
};

const KEYS: [&str; 6] = ["a:1", "b:1", "c:1", "d:1", "e:1", "f:1"];

pub(crate) fn any_key() -> impl Strategy<Value = PeerKey> {
    select(&KEYS[..]).prop_map(PeerKey::new)
}

pub(crate) fn peer(key: &str, priority: i64, slots: u32) -> PeerSpec {
    PeerSpec {
        key: PeerKey::new(key),
        name: key.into(),
        priority,
        slots: Slots(slots),
        enabled: true,
        weight: Weight::default(),
        role: Role::Regular,
        draining: false,
        learns_slots: false,
        url: format!("http://{key}").into(),
    }
}

/// One flat pool with these peers, and every option at its default.
pub(crate) fn flat(peers: Vec<PeerSpec>) -> RouteSpec {
    RouteSpec {
        pools: vec![PoolSpec { model: None, peers }],
        affinity: Affinity::Hash {
            hash: Hash::Crc32,
            saturated: Saturated::Fallback,
        },
        balance: Balance::LeastConn,
        full_policy: FullPolicy::Reject,
        rt_limit_factor: 1.0,
        cross_tier_fallback: false,
        ban_ttl: Duration::from_secs(300),
        guard: GuardSpec::default(),
        load: None,
        health: HealthSpec::default(),
        normalize: Normalize::Off,
        memory: MemorySpec::default(),
    }
}

pub(crate) fn any_hash() -> impl Strategy<Value = Hash> {
    select(Hash::ALL)
}

pub(crate) fn any_balance() -> impl Strategy<Value = Balance> {
    select(Balance::ALL)
}

fn any_affinity() -> impl Strategy<Value = Affinity> {
    let saturated = prop_oneof![Just(Saturated::Fallback), Just(Saturated::Keep)];
    let hash =
        (any_hash(), saturated).prop_map(|(hash, saturated)| Affinity::Hash { hash, saturated });
    prop_oneof![4 => hash, 1 => Just(Affinity::None)]
}

/// Distinct peers in random order.
fn any_peers() -> impl Strategy<Value = Vec<PeerSpec>> {
    let traits = (0_i64..3, 1_u32..5, proptest::bool::weighted(0.9));
    let keys = subsequence(&KEYS[..], 0..=KEYS.len()).prop_shuffle();
    (keys, proptest::collection::vec(traits, KEYS.len())).prop_map(|(keys, traits)| {
        let specs = keys.into_iter().zip(traits);
        specs
            .map(|(key, (priority, slots, enabled))| PeerSpec {
                enabled,
                ..peer(key, priority, slots)
            })
            .collect()
    })
}

/// A flat route, or one with a pool per model; the pools share peers.
fn any_pools() -> impl Strategy<Value = Vec<PoolSpec>> {
    let flat = any_peers().prop_map(|peers| vec![PoolSpec { model: None, peers }]);
    let by_model = (any_peers(), any_peers()).prop_map(|(small, large)| {
        let pool = |model: &str, peers| PoolSpec {
            model: Some(Arc::from(model)),
            peers,
        };
        vec![pool("small", small), pool("large", large)]
    });
    prop_oneof![2 => flat, 1 => by_model]
}

pub(crate) fn any_spec() -> impl Strategy<Value = RouteSpec> {
    let factor = prop_oneof![3 => Just(1.0), 1 => Just(0.5), 1 => Just(1.5), 1 => Just(1.2)];
    let full_policy = prop_oneof![3 => Just(FullPolicy::Reject), 1 => Just(FullPolicy::Overflow)];
    let options = (
        any_affinity(),
        any_balance(),
        full_policy,
        factor,
        any::<bool>(),
        0_u64..20,
    );
    (any_pools(), options).prop_map(|(pools, options)| {
        let (affinity, balance, full_policy, rt_limit_factor, cross_tier_fallback, ttl_s) = options;
        let ban_ttl = Duration::from_secs(ttl_s);
        RouteSpec {
            pools,
            affinity,
            balance,
            full_policy,
            rt_limit_factor,
            cross_tier_fallback,
            ban_ttl,
            guard: GuardSpec::default(),
            load: None,
            health: HealthSpec::default(),
            normalize: Normalize::Off,
            memory: MemorySpec::default(),
        }
    })
}
