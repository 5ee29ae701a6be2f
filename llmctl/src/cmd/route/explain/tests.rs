use std::sync::Arc;

use proto::admin::SwitchState;
use router_core::admission::{Full, Refusal};
use router_core::affinity::Hash;
use router_core::balance::Balance;
use router_core::decision::{
    Attempt, Choice, Explanation, Facts, Home, HomeState, Mode, Outcome, PeerFacts, Receipt, Usage,
};
use router_core::health::{Failure, HealthFacts};
use router_core::load::Freshness;
use router_core::pool::PeerKey;

use super::receipt;
use super::story::Case;
use crate::render::Format;
use crate::render::testing::capture;

fn peer(number: u32) -> PeerFacts {
    PeerFacts {
        peer: PeerKey::new(format!("10.0.0.1{number}:8000")),
        name: format!("gpu-{number}"),
        priority: 0,
        in_flight: 2,
        slots: 20,
        enabled: true,
        draining: false,
        banned: false,
        stale_s: None,
        probe: None,
        ban_left_s: None,
        load: None,
        freshness: None,
        held_s: None,
        health: HealthFacts::default(),
        sessions: None,
        candidate: true,
        score: None,
    }
}

fn facts(home: Option<Home>) -> Facts {
    Facts {
        tier: 0,
        limit: 60.0,
        pool_limit: 60,
        factor: 1.0,
        in_flight: 6,
        healthy_peers: 3,
        home,
        peer_in_flight: 2,
        peer_slots: 20,
        ..Facts::default()
    }
}

fn case(outcome: Outcome, peers: Vec<PeerFacts>) -> Case {
    Case {
        route: "chat".to_owned(),
        model: Some("m1".to_owned()),
        session: "sess-1".to_owned(),
        source: "header.x-session-id".to_owned(),
        affinity: SwitchState {
            enabled: true,
            source: "default".to_owned(),
            age_s: None,
        },
        rule: None,
        balance: Some(Balance::LeastConn),
        explanation: Explanation {
            peers,
            outcome,
            gates: Vec::new(),
        },
    }
}

fn shown(case: &Case) -> String {
    capture(Format::Human, |screen| case.show(screen))
}

#[test]
fn a_session_at_home_shows_the_hash_with_its_number() {
    let home = Home {
        hash: Hash::Crc32,
        index: 2,
        score: 862_954_847,
        state: HomeState::Usable,
    };
    let outcome = Outcome::Send {
        peer: PeerKey::new("10.0.0.13:8000"),
        name: "gpu-3".to_owned(),
        mode: Mode::Hash,
        facts: facts(Some(home)),
    };
    insta::assert_snapshot!(
        "at_home",
        shown(&case(outcome, (1..=3).map(peer).collect()))
    );
}

#[test]
fn a_banned_home_says_so_and_why_somebody_else_got_it() {
    let home = Home {
        hash: Hash::Rendezvous,
        index: 0,
        score: 17,
        state: HomeState::Banned,
    };
    let mut peers: Vec<PeerFacts> = (1..=3)
        .map(|n| PeerFacts {
            score: Some(u64::from(n)),
            ..peer(n)
        })
        .collect();
    peers[0] = PeerFacts {
        banned: true,
        ban_left_s: Some(240),
        candidate: false,
        ..peers[0].clone()
    };
    peers[2] = PeerFacts {
        priority: -1,
        candidate: false,
        ..peers[2].clone()
    };
    let outcome = Outcome::Send {
        peer: PeerKey::new("10.0.0.12:8000"),
        name: "gpu-2".to_owned(),
        mode: Mode::HashFallback,
        facts: facts(Some(home)),
    };
    insta::assert_snapshot!("home_banned", shown(&case(outcome, peers)));
}

#[test]
fn a_peer_that_is_up_and_passed_over_says_why() {
    let passed_over = |n| PeerFacts {
        candidate: false,
        ..peer(n)
    };
    let peers = vec![
        peer(1),
        PeerFacts {
            draining: true,
            ..passed_over(2)
        },
        PeerFacts {
            freshness: Some(Freshness::Stale),
            ..passed_over(3)
        },
        PeerFacts {
            priority: -1,
            ..passed_over(4)
        },
        passed_over(5),
    ];
    let outcome = Outcome::Send {
        peer: PeerKey::new("10.0.0.11:8000"),
        name: "gpu-1".to_owned(),
        mode: Mode::Balance(Balance::LeastConn),
        facts: facts(None),
    };
    let shown = shown(&case(outcome, peers));
    let states: Vec<_> = [
        "candidate",
        "draining: ",
        "stale: ",
        "standby: ",
        "does not list",
    ]
    .into_iter()
    .zip(
        shown
            .lines()
            .skip_while(|line| !line.starts_with("PEER"))
            .skip(1),
    )
    .map(|(state, line)| (line.contains(state), line))
    .collect();
    assert_eq!(states.len(), 5, "{shown}");
    assert!(states.iter().all(|(is, _)| *is), "{shown}");
}

#[test]
fn where_no_peer_is_banned_the_remedy_is_another() {
    let refused = |peer: PeerFacts| {
        let refusal = Refusal::NoHealthyPeer {
            peers: 1,
            banned: 0,
            stale: 0,
            ejected: 0,
            draining: 0,
        };
        shown(&case(Outcome::Refuse(refusal), vec![peer]))
    };
    let out = PeerFacts {
        candidate: false,
        ..peer(1)
    };
    for (peer, remedy) in [
        (
            PeerFacts {
                freshness: Some(Freshness::Dead),
                ..out.clone()
            },
            "an engine would have to answer",
        ),
        (
            PeerFacts {
                draining: true,
                ..out.clone()
            },
            "not draining would have to be there",
        ),
        (
            PeerFacts {
                enabled: false,
                ..out
            },
            "a peer would have to be enabled",
        ),
    ] {
        let text = refused(peer);
        assert!(text.contains(remedy), "{remedy}: {text}");
    }
}

#[test]
fn a_full_pool_says_what_would_have_admitted_the_request() {
    let refusal = Refusal::ConcurrencyLimit(Box::new(Full {
        in_flight: 61,
        limit: 60.0,
        pool_limit: 60,
        factor: 1.0,
        ceiling: 60,
        must_end: 2,
        healthy_peers: 3,
        tier: 0,
        retry_after_s: 1,
        ..Full::default()
    }));
    let text = shown(&case(Outcome::Refuse(refusal), (1..=3).map(peer).collect()));
    assert!(
        text.contains("2 of the 61 in flight would have to end"),
        "{text}"
    );
    insta::assert_snapshot!("refused_full", text);
}

#[test]
fn without_a_usable_peer_a_probe_of_a_banned_one_has_to_succeed() {
    let refusal = Refusal::NoHealthyPeer {
        peers: 2,
        banned: 2,
        stale: 0,
        ejected: 0,
        draining: 0,
    };
    let banned = |n, left| PeerFacts {
        banned: true,
        ban_left_s: Some(left),
        candidate: false,
        ..peer(n)
    };
    let text = shown(&case(
        Outcome::Refuse(refusal),
        vec![banned(1, 200), banned(2, 30)],
    ));
    assert!(
        text.contains("a probe of a banned peer would have to succeed"),
        "{text}"
    );
}

#[test]
fn a_receipt_tells_every_attempt() {
    let attempt = |n: u32, error: Option<&str>| Attempt {
        peer: PeerKey::new(format!("10.0.0.1{n}:8000")),
        error: error.map(Arc::from),
        failure: error.map(|_| Failure::NoConnection),
    };
    let past = Receipt {
        request_id: "a1b2c3d4".into(),
        at_unix_ms: 1_790_000_000_123,
        route: "chat".into(),
        model: Some("m\u{1b}1".into()),
        served_model: None,
        method: "POST".into(),
        path: "/v1/chat/completions".into(),
        session: "sess-1".into(),
        source: "header.x-session-id".into(),
        decision: Choice::Send {
            mode: Mode::Hash,
            facts: facts(None),
        },
        attempts: vec![attempt(1, Some("connection refused")), attempt(2, None)],
        hops: Vec::new(),
        pings: 0,
        status: 200,
        duration_ms: 420,
        ttft_ms: Some(35),
        usage: Some(Usage {
            prompt: 120,
            completion: 48,
            cached: 96,
            reasoning: 0,
            total: 168,
        }),
        finish_reason: Some("sto\u{1b}p".into()),
        client_gone: false,
    };
    insta::assert_snapshot!(
        "receipt",
        capture(Format::Human, |screen| receipt::show(&past, screen))
    );
}
