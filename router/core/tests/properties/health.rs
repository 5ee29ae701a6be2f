//! Random attempts with random outcomes: the states of the peers stay within their bounds.

use std::time::{Duration, Instant};

use proptest::prelude::*;
use rand::SeedableRng;
use rand::rngs::StdRng;
use router_core::admission::Refusal;
use router_core::book::{Book, PlacementRequest, PoolId, ResolvedRoute, Ticket, Verdict};
use router_core::health::{AttemptEnd, Failure, HealthSpec, HealthState};
use router_core::pool::RouteSpec;

use crate::gen_spec::any_spec;
use crate::start;

const POOL: PoolId = PoolId(0);

#[derive(Clone, Copy, Debug)]
enum Step {
    Reserve(u8),
    FirstByte(usize),
    End(usize, AttemptEnd),
    Release(usize),
    Advance(u32),
    Watch,
}

fn any_end() -> impl Strategy<Value = AttemptEnd> {
    prop_oneof![
        3 => Just(AttemptEnd::Served),
        5 => proptest::sample::select(Failure::ALL).prop_map(AttemptEnd::Failed),
        1 => Just(AttemptEnd::Abandoned),
        1 => Just(AttemptEnd::Neutral),
    ]
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => any::<u8>().prop_map(Step::Reserve),
        3 => any::<usize>().prop_map(Step::FirstByte),
        6 => (any::<usize>(), any_end()).prop_map(|(nth, end)| Step::End(nth, end)),
        4 => any::<usize>().prop_map(Step::Release),
        3 => (0_u32..40_000).prop_map(Step::Advance),
        2 => Just(Step::Watch),
    ]
}

struct Run {
    book: Book,
    route: ResolvedRoute,
    tickets: Vec<Ticket>,
    now: Instant,
    rng: StdRng,
}

impl Run {
    fn step(&mut self, step: Step) -> Result<(), TestCaseError> {
        let Self {
            book,
            route,
            tickets,
            now,
            rng,
        } = self;
        let nth = |nth: usize, tickets: &[Ticket]| nth.checked_rem(tickets.len());
        match step {
            Step::Reserve(session) => {
                let session = [session];
                let request = PlacementRequest::new(POOL, Some(&session));
                match book.reserve(route, request, *now, rng) {
                    Verdict::Send(placement) => tickets.push(placement.ticket),
                    Verdict::Wait(id) => prop_assert!(book.leave(id)),
                    Verdict::Refuse(refusal) => {
                        let is_empty = !route.spec().pools[0].peers.iter().any(|peer| peer.enabled);
                        let nobody = matches!(refusal, Refusal::NoHealthyPeer { .. });
                        prop_assert!(!nobody || is_empty, "the last peer serves: {refusal:?}");
                    }
                }
            }
            Step::FirstByte(at) => {
                if let Some(nth) = nth(at, tickets) {
                    book.first_byte(route, &mut tickets[nth], *now);
                }
            }
            Step::End(at, end) => {
                if let Some(nth) = nth(at, tickets) {
                    book.attempt_ended(route, &mut tickets[nth], end, *now);
                }
            }
            Step::Release(at) => {
                if let Some(nth) = nth(at, tickets) {
                    book.release(tickets.swap_remove(nth), *now);
                }
            }
            Step::Advance(ms) => *now += Duration::from_millis(ms.into()),
            Step::Watch => {
                let watched = book.watch(route, *now);
                prop_assert!(watched.next.is_none_or(|next| next > *now), "{watched:?}");
            }
        }
        book.check();
        self.keeps_its_bounds()
    }

    /// At most the allowed number of a tier's peers is out, and each of them has a cause and a
    /// start time.
    fn keeps_its_bounds(&self) -> Result<(), TestCaseError> {
        let peers = self.book.peers(&self.route, POOL, self.now);
        let mut tiers: Vec<i64> = peers.iter().map(|peer| peer.priority).collect();
        tiers.sort_unstable();
        tiers.dedup();
        for tier in tiers {
            let enabled = peers
                .iter()
                .filter(|peer| peer.enabled && peer.priority == tier);
            let is_out = |state| match state {
                HealthState::Healthy | HealthState::Returning => false,
                HealthState::Suspect | HealthState::Ejected | HealthState::Probing => true,
            };
            let out = enabled.clone().filter(|peer| is_out(peer.health.state));
            let (out, all) = (out.count(), enabled.count());
            prop_assert!(
                out == 0 || (out <= all / 2).max(out == 1 && all > 1),
                "{peers:?}"
            );
        }
        for peer in &peers {
            let facts = &peer.health;
            let is_explained = facts.cause.is_some() && facts.since_s.is_some();
            prop_assert!(
                facts.state == HealthState::Healthy || is_explained,
                "{facts:?}"
            );
        }
        Ok(())
    }
}

fn spec() -> impl Strategy<Value = RouteSpec> {
    (any_spec(), any::<bool>()).prop_map(|(mut spec, hangs_soon)| {
        spec.health = HealthSpec {
            hang_after: hangs_soon.then_some(Duration::from_secs(20)),
            ..HealthSpec::default()
        };
        spec
    })
}

proptest! {
    #[test]
    fn peers_change_their_state_within_bounds(
        spec in spec(),
        steps in proptest::collection::vec(any_step(), 0..250),
    ) {
        let mut book = Book::default();
        let route = book.attach(spec);
        let mut run = Run {
            book,
            route,
            tickets: Vec::new(),
            now: start(),
            rng: StdRng::seed_from_u64(1),
        };
        for step in steps {
            run.step(step)?;
        }
        for ticket in run.tickets {
            run.book.release(ticket, run.now);
        }
        run.book.check();
    }
}
