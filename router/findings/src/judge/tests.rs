use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use proto::admin::{
    Auth, Config, FindingCode, Findings, Keys, KeysInForce, Peer, PeerState, Pool, Problem,
    ProcessPhase, Reasons, Route, RouteStatus, Routes, Severity, SwitchState, Trips,
};

use router_core::health::Failure;

use super::{BodylogFacts, Cause, Process, Undelivered, Window};
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
        hits: None,
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
        fingerprint: None,
        hits: None,
        peers_from: None,
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
            fingerprint: None,
            problems: Vec::new(),
        },
        config: Config {
            last_reload_success: true,
            last_success_unix_ms: None,
            errors: Vec::new(),
        },
        phase: ProcessPhase::Serving,
        version: "0".to_owned(),
    }
}

fn process<'p>(status: &'p Routes, unrouted: &'p RouteTraffic) -> Process<'p> {
    Process {
        status,
        unrouted,
        bodylog: None,
        drain_left: None,
        keys_age: None,
        uses_shared_keys: status.routes.iter().any(|route| route.auth == Auth::Shared),
    }
}

fn minute(now: Instant) -> Window {
    Window {
        now,
        span: Duration::from_secs(60),
    }
}

/// A route whose traffic a test fills.
struct Scene {
    route: Route,
    traffic: RouteTraffic,
    keys_age: Option<Duration>,
    now: Instant,
}

impl Scene {
    fn new(peers: &[&str]) -> Self {
        let now = Instant::now();
        Self {
            route: route_of(peers),
            traffic: RouteTraffic::new(now),
            keys_age: None,
            now,
        }
    }

    fn attempts(&mut self, peer: &str, trouble: Option<Trouble>, times: u32) {
        for _ in 0..times {
            let attempts = [(peer, trouble)];
            let ended = Ended {
                model: Some("qwen"),
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
        super::route(
            &self.route,
            &mut self.traffic,
            self.keys_age,
            minute(self.now),
        )
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
    assert_eq!(seen.prompts, 0);
}

#[test]
fn one_peer_with_two_kinds_of_trouble_is_one_finding_with_both() {
    let mut scene = Scene::new(&["a:1", "b:1"]);
    scene.attempts("a:1", Some(Trouble::Failed(Failure::ServerError)), 9);
    scene.attempts("a:1", Some(Trouble::Failed(Failure::Cut)), 6);
    let causes = scene.judged();
    assert_eq!(causes.len(), 1);
    assert_eq!(causes[0].code, FindingCode::PeerFailing);
    let text = &causes[0].text;
    assert!(
        text.ends_with("answered 5xx to 9 of 15 requests in the last minute, cut off 6"),
        "{text}"
    );
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
        (PeerState::Busy, FindingCode::PeerProbeSilent),
        (PeerState::Held, FindingCode::PeerHeld),
        (PeerState::Stale, FindingCode::PeerStale),
    ] {
        let mut scene = Scene::new(&["a:1", "b:1"]);
        scene.route.pools[0].peers[0].state = state;
        scene.route.pools[0].peers[0].state_s = Some(30);
        assert_eq!(scene.codes(), [code], "{state:?}");
    }
}

#[test]
fn a_404_of_every_peer_points_at_the_model() {
    for peers in [&["a:1"][..], &["a:1", "b:1"]] {
        let mut scene = Scene::new(peers);
        for peer in peers {
            scene.attempts(peer, Some(Trouble::NotFound), 9);
        }
        let causes = scene.judged();
        assert_eq!(scene.codes(), [FindingCode::ModelUnknown], "{peers:?}");
        assert_eq!(causes[0].subject.peer, None);
        assert!(causes[0].text.contains("model qwen"), "{}", causes[0].text);
    }
}

#[test]
fn many_peers_with_the_same_trouble_are_one_finding() {
    let names: Vec<_> = (0..512).map(|peer| format!("h{peer}:1")).collect();
    let peers: Vec<_> = names.iter().map(String::as_str).collect();
    let mut scene = Scene::new(&peers);
    for peer in &peers[..500] {
        scene.attempts(peer, Some(Trouble::Failed(Failure::ServerError)), 6);
    }
    let causes = scene.judged();
    assert_eq!(causes.len(), 1);
    assert_eq!(causes[0].events.count, 3_000);
    let text = &causes[0].text;
    assert!(
        text.starts_with("500 peers have the same trouble"),
        "{text}"
    );
    assert!(text.ends_with("496 more") && text.len() < 300, "{text}");
}

#[test]
fn a_pool_without_peers_says_why_and_does_not_repeat_it_for_each_peer() {
    let mut scene = Scene::new(&["a:1", "b:1"]);
    scene.route.pools[0].healthy_peers = 0;
    for peer in &mut scene.route.pools[0].peers {
        peer.banned = true;
    }
    let causes = scene.judged();
    assert_eq!(causes.len(), 1, "{causes:?}");
    assert_eq!(causes[0].code, FindingCode::NoPeer);
    assert!(
        causes[0].text.contains("2 of 2 cannot be reached"),
        "{}",
        causes[0].text
    );
}

#[test]
fn a_slow_peer_stays_slow_until_it_is_clearly_faster() {
    let mut scene = Scene::new(&["a:1", "b:1"]);
    scene.answers("b:1", 100, 0, 64);
    for (ms, is_slow) in [
        (190, false),
        (210, true),
        (190, true),
        (140, false),
        (190, false),
    ] {
        scene.answers("a:1", ms, 0, 64);
        assert_eq!(!scene.codes().is_empty(), is_slow, "{ms} ms");
    }
}

#[test]
fn wrong_keys_after_a_change_of_the_key_set_say_so() {
    let mut scene = Scene::new(&["a:1"]);
    scene.refusals(Refused::Unauthorized, 9);
    scene.now += Duration::from_secs(120);
    assert_eq!(scene.codes(), []);
    scene.keys_age = Some(Duration::from_secs(121));
    let causes = scene.judged();
    assert_eq!(causes[0].code, FindingCode::Unauthorized);
    let text = &causes[0].text;
    assert!(
        text.starts_with("9 of 9 requests since the key set changed 2 min ago"),
        "{text}"
    );
    scene.route.auth = Auth::Own;
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
    assert_eq!(super::router(&process(&page, &unrouted), minute(now)), []);
    page.routes[0].auth = Auth::Shared;
    let causes = super::router(&process(&page, &unrouted), minute(now));
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
    let causes = super::router(
        &process(&status(vec![invalid]), &RouteTraffic::new(now)),
        minute(now),
    );
    assert_eq!(causes[0].code, FindingCode::FileInvalid);
    assert_eq!(causes[0].severity, Severity::Critical);
    assert_eq!(
        causes[0].subject.file.as_deref(),
        Some("routes/chat.yaml:3")
    );
}

#[test]
fn undelivered_records_say_why_and_how_much_room_is_left() {
    let now = Instant::now();
    let away = Undelivered::Away("reach it: connection refused".to_owned());
    for (trouble, is_connected, code) in [
        (None, false, FindingCode::BodylogListenerAway),
        (Some(away), false, FindingCode::BodylogListenerAway),
        (
            Some(Undelivered::Unauthorized),
            false,
            FindingCode::BodylogUnauthorized,
        ),
        (
            Some(Undelivered::DiskFull),
            true,
            FindingCode::BodylogDiskFull,
        ),
        (None, true, FindingCode::BodylogSpoolGrowing),
    ] {
        let facts = BodylogFacts {
            is_connected,
            trouble,
            oldest: Duration::from_secs(90),
            spool: Some((5_000_000, 100_000_000)),
            ..BodylogFacts::default()
        };
        let (page, unrouted) = (status(vec![]), RouteTraffic::new(now));
        let causes = super::router(
            &Process {
                bodylog: Some(&facts),
                ..process(&page, &unrouted)
            },
            minute(now),
        );
        assert_eq!(causes[0].code, code);
        let text = &causes[0].text;
        assert!(
            text.contains("waits 90 s") && text.contains("95 MB of 100 MB free"),
            "{text}"
        );
    }
}

#[test]
fn a_draining_router_says_how_much_time_is_left() {
    let now = Instant::now();
    let (mut page, unrouted) = (status(vec![]), RouteTraffic::new(now));
    page.phase = ProcessPhase::Draining;
    let causes = super::router(
        &Process {
            drain_left: Some(Duration::from_secs(42)),
            ..process(&page, &unrouted)
        },
        minute(now),
    );
    assert_eq!(causes[0].code, FindingCode::Draining);
    assert!(causes[0].text.contains("42 s left"), "{}", causes[0].text);
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
