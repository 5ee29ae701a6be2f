use serde_json::{Value, json};

use super::{Seen, answers, recent, show};
use crate::cmd::fleet::testing::routers;
use crate::render::Format;
use crate::render::testing::capture;

/// A signal of the flat pool.
fn signal(layer: &str, tripped: bool, items: &Value, more: &Value) -> Value {
    let mut signal = json!({
        "model": "_", "source": layer, "layer": layer, "items": items, "tripped": tripped,
        "held": false, "probe_used": 2,
    });
    let all = signal.as_object_mut().unwrap();
    all.extend(more.as_object().unwrap().clone());
    signal
}

fn status() -> proto::admin::Routes {
    let peer = |n: u32, banned: bool| {
        json!({
            "peer": format!("10.0.0.1{n}:8000"), "name": format!("gpu-{n}"), "priority": 0, "max": 8,
            "in_flight": if n == 1 { 8 } else { 2 }, "held_back": if n == 2 { 2 } else { 0 }, "enabled": n != 4, "banned": banned,
            "ban_left_s": banned.then_some(250),
        })
    };
    serde_json::from_value(json!({
        "routes": [
            {
                "name": "chat", "path": "routes/chat.yaml", "status": "stale", "auth": "shared",
                "errors": [{"file": "routes/chat.yaml", "line": 3, "column": 5, "severity": "error", "message": "unknown key `x`"}],
                "pools": [{"limit": 16, "in_flight": 10, "healthy_peers": 2, "adaptive_limit": 9.6, "waiting": 3,
                           "ttft": signal("declared", true, &json!([
                               {"metric": "avg", "threshold_ms": 12000, "ewma_ms": 6850.25},
                               {"metric": "p95", "q": 0.95, "threshold_ms": 35000, "ewma_ms": 36000},
                           ]), &json!({"ignored_override": {"override_ms": 9000, "reason": "declared"}})),
                           "tps": signal("override", false, &json!([{"metric": "p80", "q": 0.2, "threshold_tps": 25}]),
                               &json!({"shadowed": {"source": "static", "threshold_tps": 20.5}, "override_left_s": 3540, "override_age_s": 60})),
                           "peers": [peer(1, false), peer(2, false), peer(3, true), peer(4, false)]}],
                "switches": {"affinity": {"enabled": false, "source": "runtime", "age_s": 4000}, "tps": {"enabled": true, "source": "default"}},
                "recording": {"sample_pct": 5.0, "sample_pct_source": "runtime", "bodies": "none", "bodies_source": "route", "age_s": 90},
                "refused": {"concurrency": 12, "ttft": 2, "tps": 0, "rule": 1},
                "trips": {"concurrency": 4, "ttft": 0, "tps": 0},
            },
            {"name": "old", "path": "routes/old.yaml", "status": "invalid", "auth": "shared", "errors": [],
             "pools": [], "switches": {}},
        ],
        "keys": {"file": "keys", "status": "missing", "in_force": "keys", "count": 3, "problems": []},
        "config": {"last_reload_success": false},
        "phase": "serving",
        "version": "0.1.0",
    }))
    .unwrap()
}

fn seen(status: proto::admin::Routes) -> Seen {
    let receipts: Vec<router_core::decision::Receipt> = (0..12)
        .map(|n| {
            let peer = format!("10.0.0.1{}:8000", n % 2 + 1);
            serde_json::from_value(json!({
                "request_id": "r", "at_unix_ms": 1, "route": "chat", "method": "POST", "path": "/v1/chat/completions",
                "session": "-", "source": "none",
                "decision": {"rule": {"name": "big", "condition": "max_tokens gt 5"}},
                "attempts": [{"peer": "10.0.0.13:8000", "error": "connection refused"}, {"peer": peer}],
                "status": 200, "duration_ms": 5, "ttft_ms": if n % 2 == 0 { 900 } else { 80 }, "client_gone": false,
            }))
            .unwrap()
        })
        .collect();
    Seen {
        findings: None,
        owners: Vec::new(),
        names: Vec::new(),
        recent: recent::digest(&receipts),
        status,
    }
}

#[test]
fn the_page_shows_load_bans_gates_overrides_keys_and_what_is_wrong() {
    let round = routers([("http://127.0.0.1:8090", seen(status()))]);
    let page = capture(Format::Human, |screen| show(&round, &[], screen));
    insta::assert_snapshot!("status_page", page);
}

#[test]
fn several_routers_have_a_column_each_and_differences_are_marked() {
    let mut other = status();
    other.keys.count = 2;
    other.routes[0].status = proto::admin::RouteStatus::Ok;
    other.routes[0].switches.remove("affinity");
    other.routes[0].pools[0].in_flight = 1;
    other.routes.pop();
    let round = routers([
        ("http://10.0.0.5:8090", seen(status())),
        ("http://10.0.0.6:8090", seen(other)),
    ]);
    let page = capture(Format::Human, |screen| show(&round, &[], screen));
    let compared = page.split("\n\n").next().unwrap();
    insta::assert_snapshot!("status_compared", compared);
}

#[test]
fn programs_get_status_findings_and_the_last_requests() {
    let round = routers([("a", seen(status()))]);
    let mut told = json!(answers(&round));
    assert_eq!(told[0]["status"]["routes"][0]["name"], "chat");
    told[0]["status"] = Value::Null;
    insta::assert_snapshot!("status_json", serde_json::to_string_pretty(&told).unwrap());
}

/// An example answer of `/_findings`.
fn said() -> proto::admin::Findings {
    serde_json::from_value(json!({"findings": [
        {"code": "peer_hung", "severity": "critical", "route": "chat", "peer": "10.0.0.13:8000",
         "text": "4 requests wait for a first byte, the oldest for 75 s; its siblings answer within 0.9 s at the median",
         "since": "2026-01-02T10:00:00Z", "age_s": 180, "last_s": 0, "count": 4, "of": 9, "look": "llmctl route explain chat --last"},
        {"code": "unauthorized", "severity": "warning", "text": "12 requests with a wrong key from \u{202e}team-a",
         "since": "2026-01-02T10:00:00Z", "age_s": 300, "last_s": 45, "count": 12, "of": 80, "look": "llmctl keys list"},
    ]}))
    .unwrap()
}

#[test]
fn problems_are_the_routers_own_and_fit_80_columns() {
    let seen = Seen {
        findings: Some(said()),
        ..seen(status())
    };
    let text = crate::render::testing::capture_80(|screen| {
        super::page::show("http://r:8090", &seen, screen);
    });
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    insta::assert_snapshot!("status_80", text);
}

#[test]
fn an_unknown_route_is_answered_with_the_names_there_are() {
    let names = ["chat", "code"].map(str::to_owned).into();
    let failure = super::no_such_route("chatt", &names);
    assert_eq!(
        failure.to_string(),
        "no router has a route `chatt`; there are: chat, code"
    );
}
