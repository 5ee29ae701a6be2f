//! A whole decision: every gate asked, a peer chosen, the slot given back. The goal is a median under
//! one microsecond over 64 peers, and under five over 512 whose engines are polled;
//! `cargo bench -p router-core`.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use rand::SeedableRng;
use rand::rngs::StdRng;
use router_core::affinity::{Affinity, Hash, Saturated};
use router_core::aimd::AdaptiveSpec;
use router_core::balance::{Balance, Normalize};
use router_core::book::{Book, PlacementRequest, PoolId, ResolvedRoute, Switches, Ticket, Verdict};
use router_core::health::HealthSpec;
use router_core::layered::Source;
use router_core::load::{self, LoadSpec, Report};
use router_core::pool::{
    FullPolicy, GuardSpec, MemorySpec, PeerKey, PeerSpec, PoolSpec, Role, RouteSpec, Slots, Weight,
};
use router_core::signal::{Limit, Sample};

const POOL: PoolId = PoolId(0);
const FEW: u16 = 64;
const MANY: u16 = 512;

/// A route whose peers have 16 slots each, both signals measured and limited, the limit adaptive.
fn route(peers: u16, affinity: Affinity) -> RouteSpec {
    let peer = |number: u16| {
        let key = format!("10.0.{}.{}:8000", number / 256, number % 256);
        PeerSpec {
            name: Arc::from(&*key),
            url: format!("http://{key}").into(),
            key: PeerKey::new(key),
            priority: 0,
            slots: Slots(16),
            enabled: true,
            weight: Weight::default(),
            role: Role::Regular,
            draining: false,
            learns_slots: false,
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
            init: Some(16 * u32::from(peers)),
            ..AdaptiveSpec::default()
        }),
        ..GuardSpec::default()
    };
    guard.ttft.limit = limit(30_000.0);
    guard.tps.limit = limit(20.0);
    RouteSpec {
        pools: vec![PoolSpec {
            model: None,
            peers: (0..peers).map(peer).collect(),
        }],
        affinity,
        balance: Balance::LeastConn,
        full_policy: FullPolicy::Reject,
        rt_limit_factor: 1.0,
        cross_tier_fallback: false,
        ban_ttl: Duration::from_secs(300),
        load: None,
        health: HealthSpec::default(),
        normalize: Normalize::Off,
        memory: MemorySpec::default(),
        guard,
    }
}

fn by(hash: Hash) -> Affinity {
    Affinity::Hash {
        hash,
        saturated: Saturated::Fallback,
    }
}

/// 512 peers whose engines were polled a second ago and have 0 to 6 requests of others.
fn polled(balance: Balance) -> RouteSpec {
    RouteSpec {
        balance,
        load: Some(LoadSpec::default()),
        ..route(MANY, by(Hash::Crc32))
    }
}

/// A book with averages, and half of the slots taken.
struct Stage {
    book: Book,
    resolved: ResolvedRoute,
    now: Instant,
    rng: StdRng,
    _held: Vec<Ticket>,
}

impl Stage {
    fn new(route: RouteSpec) -> Self {
        let (mut book, mut rng) = (Book::default(), StdRng::seed_from_u64(11));
        let resolved = book.attach(route);
        let mut now = start();
        for sample in [Sample::Ttft(800.0), Sample::Tps(60.0)] {
            book.sample(&resolved, POOL, sample, now);
        }
        now += Duration::from_secs(20);
        book.tick(&resolved, Switches::DEFAULT, now);
        let peers = &resolved.spec().pools[0].peers;
        for (peer, running) in peers.iter().zip((0..7).cycle()) {
            let sample = load::Sample {
                running,
                ..load::Sample::default()
            };
            book.report_load(&resolved, &peer.key, Report::Sampled(sample), now);
        }
        now += Duration::from_secs(1);
        let reserve =
            |_| match book.reserve(&resolved, PlacementRequest::new(POOL, None), now, &mut rng) {
                Verdict::Send(placement) => Some(placement.ticket),
                Verdict::Wait(_) | Verdict::Refuse(_) => None,
            };
        let held = (0..8 * peers.len()).filter_map(reserve).collect();
        Self {
            book,
            resolved,
            now,
            rng,
            _held: held,
        }
    }

    /// One request in and out.
    fn turn(&mut self, request: PlacementRequest<'_>) -> usize {
        match self
            .book
            .reserve(&self.resolved, request, self.now, &mut self.rng)
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
    let prio = PlacementRequest {
        turn: Some(5),
        switches: warm,
        ..PlacementRequest::new(POOL, Some(b"session-1"))
    };
    let (nobody, session) = (
        PlacementRequest::new(POOL, None),
        PlacementRequest::new(POOL, Some(b"session-1")),
    );
    let uuid = PlacementRequest::new(POOL, Some(b"0198c1f7-5a4e-7d31-9a55-0d3f7c2b6e11"));
    let few = |affinity| route(FEW, affinity);
    let balanced = |peers, balance| RouteSpec {
        balance,
        ..route(peers, by(Hash::Crc32))
    };
    // The same decision over a few and over many peers.
    for peers in [4, FEW, MANY] {
        let cases = [
            ("crc32", route(peers, by(Hash::Crc32)), uuid),
            ("rendezvous", route(peers, by(Hash::Rendezvous)), uuid),
            ("sticky", route(peers, Affinity::Sticky), uuid),
            ("least_conn", balanced(peers, Balance::LeastConn), nobody),
            ("round_robin", balanced(peers, Balance::RoundRobin), nobody),
            ("power_of_two", balanced(peers, Balance::PowerOfTwo), nobody),
        ];
        for (name, route, request) in cases {
            let mut stage = Stage::new(route);
            let id = BenchmarkId::new(format!("grows/{name}"), peers);
            group.bench_function(id, |bencher| {
                bencher.iter(|| stage.turn(black_box(request)));
            });
        }
    }
    let cases = [
        ("least_conn", few(by(Hash::Crc32)), nobody),
        ("crc32", few(by(Hash::Crc32)), session),
        ("rendezvous", few(by(Hash::Rendezvous)), session),
        ("rendezvous_md5", few(by(Hash::RendezvousMd5)), session),
        ("session_prio", few(by(Hash::Crc32)), prio),
        ("sticky", few(Affinity::Sticky), session),
        ("polled_least_busy", polled(Balance::LeastBusy), nobody),
        ("polled_idle_aware", polled(Balance::IdleAware), nobody),
        ("polled_least_conn", polled(Balance::LeastConn), nobody),
        ("polled_crc32", polled(Balance::LeastConn), session),
    ];
    for (name, route, request) in cases {
        let id = BenchmarkId::new(name, route.pools[0].peers.len());
        let mut stage = Stage::new(route);
        group.bench_function(id, |bencher| {
            bencher.iter(|| stage.turn(black_box(request)));
        });
    }
    group.finish();
}

criterion_group!(benches, decide);
criterion_main!(benches);
