//! A whole decision over 64 peers: every gate asked, a peer chosen, the slot given back. The goal is
//! a median under one microsecond; `cargo bench -p router-core`.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use rand::SeedableRng;
use rand::rngs::StdRng;
use router_core::affinity::{Affinity, Hash, Saturated};
use router_core::aimd::AdaptiveSpec;
use router_core::balance::{Balance, Normalize};
use router_core::book::{Ask, Book, PoolId, Roster, Switches, Ticket, Verdict};
use router_core::layered::Source;
use router_core::pool::{
    FullPolicy, GuardSpec, MemorySpec, PeerKey, PeerSpec, PoolSpec, RouteSpec, Slots, Weight,
};
use router_core::signal::{Limit, Sample};

const POOL: PoolId = PoolId(0);
const PEERS: u16 = 64;

/// A route of 64 peers with 16 slots each, both signals measured and limited, the limit adaptive.
fn route(hash: Hash) -> RouteSpec {
    let peer = |number: u16| {
        let key = format!("10.0.0.{number}:8000");
        PeerSpec {
            name: Arc::from(&*key),
            key: PeerKey::new(key),
            priority: 0,
            slots: Slots(16),
            enabled: true,
            weight: Weight::default(),
            draining: false,
            learns_slots: false,
            url: "http://h:1".into(),
        }
    };
    let limit = |value| {
        Some(Limit {
            value,
            source: Source::Route,
        })
    };
    let mut guard = GuardSpec {
        adaptive: Some(AdaptiveSpec {
            init: Some(1_024),
            ..AdaptiveSpec::default()
        }),
        ..GuardSpec::default()
    };
    guard.ttft.limit = limit(30_000.0);
    guard.tps.limit = limit(20.0);
    RouteSpec {
        pools: vec![PoolSpec {
            model: None,
            peers: (0..PEERS).map(peer).collect(),
        }],
        affinity: Affinity::Hash {
            hash,
            saturated: Saturated::Fallback,
        },
        balance: Balance::LeastConn,
        full_policy: FullPolicy::Reject,
        rt_limit_factor: 1.0,
        cross_tier_fallback: false,
        ban_ttl: Duration::from_secs(300),
        load: None,
        normalize: Normalize::Off,
        memory: MemorySpec::default(),
        guard,
    }
}

/// A book with averages, and half of the slots taken.
struct Stage {
    book: Book,
    roster: Roster,
    now: Instant,
    rng: StdRng,
    _held: Vec<Ticket>,
}

impl Stage {
    fn new(hash: Hash) -> Self {
        let (mut book, mut rng) = (Book::default(), StdRng::seed_from_u64(11));
        let roster = book.attach(route(hash));
        let mut now = start();
        for sample in [Sample::Ttft(800.0), Sample::Tps(60.0)] {
            book.sample(&roster, POOL, sample, now);
        }
        now += Duration::from_secs(20);
        book.tick(&roster, Switches::DEFAULT, now);
        let reserve = |_| match book.reserve(&roster, Ask::new(POOL, None), now, &mut rng) {
            Verdict::Send(placement) => Some(placement.ticket),
            Verdict::Wait(_) | Verdict::Refuse(_) => None,
        };
        let held = (0..512).filter_map(reserve).collect();
        Self {
            book,
            roster,
            now,
            rng,
            _held: held,
        }
    }

    /// One request in and out.
    fn turn(&mut self, ask: Ask<'_>) -> usize {
        match self
            .book
            .reserve(&self.roster, ask, self.now, &mut self.rng)
        {
            Verdict::Send(placement) => {
                self.book.release(placement.ticket, self.now);
                placement.peer
            }
            other => panic!("the stage has room: {other:?}"),
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "there is no other way to obtain a first instant"
)]
fn start() -> Instant {
    Instant::now()
}

fn decide(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("decide");
    let warm = Switches {
        session_prio: true,
        ..Switches::DEFAULT
    };
    let asks = [
        ("least_conn", Hash::Crc32, Ask::new(POOL, None)),
        ("crc32", Hash::Crc32, Ask::new(POOL, Some(b"session-1"))),
        (
            "rendezvous",
            Hash::Rendezvous,
            Ask::new(POOL, Some(b"session-1")),
        ),
        (
            "session_prio",
            Hash::Crc32,
            Ask {
                turn: Some(5),
                switches: warm,
                ..Ask::new(POOL, Some(b"session-1"))
            },
        ),
    ];
    for (name, hash, ask) in asks {
        let mut stage = Stage::new(hash);
        let id = BenchmarkId::new(name, PEERS);
        group.bench_function(id, |bencher| bencher.iter(|| stage.turn(black_box(ask))));
    }
    group.finish();
}

criterion_group!(benches, decide);
criterion_main!(benches);
