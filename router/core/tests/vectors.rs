//! The vectors of the written specification, by number: the request path here, the control loops in
//! `control.rs`. The tests also cover the external contract for warm sessions and the master
//! switch. If the contract differs from the specification, the test expects the contract's result
//! and says why.

#[path = "vectors/allocations.rs"]
mod allocations;
#[path = "vectors/bench.rs"]
mod bench;
#[path = "vectors/control.rs"]
mod control;
#[path = "vectors/master_switch.rs"]
mod master_switch;
#[path = "vectors/session_prio.rs"]
mod session_prio;
#[path = "vectors/slots.rs"]
mod slots;

use std::borrow::Cow;

use router_core::admission::{Full, Refusal, concurrency};
use router_core::affinity::{Affinity, Hash, Saturated, hash};
use router_core::balance::Balance;
use router_core::book::{PlacementRequest, Ticket};
use router_core::decision::{HomeState, Mode, Outcome};
use router_core::session::{Place, Session, default_sources, pick};

use bench::{Bench, POOL};

/// The peers of the R vectors.
const R_PEERS: [(&str, i64, u32); 3] = [
    ("10.0.0.11:8000", 0, 20),
    ("10.0.0.12:8000", 0, 20),
    ("10.0.0.13:8000", 0, 20),
];
const R_SESSIONS: [&str; 4] = ["sess-1", "sess-2", "12345", "会话-1"];

fn hashed(hash: Hash) -> Affinity {
    Affinity::Hash {
        hash,
        saturated: Saturated::Fallback,
    }
}

/// The md5 weights of a session for the R peers.
fn weights(session: &str) -> [u64; 3] {
    R_PEERS.map(|(key, ..)| {
        hash::weight(Hash::RendezvousMd5, session.as_bytes(), key)
            .expect("rendezvous weighs everyone")
    })
}

/// Places a session by `hash: rendezvous_md5` on the idle R peers.
fn placed_by_md5(session: &str) -> (String, Mode) {
    let (peer, mode, _) = Bench::new(hashed(Hash::RendezvousMd5), &R_PEERS).sent(Some(session));
    (peer, mode)
}

#[test]
fn md5_scores_and_pick_of_sess_1() {
    assert_eq!(
        weights("sess-1"),
        [2_572_913_437, 2_250_248_255, 1_618_138_322]
    );
    assert_eq!(
        placed_by_md5("sess-1"),
        ("10.0.0.11:8000".into(), Mode::Hash)
    );
}

#[test]
fn md5_scores_and_pick_of_sess_2() {
    assert_eq!(
        weights("sess-2"),
        [1_942_921_109, 2_755_283_385, 912_727_153]
    );
    assert_eq!(
        placed_by_md5("sess-2"),
        ("10.0.0.12:8000".into(), Mode::Hash)
    );
}

#[test]
fn md5_scores_and_pick_of_12345() {
    assert_eq!(weights("12345"), [167_528_182, 358_191_558, 3_845_578_317]);
    assert_eq!(
        placed_by_md5("12345"),
        ("10.0.0.13:8000".into(), Mode::Hash)
    );
}

#[test]
fn md5_scores_and_pick_of_a_utf8_id() {
    assert_eq!(weights("会话-1"), [176_413_491, 2_557_765_868, 8_200_003]);
    assert_eq!(
        placed_by_md5("会话-1"),
        ("10.0.0.12:8000".into(), Mode::Hash)
    );
}

#[test]
fn a_ban_moves_only_its_own_sessions_with_rendezvous() {
    let mut bench = Bench::new(hashed(Hash::RendezvousMd5), &R_PEERS);
    bench.ban("10.0.0.11:8000");
    let homes = R_SESSIONS.map(|session| bench.sent(Some(session)).0);
    assert_eq!(
        homes[..3],
        ["10.0.0.12:8000", "10.0.0.12:8000", "10.0.0.13:8000"]
    );
    assert_eq!(
        bench.sent(Some("sess-1")).1,
        Mode::Hash,
        "the runner-up is the home meanwhile"
    );
}

/// The load causes no 429, because adaptive concurrency is off unless a route switches it on.
#[test]
fn a_saturated_home_falls_back_to_the_least_loaded() {
    let mut bench = Bench::new(hashed(Hash::RendezvousMd5), &R_PEERS);
    bench.load(&[20, 3, 1]);
    let (peer, mode, facts) = bench.sent(Some("sess-1"));
    assert_eq!(
        (peer.as_str(), mode),
        ("10.0.0.13:8000", Mode::HashFallback)
    );
    assert_eq!((facts.limit, facts.in_flight), (60.0, 24));
    let home = facts.home.expect("a session has a home");
    assert_eq!((home.index, home.state), (0, HomeState::Saturated));
}

/// With `hash_saturated: keep` the same session stays on its home peer.
#[test]
fn a_saturated_home_keeps_its_session_where_the_route_says_so() {
    let keep = Affinity::Hash {
        hash: Hash::RendezvousMd5,
        saturated: Saturated::Keep,
    };
    let mut bench = Bench::new(keep, &R_PEERS);
    bench.load(&[20, 3, 1]);
    let (peer, mode, facts) = bench.sent(Some("sess-1"));
    assert_eq!((peer.as_str(), mode), ("10.0.0.11:8000", Mode::Hash));
    assert_eq!(
        facts.home.map(|home| home.state),
        Some(HomeState::Saturated)
    );
}

/// The specification lists the rule for contrast; in the contract it is the default, `hash: crc32`.
#[test]
fn crc32_modulo_is_the_default_placement() {
    let mut bench = Bench::new(hashed(Hash::default()), &R_PEERS);
    let expected = [
        (2, 862_954_847),
        (1, 2_858_874_085),
        (0, 3_421_846_044),
        (2, 2_952_990_776),
    ];
    for (session, (index, score)) in R_SESSIONS.into_iter().zip(expected) {
        let (peer, mode, facts) = bench.sent(Some(session));
        assert_eq!((peer.as_str(), mode), (R_PEERS[index].0, Mode::Hash));
        let home = facts.home.expect("a session has a home");
        assert_eq!(
            (home.hash, home.index as usize, home.score),
            (Hash::Crc32, index, score)
        );
    }
}

/// With `hash: crc32` a ban moves only the sessions of the banned peer, and only as a fallback.
#[test]
fn a_banned_peer_keeps_its_place_in_the_crc32_list() {
    let mut bench = Bench::new(hashed(Hash::Crc32), &R_PEERS);
    bench.ban("10.0.0.13:8000");
    let (peer, mode, facts) = bench.sent(Some("sess-1"));
    assert_ne!(peer, "10.0.0.13:8000");
    assert_eq!(mode, Mode::HashFallback);
    assert_eq!(
        facts.home.map(|home| (home.index, home.state)),
        Some((2, HomeState::Banned))
    );
    assert_eq!(bench.sent(Some("sess-2")).0, "10.0.0.12:8000");
    assert_eq!(bench.sent(Some("12345")).0, "10.0.0.11:8000");
}

/// The contract's own hash. The weights were computed with the reference implementation of xxh3.
#[test]
fn r_vectors_with_the_xxh3_rendezvous() {
    let mut bench = Bench::new(hashed(Hash::Rendezvous), &R_PEERS);
    let expected = [
        (0, 14_982_269_298_642_458_343),
        (1, 16_243_340_401_147_170_466),
        (1, 11_029_511_943_085_262_077),
        (1, 16_321_698_381_703_154_040),
    ];
    for (session, (index, score)) in R_SESSIONS.into_iter().zip(expected) {
        let home = bench
            .sent(Some(session))
            .2
            .home
            .expect("a session has a home");
        assert_eq!((home.index, home.score), (index, score), "{session}");
    }
}

#[test]
fn least_conn_takes_the_idle_peer_and_spreads_ties() {
    let four = [
        ("a:1", 0, 20),
        ("b:1", 0, 20),
        ("c:1", 0, 20),
        ("d:1", 0, 20),
    ];
    let mut bench = Bench::new(hashed(Hash::Crc32), &four);
    let mut seen: Vec<_> = (0..80).map(|_| bench.sent(None).0).collect();
    seen.sort();
    seen.dedup();
    assert!(seen.len() >= 3, "{seen:?}");
    bench.load(&[0, 5, 5, 5]);
    for _ in 0..20 {
        let (peer, mode, _) = bench.sent(None);
        assert_eq!(
            (peer.as_str(), mode),
            ("a:1", Mode::Balance(Balance::LeastConn))
        );
    }
}

/// The winning source when the edge finds these values: (label of the source, value).
fn picked(values: &[(&str, &str)]) -> Option<(String, String)> {
    let sources = default_sources();
    let found = pick(&sources, |place| {
        let label = match place {
            Place::Header(name) => format!("header.{name}"),
            Place::Body(path) => format!("body.{}", path.join(".")),
        };
        let value = values.iter().find(|(at, _)| *at == label)?.1;
        Some(Cow::Borrowed(value.as_bytes()))
    })?;
    let raw = String::from_utf8(found.raw.into_owned()).expect("the vectors are UTF-8");
    Some((raw, found.source.to_string()))
}

fn id(raw: &str, source: &str) -> Option<(String, String)> {
    Some((raw.into(), source.into()))
}

#[test]
fn a_blank_header_gives_way_to_the_next() {
    let values = [
        ("header.x-litellm-session-id", "   "),
        ("header.x-session-id", "a"),
    ];
    assert_eq!(picked(&values), id("a", "header.x-session-id"));
}

/// The contract checks `metadata` before `litellm_metadata`.
#[test]
fn metadata_comes_before_litellm_metadata() {
    let values = [
        ("body.metadata.session_id", "m"),
        ("body.litellm_metadata.session_id", "l"),
    ];
    assert_eq!(picked(&values), id("m", "body.metadata.session_id"));
}

/// The contract's label is the path, without the `[json]` marker.
#[test]
fn an_id_inside_user_id_comes_before_user_id_itself() {
    let values = [
        ("body.metadata.user_id.session_id", "z"),
        ("body.metadata.user_id", r#"{"session_id":"z"}"#),
    ];
    assert_eq!(picked(&values), id("z", "body.metadata.user_id.session_id"));
}

/// The contract's label is the path, without the `[plain]` marker.
#[test]
fn a_blank_id_inside_user_id_leaves_the_plain_text() {
    let text = r#"{"session_id":" "}"#;
    let values = [
        ("body.metadata.user_id.session_id", " "),
        ("body.metadata.user_id", text),
    ];
    assert_eq!(picked(&values), id(text, "body.metadata.user_id"));
}

/// A boolean does not count as a value: the edge reports nothing there.
#[test]
fn a_plain_user_id_counts() {
    let values = [("body.metadata.user_id", "u1")];
    assert_eq!(picked(&values), id("u1", "body.metadata.user_id"));
}

/// The contract keeps every digit of an integer; the specification's 14 made large ids collide.
#[test]
fn an_integer_keeps_every_digit() {
    let values = [("body.metadata.session_id", "9007199254740993")];
    assert_eq!(
        picked(&values),
        id("9007199254740993", "body.metadata.session_id")
    );
}

/// `user` is the fifth default source of the contract, and not an option that is off.
#[test]
fn the_body_user_is_the_last_source() {
    assert_eq!(picked(&[("body.user", "bob")]), id("bob", "body.user"));
    assert_eq!(picked(&[]), None);
}

#[test]
fn affinity_off_is_told_from_no_session_and_both_are_balanced() {
    let sources = default_sources();
    let found = pick(&sources, |_| Some(Cow::Borrowed(&b"any"[..])));
    let ignored = Session::new(found, false);
    let none = Session::new(None, false);
    assert_eq!((ignored.source(), none.source()), ("affinity_off", "none"));
    let mut bench = Bench::new(hashed(Hash::Crc32), &R_PEERS);
    for session in [ignored, none] {
        let request = PlacementRequest::new(POOL, session.placed());
        match bench
            .book
            .explain(&bench.resolved, request, bench.now, &mut bench.rng)
            .outcome
        {
            Outcome::Send { mode, facts, .. } => {
                assert_eq!(
                    (mode, facts.home),
                    (Mode::Balance(Balance::LeastConn), None)
                );
            }
            other => panic!("not sent: {other:?}"),
        }
    }
}

/// The contract's default is `affinity: hash`, so an unset route places its sessions; a route with
/// `affinity: none` balances them.
#[test]
fn affinity_is_on_unless_the_route_says_none() {
    let mut on = Bench::new(hashed(Hash::default()), &R_PEERS);
    assert_eq!(on.sent(Some("sess-1")).1, Mode::Hash);
    let mut off = Bench::new(Affinity::None, &R_PEERS);
    let (_, mode, facts) = off.sent(Some("sess-1"));
    assert_eq!(
        (mode, facts.home),
        (Mode::Balance(Balance::LeastConn), None)
    );
}

/// The limit is the active tier's own sum. The specification's maximum over tiers has the same
/// value for these numbers, and is still shown.
#[test]
fn the_limit_is_the_active_tiers_own_sum() {
    let peers = [
        ("a:1", 1, 90),
        ("b:1", 0, 30),
        ("c:1", 0, 30),
        ("d:1", 0, 30),
    ];
    let mut bench = Bench::new(hashed(Hash::Crc32), &peers);
    let limits = |bench: &Bench| {
        let limits = bench.book.limits(&bench.resolved, POOL, bench.now);
        (
            limits.tier,
            limits.limit,
            limits.healthy_peers,
            limits.largest_tier_sum,
        )
    };
    assert_eq!(limits(&bench), (Some(1), 90, 1, 90));
    bench.ban("a:1");
    assert_eq!(limits(&bench), (Some(0), 90, 3, 90));
    bench.ban("b:1");
    assert_eq!(limits(&bench), (Some(0), 60, 2, 60));
}

/// The two rules differ here: a tier of 60 above a tier of 90 is admitted up to 60, not 90.
#[test]
fn a_larger_lower_tier_lends_nothing() {
    let mut bench = Bench::new(Affinity::None, &[("a:1", 1, 60), ("b:1", 0, 90)]);
    for _ in 0..60 {
        let ticket = bench.reserve(None);
        bench.held.push(ticket);
    }
    let full = bench.full();
    assert_eq!((full.limit, full.in_flight), (60.0, 60));
    assert_eq!(
        bench
            .book
            .limits(&bench.resolved, POOL, bench.now)
            .largest_tier_sum,
        90
    );
}

/// The specification refuses here because its adaptive limit starts at one. The contract's adaptive
/// limit is off unless a route switches it on, so the second slot is free.
#[test]
fn one_of_two_slots_taken_still_admits() {
    let mut bench = Bench::new(Affinity::None, &[("a:1", 0, 1), ("b:1", 0, 1)]);
    bench.load(&[1, 0]);
    let (peer, _, facts) = bench.sent(None);
    assert_eq!(
        (peer.as_str(), facts.limit, facts.in_flight),
        ("b:1", 2.0, 1)
    );
}

/// The numbers come from the specification; the edge determines the shape of the body.
#[test]
fn both_slots_taken_refuses_with_its_numbers() {
    let mut bench = Bench::new(Affinity::None, &[("a:1", 0, 1), ("b:1", 0, 1)]);
    bench.load(&[1, 1]);
    let refusal = bench.refused();
    let numbers = Refusal::ConcurrencyLimit(Box::new(Full {
        in_flight: 2,
        limit: 2.0,
        pool_limit: 2,
        factor: 1.0,
        ceiling: 2,
        must_end: 1,
        healthy_peers: 2,
        tier: 0,
        retry_after_s: 1,
        ..Full::default()
    }));
    assert_eq!(refusal, numbers);
    assert_eq!(
        (refusal.code(), refusal.retry_after_s()),
        ("concurrency_limit", 1)
    );
}

#[test]
fn a_fractional_limit_is_rounded_up() {
    assert!(concurrency::admits(2, 2.4, 1.0));
    assert!(!concurrency::admits(3, 2.4, 1.0));
    let two = [("a:1", 0, 1), ("b:1", 0, 1)];
    let mut bench = Bench::with(Affinity::None, &two, |spec| spec.rt_limit_factor = 1.2);
    for _ in 0..3 {
        let ticket = bench.reserve(None);
        bench.held.push(ticket);
    }
    let full = bench.full();
    assert_eq!((full.limit, full.in_flight, full.ceiling), (2.0, 3, 3));
}

#[test]
fn no_peers_is_no_healthy_peer() {
    let mut bench = Bench::new(hashed(Hash::Crc32), &[]);
    let refusal = bench.refused();
    assert_eq!(
        refusal,
        Refusal::NoHealthyPeer {
            peers: 0,
            banned: 0,
            stale: 0,
            ejected: 0,
            draining: 0,
        }
    );
    assert_eq!(
        (refusal.code(), refusal.retry_after_s()),
        ("no_healthy_peer", 5)
    );
    assert_eq!(
        bench.book.limits(&bench.resolved, POOL, bench.now).tier,
        None
    );
}

/// The pool of F1: X is chosen, Y and Z are in its tier, P and Q are one tier lower.
fn f1(cross_tier_fallback: bool) -> (Bench, Ticket) {
    let peers = [
        ("x:1", 1, 20),
        ("y:1", 1, 20),
        ("z:1", 1, 20),
        ("p:1", 0, 20),
        ("q:1", 0, 20),
    ];
    let mut bench = Bench::with(Affinity::None, &peers, |spec| {
        spec.cross_tier_fallback = cross_tier_fallback;
    });
    bench.load(&[0, 5, 2, 9, 1]);
    let ticket = bench.reserve(None);
    (bench, ticket)
}

/// Retries until no peer is left. Returns the addresses in order.
fn fallbacks(bench: &mut Bench, ticket: &mut Ticket) -> Vec<String> {
    let mut tried = vec![0];
    let mut order = Vec::new();
    while let Some(next) = bench
        .book
        .retry(&bench.resolved, ticket, &tried, None, bench.now)
    {
        bench.book.check();
        tried.push(next);
        order.push(bench.resolved.peer(POOL, next).key.to_string());
    }
    order
}

/// The edge counts the tries: with `max_more_tries: 2` it tries only the first two.
#[test]
fn fallback_goes_through_the_tier_then_to_the_best_of_the_lower_one() {
    let (mut bench, mut ticket) = f1(true);
    assert_eq!(fallbacks(&mut bench, &mut ticket), ["z:1", "y:1", "q:1"]);
    bench.book.release(ticket, bench.now);
    bench.book.check();
}

#[test]
fn fallback_stays_in_its_tier_by_default() {
    let (mut bench, mut ticket) = f1(false);
    assert_eq!(fallbacks(&mut bench, &mut ticket), ["z:1", "y:1"]);
    bench.book.release(ticket, bench.now);
}

/// The specification's list is fixed at admission; ours also skips peers that were banned since
/// then.
#[test]
fn a_peer_banned_meanwhile_is_passed_over() {
    let (mut bench, mut ticket) = f1(true);
    bench.ban("z:1");
    bench.ban("q:1");
    assert_eq!(fallbacks(&mut bench, &mut ticket), ["y:1", "p:1"]);
    bench.book.release(ticket, bench.now);
}
