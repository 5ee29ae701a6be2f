//! Requests corrected for the engine: what it receives over a real socket.

use system_tests::peer::Peer;
use system_tests::router::Router;

use crate::common::{CHAT_PATH, over};

const HEADER: &str = "x-anthropic-billing-header: cc_version=2.1.37; cc_entrypoint=cli; cch=5f1e0;";

const MESSAGES_PATH: &str = "/r/v1/messages";

/// Sends a body and asserts what the engine gets.
async fn received(peer: &Peer, router: &Router, path: &str, body: &str, expected: &str) {
    let before = peer.requests().len();
    let reply = router.post(path, body).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let seen = peer.arrived(before + 1).await;
    let seen = &seen[before];
    assert_eq!(String::from_utf8_lossy(&seen.body), expected);
    let length = expected.len().to_string();
    assert_eq!(seen.headers.get("content-length"), Some(&*length));
}

async fn counters(router: &Router, switch: &str) -> serde_json::Value {
    let toggle = router.admin_get(&format!("/r/_{switch}_toggle")).await;
    toggle.json()["counters"].clone()
}

/// A body in which every transform finds something, and the result of each.
fn claude_style(header: &str) -> String {
    format!(
        r#"{{"model":"m", "temperature":1.0e0,"system":[{{"type":"text","text":"{header}"}},{{"type":"text","text":"Be brief."}}],"messages":[{{"role":"user","content":"{header} hi"}},{{"role":"user","content":[{{"type":"text","text":"{HEADER}?"}},{{"type":"tool_result","content":"{HEADER}"}}]}}]}}"#
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_billing_header_goes_where_a_prompt_begins_and_nowhere_else() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "").start().await;
    let body = claude_style(HEADER);
    let expected = claude_style("").replace(&format!("\"text\":\"{HEADER}?\""), "\"text\":\"?\"");
    for path in [MESSAGES_PATH, CHAT_PATH] {
        received(&peer, &router, path, &body, &expected).await;
    }
    let unchanged = r#"{"metadata":{"content":"x-anthropic-billing-header: cc_version=1; cc_entrypoint=c; cch=2;"},"messages":[]}"#;
    received(&peer, &router, CHAT_PATH, unchanged, unchanged).await;
    assert_eq!(
        counters(&router, "cch_strip").await,
        serde_json::json!({"parsed_total": 3, "stripped_total": 2})
    );
    let status = router.admin_get("/r/_cch_strip_status").await.json();
    assert_eq!(status["stripped_total"], 2);
    router.admin_post("/r/_cch_strip_toggle?on=0").await;
    received(&peer, &router, MESSAGES_PATH, &body, &body).await;
}

fn kimi(model: &str, first: &str, second: &str) -> String {
    format!(
        r#"{{"model":"{model}","messages":[{{"role":"assistant","content":null,"tool_calls":[{{"id":"{first}","type":"function","function":{{"name":"read","arguments":"{{}}"}}}}]}},{{"role":"tool","tool_call_id":"{first}","content":"{{\"id\":\"call_1\"}}"}},{{"role":"assistant","tool_calls":[{{"function":{{"arguments":"{{}}","name":"Bash"}},"id":"{second}"}}]}},{{"role":"tool","tool_call_id":"{second}","content":[]}}]}}"#
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn kimi_gets_tool_ids_as_it_writes_them() {
    for (options, first, second) in [
        ("", "functions.read:0", "functions.Bash:1"),
        (
            "kimi_normalize_strategy: hash",
            "functions.read:1466615",
            "functions.Bash:1662697",
        ),
        ("kimi_normalize: false", "call_1", "call_2"),
    ] {
        let peer = Peer::plain().await;
        let router = over(&[&peer], options).start().await;
        let body = kimi("moonshotai/kimi-k2.6", "call_1", "call_2");
        let expected = kimi("moonshotai/kimi-k2.6", first, second);
        received(&peer, &router, CHAT_PATH, &body, &expected).await;
        let other = kimi("other", "call_1", "call_2");
        received(&peer, &router, CHAT_PATH, &other, &other).await;
        let changed = if first == "call_1" { (0, 0) } else { (4, 1) };
        let counters = counters(&router, "kimi_normalize").await;
        assert_eq!(
            (&counters["changes_total"], &counters["req_count"]),
            (&changed.0.into(), &changed.1.into())
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn system_messages_move_where_the_messages_api_has_them() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "").start().await;
    let body = format!(
        r#"{{"max_tokens":8,"messages":[{{"role":"system","content":"{HEADER} a"}},{{"role":"user","content":"hi"}},{{"role":"system","content":[{{"type":"text","text":"b"}}]}}],"system":"first"}}"#
    );
    let moved = r#"{"max_tokens":8,"messages":[{"role":"user","content":"hi"},{"role":"system","content":[{"type":"text","text":"b"}]}],"system":[{"type":"text","text":"first"},{"type":"text","text":" a"}]}"#;
    for path in [MESSAGES_PATH, "/r/v1/messages/count_tokens"] {
        received(&peer, &router, path, &body, moved).await;
    }
    // The chat API supports system messages.
    let stripped = body.replace(HEADER, "");
    received(&peer, &router, CHAT_PATH, &body, &stripped).await;
    assert_eq!(
        counters(&router, "system_hoist").await,
        serde_json::json!({"hoisted_total": 2, "req_count": 2})
    );
    router.admin_post("/r/_system_hoist_toggle?on=0").await;
    received(&peer, &router, MESSAGES_PATH, &body, &stripped).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transparent_route_sends_what_came() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "transparent: true").start().await;
    let hoisted = format!(r#"{{"messages":[{{"role":"system","content":"{HEADER}"}}]}}"#);
    received(&peer, &router, MESSAGES_PATH, &hoisted, &hoisted).await;
    let named = kimi("kimi-k2.5", "call_1", "call_2");
    let streamed = format!("{},\"stream\":true}}", named.strip_suffix('}').unwrap());
    received(&peer, &router, CHAT_PATH, &streamed, &streamed).await;
    assert_eq!(counters(&router, "cch_strip").await["parsed_total"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_json_is_sent_as_it_came() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "").start().await;
    let message = format!(r#"{{"role":"system","content":"{HEADER}"}}"#);
    for body in [
        format!(r#"{{"messages":[{message}],"x":[1,}}"#),
        format!(r#"{{"messages":[{message}],"x":{{]}}"#),
        format!(r#"{{"messages":[{message}]}} trailing"#),
        format!(r#"{{"messages":[{message}],"x":01}}"#),
        format!("[{message}]"),
    ] {
        received(&peer, &router, MESSAGES_PATH, &body, &body).await;
    }
}
