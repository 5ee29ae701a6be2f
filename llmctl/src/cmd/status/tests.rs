use serde_json::{Value, json};

use super::{Answer, Said, page};
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
            "in_flight": if n == 1 { 8 } else { 2 }, "enabled": n != 4, "banned": banned,
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
                               &json!({"shadowed": {"source": "static", "threshold_tps": 20.5}, "override_left_s": 3540})),
                           "peers": [peer(1, false), peer(2, false), peer(3, true), peer(4, false)]}],
                "switches": {"affinity": {"enabled": false, "source": "runtime"}, "tps": {"enabled": true, "source": "default"}},
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

#[test]
fn the_page_shows_load_bans_gates_overrides_keys_and_what_is_wrong() {
    let page = capture(Format::Human, |screen| {
        page::show("http://127.0.0.1:8090", &status(), screen);
    });
    insta::assert_snapshot!("status_page", page);
}

#[test]
fn programs_can_tell_an_answer_from_an_error() {
    let answered = Answer {
        router: "a".to_owned(),
        said: Said::Status(Box::new(status())),
    };
    let silent = Answer {
        router: "b".to_owned(),
        said: Said::Error("refused".to_owned()),
    };
    assert_eq!(json!(answered)["status"]["routes"][0]["name"], "chat");
    assert_eq!(json!(silent), json!({"router": "b", "error": "refused"}));
}
