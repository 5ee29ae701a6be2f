//! Engine load, pinned models and sticky sessions through the book. The reports of the engines and
//! the model lists of the peers act together with the gates.

use std::time::Duration;

use router_core::admission::{Full, Refusal};
use router_core::affinity::{Affinity, Hash, Saturated};
use router_core::balance::Balance;
use router_core::book::{Pin, PlacementRequest, Verdict};
use router_core::decision::{Mode, Outcome};
use router_core::load::{Freshness, LoadModel, LoadSpec, Report, Sample, StalePolicy};
use router_core::pool::{FullPolicy, PeerKey, Role, RouteSpec, Slots, Weight};

use crate::bench::{Bench, POOL};

const SECOND: Duration = Duration::from_secs(1);

/// Single-slot peers with polled engines, all idle now.
fn polled(peers: &[&str], change: impl FnOnce(&mut RouteSpec)) -> Bench {
    let single: Vec<_> = peers.iter().map(|peer| (*peer, 0, 1)).collect();
    let mut bench = Bench::with(Affinity::None, &single, |spec| {
        spec.load = Some(LoadSpec::default());
        spec.balance = Balance::IdleAware;
        change(spec);
    });
    peers.iter().for_each(|peer| report(&mut bench, peer, 0));
    bench
}

/// An engine reports its number of requests.
fn report(bench: &mut Bench, peer: &str, running: u32) {
    let sample = Sample {
        running,
        ..Sample::default()
    };
    said(bench, peer, Report::Sampled(sample));
}

fn said(bench: &mut Bench, peer: &str, report: Report) {
    let key = PeerKey::new(peer);
    bench
        .book
        .report_load(&bench.resolved, &key, report, bench.now)
        .expect("the peer is polled");
}

/// Reserves one request and holds it. Returns its peer.
fn sent(bench: &mut Bench, request: PlacementRequest<'_>) -> Result<(String, Mode), Refusal> {
    let verdict = bench
        .book
        .reserve(&bench.resolved, request, bench.now, &mut bench.rng);
    match verdict {
        Verdict::Send(placement) => {
            bench.held.push(placement.ticket);
            let peer = &bench.resolved.spec().pools[0].peers[placement.peer];
            Ok((peer.key.to_string(), placement.mode))
        }
        Verdict::Wait(_) => unreachable!("no route here lets requests wait"),
        Verdict::Refuse(refusal) => Err(refusal),
    }
}

/// The peers of `count` requests that do not end.
fn burst(bench: &mut Bench, count: usize) -> Vec<String> {
    let one = |_| {
        sent(bench, PlacementRequest::new(POOL, None))
            .expect("it is admitted")
            .0
    };
    (0..count).map(one).collect()
}

/// The peers of `count` requests, each of which ends before the next comes.
fn in_turn(bench: &mut Bench, count: usize) -> Vec<String> {
    let mut peers = Vec::new();
    for _ in 0..count {
        peers.extend(burst(bench, 1));
        bench.now += SECOND / 10;
        bench.end_all();
    }
    peers
}

const GPUS: [&str; 5] = ["gpu0", "gpu1", "gpu2", "gpu3", "gpu4"];

#[test]
fn equally_busy_engines_go_by_weight_and_then_by_name() {
    let weighted = |weights: [f64; 3], running: [u32; 3]| {
        let mut bench = polled(&["a", "b", "c"], |spec| {
            spec.balance = Balance::LeastBusy;
            for (peer, weight) in spec.pools[0].peers.iter_mut().zip(weights) {
                peer.slots = Slots(4);
                peer.weight = Weight::new(weight).expect("a weight");
            }
        });
        for (peer, running) in ["a", "b", "c"].into_iter().zip(running) {
            report(&mut bench, peer, running);
        }
        burst(&mut bench, 1).remove(0)
    };
    assert_eq!(weighted([1.0, 2.0, 9.0], [2, 2, 3]), "b");
    assert_eq!(weighted([1.0, 1.0, 1.0], [2, 2, 3]), "a");
    assert_eq!(weighted([2.0, 2.0, 2.0], [2, 2, 2]), "a");
}

#[test]
fn round_robin_passes_over_an_engine_that_is_stale() {
    let mut bench = polled(&["a", "b", "c"], |spec| spec.balance = Balance::RoundRobin);
    assert_eq!(in_turn(&mut bench, 4), ["a", "b", "c", "a"]);
    bench.now += SECOND * 4;
    report(&mut bench, "a", 0);
    report(&mut bench, "c", 0);
    assert_eq!(in_turn(&mut bench, 3), ["a", "c", "a"]);
}

#[test]
fn idle_engines_take_turns() {
    let mut bench = polled(&GPUS, |_| {});
    assert_eq!(
        in_turn(&mut bench, 6),
        ["gpu0", "gpu1", "gpu2", "gpu3", "gpu4", "gpu0"]
    );
}

#[test]
fn a_burst_between_two_polls_fills_every_engine_once() {
    let mut bench = polled(&GPUS, |spec| spec.full_policy = FullPolicy::Overflow);
    assert_eq!(
        burst(&mut bench, 6),
        ["gpu0", "gpu1", "gpu2", "gpu3", "gpu4", "gpu0"]
    );
    bench.end_all();
    let mut bench = polled(&GPUS, |_| {});
    burst(&mut bench, 5);
    assert_eq!(bench.full().limit, 5.0, "and no more, without overflow");
}

#[test]
fn own_requests_count_once_when_corrected_and_twice_when_added() {
    let seen = |model, running| {
        let mut bench = polled(&["a"], |spec| {
            spec.pools[0].peers[0].slots = Slots(4);
            spec.load = Some(LoadSpec {
                model,
                ..LoadSpec::default()
            });
        });
        burst(&mut bench, 2);
        report(&mut bench, "a", running);
        let peer = &bench.book.peers(&bench.resolved, POOL, bench.now)[0];
        let admits = sent(&mut bench, PlacementRequest::new(POOL, None)).is_ok();
        (peer.load, admits)
    };
    assert_eq!(seen(LoadModel::Corrected, 2), (Some(2), true));
    assert_eq!(seen(LoadModel::Additive, 2), (Some(4), false));
    assert_eq!(seen(LoadModel::Corrected, 4), (Some(4), false));
}

#[test]
fn requests_of_others_fill_an_engine_like_ours() {
    let round_robin = |policy| {
        polled(&["a", "b"], |spec| {
            spec.balance = Balance::RoundRobin;
            spec.full_policy = policy;
        })
    };
    let mut bench = round_robin(FullPolicy::Reject);
    report(&mut bench, "a", 1);
    assert_eq!(burst(&mut bench, 1), ["b"]);
    assert_eq!(bench.full().retry_after_s, 1);
    let mut bench = round_robin(FullPolicy::Overflow);
    report(&mut bench, "a", 1);
    report(&mut bench, "b", 1);
    assert_eq!(burst(&mut bench, 1), ["a"]);
}

#[test]
fn a_queue_of_others_on_one_engine_leaves_the_next_one_its_room() {
    let mut bench = polled(&["a", "b"], |spec| spec.balance = Balance::RoundRobin);
    report(&mut bench, "a", 9);
    assert_eq!(burst(&mut bench, 1), ["b"]);
    let full = bench.full();
    assert_eq!((full.in_flight, full.pool_limit, full.must_end), (2, 2, 1));
    // An engine that batches is full when it reports so, whether or not its requests exceed its
    // slots.
    let mut bench = polled(&["a", "b"], |_| {});
    let queueing = Sample {
        running: 5,
        waiting: 1,
        batches: true,
        ..Sample::default()
    };
    said(&mut bench, "a", Report::Sampled(queueing));
    assert_eq!(burst(&mut bench, 1), ["b"]);
    bench.full();
}

#[test]
fn a_held_engine_takes_one_request_whatever_scales_its_slots() {
    let mut bench = polled(&["a", "b"], |spec| spec.rt_limit_factor = 2.0);
    bench.now += SECOND * 4;
    let hung = Report::Hung {
        answers_health: true,
    };
    said(&mut bench, "a", hung);
    report(&mut bench, "b", 0);
    assert_eq!(burst(&mut bench, 3), ["b", "b", "a"], "one, and last");
    let full = bench.full();
    assert_eq!(
        (full.in_flight, full.held),
        (3, 1),
        "ours, beside the held one"
    );
}

#[test]
fn a_hung_engine_is_held_as_full_where_the_route_says_so() {
    for (policy, held) in [
        (StalePolicy::Hold, Freshness::Held),
        (StalePolicy::Exclude, Freshness::Stale),
    ] {
        let mut bench = polled(&["a", "b"], |spec| {
            spec.full_policy = FullPolicy::Overflow;
            spec.load = Some(LoadSpec {
                stale_policy: policy,
                ..LoadSpec::default()
            });
        });
        bench.now += SECOND * 4;
        let hung = Report::Hung {
            answers_health: true,
        };
        said(&mut bench, "a", hung);
        report(&mut bench, "b", 0);
        let peers = bench.book.peers(&bench.resolved, POOL, bench.now);
        assert_eq!(peers[0].freshness, Some(held));
        assert_eq!(peers[0].candidate, policy == StalePolicy::Hold);
        assert_eq!(
            burst(&mut bench, 1),
            ["b"],
            "the one that is known to be idle"
        );
        bench.now += SECOND * 57;
        let peers = bench.book.peers(&bench.resolved, POOL, bench.now);
        assert!(!peers[0].candidate, "not for ever");
    }
}

/// A request for the model that these peers list.
fn pinned(peers: &[usize], falls_back: bool) -> PlacementRequest<'_> {
    PlacementRequest {
        pin: Some(peers),
        pin_falls_back: falls_back,
        ..PlacementRequest::new(POOL, None)
    }
}

#[test]
fn a_model_pins_its_requests_to_the_engines_that_list_it() {
    let mut bench = polled(&["a", "b"], |_| {});
    let found = sent(&mut bench, pinned(&[1], false)).expect("b is idle");
    assert_eq!(found, ("b".into(), Mode::Pin));
    bench.end_all();
    let found = sent(&mut bench, PlacementRequest::new(POOL, None)).expect("both are idle");
    assert_eq!(
        found,
        ("a".into(), Mode::Balance(Balance::IdleAware)),
        "what nobody lists is placed as ever"
    );
    bench.end_all();
    let found = sent(&mut bench, pinned(&[0, 1], false)).expect("both are idle");
    assert_eq!(
        found.1,
        Mode::Balance(Balance::IdleAware),
        "what all list leaves it to balance"
    );
    bench.end_all();

    bench.now += SECOND * 4;
    report(&mut bench, "a", 0);
    let found = sent(&mut bench, pinned(&[1], true)).expect("any may serve it");
    assert_eq!(found.0, "a");
    bench.end_all();
    let refusal = sent(&mut bench, pinned(&[1], false)).expect_err("nobody lists it");
    assert!(
        matches!(refusal, Refusal::NoHealthyPeer { .. }),
        "{refusal:?}"
    );
}

#[test]
fn a_full_engine_keeps_the_requests_of_its_model() {
    for policy in [FullPolicy::Overflow, FullPolicy::Reject] {
        let mut bench = polled(&["a", "b"], |spec| spec.full_policy = policy);
        sent(&mut bench, pinned(&[1], true)).expect("b is idle");
        let found = sent(&mut bench, pinned(&[1], true));
        match (policy, found) {
            (FullPolicy::Overflow, Ok((peer, Mode::Pin))) => assert_eq!(peer, "b"),
            (FullPolicy::Reject, Err(Refusal::ConcurrencyLimit(full))) => {
                let Full {
                    in_flight,
                    pool_limit,
                    healthy_peers,
                    ..
                } = *full;
                assert_eq!((in_flight, pool_limit, healthy_peers), (1, 1, 1));
            }
            (_, found) => panic!("{policy:?}: {found:?}"),
        }
    }
}

/// Each set of peers has its own queue. Otherwise a request for a free engine would wait behind one
/// for a busy engine. The bound of the pool applies to all queues together.
#[test]
fn as_many_wait_for_a_pool_as_may_whatever_their_models() {
    let mut bench = polled(&["a", "b"], |spec| {
        spec.full_policy = FullPolicy::Wait;
        spec.guard.wait_max = 2;
    });
    burst(&mut bench, 2);
    let mut arrives = |pin: Option<&[usize]>| {
        let request = PlacementRequest {
            pin,
            ..PlacementRequest::new(POOL, None)
        };
        let (resolved, rng) = (&bench.resolved, &mut bench.rng);
        let explained = bench
            .book
            .explain(resolved, request, bench.now, rng)
            .outcome;
        match bench.book.reserve(resolved, request, bench.now, rng) {
            Verdict::Wait(_) => assert!(matches!(explained, Outcome::Wait { ahead: 0, .. })),
            Verdict::Refuse(refusal) => {
                assert_eq!(explained, Outcome::Refuse(refusal));
                return false;
            }
            Verdict::Send(placement) => panic!("{placement:?}"),
        }
        true
    };
    assert!(arrives(Some(&[0])));
    assert!(arrives(Some(&[1])));
    for pin in [None, Some(&[0][..]), Some(&[1])] {
        assert!(!arrives(pin), "{pin:?}");
    }
}

#[test]
fn a_pinned_request_is_retried_where_its_model_is_first() {
    for falls_back in [true, false] {
        let mut bench = polled(&["a", "b", "c"], |_| {});
        let peers = [1, 2];
        sent(&mut bench, pinned(&peers, falls_back)).expect("b is idle");
        let mut ticket = bench.held.pop().expect("it was sent");
        let pin = Some(Pin {
            peers: &peers,
            falls_back,
        });
        let mut retry = |tried: &[usize]| {
            bench
                .book
                .retry(&bench.resolved, &mut ticket, tried, pin, bench.now)
        };
        assert_eq!(retry(&[1]), Some(2), "not a, which comes first");
        assert_eq!(retry(&[1, 2]), falls_back.then_some(0));
        bench.book.release(ticket, bench.now);
        bench.book.check();
    }
}

const WORKERS: [(&str, i64, u32); 3] = [
    ("w1:8000", 0, 100),
    ("w2:8000", 0, 100),
    ("w3:8000", 0, 100),
];

fn sticky(workers: usize, ttl: Duration) -> Bench {
    Bench::with(Affinity::Sticky, &WORKERS[..workers], |spec| {
        spec.memory.session_ttl = ttl;
    })
}

/// The worker of a session's next request, which ends immediately.
fn worker(bench: &mut Bench, session: &str) -> (String, Mode) {
    let found =
        sent(bench, PlacementRequest::new(POOL, Some(session.as_bytes()))).expect("there is room");
    bench.end_all();
    let (peer, mode) = found;
    (peer.trim_end_matches(":8000").into(), mode)
}

fn sessions(bench: &Bench) -> Vec<u32> {
    let peers = bench.book.peers(&bench.resolved, POOL, bench.now);
    let counts = peers.iter().map(|peer| peer.sessions);
    counts.map(|count| count.expect("it remembers")).collect()
}

#[test]
fn new_sessions_go_where_the_fewest_are() {
    let mut bench = sticky(3, SECOND * 7_200);
    let ids: Vec<String> = (0..9).map(|number| format!("sess-{number}")).collect();
    let expected = ["w3", "w1", "w2", "w2", "w3", "w1", "w3", "w1", "w2"];
    for mode in [Mode::StickyNew, Mode::Sticky] {
        for (id, expected) in ids.iter().zip(expected) {
            assert_eq!(worker(&mut bench, id), (expected.into(), mode), "{id}");
        }
        assert_eq!(sessions(&bench), [3, 3, 3]);
    }
}

#[test]
fn sticky_sessions_expire_end_and_lose_their_worker() {
    let mut bench = sticky(1, SECOND);
    assert_eq!(worker(&mut bench, "e").0, "w1");
    assert_eq!(worker(&mut bench, "k").0, "w1");
    let mut spec = bench.resolved.spec().clone();
    spec.pools[0].peers = sticky(2, SECOND).resolved.spec().pools[0].peers.clone();
    let resolved = bench.book.attach(spec);
    bench.book.detach(&bench.resolved);
    bench.resolved = resolved;

    for _ in 0..2 {
        bench.now += SECOND * 19 / 20;
        assert_eq!(worker(&mut bench, "k"), ("w1".into(), Mode::Sticky));
    }
    bench.now += SECOND / 10;
    assert_eq!(worker(&mut bench, "e"), ("w2".into(), Mode::StickyNew));
    assert_eq!(sessions(&bench), [1, 1]);

    let released = [(); 2].map(|()| bench.book.finish_session(b"e"));
    assert_eq!(released, [1, 0]);
    assert_eq!(sessions(&bench), [1, 0]);

    bench.ban("w1:8000");
    assert_eq!(worker(&mut bench, "k"), ("w2".into(), Mode::StickyNew));
    bench.recover("w1:8000");
    assert_eq!(worker(&mut bench, "k"), ("w2".into(), Mode::Sticky));
}

#[test]
fn a_session_lives_while_an_answer_of_it_is_under_way() {
    let mut bench = sticky(1, SECOND);
    sent(&mut bench, PlacementRequest::new(POOL, Some(b"e"))).expect("there is room");
    bench.now += SECOND * 5;
    let (resolved, switches) = (&bench.resolved, bench.switches);
    bench.book.tick(resolved, switches, bench.now);
    assert_eq!(sessions(&bench), [1]);
    assert_eq!(worker(&mut bench, "e").1, Mode::Sticky);
    bench.now += SECOND / 2;
    assert_eq!(worker(&mut bench, "e").1, Mode::Sticky);
    bench.now += SECOND;
    assert_eq!(worker(&mut bench, "e").1, Mode::StickyNew);
}

/// Reloads with these priorities. Workers in `draining` take no new session.
fn reloaded(bench: &mut Bench, priorities: [i64; 2], draining: [bool; 2]) {
    let mut spec = bench.resolved.spec().clone();
    for (index, peer) in spec.pools[0].peers.iter_mut().enumerate() {
        (peer.priority, peer.draining) = (priorities[index], draining[index]);
    }
    let resolved = bench.book.attach(spec);
    bench.book.detach(&bench.resolved);
    bench.resolved = resolved;
}

#[test]
fn a_draining_worker_keeps_its_sessions_whoever_is_left_for_the_new_ones() {
    let bound = |spec: &mut RouteSpec| spec.memory.load_factor_max = Some(1.25);
    let crc32 = Affinity::Hash {
        hash: Hash::Crc32,
        saturated: Saturated::Fallback,
    };
    let rendezvous = Affinity::Hash {
        hash: Hash::Rendezvous,
        saturated: Saturated::Fallback,
    };
    for affinity in [Affinity::Sticky, crc32, rendezvous] {
        let mut bench = Bench::with(affinity, &WORKERS[..2], bound);
        bench.ban("w2:8000");
        assert_eq!(worker(&mut bench, "old").0, "w1");
        bench.recover("w2:8000");
        for (priorities, draining) in [
            ([0, 0], [true, false]),
            // The only peer of the preferred tier.
            ([1, 0], [true, false]),
            // No other peer takes requests.
            ([0, 0], [true, true]),
            ([1, 0], [true, true]),
        ] {
            reloaded(&mut bench, priorities, draining);
            let found = worker(&mut bench, "old").0;
            assert_eq!(found, "w1", "{affinity:?} {priorities:?} {draining:?}");
            let new = sent(&mut bench, PlacementRequest::new(POOL, Some(b"new")));
            match draining[1] {
                false => assert_eq!(new.expect("w2 takes it").0, "w2:8000"),
                true => assert!(matches!(new, Err(Refusal::NoHealthyPeer { .. }))),
            }
            bench.end_all();
            bench.book.finish_session(b"new");
        }
        // A ban ends the sessions that a drain keeps.
        reloaded(&mut bench, [1, 0], [true, false]);
        bench.ban("w1:8000");
        assert_eq!(worker(&mut bench, "old").0, "w2");
    }
}

/// The hash would choose w2 if both workers were equally full.
#[test]
fn a_session_that_expired_does_not_count_against_its_own_worker() {
    let mut bench = sticky(2, SECOND);
    bench.ban("w2:8000");
    assert_eq!(worker(&mut bench, "sess-3").0, "w1");
    bench.recover("w2:8000");
    bench.now += SECOND / 2;
    assert_eq!(worker(&mut bench, "k").0, "w2");
    bench.now += SECOND / 2;
    assert_eq!(worker(&mut bench, "sess-3"), ("w1".into(), Mode::StickyNew));
    assert_eq!(sessions(&bench), [1, 1]);
    assert_eq!(bench.book.memory(&bench.resolved, POOL).expired, 1);
}

#[test]
fn polling_that_a_reload_turns_on_takes_no_peer_out() {
    let single: Vec<_> = ["a:1", "b:1"].map(|peer| (peer, 0, 1)).into();
    let mut bench = Bench::new(Affinity::None, &single);
    let first = sent(&mut bench, PlacementRequest::new(POOL, None)).unwrap();
    let mut spec = bench.resolved.spec().clone();
    spec.load = Some(LoadSpec::default());
    let polled = bench.book.attach(spec);
    bench.book.detach(&bench.resolved);
    bench.resolved = polled;
    let second = sent(&mut bench, PlacementRequest::new(POOL, None)).unwrap();
    assert_ne!(first.0, second.0, "its own requests count");
    said(&mut bench, &first.0, Report::Unusable);
    let facts = bench.book.peers(&bench.resolved, POOL, bench.now);
    let freshness = |peer: &str| facts.iter().find(|facts| facts.peer.as_str() == peer);
    let freshness = |peer: &str| freshness(peer).and_then(|facts| facts.freshness);
    assert_eq!(freshness(&first.0), Some(Freshness::Stale));
    assert_eq!(freshness(&second.0), Some(Freshness::Fresh));
}

/// A regular peer, and two peers for each half of a split request.
const HALVES: [(&str, i64, u32); 5] = [
    ("r:1", 0, 9),
    ("p1:1", 0, 9),
    ("p2:1", 0, 9),
    ("d1:1", 0, 9),
    ("d2:1", 0, 9),
];

#[test]
fn each_role_of_a_pool_has_its_own_peers_and_its_own_sessions() {
    let roles = [
        Role::Regular,
        Role::Prefill,
        Role::Prefill,
        Role::Decode,
        Role::Decode,
    ];
    let mut bench = Bench::with(Affinity::Sticky, &HALVES, |spec| {
        for (peer, role) in spec.pools[0].peers.iter_mut().zip(roles) {
            peer.role = role;
        }
    });
    let place = |bench: &mut Bench, role, session: &'static str| {
        let request = PlacementRequest {
            role,
            ..PlacementRequest::new(POOL, Some(session.as_bytes()))
        };
        sent(bench, request).expect("there is room")
    };
    for mode in [Mode::StickyNew, Mode::Sticky] {
        assert_eq!(place(&mut bench, Role::Regular, "s"), ("r:1".into(), mode));
        for (role, begins) in [(Role::Prefill, 'p'), (Role::Decode, 'd')] {
            let (peer, found) = place(&mut bench, role, "s");
            assert!(peer.starts_with(begins), "{peer}");
            assert_eq!(found, mode);
        }
    }
    // The second session of a role goes to the role's other peer, because the first counts only in
    // that role's table.
    let first = place(&mut bench, Role::Prefill, "s").0;
    let second = place(&mut bench, Role::Prefill, "t").0;
    assert_ne!(first, second);

    let limits = bench.book.limits(&bench.resolved, POOL, bench.now);
    assert_eq!(
        (limits.limit, limits.healthy_peers, limits.in_flight),
        (9, 1, 2),
        "the halves add nothing to the room of whole requests"
    );
    let home = |bench: &Bench, role| {
        let (book, resolved) = (&bench.book, &bench.resolved);
        book.find_session(resolved, POOL, role, b"t", bench.now)
    };
    assert!(home(&bench, Role::Prefill).is_some());
    assert_eq!(home(&bench, Role::Regular), None);
    assert_eq!(bench.book.memory(&bench.resolved, POOL).sessions, 4);
    assert_eq!(bench.book.finish_session(b"s"), 3, "in every table");
    assert_eq!(bench.book.finish_session(b"t"), 1);

    bench.ban("r:1");
    let refusal =
        sent(&mut bench, PlacementRequest::new(POOL, None)).expect_err("no half steps in");
    assert!(matches!(refusal, Refusal::NoHealthyPeer { .. }));
    bench.end_all();
    bench.book.check();
}

#[test]
fn a_failed_half_is_retried_among_its_own() {
    let roles = [Role::Regular, Role::Prefill, Role::Prefill];
    let mut bench = Bench::with(Affinity::None, &HALVES[..3], |spec| {
        for (peer, role) in spec.pools[0].peers.iter_mut().zip(roles) {
            peer.role = role;
        }
    });
    let request = PlacementRequest {
        role: Role::Prefill,
        ..PlacementRequest::new(POOL, None)
    };
    let first = sent(&mut bench, request).expect("there is room").0;
    let mut ticket = bench.held.pop().expect("it was sent");
    let mut retry = |tried: &[usize]| {
        let (book, resolved) = (&mut bench.book, &bench.resolved);
        book.retry(resolved, &mut ticket, tried, None, bench.now)
    };
    let other = if first == "p1:1" { 2 } else { 1 };
    assert_eq!(retry(&[]), Some(other));
    assert_eq!(retry(&[3 - other]), None, "the regular peer is no prefill");
    bench.book.release(ticket, bench.now);
}

#[test]
fn a_pool_says_when_time_alone_will_change_it() {
    let mut bench = polled(&["a", "b"], |spec| spec.ban_ttl = SECOND * 2);
    let start = bench.now;
    let changes = |bench: &mut Bench| {
        let (book, resolved) = (&mut bench.book, &bench.resolved);
        let at = book.changes_at(resolved, POOL, bench.now)?;
        Some((at - start).as_millis())
    };
    assert_eq!(changes(&mut bench), Some(3_000), "the samples grow old");
    bench.ban("b");
    assert_eq!(changes(&mut bench), Some(2_000), "a ban ends before");
    bench.now += SECOND * 4;
    assert_eq!(changes(&mut bench), None, "nobody is a candidate any more");
}
