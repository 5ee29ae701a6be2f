//! Properties: random histories compared with a naive model, and the guarantees about bursts and
//! home peers.

#[path = "properties/gen_spec.rs"]
mod gen_spec;
#[path = "properties/guard.rs"]
mod guard;
#[path = "properties/health.rs"]
mod health;
#[path = "properties/model.rs"]
mod model;
#[path = "properties/run.rs"]
mod run;
#[path = "properties/waiting.rs"]
mod waiting;

use std::time::Instant;

use proptest::collection::vec;
use proptest::prelude::*;
use rand::SeedableRng;
use rand::rngs::StdRng;
use router_core::affinity::{Affinity, Hash, hash};
use router_core::balance::Balance;
use router_core::book::{Book, PlacementRequest, PoolId, ResolvedRoute, Ticket, Verdict};
use router_core::decision::{Mode, Outcome};
use router_core::pool::{Evidence, FullPolicy, PeerKey, PeerSpec};

use gen_spec::{any_balance, any_hash, any_spec, flat, peer};

const POOL: PoolId = PoolId(0);
const BALANCED: PlacementRequest<'static> = PlacementRequest::new(POOL, None);

#[expect(
    clippy::disallowed_methods,
    reason = "there is no other way to obtain a first instant"
)]
fn start() -> Instant {
    Instant::now()
}

/// Reserves `requests` times. Returns the winners' indices and their tickets.
fn burst(
    book: &mut Book,
    resolved: &ResolvedRoute,
    requests: usize,
    seed: u64,
) -> (Vec<usize>, Vec<Ticket>) {
    let (now, mut rng) = (start(), StdRng::seed_from_u64(seed));
    let reserve = |_| match book.reserve(resolved, BALANCED, now, &mut rng) {
        Verdict::Send(placement) => Some((placement.peer, placement.ticket)),
        Verdict::Wait(_) | Verdict::Refuse(_) => None,
    };
    (0..requests).filter_map(reserve).unzip()
}

fn single_slot_peers(count: usize) -> Vec<PeerSpec> {
    (0..count)
        .map(|i| peer(&format!("10.0.0.{i}:8000"), 0, 1))
        .collect()
}

proptest! {
    /// Covers: first come, first served without overtaking; the bound of the queue; leaving, timing
    /// out, bans, recoveries and the master switch while requests wait; no slot is lost.
    #[test]
    fn waiters_are_served_as_the_naive_queue_says(
        steps in vec(waiting::any_step(), 1..120),
    ) {
        let mut run = waiting::Run::new(start());
        for step in &steps {
            run.step(step)?;
        }
        run.end()?;
    }

    /// Covers: possible winners, refusals and their numbers, facts, modes, retries, bans, reloads;
    /// an explanation agrees and counts nothing; in-flight ends at zero.
    #[test]
    fn the_book_agrees_with_the_naive_model(
        spec in any_spec(),
        steps in vec(run::any_step(any_spec()), 0..120),
    ) {
        let mut run = run::Run::new(spec, start());
        for step in steps {
            run.step(step)?;
        }
        run.finish()?;
    }

    #[test]
    fn a_burst_runs_up_to_the_limit_and_never_beyond(
        slots in vec(1_u32..30, 1..8),
        factor in 0.1_f64..3.0,
        requests in 0_usize..400,
        balance in any_balance(),
        seed: u64,
    ) {
        let peers = slots.iter().enumerate().map(|(i, s)| peer(&format!("p{i}:1"), 0, *s)).collect();
        let mut spec = flat(peers);
        (spec.rt_limit_factor, spec.balance) = (factor, balance);
        let mut book = Book::default();
        let resolved = book.attach(spec);
        let (winners, tickets) = burst(&mut book, &resolved, requests, seed);
        let limit = model::most(slots.iter().map(|s| u64::from(*s)).sum(), factor);
        prop_assert_eq!(winners.len() as u64, limit.min(requests as u64));
        tickets.into_iter().for_each(|ticket| book.release(ticket, start()));
        book.check();
        prop_assert_eq!(book.limits(&resolved, POOL, start()).in_flight, 0);
    }

    #[test]
    fn idle_single_slot_peers_share_within_one(
        peers in 1_usize..20,
        requests in 0_usize..60,
        balance in any_balance(),
        seed: u64,
    ) {
        let mut spec = flat(single_slot_peers(peers));
        (spec.balance, spec.full_policy) = (balance, FullPolicy::Overflow);
        // Beyond one request per peer, two choices bound the spread only with high probability.
        let requests = if balance == Balance::PowerOfTwo { requests.min(peers) } else { requests };
        let mut book = Book::default();
        let resolved = book.attach(spec);
        let (winners, _tickets) = burst(&mut book, &resolved, requests, seed);
        let mut counts = vec![0_usize; peers];
        winners.iter().for_each(|winner| counts[*winner] += 1);
        let most = counts.iter().max().copied().unwrap_or(0);
        let least = counts.iter().min().copied().unwrap_or(0);
        prop_assert!(most - least <= 1, "{counts:?}");
    }

    #[test]
    fn rendezvous_moves_only_the_lost_peers_sessions(
        peers in 2_usize..20,
        lost in any::<proptest::sample::Index>(),
        session in vec(any::<u8>(), 0..400),
        md5: bool,
    ) {
        let hash = if md5 { Hash::RendezvousMd5 } else { Hash::Rendezvous };
        let keys: Vec<String> = (0..peers).map(|i| format!("10.0.0.{i}:8000")).collect();
        let lost = &keys[lost.index(peers)];
        let home = |gone: &str| {
            let left: Vec<&str> = keys.iter().map(String::as_str).filter(|key| *key != gone).collect();
            hash::home(hash, &session, left.iter().copied()).map(|(index, _)| left[index].to_owned())
        };
        let before = home("");
        if before.as_ref() != Some(lost) {
            prop_assert_eq!(home(lost), before);
        }
    }

    #[test]
    fn rendezvous_does_not_depend_on_file_order(
        keys in Just((0..12).map(|i| format!("h{i}:1")).collect::<Vec<_>>()).prop_shuffle(),
        session in vec(any::<u8>(), 1..40),
    ) {
        let mut sorted = keys.clone();
        sorted.sort();
        let home = |list: &[String]| {
            let won = hash::home(Hash::Rendezvous, &session, list.iter().map(String::as_str));
            won.map(|(index, _)| list[index].clone())
        };
        prop_assert_eq!(home(&keys), home(&sorted));
    }

    #[test]
    fn a_home_of_crc32_does_not_move_when_others_are_banned(
        peers in 1_usize..12,
        banned in vec(any::<proptest::sample::Index>(), 0..6),
        session in vec(any::<u8>(), 1..40),
    ) {
        let keys: Vec<PeerKey> = single_slot_peers(peers).into_iter().map(|peer| peer.key).collect();
        let home = &keys[crc32fast::hash(&session) as usize % peers];
        let (mut book, now) = (Book::default(), start());
        let resolved = book.attach(flat(single_slot_peers(peers)));
        for index in banned {
            let key = &keys[index.index(peers)];
            if key != home {
                book.observe(&resolved, key, Evidence::Failed, now);
            }
        }
        let request = PlacementRequest::new(POOL, Some(&session));
        let outcome = book.explain(&resolved, request, now, &mut StdRng::seed_from_u64(0)).outcome;
        let is_home = matches!(&outcome, Outcome::Send { peer, mode: Mode::Hash, .. } if peer == home);
        prop_assert!(is_home, "{outcome:?}");
    }

    /// No hash favours a peer. This is why sessions need no weights.
    #[test]
    fn every_hash_spreads_sessions_evenly(hash in any_hash(), peers in 2_usize..9, salt: u32) {
        let keys: Vec<String> = (0..peers).map(|i| format!("10.0.0.{i}:8000")).collect();
        let mut counts = vec![0_usize; peers];
        for session in 0..peers * 400 {
            let session = format!("{salt}-{session}");
            let won = hash::home(hash, session.as_bytes(), keys.iter().map(String::as_str));
            counts[won.expect("there are peers").0] += 1;
        }
        // The expected value is 400 each; 130 is about seven standard deviations.
        prop_assert!(counts.iter().all(|count| count.abs_diff(400) < 130), "{counts:?}");
    }
}

#[test]
fn affinity_none_ignores_sessions() {
    let mut spec = flat(single_slot_peers(3));
    spec.affinity = Affinity::None;
    let (mut book, mut rng) = (Book::default(), StdRng::seed_from_u64(3));
    let resolved = book.attach(spec);
    let request = PlacementRequest::new(POOL, Some(b"s"));
    let mut winners: Vec<usize> = (0..3)
        .map(
            |_| match book.reserve(&resolved, request, start(), &mut rng) {
                Verdict::Send(placement) => placement.peer,
                other => panic!("not placed: {other:?}"),
            },
        )
        .collect();
    winners.sort_unstable();
    assert_eq!(winners, [0, 1, 2]);
}
