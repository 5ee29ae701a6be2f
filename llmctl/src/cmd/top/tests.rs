use std::time::{Duration, Instant};

use proto::admin::Routes;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use router::Switch;
use router_core::decision::Receipt;
use serde_json::{Value, json};

use super::draw;
use super::view::{Change, Key, Mode, Pane, Seen, Then, View};

fn routes(in_flight: u32, state: &str) -> Routes {
    let peer = |n: u32| {
        json!({
            "peer": format!("10.0.0.1{n}:8000"), "name": format!("gpu-{n}"), "priority": 0, "max": 8,
            "in_flight": in_flight + n, "enabled": true, "banned": n == 3, "state": if n == 2 { state } else { "healthy" },
            "hits": {"last_1m": {"prompts": 1, "tokens": 10, "cached": 9}, "last_5m": {"prompts": 4, "tokens": 100, "cached": 71}},
        })
    };
    let route = |name: &str| {
        json!({
            "name": name, "path": "routes/chat.yaml", "status": "ok", "auth": "open", "errors": [],
            "pools": [{"limit": 16, "in_flight": 10, "healthy_peers": 2, "peers": [peer(1), peer(2), peer(3)]}],
            "switches": {"affinity": {"enabled": true, "source": "default"}, "rate-limit": {"enabled": true, "source": "default"}},
        })
    };
    serde_json::from_value(json!({
        "routes": [route("chat"), route("a-route-with-a-name-that-is-longer-than-any-column-can-be")],
        "keys": {"file": "keys", "status": "ok", "in_force": "keys", "count": 3, "problems": []},
        "config": {"last_reload_success": true}, "phase": "serving", "version": "0.1.0",
    }))
    .unwrap()
}

const STATUSES: [u16; 4] = [200, 200, 429, 502];

fn receipts() -> Vec<Receipt> {
    let receipt = |n: u64| -> Receipt {
        serde_json::from_value(json!({
            "request_id": format!("request-{n}"), "at_unix_ms": 1_767_348_000_000 + n * 1000, "route": "chat", "method": "POST",
            "path": "/v1/chat/completions", "model": "m", "session": "-", "source": "none",
            "decision": {"rule": {"name": "\u{1b}[2Jbig", "condition": "max_tokens gt 5"}},
            "attempts": if n == 2 { json!([]) } else { json!([{"peer": format!("10.0.0.1{}:8000", n % 2 + 1), "error": (n == 3).then_some("reset")}]) },
            "status": STATUSES[n as usize], "duration_ms": 500 - n * 10, "ttft_ms": (n < 2).then_some(20 + n),
            "client_gone": false,
        }))
        .unwrap()
    };
    (0..4).map(receipt).collect()
}

fn finding(code: &str, severity: &str, text: &str) -> Value {
    json!({"code": code, "severity": severity, "route": "chat", "text": text, "since": "2026-01-02T10:00:00Z",
           "age_s": 60, "last_s": 0, "count": 5, "of": 10, "look": "llmctl status"})
}

fn seen(in_flight: u32, state: &str, findings: &[Value]) -> Seen {
    Seen {
        status: routes(in_flight, state),
        findings: findings
            .iter()
            .map(|f| serde_json::from_value(f.clone()).unwrap())
            .collect(),
        receipts: receipts(),
    }
}

fn drawn(view: &View, now: Instant, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw::page(view, now, frame)).unwrap();
    terminal.backend().to_string()
}

fn view(routers: &[&str]) -> View {
    View::new(routers.iter().map(|&url| url.to_owned()).collect(), None)
}

fn press(view: &mut View, keys: &str) -> Then {
    keys.chars()
        .map(|c| view.press(Key::Char(c)))
        .last()
        .unwrap_or(Then::Stay)
}

#[test]
fn the_fleet_fits_eighty_columns_with_the_worst_problem_on_top() {
    let now = Instant::now();
    let mut view = view(&["http://127.0.0.1:8090"]);
    let found = [
        finding(
            "file_invalid",
            "warning",
            "its file is refused and an older version is in force",
        ),
        finding(
            "peer_failing",
            "critical",
            "gpu-2 failed 5 of 10 requests with 500",
        ),
    ];
    view.saw(vec![Ok(seen(0, "ejected", &found))], now);
    insta::assert_snapshot!(drawn(&view, now, 80, 24));
}

#[test]
fn several_routers_are_columns_and_a_silent_one_is_named_with_the_age_of_its_numbers() {
    let now = Instant::now();
    let mut view = view(&["http://10.0.0.5:8090", "http://10.0.0.6:8090"]);
    view.saw(
        vec![Ok(seen(0, "healthy", &[])), Ok(seen(4, "suspect", &[]))],
        now,
    );
    let gone = "could not reach http://10.0.0.6:8090: connection refused".to_owned();
    view.saw(
        vec![Ok(seen(1, "healthy", &[])), Err(gone)],
        now + Duration::from_secs(9),
    );
    insta::assert_snapshot!(drawn(&view, now + Duration::from_secs(12), 80, 16));
}

#[test]
fn the_last_requests_show_no_foreign_control_characters() {
    let now = Instant::now();
    let mut view = view(&["http://127.0.0.1:8090"]);
    view.saw(vec![Ok(seen(0, "healthy", &[]))], now);
    view.press(Key::Tab);
    let page = drawn(&view, now, 80, 12);
    assert!(!page.contains('\u{1b}'), "{page}");
    insta::assert_snapshot!(page);
}

#[test]
fn a_terminal_without_unicode_gets_ascii_alone() {
    let now = Instant::now();
    let mut view = view(&["http://127.0.0.1:8090"]);
    view.ascii = true;
    view.saw(vec![Ok(seen(0, "healthy", &[]))], now);
    press(&mut view, "t");
    let page = drawn(&view, now, 80, 24);
    assert!(page.is_ascii(), "{page}");
}

#[test]
fn any_terminal_is_large_enough_not_to_panic() {
    let now = Instant::now();
    let mut view = view(&["http://127.0.0.1:8090"]);
    let many: Vec<_> = (0..9)
        .map(|_| finding("peer_failing", "critical", "x"))
        .collect();
    view.saw(vec![Ok(seen(0, "healthy", &many))], now);
    for keys in ["", "t", "\u{1}", "2t"] {
        press(&mut view, keys);
        for (width, height) in [(1, 1), (2, 3), (40, 10), (200, 60), (80, 2)] {
            drawn(&view, now, width, height);
        }
    }
}

#[test]
fn keys_sort_filter_and_freeze() {
    let now = Instant::now();
    let mut view = view(&["http://127.0.0.1:8090"]);
    view.saw(vec![Ok(seen(0, "suspect", &[]))], now);
    let names = |view: &View| {
        view.peers()
            .iter()
            .map(|row| row.name.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&view)[..3], ["gpu-1", "gpu-2", "gpu-3"]);
    press(&mut view, "s");
    assert_eq!(names(&view)[0], "gpu-3", "the banned one is the worst");
    press(&mut view, "/SUSP");
    view.press(Key::Enter);
    assert_eq!(names(&view), ["gpu-2", "gpu-2"]);
    view.press(Key::Escape);
    assert_eq!(names(&view).len(), 6);
    press(&mut view, "f");
    view.saw(
        vec![Ok(seen(7, "healthy", &[]))],
        now + Duration::from_secs(5),
    );
    assert_eq!(
        view.age(now + Duration::from_secs(5)),
        Some(Duration::from_secs(5))
    );
    assert_eq!(press(&mut view, "q"), Then::Quit);
}

#[test]
fn a_switch_changes_only_after_it_was_confirmed() {
    let now = Instant::now();
    let mut view = view(&["http://127.0.0.1:8090"]);
    view.saw(vec![Ok(seen(0, "healthy", &[]))], now);
    let to = |view: &mut View| {
        press(view, "t");
        let at = Switch::ALL
            .iter()
            .position(|switch| switch.name() == "rate-limit")
            .unwrap();
        (0..at).for_each(|_| {
            view.press(Key::Down);
        });
        view.press(Key::Enter);
    };
    to(&mut view);
    let change = Change {
        route: "chat".into(),
        switch: *Switch::ALL
            .iter()
            .find(|switch| switch.name() == "rate-limit")
            .unwrap(),
        on: false,
    };
    assert_eq!(view.mode, Mode::Confirm(change.clone()));
    assert!(drawn(&view, now, 80, 24).contains("Switch rate-limit of chat off?"));
    assert_eq!(press(&mut view, "n"), Then::Stay);
    assert_eq!(view.note.as_deref(), Some("nothing was changed"));
    to(&mut view);
    assert_eq!(press(&mut view, "y"), Then::Change(change.clone()));
    view.changed(
        &change,
        Err("http://127.0.0.1:8090 refused: no token".to_owned()),
    );
    assert!(drawn(&view, now, 80, 24).contains("refused: no token"));
    assert_eq!(view.pane, Pane::Fleet);
}
