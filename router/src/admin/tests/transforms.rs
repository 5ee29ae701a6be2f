//! Tests of the transforms' switches, counters and trial runs.

use super::*;
use crate::content::transform::Transformed;

const HEADER: &str = "x-anthropic-billing-header: cc_version=1; cc_entrypoint=cli; cch=abc;";

async fn tried(port: &Port, query: &str, body: &str) -> Value {
    let target = format!("/chat/_cch_test{query}");
    let reply = port.send("127.0.0.1", "POST", &target, &[], body).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
    reply.json()
}

#[tokio::test]
async fn counters_are_shown_and_zeroed_switch_by_switch() {
    let port = Port::chat();
    let counts = &port.route().state.transforms;
    for _ in 0..4 {
        counts.parsed();
    }
    counts.done(&Transformed {
        asked_for_usage: true,
        headers_stripped: 2,
        ids_renamed: 3,
        messages_hoisted: 2,
        ..Transformed::default()
    });
    counts.done(&Transformed::default());
    for (switch, counters) in [
        ("include_usage", json!({"injected_total": 1})),
        ("cch_strip", json!({"parsed_total": 4, "stripped_total": 1})),
        (
            "kimi_normalize",
            json!({"changes_total": 3, "req_count": 1}),
        ),
        ("system_hoist", json!({"hoisted_total": 2, "req_count": 1})),
    ] {
        let toggle = format!("/chat/_{switch}_toggle");
        let shown = port.get(&toggle).await.json();
        assert_eq!(
            (&shown["enabled"], &shown["source"]),
            (&json!(true), &json!("default"))
        );
        assert_eq!(shown["counters"], counters);
        let off = port
            .post(&format!("{toggle}?on=0&reset_counters=1"))
            .await
            .json();
        assert_eq!(
            (
                &off["before"],
                &off["after"],
                &off["source"],
                &off["counters_reset"]
            ),
            (&json!(true), &json!(false), &json!("runtime"), &json!(true))
        );
        let zeroed = port.get(&toggle).await.json();
        let zeroed = zeroed["counters"].as_object().unwrap();
        assert!(zeroed.values().all(|count| *count == 0), "{zeroed:?}");
        let page = port.get("/metrics").await.text;
        let name = switch.replace('_', "-");
        let series = format!("llm_router_override_active{{route=\"chat\",switch=\"{name}\"}} 1");
        assert!(page.contains(&series), "{series}");
        let options = port.get("/chat/_route_opts").await.json();
        let option = options["options"].as_array().unwrap();
        let option = option
            .iter()
            .find(|option| option["key"] == switch)
            .unwrap();
        assert_eq!(
            (&option["value"], &option["source"]),
            (&json!(false), &json!("runtime"))
        );
    }
}

#[tokio::test]
async fn the_page_of_cch_strip_tells_the_share() {
    let port = Port::over("defaults: {cch_strip: false}", &[("chat", CHAT)]);
    assert_eq!(
        port.get("/chat/_cch_strip_status").await.json(),
        json!({
            "route": "chat", "enabled": false, "source": "global", "default": false,
            "parsed_total": 0, "stripped_total": 0, "strip_ratio": 0.0,
        })
    );
    port.post("/chat/_cch_strip_toggle?on=1").await;
    let counts = &port.route().state.transforms;
    (0..4).for_each(|_| counts.parsed());
    counts.done(&Transformed {
        headers_stripped: 1,
        ..Transformed::default()
    });
    let status = port.get("/chat/_cch_strip_status").await.json();
    assert_eq!(
        [
            &status["enabled"],
            &status["source"],
            &status["default"],
            &status["strip_ratio"]
        ],
        [&json!(true), &json!("runtime"), &json!(false), &json!(0.25)]
    );
}

#[tokio::test]
async fn a_body_tried_out_is_shown_as_an_engine_would_get_it_and_counts_nothing() {
    let port = Port::chat();
    let body = format!(
        r#"{{"model":"kimi-k2.5","stream":true,"user":"u","messages":[{{"role":"system","content":"{HEADER}a"}},{{"tool_calls":[{{"id":"c","function":{{"name":"f"}}}}]}}]}}"#
    );
    let chat = tried(&port, "?full=1", &body).await;
    let after = body
        .replace(HEADER, "")
        .replace(r#""id":"c""#, r#""id":"functions.f:0""#);
    let asked = r#","stream_options":{"include_usage":true}}"#;
    let after = format!("{}{asked}", after.strip_suffix('}').unwrap());
    assert_eq!(
        chat,
        json!({
            "route": "chat", "path": "/v1/chat/completions", "cch_stripped": true,
            "include_usage_injected": true, "kimi_changes": 1, "system_hoisted": 0,
            "session_id": "u", "source": "body.user", "body_len": after.len(),
            "body_md5": chat["body_md5"], "bodylog_len": body.len(),
            "bodylog_md5": chat["bodylog_md5"], "bodylog_differs": true, "body_after": after,
        })
    );
    let messages = tried(&port, "?path=/v1/messages", &body).await;
    assert_eq!(
        [
            &messages["system_hoisted"],
            &messages["include_usage_injected"],
            &messages["body_after"]
        ],
        [&json!(1), &json!(false), &Value::Null]
    );
    let elsewhere = tried(&port, "?path=/tokenize", &body).await;
    assert_eq!(elsewhere["body_len"], body.len());
    assert_eq!(elsewhere["bodylog_differs"], false);
    assert_eq!(elsewhere["body_md5"], chat["bodylog_md5"]);
    assert_ne!(elsewhere["body_md5"], chat["body_md5"]);
    let known = tried(&port, "", "abc").await;
    assert_eq!(known["body_md5"], "900150983cd24fb0d6963f7d28e17f72");
    let inspected = port
        .send("127.0.0.1", "POST", "/chat/_route_inspect", &[], &body)
        .await;
    assert_eq!(inspected.json()["cch_stripped"], true);
    assert_eq!(
        inspected.headers["x-routed-active-level"], "0",
        "the active tier's priority stands beside the answer"
    );
    for counted in [
        "include_usage",
        "cch_strip",
        "kimi_normalize",
        "system_hoist",
    ] {
        let toggle = port.get(&format!("/chat/_{counted}_toggle")).await.json();
        let counters = toggle["counters"].as_object().unwrap();
        assert!(counters.values().all(|count| *count == 0), "{toggle}");
    }
    let empty = port.get("/chat/_cch_test").await;
    assert_eq!(
        (empty.status, empty.json()["body_len"].clone()),
        (StatusCode::OK, json!(0))
    );
    let broken = tried(&port, "?full=1", &body[1..]).await;
    assert_eq!(broken["body_after"], body[1..]);
}

#[tokio::test]
async fn a_transparent_route_would_change_nothing() {
    let chat = format!("{CHAT}\ntransparent: true");
    let port = Port::over("", &[("chat", &chat)]);
    let body = format!(r#"{{"stream":true,"messages":[{{"content":"{HEADER}a"}}]}}"#);
    let tried = tried(&port, "?full=1", &body).await;
    assert_eq!(
        (&tried["body_after"], &tried["cch_stripped"]),
        (&json!(body), &json!(false))
    );
}
