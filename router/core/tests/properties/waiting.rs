//! `full_policy: wait` compared with a naive queue: which requests wait, in which order slots are
//! handed over, and that no slot is lost however a wait ends.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::sample::Index;
use rand::SeedableRng;
use rand::rngs::StdRng;
use router_core::admission::Refusal;
use router_core::book::{
    Book, Handed, Placement, PlacementRequest, PoolId, ResolvedRoute, Switches, Ticket, Verdict,
    WaiterId,
};
use router_core::decision::Outcome;
use router_core::pool::{Evidence, FullPolicy, PeerKey, RouteSpec};

use crate::gen_spec::{flat, peer};

const POOL: PoolId = PoolId(0);
const PEERS: [(&str, u32); 3] = [("a:1", 1), ("b:1", 2), ("c:1", 1)];
const WAIT_MAX: usize = 4;

/// One step of a history. Indices choose among the running or waiting requests.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Arrive,
    Release(Index),
    Leave(Index),
    TimeOut(Index),
    Observe(Index, bool),
    /// The master switch.
    Switch(bool),
    Wait(u64),
}

pub(crate) fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => Just(Step::Arrive),
        5 => any::<Index>().prop_map(Step::Release),
        2 => any::<Index>().prop_map(Step::Leave),
        1 => any::<Index>().prop_map(Step::TimeOut),
        2 => (any::<Index>(), any::<bool>()).prop_map(|(peer, up)| Step::Observe(peer, up)),
        1 => any::<bool>().prop_map(Step::Switch),
        1 => (1_u64..50).prop_map(Step::Wait),
    ]
}

pub(crate) fn spec() -> RouteSpec {
    let peers = PEERS.map(|(key, slots)| peer(key, 0, slots));
    let mut spec = flat(peers.to_vec());
    spec.full_policy = FullPolicy::Wait;
    spec.guard.wait_max = WAIT_MAX as u32;
    spec.ban_ttl = Duration::from_secs(1 << 20);
    spec
}

pub(crate) struct Run {
    book: Book,
    resolved: ResolvedRoute,
    rng: StdRng,
    now: Instant,
    switches: Switches,
    /// Requests in flight, with the index of their peer.
    running: Vec<(Ticket, usize)>,
    /// In order of arrival, with the time of arrival.
    queue: VecDeque<(WaiterId, Instant)>,
    is_up: [bool; PEERS.len()],
}

impl Run {
    pub(crate) fn new(now: Instant) -> Self {
        let mut book = Book::default();
        let resolved = book.attach(spec());
        Self {
            book,
            resolved,
            rng: StdRng::seed_from_u64(7),
            now,
            switches: Switches::DEFAULT,
            running: Vec::new(),
            queue: VecDeque::new(),
            is_up: [true; PEERS.len()],
        }
    }

    pub(crate) fn step(&mut self, step: &Step) -> Result<(), TestCaseError> {
        match step {
            Step::Arrive => self.arrive()?,
            Step::Release(which) => {
                if !self.running.is_empty() {
                    let (ticket, _) = self.running.swap_remove(which.index(self.running.len()));
                    self.book.release(ticket, self.now);
                }
            }
            Step::Leave(which) => {
                if let Some((waiter, _)) = self.drop_out(*which) {
                    prop_assert!(self.book.leave(waiter));
                    prop_assert!(!self.book.leave(waiter), "it left once");
                }
            }
            Step::TimeOut(which) => {
                if let Some((waiter, since)) = self.drop_out(*which) {
                    let outcome = self.book.overflow(waiter, self.now, &mut self.rng);
                    let outcome = outcome.expect("it waited");
                    self.ended(outcome, since)?;
                    prop_assert!(
                        self.book
                            .overflow(waiter, self.now, &mut self.rng)
                            .is_none()
                    );
                }
            }
            Step::Observe(which, up) => {
                let index = which.index(PEERS.len());
                let evidence = if *up {
                    Evidence::Healthy
                } else {
                    Evidence::Failed
                };
                let key = PeerKey::new(PEERS[index].0);
                self.book.observe(&self.resolved, &key, evidence, self.now);
                self.is_up[index] = *up;
            }
            Step::Switch(on) => {
                self.switches.rate_limit = *on;
                self.book.obey(self.switches);
            }
            Step::Wait(ms) => self.now += Duration::from_millis(*ms),
        }
        self.hand_over()
    }

    fn arrive(&mut self) -> Result<(), TestCaseError> {
        let request = PlacementRequest {
            switches: self.switches,
            ..PlacementRequest::new(POOL, None)
        };
        let explained = self
            .book
            .explain(&self.resolved, request, self.now, &mut self.rng);
        let verdict = self
            .book
            .reserve(&self.resolved, request, self.now, &mut self.rng);
        let has_room = self.queue.is_empty() && self.has_room();
        match verdict {
            Verdict::Send(placement) => {
                prop_assert!(has_room || !self.switches.rate_limit, "it overtook");
                let is_sent = matches!(explained.outcome, Outcome::Send { .. });
                prop_assert!(is_sent, "{:?}", explained.outcome);
                prop_assert_eq!(placement.facts.waited_ms, None);
                self.started(placement)?;
            }
            Verdict::Wait(waiter) => {
                prop_assert!(!has_room && self.any_up() && self.switches.rate_limit);
                prop_assert!(self.queue.len() < WAIT_MAX);
                let is_wait = matches!(explained.outcome, Outcome::Wait { ahead, .. } if ahead as usize == self.queue.len());
                prop_assert!(is_wait, "{:?}", explained.outcome);
                self.queue.push_back((waiter, self.now));
            }
            Verdict::Refuse(refusal) => {
                prop_assert_eq!(explained.outcome, Outcome::Refuse(refusal.clone()));
                match refusal {
                    Refusal::NoHealthyPeer { .. } => prop_assert!(!self.any_up()),
                    _ => prop_assert_eq!(self.queue.len(), WAIT_MAX),
                }
            }
        }
        Ok(())
    }

    /// While there is room, slots go to the front of the queue and to no other request.
    fn hand_over(&mut self) -> Result<(), TestCaseError> {
        for Handed { waiter, outcome } in self.book.hand_over(self.now, &mut self.rng) {
            let front = self.queue.pop_front();
            prop_assert_eq!(front.map(|(waiter, _)| waiter), Some(waiter));
            let (_, since) = front.expect("there is a front");
            let may_go = self.has_room() || !self.switches.rate_limit;
            prop_assert!(may_go || !self.any_up());
            self.ended(outcome, since)?;
        }
        prop_assert!(
            self.queue.is_empty()
                || (self.any_up() && !self.has_room() && self.switches.rate_limit),
            "room is left while {} wait",
            self.queue.len()
        );
        prop_assert_eq!(self.book.waiting(&self.resolved, POOL), self.queue.len());
        self.book.check();
        Ok(())
    }

    fn ended(
        &mut self,
        outcome: Result<Placement, Refusal>,
        since: Instant,
    ) -> Result<(), TestCaseError> {
        match outcome {
            Ok(placement) => {
                let waited = (self.now - since).as_millis() as u64;
                prop_assert_eq!(placement.facts.waited_ms, Some(waited));
                self.started(placement)
            }
            Err(refusal) => {
                let is_down = matches!(refusal, Refusal::NoHealthyPeer { .. });
                prop_assert!(is_down, "{:?}", refusal);
                prop_assert!(!self.any_up());
                Ok(())
            }
        }
    }

    fn started(&mut self, placement: Placement) -> Result<(), TestCaseError> {
        prop_assert!(self.is_up[placement.peer], "a banned peer takes nobody");
        self.running.push((placement.ticket, placement.peer));
        Ok(())
    }

    fn drop_out(&mut self, which: Index) -> Option<(WaiterId, Instant)> {
        let length = self.queue.len();
        (length > 0).then(|| self.queue.remove(which.index(length)))?
    }

    fn any_up(&self) -> bool {
        self.is_up.contains(&true)
    }

    fn has_room(&self) -> bool {
        let up = |peer: usize| self.is_up[peer];
        let running = self.running.iter().filter(|(_, peer)| up(*peer)).count();
        let limit = (0..PEERS.len()).filter(|peer| up(*peer));
        (running as u32) < limit.map(|peer| PEERS[peer].1).sum()
    }

    /// Ends every wait and every request. No state may remain.
    pub(crate) fn end(mut self) -> Result<(), TestCaseError> {
        while let Some((waiter, _)) = self.queue.pop_back() {
            prop_assert!(self.book.leave(waiter));
        }
        for (ticket, _) in self.running.drain(..) {
            self.book.release(ticket, self.now);
        }
        let limits = self.book.limits(&self.resolved, POOL, self.now);
        prop_assert_eq!(limits.in_flight, 0);
        self.book.detach(&self.resolved);
        self.book.check();
        Ok(())
    }
}
