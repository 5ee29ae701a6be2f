//! One route with one flat pool: the smallest setup for a vector.

use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand::rngs::StdRng;
use router_core::admission::{Full, Refusal};
use router_core::affinity::Affinity;
use router_core::balance::{Balance, Normalize};
use router_core::book::status::Protection;
use router_core::book::{Book, PlacementRequest, PoolId, ResolvedRoute, Switches, Ticket, Verdict};
use router_core::decision::{Facts, Mode, Outcome};
use router_core::health::HealthSpec;
use router_core::pool::{
    Evidence, FullPolicy, GuardSpec, MemorySpec, PeerKey, PeerSpec, PoolSpec, Role, RouteSpec,
    Slots, Weight,
};
use router_core::signal::Sample;

/// The only pool.
pub(crate) const POOL: PoolId = PoolId(0);

/// One route with one flat pool, and its requests in flight.
pub(crate) struct Bench {
    pub(crate) book: Book,
    pub(crate) resolved: ResolvedRoute,
    pub(crate) held: Vec<Ticket>,
    pub(crate) now: Instant,
    pub(crate) rng: StdRng,
    /// The switches for every request and tick.
    pub(crate) switches: Switches,
}

impl Bench {
    /// Peers as (address, priority, slots), in file order.
    pub(crate) fn new(affinity: Affinity, peers: &[(&str, i64, u32)]) -> Self {
        Self::with(affinity, peers, |_| {})
    }

    pub(crate) fn with(
        affinity: Affinity,
        peers: &[(&str, i64, u32)],
        change: impl FnOnce(&mut RouteSpec),
    ) -> Self {
        let mut spec = RouteSpec {
            pools: vec![PoolSpec {
                model: None,
                peers: peers.iter().map(peer).collect(),
            }],
            affinity,
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
        };
        change(&mut spec);
        let mut book = Book::default();
        let resolved = book.attach(spec);
        Self {
            book,
            resolved,
            held: Vec::new(),
            now: start(),
            rng: StdRng::seed_from_u64(17),
            switches: Switches::DEFAULT,
        }
    }

    pub(crate) fn request(&mut self, session: Option<&str>) -> Outcome {
        let request = PlacementRequest {
            switches: self.switches,
            ..PlacementRequest::new(POOL, session.map(str::as_bytes))
        };
        self.book
            .explain(&self.resolved, request, self.now, &mut self.rng)
            .outcome
    }

    /// The address and mode of a request that must be placed.
    pub(crate) fn sent(&mut self, session: Option<&str>) -> (String, Mode, Facts) {
        match self.request(session) {
            Outcome::Send {
                peer, mode, facts, ..
            } => (peer.to_string(), mode, facts),
            other => panic!("not sent: {other:?}"),
        }
    }

    pub(crate) fn refused(&mut self) -> Refusal {
        match self.request(None) {
            Outcome::Refuse(refusal) => refusal,
            other => panic!("not refused: {other:?}"),
        }
    }

    /// The numbers of a request that must be refused by a full pool.
    pub(crate) fn full(&mut self) -> Full {
        match self.refused() {
            Refusal::ConcurrencyLimit(full) => *full,
            other => panic!("refused otherwise: {other:?}"),
        }
    }

    pub(crate) fn ban(&mut self, peer: &str) {
        self.book.observe(
            &self.resolved,
            &PeerKey::new(peer),
            Evidence::Failed,
            self.now,
        );
    }

    pub(crate) fn recover(&mut self, peer: &str) {
        self.book.observe(
            &self.resolved,
            &PeerKey::new(peer),
            Evidence::Healthy,
            self.now,
        );
    }

    /// Reserves one request on the winning peer.
    pub(crate) fn reserve(&mut self, session: Option<&str>) -> Ticket {
        let request = PlacementRequest::new(POOL, session.map(str::as_bytes));
        match self
            .book
            .reserve(&self.resolved, request, self.now, &mut self.rng)
        {
            Verdict::Send(placement) => placement.ticket,
            other => panic!("not placed: {other:?}"),
        }
    }

    /// Decides a request of a turn (`None`: without a usable header) and holds it if it is placed.
    /// An explanation made just before must give the same result.
    pub(crate) fn turn(&mut self, turn: Option<u32>) -> Result<Facts, Refusal> {
        let request = PlacementRequest {
            turn,
            switches: self.switches,
            ..PlacementRequest::new(POOL, None)
        };
        let (rng, book) = (|| StdRng::seed_from_u64(5), &mut self.book);
        let explained = book
            .explain(&self.resolved, request, self.now, &mut rng())
            .outcome;
        match book.reserve(&self.resolved, request, self.now, &mut rng()) {
            Verdict::Send(placement) => {
                assert!(
                    matches!(explained, Outcome::Send { facts, .. } if facts == placement.facts)
                );
                self.held.push(placement.ticket);
                Ok(placement.facts)
            }
            Verdict::Refuse(refusal) => {
                assert_eq!(explained, Outcome::Refuse(refusal.clone()));
                Err(refusal)
            }
            Verdict::Wait(waiter) => panic!("{waiter:?}, on a route where nobody waits"),
        }
    }

    /// How many of `count` requests of a turn are admitted.
    pub(crate) fn admitted(&mut self, turn: Option<u32>, count: usize) -> usize {
        (0..count).filter(|_| self.turn(turn).is_ok()).count()
    }

    /// Ends every held request.
    pub(crate) fn end_all(&mut self) {
        for ticket in self.held.drain(..) {
            self.book.release(ticket, self.now);
        }
        self.book.check();
    }

    pub(crate) fn sample(&mut self, sample: Sample) {
        self.book.sample(&self.resolved, POOL, sample, self.now);
    }

    /// Advances the clock and does the work that is due.
    pub(crate) fn advance(&mut self, by: Duration) {
        let end = self.now + by;
        loop {
            let next = self.book.tick(&self.resolved, self.switches, self.now);
            assert!(next > self.now, "a tick asks for a later one");
            if next > end {
                break;
            }
            self.now = next;
        }
        self.now = end;
    }

    /// Takes one sample in the current window and lets the window end.
    pub(crate) fn window_of(&mut self, sample: Sample) {
        self.sample(sample);
        self.advance(Duration::from_secs(20));
    }

    pub(crate) fn protection(&self) -> Protection {
        self.book
            .protection(&self.resolved, POOL, self.switches, self.now)
    }

    /// Puts `loads` requests on the peers, in file order, by banning all other peers meanwhile.
    pub(crate) fn load(&mut self, loads: &[u32]) {
        let keys: Vec<_> = self.resolved.spec().pools[0]
            .peers
            .iter()
            .map(|p| p.key.clone())
            .collect();
        for (index, count) in loads.iter().enumerate() {
            for (other, key) in keys.iter().enumerate() {
                if other == index {
                    self.recover(key.as_str());
                } else {
                    self.ban(key.as_str());
                }
            }
            for _ in 0..*count {
                let ticket = self.reserve(None);
                self.held.push(ticket);
            }
        }
        keys.iter().for_each(|key| self.recover(key.as_str()));
        self.book.check();
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "there is no other way to obtain a first instant"
)]
fn start() -> Instant {
    Instant::now()
}

fn peer(&(key, priority, slots): &(&str, i64, u32)) -> PeerSpec {
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
