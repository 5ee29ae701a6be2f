//! One random history, applied to the book and the model in parallel.

use std::sync::Arc;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::sample::Index;
use rand::SeedableRng;
use rand::rngs::StdRng;
use router_core::admission::{RETRY_AFTER_S_MAX, Refusal};
use router_core::balance::Balance;
use router_core::book::{
    Book, Placement, PlacementRequest, PoolId, ResolvedRoute, Ticket, Verdict,
};
use router_core::decision::{Mode, Outcome};
use router_core::pool::{Evidence, PeerKey, RouteSpec};

use crate::gen_spec::any_key;
use crate::model::{Expected, Model};

/// One step of a history.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Reserve {
        pool: Index,
        session: Option<u8>,
    },
    Retry(Index),
    Release(Index),
    Observe(PeerKey, Evidence),
    Advance(Duration),
    /// Attach a new spec; existing requests continue under their old one.
    Reload(Box<RouteSpec>),
    /// Detach a resolved route that is not the newest.
    Detach(Index),
}

pub(crate) fn any_step(
    spec: impl Strategy<Value = RouteSpec> + 'static,
) -> impl Strategy<Value = Step> {
    let evidence = prop_oneof![
        3 => Just(Evidence::Failed),
        1 => Just(Evidence::Busy),
        1 => Just(Evidence::Silent),
        2 => Just(Evidence::Healthy),
    ];
    prop_oneof![
        12 => (any::<Index>(), proptest::option::of(any::<u8>()))
            .prop_map(|(pool, session)| Step::Reserve { pool, session }),
        5 => any::<Index>().prop_map(Step::Retry),
        5 => any::<Index>().prop_map(Step::Release),
        4 => (any_key(), evidence).prop_map(|(key, evidence)| Step::Observe(key, evidence)),
        2 => (0_u64..8_000).prop_map(|ms| Step::Advance(Duration::from_millis(ms))),
        1 => spec.prop_map(|spec| Step::Reload(Box::new(spec))),
        1 => any::<Index>().prop_map(Step::Detach),
    ]
}

/// A request in flight.
struct Live {
    ticket: Ticket,
    key: PeerKey,
    /// Index in [`Run::resolved routes`].
    resolved: usize,
    pool: usize,
    /// The key of its pool. The pool lives as long as the request.
    model: Option<Arc<str>>,
    tier: i64,
    tried: Vec<usize>,
}

/// The book, the model, and the state that the edge would keep.
pub(crate) struct Run {
    book: Book,
    model: Model,
    /// Oldest first; `None` once detached. The last one is in force.
    routes: Vec<Option<ResolvedRoute>>,
    live: Vec<Live>,
    now: Instant,
    steps: u64,
}

impl Run {
    pub(crate) fn new(spec: RouteSpec, now: Instant) -> Self {
        let (book, model) = (Book::default(), Model::default());
        let mut run = Self {
            book,
            model,
            routes: Vec::new(),
            live: Vec::new(),
            now,
            steps: 0,
        };
        run.reload(spec);
        run
    }

    pub(crate) fn step(&mut self, step: Step) -> Result<(), TestCaseError> {
        self.steps += 1;
        match step {
            Step::Reserve { pool, session } => self.reserve(pool, session)?,
            Step::Retry(which) => self.retry(which)?,
            Step::Release(which) => self.release(which),
            Step::Observe(key, evidence) => self.observe(&key, evidence)?,
            Step::Advance(by) => self.now += by,
            Step::Reload(spec) => self.reload(*spec),
            Step::Detach(which) => self.detach(which),
        }
        self.book.check();
        self.compare()
    }

    /// Ends every request and gives up every resolved route. No state may remain.
    pub(crate) fn finish(mut self) -> Result<(), TestCaseError> {
        for live in self.live.drain(..) {
            self.book.release(live.ticket, self.now);
        }
        let spec = self.current().spec().clone();
        for resolved in self.routes.iter().flatten() {
            self.book.detach(resolved);
        }
        self.book.check();
        let fresh = self.book.attach(spec);
        for pool in 0..fresh.spec().pools.len() {
            for peer in self.book.peers(&fresh, PoolId(pool), self.now) {
                prop_assert_eq!(
                    (peer.in_flight, peer.banned),
                    (0, false),
                    "state outlived its last holder"
                );
            }
        }
        Ok(())
    }

    fn current(&self) -> &ResolvedRoute {
        self.routes
            .last()
            .and_then(Option::as_ref)
            .expect("the newest resolved is never detached")
    }

    fn reserve(&mut self, pool: Index, session: Option<u8>) -> Result<(), TestCaseError> {
        let pool = pool.index(self.current().spec().pools.len());
        let text = session.map(|session| format!("session-{session}"));
        let request = PlacementRequest::new(PoolId(pool), text.as_deref().map(str::as_bytes));
        let expected = self
            .model
            .expect(self.current().spec(), pool, request.session, self.now);
        let mut rng = StdRng::seed_from_u64(self.steps);
        let explained = self
            .book
            .explain(self.current(), request, self.now, &mut rng)
            .outcome;
        self.compare()?;

        let mut rng = StdRng::seed_from_u64(self.steps);
        let resolved = self
            .routes
            .last()
            .and_then(Option::as_ref)
            .expect("the newest is attached");
        let verdict = self.book.reserve(resolved, request, self.now, &mut rng);
        match (verdict, expected) {
            (Verdict::Refuse(mut refusal), Expected::Refuse(expected)) => {
                prop_assert_eq!(explained, Outcome::Refuse(refusal.clone()));
                if let Refusal::ConcurrencyLimit(full) = &mut refusal {
                    // The model does not know the rate of ending requests.
                    prop_assert!((1..=RETRY_AFTER_S_MAX).contains(&full.retry_after_s));
                    full.retry_after_s = 1;
                }
                prop_assert_eq!(refusal, expected);
                Ok(())
            }
            (Verdict::Send(placement), expected @ Expected::Send { .. }) => {
                check_explained(resolved, pool, &placement, &explained)?;
                self.placed(pool, placement, &expected)
            }
            (verdict, expected) => Err(TestCaseError::fail(format!(
                "{verdict:?}, the model expects {expected:?}"
            ))),
        }
    }

    fn placed(
        &mut self,
        pool: usize,
        placement: Placement,
        expected: &Expected,
    ) -> Result<(), TestCaseError> {
        let Placement {
            ticket,
            peer,
            mode,
            facts,
        } = placement;
        let Expected::Send {
            peers,
            mode: expected_mode,
            tier,
            limit,
            in_flight,
        } = expected
        else {
            return Err(TestCaseError::fail("the model expects a refusal"));
        };
        prop_assert!(peers.contains(&peer), "{peer} is none of {peers:?}");
        prop_assert_eq!(mode, *expected_mode);
        prop_assert_eq!(
            (facts.tier, facts.limit, facts.in_flight),
            (*tier, *limit as f64, *in_flight)
        );
        let spec = self.current().spec();
        let key = spec.pools[pool].peers[peer].key.clone();
        prop_assert_eq!(facts.peer_in_flight, self.model.in_flight(&key));
        let model = spec.pools[pool].model.clone();
        if spec.balance == Balance::RoundRobin && mode != Mode::Hash {
            *self.model.turns.entry(model.clone()).or_default() += 1;
        }
        self.model.start(&key);
        let resolved = self.routes.len() - 1;
        self.live.push(Live {
            ticket,
            key,
            resolved,
            pool,
            model,
            tier: facts.tier,
            tried: vec![peer],
        });
        Ok(())
    }

    fn retry(&mut self, which: Index) -> Result<(), TestCaseError> {
        if self.live.is_empty() {
            return Ok(());
        }
        let which = which.index(self.live.len());
        let live = &mut self.live[which];
        let Some(resolved) = &self.routes[live.resolved] else {
            return Ok(());
        };
        let spec = resolved.spec();
        let expected = self
            .model
            .expect_retry(spec, live.pool, live.tier, &live.tried, self.now);
        // The peer of the failed attempt is excluded even if `tried` does not name it.
        let named = &live.tried[..live.tried.len() - 1];
        let next = self
            .book
            .retry(resolved, &mut live.ticket, named, None, self.now);
        prop_assert_eq!(next, expected);
        if let Some(next) = next {
            let key = spec.pools[live.pool].peers[next].key.clone();
            self.model.start(&key);
            self.model.end(&live.key);
            live.key = key;
            live.tried.push(next);
        }
        Ok(())
    }

    fn release(&mut self, which: Index) {
        if self.live.is_empty() {
            return;
        }
        let live = self.live.swap_remove(which.index(self.live.len()));
        self.model.end(&live.key);
        self.book.release(live.ticket, self.now);
        self.forget();
    }

    fn observe(&mut self, key: &PeerKey, evidence: Evidence) -> Result<(), TestCaseError> {
        let ttl = self.current().spec().ban_ttl;
        let expected = self.model.observe(key, evidence, ttl, self.now);
        let resolved = self
            .routes
            .last()
            .and_then(Option::as_ref)
            .expect("the newest is attached");
        prop_assert_eq!(
            self.book.observe(resolved, key, evidence, self.now),
            expected
        );
        Ok(())
    }

    fn reload(&mut self, spec: RouteSpec) {
        for peer in spec.pools.iter().flat_map(|pool| &pool.peers) {
            self.model.peers.entry(peer.key.clone()).or_default();
        }
        let resolved = self.book.attach(spec);
        self.routes.push(Some(resolved));
    }

    fn detach(&mut self, which: Index) {
        let older = self.routes.len() - 1;
        if older == 0 {
            return;
        }
        if let Some(resolved) = self.routes[which.index(older)].take() {
            self.book.detach(&resolved);
            self.book.detach(&resolved);
        }
        self.forget();
    }

    fn forget(&mut self) {
        let specs = self
            .routes
            .iter()
            .flatten()
            .flat_map(|resolved| &resolved.spec().pools);
        let named: Vec<_> = specs
            .clone()
            .flat_map(|pool| &pool.peers)
            .map(|peer| peer.key.clone())
            .collect();
        let models = specs.map(|pool| pool.model.clone());
        let busy = self.live.iter().map(|live| live.model.clone());
        let models: Vec<_> = models.chain(busy).collect();
        self.model.turns.retain(|model, _| models.contains(model));
        self.model.forget(&named);
    }

    /// Compares the peers of the book with those of the model.
    fn compare(&self) -> Result<(), TestCaseError> {
        let resolved = self.current();
        for pool in 0..resolved.spec().pools.len() {
            for peer in self.book.peers(resolved, PoolId(pool), self.now) {
                prop_assert_eq!(
                    peer.in_flight,
                    self.model.in_flight(&peer.peer),
                    "{}",
                    peer.peer
                );
                prop_assert_eq!(peer.banned, self.model.is_banned(&peer.peer, self.now));
                prop_assert_eq!(peer.banned, peer.ban_left_s.is_some_and(|left| left > 0));
            }
        }
        Ok(())
    }
}

/// An explanation made just before gives the same peer for the same reasons.
fn check_explained(
    resolved: &ResolvedRoute,
    pool: usize,
    placement: &Placement,
    explained: &Outcome,
) -> Result<(), TestCaseError> {
    let Outcome::Send {
        peer, mode, facts, ..
    } = explained
    else {
        return Err(TestCaseError::fail(format!("explained as {explained:?}")));
    };
    prop_assert_eq!(peer, &resolved.peer(PoolId(pool), placement.peer).key);
    prop_assert_eq!((mode, facts), (&placement.mode, &placement.facts));
    Ok(())
}
