//! Tests of `/<route>/_…`.

use router_core::decision::{Choice, Receipt};

use super::*;

#[tokio::test]
async fn health_status_lists_every_distinct_peer() {
    let port = Port::chat();
    let _held = port.reserve("s");
    port.observe("gpu-a", Evidence::Failed);
    let reply = port.get("/chat/_health_status").await;
    assert_eq!(reply.status, 200);
    assert_eq!(reply.headers["content-type"], "application/json");
    let json = reply.json();
    assert_eq!(json["10.0.0.11:8000"]["banned"], json!(true));
    assert_eq!(json["10.0.0.12:8000"]["banned"], json!(false));
    let active: u64 = ["10.0.0.11:8000", "10.0.0.12:8000"]
        .iter()
        .map(|p| json[p]["active"].as_u64().unwrap())
        .sum();
    assert_eq!(active, 1);
    assert_eq!(
        json["_meta"],
        json!({"api_keys_configured": false, "route_auth_enabled": false, "key_file_status": "missing"})
    );
    let conns = port.get("/chat/_active_conns").await.json();
    assert_eq!(conns.as_object().unwrap().len(), 3);
    assert_eq!(conns["10.0.0.13:8000"], json!(0));
}

#[tokio::test]
async fn route_state_shows_tiers_and_room() {
    let port = Port::chat();
    port.observe("gpu-b", Evidence::Failed);
    insta::assert_snapshot!("route_state", pretty(&port.get("/chat/_route_state").await));
    port.observe("gpu-a", Evidence::Failed);
    let spare = port.get("/chat/_route_state").await.json();
    assert_eq!(
        (&spare["active_level"], &spare["limit"]),
        (&json!(-1), &json!(8))
    );
    port.observe("spare", Evidence::Failed);
    let none = port.get("/chat/_route_state").await.json();
    assert_eq!(
        (
            &none["active_level"],
            &none["limit"],
            &none["healthy_peers_in_level"]
        ),
        (&json!(0), &json!(0), &json!(0))
    );
}

#[tokio::test]
async fn a_draining_peer_is_shown_as_one() {
    let chat = CHAT.replace("gpu: H100", "draining: true");
    let port = Port::over("", &[("chat", &chat)]);
    let routes = port.get("/_routes").await.json();
    let debug = port.get("/chat/_route_debug").await.json();
    for peers in [
        &routes["routes"][0]["pools"][0]["peers"],
        &debug["explanation"]["peers"],
    ] {
        let draining: Vec<_> = (0..3).map(|n| peers[n].get("draining")).collect();
        assert_eq!(draining, [Some(&json!(true)), None, None], "{peers}");
    }
}

#[tokio::test]
async fn route_debug_tells_the_home_from_the_pick() {
    let port = Port::chat();
    let first = port.get("/chat/_route_debug?sid=s-19").await;
    insta::assert_snapshot!("route_debug", pretty(&first));
    let before = first.json();
    assert_eq!(before["natural_target"], before["actual_pick"]);
    assert_eq!(
        (&before["actual_mode"], &before["natural_banned"]),
        (&json!("hash"), &json!(false))
    );
    let home = before["natural_target"].as_str().unwrap();
    port.observe(home, Evidence::Failed);
    let after = port.get("/chat/_route_debug?sid=s-19").await.json();
    assert_eq!(after["natural_target"], json!(home));
    assert_eq!(
        (&after["actual_mode"], &after["natural_banned"]),
        (&json!("hash_fallback"), &json!(true))
    );
    assert_ne!(after["actual_pick"], json!(home));
    let off = port.post("/chat/_affinity_toggle?on=0").await;
    assert_eq!(off.status, 200);
    let balanced = port.get("/chat/_route_debug?sid=s-19").await.json();
    assert_eq!(balanced["session_affinity_enabled"], json!(false));
    assert_eq!(balanced["actual_mode"], json!("least_conn"));
}

#[tokio::test]
async fn every_option_is_listed_with_its_layer_and_a_switch_shows_as_runtime() {
    let port = Port::over("defaults: {hash: rendezvous}", &[("chat", CHAT)]);
    port.post("/chat/_affinity_toggle?on=0").await;
    let reply = port.get("/chat/_route_opts").await.json();
    let option = |key: &str| {
        let options = reply["options"].as_array().unwrap();
        let found = options.iter().find(|option| option["key"] == key).unwrap();
        (found["value"].clone(), found["source"].clone())
    };
    assert_eq!(option("hash"), (json!("rendezvous"), json!("global")));
    assert_eq!(option("affinity_enabled"), (json!(false), json!("runtime")));
    assert_eq!(option("full_status"), (json!(429), json!("default")));
}

#[tokio::test]
async fn options_show_everything_that_was_set_on_the_running_router() {
    let files = format!("{MULTI}tps_limit_by_model: {{m1: 30}}\nbodylog_pct: 50\n");
    let port = Port::over("", &[("multi", &files)]);
    let option = async |key: &str| {
        let reply = port.get("/multi/_route_opts").await.json();
        let options = reply["options"].as_array().unwrap();
        let found = options.iter().find(|option| option["key"] == key).unwrap();
        (found["value"].clone(), found["source"].clone())
    };
    let limits = "tps_limit_by_model";
    assert_eq!(option(limits).await, (json!({"m1": 30}), json!("route")));
    port.post("/multi/_bodylog_toggle?pct=5&bodies=none").await;
    port.post("/multi/_tps_limit?tps=12.5&model=m2").await;
    let runtime = json!("runtime");
    assert_eq!(option("bodylog").await, (json!(true), json!("default")));
    assert_eq!(option("bodylog_pct").await, (json!(5), runtime.clone()));
    assert_eq!(
        option("bodylog_bodies").await,
        (json!("none"), runtime.clone())
    );
    assert_eq!(
        option(limits).await,
        (json!({"m1": 30, "m2": 12.5}), runtime)
    );
    port.post("/multi/_bodylog_toggle?reset=1").await;
    port.post("/multi/_tps_limit?reset=1&model=m2").await;
    assert_eq!(option("bodylog_pct").await, (json!(50), json!("route")));
    assert_eq!(option(limits).await, (json!({"m1": 30}), json!("route")));
}

#[tokio::test]
async fn a_share_that_was_set_is_an_override_like_its_switch() {
    let port = Port::chat();
    let active = async || {
        let page = port.get("/metrics").await.text;
        let series = r#"llm_router_override_active{route="chat",switch="bodylog"} "#;
        let line = page.lines().find_map(|line| line.strip_prefix(series));
        line.unwrap().to_owned()
    };
    let recording = async || port.get("/_routes").await.json()["routes"][0]["recording"].clone();
    let files = json!({"sample_pct": 100.0, "sample_pct_source": "default", "bodies": "full", "bodies_source": "default"});
    assert_eq!(
        (active().await, recording().await),
        ("0".to_owned(), files.clone())
    );
    port.post("/chat/_bodylog_toggle?pct=5").await;
    let set = json!({"sample_pct": 5.0, "sample_pct_source": "runtime", "bodies": "full", "bodies_source": "default", "age_s": 0});
    assert_eq!((active().await, recording().await), ("1".to_owned(), set));
    port.post("/chat/_bodylog_toggle?reset=1").await;
    assert_eq!((active().await, recording().await), ("0".to_owned(), files));
}

#[tokio::test]
async fn debug_of_a_by_model_route_needs_one_of_its_models() {
    let port = Port::over("", &[("multi", MULTI)]);
    let reply = port.get("/multi/_route_debug?sid=s&model=m2").await.json();
    assert_eq!(
        (&reply["model"], &reply["actual_pick"]),
        (&json!("m2"), &json!("gpu-a"))
    );
    for target in [
        "/multi/_route_debug?model=m3",
        "/multi/_route_debug",
        "/multi/_route_state?model=m3",
    ] {
        let reply = port.get(target).await;
        assert_eq!(reply.status, 200, "{target}");
        assert_eq!(
            reply.json()["error"],
            json!("model_not_supported"),
            "{target}"
        );
        assert_eq!(
            reply.json()["supported_models"],
            json!(["m1", "m2"]),
            "{target}"
        );
    }
}

#[tokio::test]
async fn inspect_decides_as_a_request_would_and_counts_nothing() {
    let port = Port::chat();
    let body = r#"{"model":"m","metadata":{"session_id":"s-19"}}"#;
    let reply = port
        .send("127.0.0.1", "POST", "/chat/_route_inspect", &[], body)
        .await;
    assert_eq!(reply.status, 200);
    let json = reply.json();
    assert_eq!(
        (
            &json["session_id"],
            &json["source"],
            &json["mode"],
            &json["model"]
        ),
        (
            &json!("s-19"),
            &json!("body.metadata.session_id"),
            &json!("hash"),
            &json!("m")
        )
    );
    let header = [("x-session-id", "s-20")];
    let json = port
        .send("127.0.0.1", "POST", "/chat/_route_inspect", &header, body)
        .await
        .json();
    assert_eq!(
        (&json["session_id"], &json["source"]),
        (&json!("s-20"), &json!("header.x-session-id"))
    );
    let none = port.post("/chat/_route_inspect").await.json();
    assert_eq!(
        (&none["session_id"], &none["source"]),
        (&json!("-"), &json!("none"))
    );
    let bare = port.get("/chat/_route_inspect").await;
    // The choice between two idle peers varies between runs.
    let asked = bare.json();
    assert_eq!(
        (bare.status, &asked["session_id"], &asked["source"]),
        (StatusCode::OK, &none["session_id"], &none["source"])
    );
    let named = port
        .send(
            "127.0.0.1",
            "POST",
            "/chat/_route_inspect?sid=s-21",
            &header,
            body,
        )
        .await
        .json();
    assert_eq!(
        (&named["session_id"], &named["source"]),
        (&json!("s-21"), &json!("query.sid"))
    );
    let state = port.get("/chat/_route_state").await.json();
    assert_eq!(state["in_flight"], json!(0));
    for peer in ["gpu-a", "gpu-b", "spare"] {
        port.observe(peer, Evidence::Failed);
    }
    let reply = port.post("/chat/_route_inspect").await;
    assert_eq!(reply.status, 503);
    assert_eq!(
        reply.json()["explanation"]["outcome"]["refuse"]["reason"],
        json!("no_healthy_peer")
    );
}

#[tokio::test]
async fn an_inspected_body_is_bounded() {
    let port = Port::over("", &[("chat", &format!("{CHAT}max_body_size: 1k\n"))]);
    let body = "x".repeat(1025);
    let reply = port
        .send("127.0.0.1", "POST", "/chat/_route_inspect", &[], &body)
        .await;
    assert_eq!(
        (reply.status, &reply.json()["error"]["code"]),
        (StatusCode::PAYLOAD_TOO_LARGE, &json!("body_too_large"))
    );
    let reply = port
        .send("127.0.0.1", "POST", "/chat/_route_inspect", &[], &body[1..])
        .await;
    assert_eq!(reply.status, 200);
}

#[tokio::test]
async fn a_toggle_answers_before_after_and_source() {
    let port = Port::over("", &[("chat", &format!("{CHAT}affinity_enabled: true\n"))]);
    let shown = port.get("/chat/_affinity_toggle").await.json();
    assert_eq!(
        shown,
        json!({"route": "chat", "switch": "affinity", "enabled": true, "source": "route"})
    );
    let off = port.post("/chat/_affinity_toggle?on=0").await.json();
    assert_eq!(
        off,
        json!({"route": "chat", "switch": "affinity", "before": true, "source_before": "route",
               "after": false, "enabled": false, "source": "runtime", "counters_reset": false})
    );
    let metrics = port.get("/metrics").await.text;
    assert!(
        metrics.contains(r#"llm_router_override_active{route="chat",switch="affinity"} 1"#),
        "{metrics}"
    );
    let reset = port.post("/chat/_affinity_toggle?reset=1").await.json();
    assert_eq!(
        (&reset["before"], &reset["after"], &reset["source"]),
        (&json!(false), &json!(true), &json!("route"))
    );
}

#[tokio::test]
async fn counters_can_be_zeroed_on_every_switch_whether_it_has_any_or_not() {
    let port = Port::chat();
    for switch in [
        "rate_limit",
        "ttft",
        "ttft_429",
        "tps",
        "session_prio",
        "reject_rules",
        "affinity",
        "include_usage",
        "cch_strip",
        "kimi_normalize",
        "bodylog",
    ] {
        let reply = port
            .post(&format!("/chat/_{switch}_toggle?reset_counters=1"))
            .await;
        let shown = (reply.status, &reply.json()["counters_reset"]);
        assert_eq!(shown, (StatusCode::OK, &json!(true)), "{switch}");
        let source = port.get(&format!("/chat/_{switch}_toggle")).await.json()["source"].clone();
        assert_ne!(source, "runtime", "{switch}");
    }
}

#[tokio::test]
async fn a_bad_value_is_400_and_changes_nothing() {
    let port = Port::chat();
    port.post("/chat/_affinity_toggle?on=0").await;
    for query in [
        "",
        "?on=",
        "?on=2",
        "?on=true",
        "?on=1&on=1",
        "?on=1&reset=1",
        "?reset=0",
        "?reset",
        "?on=1&ttl=5",
        "?reset_counters=0",
    ] {
        let reply = port.post(&format!("/chat/_affinity_toggle{query}")).await;
        assert_eq!(
            (reply.status, &reply.json()["error"]["param"]),
            (StatusCode::BAD_REQUEST, &Value::Null),
            "{query}"
        );
        assert_eq!(reply.headers["x-should-retry"], "false", "{query}");
        assert_eq!(
            port.get("/chat/_affinity_toggle").await.json()["enabled"],
            json!(false),
            "{query}"
        );
    }
}

#[tokio::test]
async fn a_route_without_peers_is_503_with_meta() {
    let port = Port::over("", &[("empty", "peers: []")]);
    let health = port.get("/empty/_health_status").await;
    assert_eq!(health.status, 503);
    assert_eq!(health.json()["_meta"]["key_file_status"], json!("missing"));
    for target in [
        "/empty/_active_conns",
        "/empty/_route_debug",
        "/empty/_route_state",
    ] {
        let reply = port.get(target).await;
        assert_eq!(
            (reply.status, &reply.json()["error"]["code"]),
            (StatusCode::SERVICE_UNAVAILABLE, &json!("no_healthy_peer"))
        );
    }
    assert_eq!(port.get("/empty/_affinity_toggle").await.status, 200);
}

#[tokio::test]
async fn an_invalid_route_answers_503() {
    let port = Port::over("", &[("broken", "peers: 7")]);
    let reply = port.get("/broken/_route_state").await;
    assert_eq!(
        (reply.status, &reply.json()["error"]["code"]),
        (StatusCode::SERVICE_UNAVAILABLE, &json!("route_invalid"))
    );
    let metrics = port.get("/metrics").await.text;
    assert!(
        metrics.contains(r#"llm_router_route_valid{route="broken"} 0"#),
        "{metrics}"
    );
}

fn receipt(route: &str, request_id: &str, at_unix_ms: u64) -> Receipt {
    Receipt {
        request_id: request_id.into(),
        at_unix_ms,
        route: route.into(),
        model: None,
        served_model: None,
        method: "POST".into(),
        path: "/v1/chat/completions".into(),
        session: "-".into(),
        source: "none".into(),
        decision: Choice::Refuse(router_core::admission::Refusal::NoHealthyPeer {
            peers: 1,
            banned: 1,
            stale: 0,
            ejected: 0,
            draining: 0,
        }),
        attempts: Vec::new(),
        hops: Vec::new(),
        pings: 0,
        status: 503,
        duration_ms: 1,
        ttft_ms: None,
        usage: None,
        finish_reason: None,
        client_gone: false,
    }
}

#[tokio::test]
async fn decisions_are_newest_first_and_merged_at_the_root() {
    let port = Port::over("", &[("a", CHAT), ("b", CHAT)]);
    let table = port.current.load_full();
    let routes: Vec<_> = table.routes().collect();
    for (n, route) in routes.into_iter().cycle().take(60).enumerate() {
        route
            .state
            .decisions
            .push(receipt(&route.name, &format!("rid-{n}"), n as u64));
    }
    let ids = async |target: &str| -> Vec<String> {
        let json = port.get(target).await.json();
        let decisions = json["decisions"].as_array().unwrap().iter();
        decisions
            .map(|d| d["request_id"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(ids("/_decisions?n=3").await, ["rid-59", "rid-58", "rid-57"]);
    assert_eq!(ids("/a/_decisions?n=2").await, ["rid-58", "rid-56"]);
    assert_eq!(ids("/_decisions").await.len(), 20);
    for all in ["1000", "99999999999999999999999"] {
        assert_eq!(ids(&format!("/_decisions?n={all}")).await.len(), 60);
        assert_eq!(ids(&format!("/a/_decisions?n={all}")).await.len(), 30);
    }
    assert_eq!(ids("/_decisions?request_id=rid-7").await, ["rid-7"]);
    assert!(ids("/a/_decisions?request_id=rid-7").await.is_empty());
    for bad in ["n=0", "n=00", "n=1.5", "n=-1", "n=x", "n=", "n=1&n=2"] {
        assert_eq!(
            port.get(&format!("/a/_decisions?{bad}")).await.status,
            400,
            "{bad}"
        );
        assert_eq!(
            port.get(&format!("/_decisions?{bad}")).await.status,
            400,
            "{bad}"
        );
    }
}

#[tokio::test]
async fn what_is_recorded_is_set_strictly_and_reset_in_one_go() {
    let port = Port::over("", &[("chat", &format!("{CHAT}bodylog_pct: 50\n"))]);
    let shown = port.get("/chat/_bodylog_toggle").await.json();
    assert_eq!(
        shown,
        json!({"route": "chat", "switch": "bodylog", "enabled": true, "source": "default",
               "sample_pct": 50.0, "sample_pct_source": "route",
               "bodies": "full", "bodies_source": "default"})
    );
    let set = port
        .post("/chat/_bodylog_toggle?on=0&pct=0.5&bodies=truncate(64k)")
        .await
        .json();
    assert_eq!(
        (&set["before"], &set["after"], &set["source"]),
        (&json!(true), &json!(false), &json!("runtime"))
    );
    assert_eq!(
        (&set["sample_pct"], &set["bodies"]),
        (
            &json!({"before": 50.0, "after": 0.5, "source": "runtime"}),
            &json!({"before": "full", "after": "truncate(64k)", "source": "runtime"})
        )
    );
    for query in [
        "",
        "?on=true",
        "?pct=101",
        "?pct=-1",
        "?pct=NaN",
        "?pct=1e1",
        "?bodies=some",
        "?bodies=truncate(0)",
        "?reset=1&on=1",
        "?on=1&pct=200",
    ] {
        let reply = port.post(&format!("/chat/_bodylog_toggle{query}")).await;
        assert_eq!(reply.status, StatusCode::BAD_REQUEST, "{query}");
    }
    let status = port.get("/chat/_bodylog_status").await.json();
    assert_eq!(
        (&status["enabled"], &status["sample_pct"], &status["bodies"]),
        (&json!(false), &json!(0.5), &json!("truncate(64k)"))
    );
    assert_eq!(
        (
            &status["connected"],
            &status["dropped"]["spool_full"],
            &status["last_log_ts"]
        ),
        (&json!(false), &json!(0), &Value::Null)
    );
    let reset = port.post("/chat/_bodylog_toggle?reset=1").await.json();
    assert_eq!(
        (
            &reset["after"],
            &reset["sample_pct"]["after"],
            &reset["bodies"]["after"]
        ),
        (&json!(true), &json!(50.0), &json!("full"))
    );
    let page = port.get("/metrics").await.text;
    for series in [
        r#"llm_router_bodylog_capture_frames_total{result="acked"} 0"#,
        r#"llm_router_bodylog_capture_dropped_total{reason="spool_full"} 0"#,
        "llm_router_bodylog_capture_shed_total 0",
        "llm_router_bodylog_capture_reconnects_total 0",
        "llm_router_bodylog_capture_ack_seconds_count 0",
    ] {
        assert!(page.contains(series), "{series}\n{page}");
    }
}

#[tokio::test]
async fn sessions_are_shown_and_finished_on_one_route_or_on_all() {
    let sticky = format!("{CHAT}affinity: sticky_least_loaded\n");
    let port = Port::over("", &[("a", &sticky), ("b", &sticky), ("hash", CHAT)]);
    let table = port.current.load_full();
    for name in ["a", "b"] {
        let route = table.get(name).unwrap().route().unwrap();
        drop(
            route
                .reserve(PlacementRequest::new(PoolId(0), Some(b"s")))
                .unwrap(),
        );
    }
    let homes = async |target: &str| -> Vec<(String, usize)> {
        let all = port.get(target).await.json();
        let of = |route: &Value| {
            let homes = route["homes"].as_array().map_or(0, Vec::len);
            (route["route"].as_str().unwrap().to_owned(), homes)
        };
        all["routes"].as_array().unwrap().iter().map(of).collect()
    };
    let found = |a, b| {
        vec![
            ("a".to_owned(), a),
            ("b".to_owned(), b),
            ("hash".to_owned(), 0),
        ]
    };
    assert_eq!(homes("/_sessions?session_id=s").await, found(1, 1));
    assert_eq!(homes("/_sessions?session_id=other").await, found(0, 0));
    assert_eq!(homes("/_sessions").await, found(0, 0));
    assert_eq!(port.get("/_sessions?sid=s").await.status, 400);
    for bad in ["", "?session_id=", "?session_id=s&session_id=s", "?sid=s"] {
        for root in ["", "/a"] {
            let target = format!("{root}/finish_session{bad}");
            assert_eq!(port.post(&target).await.status, 400, "{target}");
        }
    }
    assert_eq!(
        port.post("/c/finish_session?session_id=s").await.status,
        404
    );
    let released = async |target: &str| port.post(target).await.json();
    assert_eq!(
        released("/a/finish_session?session_id=s").await,
        json!({"status": "ok", "session_id": "s", "released": 1})
    );
    assert_eq!(homes("/_sessions?session_id=s").await, found(0, 1));
    for left in [1, 0] {
        let answer = released("/finish_session?session_id=s").await;
        assert_eq!(answer["released"], json!(left));
    }
    assert_eq!(homes("/_sessions?session_id=s").await, found(0, 0));
}
