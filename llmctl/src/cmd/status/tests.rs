use serde_json::json;

use super::{Answer, Said, page};
use crate::render::Format;
use crate::render::testing::capture;

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
                "pools": [{"limit": 16, "in_flight": 10, "healthy_peers": 2,
                           "peers": [peer(1, false), peer(2, false), peer(3, true), peer(4, false)]}],
                "switches": {"affinity": {"enabled": false, "source": "runtime"}},
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
fn the_page_shows_load_bans_switches_keys_and_what_is_wrong() {
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
