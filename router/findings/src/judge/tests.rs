use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use proto::admin::{
    Auth, Config, FindingCode, Findings, Keys, KeysInForce, Peer, PeerState, Pool, Problem,
    Reasons, Route, RouteStatus, Routes, Severity, SwitchState, Trips,
};

use router_core::health::Failure;

use super::{BodylogFacts, Cause};
use crate::{Board, Ended, Refused, RouteTraffic, Trouble};

fn peer(address: &str) -> Peer {
    Peer {
        peer: address.to_owned(),
        name: format!("gpu-{address}"),
        priority: 0,
        max: 4,
        in_flight: 0,
        held_back: 0,
        enabled: true,
        draining: false,
        banned: false,
        ban_left_s: None,
        state: PeerState::Healthy,
        state_s: None,
        why: None,
        gpu: None,
    }
}

fn route_of(peers: &[&str]) -> Route {
    Route {
        name: "chat".to_owned(),
        path: "routes/chat.yaml".to_owned(),
        status: RouteStatus::Ok,
        errors: Vec::new(),
        pools: vec![Pool {
            model: None,
            limit: 8,
            in_flight: 0,
            healthy_peers: peers.len() as u32,
            adaptive_limit: None,
            waiting: 0,
            ttft: None,
            tps: None,
            peers: peers.iter().map(|address| peer(address)).collect(),
        }],
        auth: Auth::Shared,
        switches: BTreeMap::new(),
        recording: None,
        refused: Reasons::default(),
        trips: Trips::default(),
    }
}

fn status(routes: Vec<Route>) -> Routes {
    Routes {
        routes,
        keys: Keys {
            file: "/keys".to_owned(),
            status: "ok".to_owned(),
            detail: None,
            in_force: KeysInForce::Keys,
            count: 1,
            problems: Vec::new(),
        },
        config: Config {
            last_reload_success: true,
            last_success_unix_ms: None,
            errors: Vec::new(),
        },
        phase: "serving".to_owned(),
        version: "0".to_owned(),
    }
}

/// A route whose traffic a test fills.
struct Scene {
    route: Route,
    traffic: RouteTraffic,
    now: Instant,
}

impl Scene {
    fn new(peers: &[&str]) -> Self {
        let now = Instant::now();
        Self {
            route: route_of(peers),
            traffic: RouteTraffic::new(now),
            now,
        }
    }

    fn attempts(&mut self, peer: &str, trouble: Option<Trouble>, times: u32) {
        for _ in 0..times {
            let attempts = [(peer, trouble)];
            let ended = Ended {
                waited: Some(Duration::from_secs(6)),
                ..Ended::default()
            };
            self.traffic.observe(&ended, attempts, self.now);
        }
    }

    fn refusals(&mut self, refused: Refused<'_>, times: u32) {
        for _ in 0..times {
            let ended = Ended {
                refused: Some(refused),
                ..Ended::default()
            };
            self.traffic.observe(&ended, [], self.now);
        }
    }

    fn answers(&mut self, peer: &str, ms: u64, cached: u64, times: u32) {
        for _ in 0..times {
            let attempts = [(peer, None)];
            let ended = Ended {
                ttft: Some(Duration::from_millis(ms)),
                prompt: Some((100, cached)),
                ..Ended::default()
            };
            self.traffic.observe(&ended, attempts, self.now);
        }
    }

    fn judged(&mut self) -> Vec<Cause> {
        super::route(&self.route, &mut self.traffic, self.now)
    }

    fn codes(&mut self) -> Vec<FindingCode> {
        self.judged().into_iter().map(|cause| cause.code).collect()
    }
}

#[test]
fn a_quiet_route_has_no_finding() {
    assert_eq!(Scene::new(&["a:1", "b:1"]).codes(), []);
}

#[test]
fn each_kind_of_trouble_has_its_code() {
    for (trouble, code) in [
        (
            Trouble::Failed(Failure::NoConnection),
            FindingCode::PeerUnreachable,
        ),
        (Trouble::Failed(Failure::NoFirstByte), FindingCode::PeerHung),
        (Trouble::WaitedInVain, FindingCode::PeerHung),
        (
            Trouble::Failed(Failure::ServerError),
            FindingCode::PeerFailing,
        ),
        (Trouble::Failed(Failure::Reset), FindingCode::PeerResetting),
        (Trouble::Failed(Failure::Cut), FindingCode::PeerCutsStreams),
        (Trouble::Failed(Failure::Stall), FindingCode::PeerStalls),
        (Trouble::NotFound, FindingCode::PeerNotFound),
    ] {
        let mut scene = Scene::new(&["a:1", "b:1"]);
        scene.attempts("a:1", Some(trouble), 5);
        scene.attempts("b:1", None, 5);
        let causes = scene.judged();
        assert_eq!(causes.len(), 1, "{trouble:?}: {causes:?}");
        assert_eq!(causes[0].code, code, "{trouble:?}");
        assert_eq!(causes[0].subject.peer.as_deref(), Some("a:1"));
        assert_eq!(causes[0].severity, Severity::Critical);
        assert!(causes[0].text.contains("gpu-a:1"), "{}", causes[0].text);
    }
}

#[test]
fn a_peer_that_the_route_lost_is_forgotten() {
    let mut scene = Scene::new(&["a:1", "b:1"]);
    scene.attempts("gone:1", Some(Trouble::Failed(Failure::ServerError)), 9);
    assert_eq!(scene.codes(), []);
    let seen = scene
        .traffic
        .hits("gone:1", Duration::from_secs(60), scene.now);
    assert_eq!(seen, None);
}

#[test]
fn four_events_are_no_finding() {
    let mut scene = Scene::new(&["a:1", "b:1"]);
    scene.attempts("a:1", Some(Trouble::Failed(Failure::ServerError)), 4);
    scene.refusals(Refused::Concurrency, 4);
    scene.refusals(Refused::Unauthorized, 4);
    assert_eq!(scene.codes(), []);
}

#[test]
fn a_state_that_keeps_requests_away_is_a_finding_without_any_request() {
    for (state, code) in [
        (PeerState::Suspect, FindingCode::PeerHung),
        (PeerState::Ejected, FindingCode::PeerFailing),
        (PeerState::Held, FindingCode::PeerHeld),
        (PeerState::Stale, FindingCode::PeerStale),
    ] {
        let mut scene = Scene::new(&["a:1", "b:1"]);
        scene.route.pools[0].peers[0].state = state;
        assert_eq!(scene.codes(), [code], "{state:?}");
    }
}

#[test]
fn a_404_of_every_peer_does_not_point_at_a_peer() {
    let mut scene = Scene::new(&["a:1", "b:1"]);
    scene.attempts("a:1", Some(Trouble::NotFound), 9);
    scene.attempts("b:1", Some(Trouble::NotFound), 9);
    assert_eq!(scene.codes(), []);
}

#[test]
fn a_slow_peer_is_named_with_both_medians() {
    let mut scene = Scene::new(&["a:1", "b:1"]);
    scene.answers("a:1", 900, 0, 20);
    scene.answers("b:1", 80, 0, 20);
    let causes = scene.judged();
    assert_eq!(causes[0].code, FindingCode::PeerSlow);
    let text = &causes[0].text;
    assert!(text.contains("900 ms") && text.contains("80 ms"), "{text}");
}

#[test]
fn a_cache_that_was_warm_and_is_cold_is_named() {
    let mut scene = Scene::new(&["a:1"]);
    scene.answers("a:1", 80, 90, 30);
    scene.now += Duration::from_secs(120);
    scene.answers("a:1", 80, 10, 30);
    assert_eq!(scene.codes(), [FindingCode::CacheCold]);
}

#[test]
fn refusals_are_named_by_gate() {
    for (refused, code) in [
        (Refused::Concurrency, FindingCode::ConcurrencyLimit),
        (Refused::Ttft, FindingCode::TtftLimit),
        (Refused::Tps, FindingCode::TpsLimit),
        (Refused::Waiting, FindingCode::WaitingFull),
        (Refused::Overloaded, FindingCode::Overloaded),
        (Refused::Unauthorized, FindingCode::Unauthorized),
        (Refused::Rule("no-images"), FindingCode::RuleRefuses),
        (Refused::Model("gpt-9"), FindingCode::ModelUnknown),
    ] {
        let mut scene = Scene::new(&["a:1"]);
        scene.refusals(refused, 20);
        let causes = scene.judged();
        assert_eq!(causes.len(), 1, "{refused:?}: {causes:?}");
        assert_eq!(causes[0].code, code);
        assert_eq!(causes[0].events.count, 20);
        // A switch that moves the queue into slow engines must never be the first advice.
        assert!(!causes[0].look.contains("--on 0"), "{}", causes[0].look);
    }
}

#[test]
fn new_ids_with_each_request_are_named() {
    let mut scene = Scene::new(&["a:1"]);
    for session in 0..90 {
        let ended = Ended {
            session: Some(session),
            ..Ended::default()
        };
        scene.traffic.observe(&ended, [], scene.now);
    }
    let causes = scene.judged();
    assert_eq!(causes[0].code, FindingCode::SessionsSeenOnce);
    assert!(causes[0].text.starts_with("90 of the last 90 sessions"));
    for session in 0..60 {
        let ended = Ended {
            session: Some(session),
            ..Ended::default()
        };
        scene.traffic.observe(&ended, [], scene.now);
    }
    assert_eq!(scene.codes(), []);
}

#[test]
fn a_switch_set_by_hand_says_its_state() {
    let mut scene = Scene::new(&["a:1"]);
    let switch = SwitchState {
        enabled: false,
        source: "runtime".to_owned(),
        age_s: Some(7_200),
    };
    scene.route.switches.insert("rate-limit".to_owned(), switch);
    let causes = scene.judged();
    assert_eq!(causes[0].code, FindingCode::OverrideInForce);
    assert!(causes[0].text.contains("rate-limit is off by hand"));
}

#[test]
fn a_router_that_is_open_on_purpose_is_clean() {
    let now = Instant::now();
    let mut open = route_of(&["a:1"]);
    open.auth = Auth::Open;
    let mut page = status(vec![open]);
    page.keys.status = "missing".to_owned();
    page.keys.in_force = KeysInForce::Open;
    let unrouted = RouteTraffic::new(now);
    assert_eq!(super::router(&page, &unrouted, None, now), []);
    page.routes[0].auth = Auth::Shared;
    let causes = super::router(&page, &unrouted, None, now);
    assert_eq!(causes[0].code, FindingCode::KeyFileBad);
}

#[test]
fn a_route_without_a_good_file_is_named_with_file_and_line() {
    let now = Instant::now();
    let mut invalid = route_of(&[]);
    invalid.status = RouteStatus::Invalid;
    invalid.errors.push(Problem {
        file: "routes/chat.yaml".to_owned(),
        line: 3,
        column: 1,
        message: "unknown key 'peeers'".to_owned(),
        severity: "error".to_owned(),
        code: None,
    });
    let causes = super::router(&status(vec![invalid]), &RouteTraffic::new(now), None, now);
    assert_eq!(causes[0].code, FindingCode::FileInvalid);
    assert_eq!(causes[0].severity, Severity::Critical);
    assert_eq!(
        causes[0].subject.file.as_deref(),
        Some("routes/chat.yaml:3")
    );
}

#[test]
fn a_listener_that_is_away_says_how_long_records_wait() {
    let now = Instant::now();
    let facts = BodylogFacts {
        oldest: Duration::from_secs(90),
        spool: Some((5_000_000, 100_000_000)),
        ..BodylogFacts::default()
    };
    let causes = super::router(&status(vec![]), &RouteTraffic::new(now), Some(&facts), now);
    assert_eq!(causes[0].code, FindingCode::BodylogListenerAway);
    let text = &causes[0].text;
    assert!(
        text.contains("90 s") && text.contains("5 MB of 100 MB"),
        "{text}"
    );
}

#[test]
fn a_finding_outlives_its_cause_and_says_that_it_is_over() {
    let mut scene = Scene::new(&["a:1", "b:1"]);
    scene.attempts("a:1", Some(Trouble::Failed(Failure::ServerError)), 9);
    let mut board = Board::new(Duration::from_secs(60));
    let began = scene.now;
    let mut look = |scene: &mut Scene, seconds: u64| -> Findings {
        scene.now = began + Duration::from_secs(seconds);
        let causes = scene.judged();
        board.update(causes, scene.now);
        board.page(scene.now, &|_| String::new())
    };
    let page = look(&mut scene, 10);
    assert_eq!(page.findings[0].age_s, 10);
    assert!(!page.findings[0].text.starts_with("over"));
    assert_eq!(look(&mut scene, 55).findings[0].last_s, 55);
    let page = look(&mut scene, 70);
    assert!(page.findings[0].text.starts_with("over: "));
    assert_eq!(page.findings[0].last_s, 70);
    assert_eq!(look(&mut scene, 114).findings.len(), 1);
    assert_eq!(look(&mut scene, 115).findings, []);
}
