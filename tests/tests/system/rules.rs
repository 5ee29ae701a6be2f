//! Content rules, from the file to the refusal and its records.

use serde_json::{Value, json};
use system_tests::peer::Peer;
use system_tests::router::Router;
use system_tests::wire::{Reply, Wire, encode};

use crate::common::{CHAT_PATH, over};

const RULES: &str = r#"reject_rules:
- {name: huge, status: 413, message: "shorter, please", field: input_chars, op: gt, value: 10}
- all: [{field: messages.-1.role, op: eq, value: user}, {field: max_tokens, op: gt, value: 8}]
"#;

fn body(content: &str, max_tokens: u32) -> String {
    let messages = json!([{ "role": "user", "content": content }]);
    json!({ "model": "tiny", "max_tokens": max_tokens, "messages": messages }).to_string()
}

async fn hits(router: &Router) -> Value {
    let status = router.admin_get("/r/_reject_rules_status").await.json();
    let rules = status["rules"].as_array().unwrap();
    rules.iter().map(|rule| rule["hits"].clone()).collect()
}

async fn refusals(router: &Router) -> String {
    let page = router.admin_get("/metrics").await.text();
    let series = r#"llm_router_refusals_total{route="r",gate="rule",bucket="-"} "#;
    let value = page.lines().find_map(|line| line.strip_prefix(series));
    value.unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_refuses_before_anything_is_reserved_and_says_which_it_was() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], RULES).start().await;
    let reply = router.post(CHAT_PATH, &body("a long question", 4)).await;
    assert_eq!(reply.status, 413);
    assert_eq!(reply.header("x-should-retry"), "false");
    assert_eq!(reply.headers.get("retry-after"), None);
    assert_eq!(
        reply.json()["error"],
        json!({
            "message": "shorter, please", "type": "invalid_request_error",
            "code": "rejected_by_rule", "param": null, "rule": "huge", "route": "r",
        })
    );
    let reply = router.post("/r/v1/messages", &body("hi", 9)).await;
    assert_eq!(reply.status, 429);
    assert_eq!(
        reply.json(),
        json!({
            "type": "error",
            "error": { "type": "rate_limit_error", "message": "request rejected by rule 'rule2'" },
            "details": { "code": "rejected_by_rule", "rule": "rule2", "route": "r" },
        })
    );
    for passes in [body("hi", 8).as_str(), "", "[]"] {
        assert_eq!(router.post(CHAT_PATH, passes).await.status, 200, "{passes}");
    }
    // A path of health checks is left alone, whatever the body contains.
    let probed = router
        .post("/r/v1/models", &body("a long question", 9))
        .await;
    assert_eq!(probed.status, 200);
    assert_eq!(peer.requests().len(), 4);
    assert_eq!(hits(&router).await, json!([1, 1]));
    assert_eq!(refusals(&router).await, "2");
    let receipts = router.admin_get("/r/_decisions?n=9").await.json();
    let decisions = receipts["decisions"].as_array().unwrap();
    let oldest = &decisions[decisions.len() - 1];
    assert_eq!(
        (&oldest["decision"], &oldest["status"], &oldest["model"]),
        (
            &json!({ "rule": { "name": "huge", "condition": "input_chars gt 10" } }),
            &json!(413),
            &json!("tiny")
        )
    );
    let conns = router.admin_get("/r/_active_conns").await.json();
    assert_eq!(conns[peer.address.to_string()], json!(0));
}

async fn send(router: &Router, content_type: &str, body: &[u8]) -> Reply {
    let mut wire = Wire::connect(router.public).await;
    let headers = [("content-type", content_type)];
    wire.send(encode("POST", CHAT_PATH, &headers, body)).await;
    wire.reply("POST").await
}

#[tokio::test(flavor = "multi_thread")]
async fn no_encoding_slips_past_a_rule() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], RULES).start().await;
    let long = body("a long question", 4);
    let marked = format!("\u{feff}{long}");
    assert_eq!(router.post(CHAT_PATH, &marked).await.status, 413);
    let wide: Vec<u8> = long.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let latin = [&b"{\"x\":\"\xe9\"}"[..], b" "].concat();
    for (content_type, body, status) in [
        ("application/json", &*wide, 400),
        ("application/json; charset=utf-16", &wide, 415),
        ("text/plain", b"hello", 415),
        ("application/json", b"hello", 400),
        ("application/json", &latin, 400),
    ] {
        let reply = send(&router, content_type, body).await;
        assert_eq!(reply.status, status, "{content_type} {body:?}");
        let error = &reply.json()["error"];
        assert_eq!(error["code"], "unreadable_body");
        assert_eq!(error["type"], "invalid_request_error");
    }
    let form = send(&router, "multipart/form-data; boundary=b", b"--b--\r\n").await;
    assert_eq!(form.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_switch_turns_rules_off_and_hits_outlive_a_reload() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], RULES).start().await;
    let ask = async || router.post(CHAT_PATH, &body("hi", 9)).await.status;
    assert_eq!(ask().await, 429);
    let toggled = router
        .admin_post("/r/_reject_rules_toggle?on=0")
        .await
        .json();
    assert_eq!(
        (&toggled["before"], &toggled["after"], &toggled["source"]),
        (&json!(true), &json!(false), &json!("runtime"))
    );
    assert_eq!(ask().await, 200);
    let route = format!("peers: [{}]\n{RULES}\ndefault_max: 9\n", peer.yaml());
    router.replace("routes/r.yaml", &route);
    assert_eq!(router.admin_post("/_reload").await.status, 200);
    assert_eq!(ask().await, 200, "a switch outlives a reload");
    assert_eq!(hits(&router).await, json!([0, 1]));
    router.admin_post("/r/_reject_rules_toggle?reset=1").await;
    assert_eq!(ask().await, 429);
    let reset = router
        .admin_post("/r/_reject_rules_toggle?reset_counters=1")
        .await;
    assert_eq!(reset.json()["counters_reset"], json!(true));
    assert_eq!(
        router.admin_get("/r/_reject_rules_status").await.json(),
        json!({
            "route": "r", "ok": true, "enabled": true, "source": "default",
            "default_status": 429, "rule_count": 2, "rules_source": "route",
            "rules": [
                { "name": "huge", "status": 413, "cond": "input_chars gt 10", "hits": 0 },
                {
                    "name": "rule2", "status": 429, "hits": 0,
                    "cond": "ALL(messages.-1.role eq user & max_tokens gt 8)",
                },
            ],
        })
    );
    assert_eq!(refusals(&router).await, "2", "a series never goes back");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_rule_fails_the_check_and_is_dropped_by_a_running_router() {
    let peer = Peer::plain().await;
    let rules = "reject_rules:\n- {field: x, op: match, value: '('}\n- {field: y, op: exists}\nload_rate_limit: maybe\n";
    let finished = over(&[&peer], rules).run(&["--check"]).await;
    assert_eq!(finished.code, Some(1));
    let said = "reject_rules[0].value: `(` is no regular expression: unclosed group";
    assert!(finished.stderr.contains(said), "{}", finished.stderr);
    assert!(
        finished.stderr.contains("r.yaml:4:32"),
        "{}",
        finished.stderr
    );
    let router = over(&[&peer], rules).start().await;
    let log = router.log();
    let line = log.lines().find(|line| line.contains(said)).unwrap();
    assert!(line.contains("ERROR"), "{line}");
    assert_eq!(router.post(CHAT_PATH, "{\"x\":\"(\"}").await.status, 200);
    let refused = router.post(CHAT_PATH, "{\"y\":null}").await;
    assert_eq!(
        (refused.status, &refused.json()["error"]["rule"]),
        (429, &json!("rule2"))
    );
    let options = router.admin_get("/r/_route_opts").await.json();
    let source = |key: &str| {
        let options = options["options"].as_array().unwrap();
        let option = options.iter().find(|option| option["key"] == key).unwrap();
        option["source"].clone()
    };
    for key in ["reject_rules", "load_rate_limit"] {
        assert_eq!(source(key), json!("default (invalid)"), "{key}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_turn_header_names_a_session_while_session_prio_is_on() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "session_prio: true").start().await;
    let turn = (
        "x-phanrouter-session",
        r#"{"session_id":"conv-7","turn":3}"#,
    );
    let source = async |headers: &[(&str, &str)]| {
        let reply = router.post_with(CHAT_PATH, headers, "{}").await;
        let text = |name| reply.header(name).to_owned();
        (text("x-routed-source"), text("x-routed-session"))
    };
    let named = (
        "header.x-phanrouter-session".to_owned(),
        "conv-7".to_owned(),
    );
    assert_eq!(source(&[turn]).await, named);
    let seen = peer.requests();
    let forwarded = seen.iter().rfind(|seen| !seen.is_probe()).unwrap();
    assert_eq!(forwarded.headers.get(turn.0), Some(turn.1));
    let own = ("x-session-id", "mine");
    assert_eq!(
        source(&[turn, own]).await.1,
        "mine",
        "the others come first"
    );
    let broken = (
        "x-phanrouter-session",
        r#"{"session_id":"conv-7","turn":0}"#,
    );
    assert_eq!(source(&[broken]).await.0, "none");
    router.admin_post("/r/_session_prio_toggle?on=0").await;
    assert_eq!(source(&[turn]).await.0, "none");
}
