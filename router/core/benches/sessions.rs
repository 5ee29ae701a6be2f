//! A million sessions of `sticky_least_loaded` in one pool: what they take, and the longest time for
//! which a new one, a known one or the sweep keeps the book busy. Goals: 200 MB, one millisecond.
//! `cargo bench -p router-core --bench sessions`.

#![expect(clippy::print_stdout, reason = "its output is its result")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use allocation_counter::measure;
use rand::SeedableRng;
use rand::rngs::StdRng;
use router_core::affinity::Affinity;
use router_core::balance::{Balance, Normalize};
use router_core::book::{Book, PlacementRequest, PoolId, ResolvedRoute, Switches, Verdict};
use router_core::health::HealthSpec;
use router_core::pool::{
    FullPolicy, GuardSpec, MemorySpec, PeerKey, PeerSpec, PoolSpec, Role, RouteSpec, Slots, Weight,
};

const SESSIONS: u32 = 1_000_000;
const POOL: PoolId = PoolId(0);
const TTL: Duration = Duration::from_secs(7_200);

fn route() -> RouteSpec {
    let peer = |number: u32| {
        let key = format!("10.0.0.{number}:8000");
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
    RouteSpec {
        pools: vec![PoolSpec {
            model: None,
            peers: (0..64).map(peer).collect(),
        }],
        affinity: Affinity::Sticky,
        balance: Balance::LeastConn,
        full_policy: FullPolicy::Reject,
        rt_limit_factor: 1.0,
        cross_tier_fallback: false,
        ban_ttl: Duration::from_secs(300),
        guard: GuardSpec::default(),
        load: None,
        health: HealthSpec::default(),
        normalize: Normalize::Off,
        memory: MemorySpec {
            session_ttl: TTL,
            sessions_max: SESSIONS,
            ..MemorySpec::default()
        },
    }
}

/// Times of one kind of step.
#[derive(Default)]
struct Times {
    all: Vec<Duration>,
}

impl Times {
    fn take(&mut self, step: impl FnOnce()) {
        let before = clock();
        step();
        self.all.push(clock() - before);
    }

    fn show(mut self, what: &str) {
        self.all.sort_unstable();
        let at = |share: f64| self.all[((self.all.len() - 1) as f64 * share) as usize];
        let (median, p999, longest) = (at(0.5), at(0.999), at(1.0));
        println!("{what:<28} median {median:>9.2?}  p99.9 {p999:>9.2?}  longest {longest:>9.2?}");
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a bench measures, and there is no other way to obtain a first instant"
)]
fn clock() -> Instant {
    Instant::now()
}

struct Stage {
    book: Book,
    resolved: ResolvedRoute,
    now: Instant,
    rng: StdRng,
}

impl Stage {
    /// One request of a session, in and out.
    fn turn(&mut self, session: u32) {
        // As long as the ids that clients make: 36 bytes.
        let id = format!(
            "{:08x}-7d3e-4b1a-9c55-{session:012x}",
            session.wrapping_mul(2_654_435_761)
        );
        let request = PlacementRequest::new(POOL, Some(id.as_bytes()));
        match self
            .book
            .reserve(&self.resolved, request, self.now, &mut self.rng)
        {
            Verdict::Send(placement) => self.book.release(placement.ticket, self.now),
            other => panic!("the stage has room: {other:?}"),
        }
    }

    fn tick(&mut self) {
        self.book.tick(&self.resolved, Switches::DEFAULT, self.now);
    }

    fn sessions(&self) -> u64 {
        self.book.memory(&self.resolved, POOL).sessions
    }
}

fn main() {
    let mut book = Book::default();
    let resolved = book.attach(route());
    let mut stage = Stage {
        book,
        resolved,
        now: clock(),
        rng: StdRng::seed_from_u64(11),
    };
    // Room for the measurements is not the table's.
    let (mut new, mut known, mut sweep) = (Times::default(), Times::default(), Times::default());
    new.all.reserve(SESSIONS as usize);
    let taken = measure(|| (0..SESSIONS).for_each(|session| new.take(|| stage.turn(session))));
    assert_eq!(stage.sessions(), u64::from(SESSIONS));
    let bytes = taken.bytes_current as f64;
    println!(
        "{SESSIONS} sessions take {:.0} MB, {:.0} bytes each",
        bytes / 1e6,
        bytes / f64::from(SESSIONS)
    );
    new.show("a new session");
    let some = (0..SESSIONS).step_by(97);
    some.for_each(|session| known.take(|| stage.turn(session)));
    known.show("a known session");
    stage.now += TTL;
    while stage.sessions() > 0 {
        sweep.take(|| stage.tick());
    }
    sweep.show("one tick of the sweep");
}
