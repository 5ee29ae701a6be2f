//! Tests of the load gates' status pages, limits and counters.

use std::time::Duration;

use router_core::admission::Refusal;
use router_core::book::Switches;
use router_core::signal::Sample;

use super::*;
use crate::state::Placed;
use crate::telemetry::metrics::Gate;

const FAST: &str = "
peers: [{address: 10.0.0.11:8000, name: gpu-a, max_concurrency: 2}]
ttft_limit_ms: 1000
ttft_window: 1s
";

const MODELS: &str = "
peers_by_model:
  m1: [{address: 10.0.0.11:8000}]
  m2: [{address: 10.0.0.12:8000}]
ttft_limit_ms: 1000
ttft_limit_by_model: {m2: 2000}
tps_limit_tps: 20
";

const DECLARED: &str = "
peers: [{address: 10.0.0.11:8000}]
ttft_limit_ms: 30000
ttft_metrics: [{metric: p95, q: .95, threshold: 35000}]
";

/// Records one time to first token and lets its window end.
async fn first_token_took(port: &Port, ms: f64) {
    let route = port.route();
    route.sample(PoolId(0), Sample::Ttft(ms));
    tokio::time::advance(Duration::from_millis(1500)).await;
    route.tick();
}

fn ask(port: &Port, turn: Option<u32>) -> Result<Placed, Refusal> {
    let route = port.route();
    route.reserve(PlacementRequest {
        turn,
        switches: route.switches(),
        ..PlacementRequest::new(PoolId(0), None)
    })
}

async fn metric(port: &Port, series: &str) -> String {
    let page = port.get("/metrics").await.text;
    let line = page.lines().find(|line| line.starts_with(series));
    let value = line.and_then(|line| line.rsplit(' ').next());
    value
        .unwrap_or_else(|| panic!("{series} is not in\n{page}"))
        .to_owned()
}

#[tokio::test(start_paused = true)]
async fn ttft_status_shows_thresholds_beside_averages() {
    let port = Port::over("", &[("chat", FAST)]);
    let cold = port.get("/chat/_ttft_status").await.json();
    assert_eq!(
        (&cold["active"], &cold["enforcing"], &cold["ewma_ms"]),
        (&json!(true), &json!(true), &json!({}))
    );
    first_token_took(&port, 5000.0).await;
    let slow = port.get("/chat/_ttft_status").await;
    insta::assert_snapshot!("ttft_status", pretty(&slow));
    let series = r#"llm_router_ttft_ewma_seconds{route="chat",model="-",metric="p80"}"#;
    assert_eq!(metric(&port, series).await, "5.0");
    assert_eq!(metric(&port, "llm_router_ttft_tripped").await, "1");
    port.post("/chat/_ttft_toggle?on=0").await;
    let off = port.get("/chat/_ttft_status").await.json();
    assert_eq!(
        [
            &off["runtime_off"],
            &off["global_enabled"],
            &off["active"],
            &off["enforcing"]
        ],
        [&json!(true), &json!(true), &json!(false), &json!(false)]
    );
}

#[tokio::test(start_paused = true)]
async fn tps_status_shows_the_adaptive_limit() {
    let port = Port::over(
        "",
        &[(
            "chat",
            &format!("{CHAT}tps_limit_tps: 25\nadaptive_cc: true\n"),
        )],
    );
    port.route().sample(PoolId(0), Sample::NoUsage);
    insta::assert_snapshot!("tps_status", pretty(&port.get("/chat/_tps_status").await));
    let plain = Port::chat().get("/chat/_tps_status").await.json();
    assert_eq!(
        (&plain["tps_limit_source"], &plain["enforcing"]),
        (&json!("none"), &json!(false))
    );
    assert_eq!(plain.get("adaptive_cc"), None);
}

#[tokio::test(start_paused = true)]
async fn a_limit_is_set_for_a_while_and_says_what_it_hides() {
    let port = Port::over("", &[("chat", FAST)]);
    let set = port
        .post("/chat/_ttft_limit?ms=12000&ttl=3600")
        .await
        .json();
    insta::assert_snapshot!("limit_set", serde_json::to_string_pretty(&set).unwrap());
    let active = r#"llm_router_override_active{route="chat",switch="ttft-limit"}"#;
    assert_eq!(metric(&port, active).await, "1");
    tokio::time::advance(Duration::from_secs(3601)).await;
    let over = port.get("/chat/_ttft_limit").await.json();
    assert_eq!(
        (&over["limit_ms"], &over["source"]),
        (&json!(1000), &json!("route"))
    );
    assert_eq!(over.get("limit_override_ms"), None);
    assert_eq!(metric(&port, active).await, "0");
}

#[tokio::test(start_paused = true)]
async fn a_limit_without_a_life_ends_in_two_hours_and_one_of_0_never() {
    let port = Port::over("", &[("chat", FAST)]);
    let set = port.post("/chat/_tps_limit?tps=15").await.json();
    assert_eq!(set["override_ttl_s"], json!(7200));
    assert_eq!(
        (&set["limit_tps"], &set["after"], set.get("before")),
        (&json!(15), &json!(15), None)
    );
    tokio::time::advance(Duration::from_secs(7201)).await;
    let ended = port.get("/chat/_tps_limit").await.json();
    assert_eq!(
        (ended.get("limit_tps"), &ended["source"], &ended["layer"]),
        (None, &json!("default"), &json!("none"))
    );
    let for_ever = port.post("/chat/_tps_limit?tps=15&ttl=0").await.json();
    assert_eq!(for_ever["override_ttl_s"], json!(0));
    tokio::time::advance(Duration::from_secs(1_000_000)).await;
    assert_eq!(
        port.get("/chat/_tps_limit").await.json()["limit_tps"],
        json!(15)
    );
    for removal in ["tps=0", "reset=1"] {
        port.post("/chat/_tps_limit?tps=15").await;
        let removed = port
            .post(&format!("/chat/_tps_limit?{removal}"))
            .await
            .json();
        assert_eq!(
            (
                removed.get("limit_tps"),
                &removed["before"],
                removed.get("after")
            ),
            (None, &json!(15), None)
        );
    }
}

/// V51.
#[tokio::test]
async fn a_declared_table_keeps_a_limit_out_of_force() {
    let port = Port::over("", &[("chat", DECLARED)]);
    let set = port.post("/chat/_ttft_limit?ms=9999").await.json();
    assert_eq!(
        (
            &set["limit_override_ms"],
            &set["override_effective"],
            &set["source"],
            &set["layer"]
        ),
        (
            &json!(9999),
            &json!(false),
            &json!("route"),
            &json!("declared")
        )
    );
    assert!(
        set["override_ignored_reason"]
            .as_str()
            .unwrap()
            .contains("ttft_metrics")
    );
    let status = port.get("/chat/_ttft_status").await.json();
    let pool = &status["metrics"][0];
    assert_eq!(
        (&pool["source"], &pool["items"][0]["threshold_ms"]),
        (&json!("declared"), &json!(35000))
    );
    assert_eq!(pool["ignored_override"]["override_ms"], json!(9999));
}

#[tokio::test]
async fn a_limit_of_a_model_beats_the_routes() {
    let port = Port::over("", &[("multi", MODELS)]);
    let route = port.post("/multi/_ttft_limit?ms=500").await.json();
    assert_eq!(
        (
            &route["before"],
            &route["source_before"],
            &route["after"],
            &route["source"]
        ),
        (
            &json!(1000),
            &json!("route"),
            &json!(500),
            &json!("runtime")
        )
    );
    let own = port.post("/multi/_ttft_limit?ms=300&model=m2").await.json();
    assert_eq!(
        (
            &own["model"],
            &own["before"],
            &own["limit_ms"],
            &own["source"],
            &own["layer"],
            &own["shadowed_limit_ms"]
        ),
        (
            &json!("m2"),
            &json!(500),
            &json!(300),
            &json!("runtime"),
            &json!("model_override"),
            &json!(500)
        )
    );
    let status = port.get("/multi/_ttft_status").await.json();
    let thresholds: Vec<&Value> = (0..2)
        .map(|n| &status["metrics"][n]["items"][0]["threshold_ms"])
        .collect();
    assert_eq!(thresholds, [&json!(500), &json!(300)]);
    let reset = port.post("/multi/_ttft_limit?reset=1").await.json();
    assert_eq!(
        (&reset["after"], &reset["override_by_model"]),
        (&json!(1000), &json!({"m2": 300.0})),
        "the model keeps its own"
    );
    port.post("/multi/_ttft_limit?reset=1&model=m2").await;
    let back = port.get("/multi/_ttft_limit?model=m2").await.json();
    assert_eq!(
        (&back["limit_ms"], &back["source"], &back["layer"]),
        (&json!(2000), &json!("route"), &json!("model"))
    );
    let route = port.get("/multi/_ttft_limit").await.json();
    assert_eq!(route.get("override_by_model"), None);
}

#[tokio::test]
async fn a_limit_that_means_nothing_is_400_and_changes_nothing() {
    let port = Port::over("", &[("chat", FAST), ("multi", MODELS)]);
    port.post("/chat/_ttft_limit?ms=7000").await;
    for target in [
        "/chat/_ttft_limit",
        "/chat/_ttft_limit?ms=",
        "/chat/_ttft_limit?ms=-1",
        "/chat/_ttft_limit?ms=NaN",
        "/chat/_ttft_limit?ms=inf",
        "/chat/_ttft_limit?ms=fast",
        "/chat/_ttft_limit?ms=1&ms=2",
        "/chat/_ttft_limit?tps=1",
        "/chat/_ttft_limit?ms=1&ttl=-1",
        "/chat/_ttft_limit?ms=1&ttl=soon",
        "/chat/_ttft_limit?ms=0&ttl=5",
        "/chat/_ttft_limit?ms=1&reset=1",
        "/chat/_ttft_limit?reset=0",
        "/chat/_ttft_limit?ms=1&model=m1",
        "/multi/_ttft_limit?ms=1&model=m3",
        "/chat/_429_status",
        "/chat/_429_status?reset=0",
        "/chat/_429_status?reset=1&all=yes",
        "/chat/_rate_limit_toggle?on=1&reset_counters=2",
    ] {
        let reply = port.post(target).await;
        assert_eq!(
            reply.status,
            StatusCode::BAD_REQUEST,
            "{target}: {}",
            reply.text
        );
    }
    let kept = port.get("/chat/_ttft_limit").await.json();
    assert_eq!(kept["limit_override_ms"], json!(7000));
    let untouched = port.get("/multi/_ttft_limit?model=m1").await.json();
    assert_eq!(untouched["source"], json!("route"));
    let toggle = port.get("/chat/_rate_limit_toggle").await.json();
    assert_eq!(toggle["source"], json!("default"));
}

#[tokio::test]
async fn a_get_that_would_write_is_405() {
    let port = Port::over("", &[("chat", FAST)]);
    for target in [
        "/chat/_ttft_limit?ms=1",
        "/chat/_ttft_limit?reset=1",
        "/chat/_tps_limit?tps=1",
        "/chat/_429_status?reset=1",
        "/chat/_rate_limit_toggle?reset_counters=1",
        "/chat/_session_prio_toggle?on=1",
    ] {
        let reply = port.get(target).await;
        assert_eq!(
            (reply.status, &reply.headers["allow"]),
            (StatusCode::METHOD_NOT_ALLOWED, &"POST".parse().unwrap()),
            "{target}"
        );
    }
    for target in [
        "_ttft_status",
        "_tps_status",
        "_session_status",
        "_cluster_avg",
        "_active_conns",
    ] {
        assert_eq!(
            port.post(&format!("/chat/{target}")).await.status,
            405,
            "{target}"
        );
    }
}

#[tokio::test]
async fn refusals_are_counted_by_reason_until_they_are_reset() {
    let port = Port::over("", &[("chat", FAST), ("multi", MODELS)]);
    let _held = (ask(&port, None).unwrap(), ask(&port, None).unwrap());
    let metrics = Arc::clone(&port.route().state.metrics);
    let refusal = ask(&port, None).unwrap_err();
    metrics.refused(refusal.gate().unwrap().into(), refusal.bucket());
    metrics.refused(Gate::Rule, None);
    let shown = port.get("/chat/_429_status").await.json();
    assert_eq!(
        (&shown["scope"], &shown["total"]),
        (&json!("chat"), &json!(2))
    );
    let reasons = json!({"concurrency": 1, "ttft": 0, "tps": 0, "rule": 1});
    assert_eq!(
        (&shown["by_reason"], &shown["by_route"]),
        (&reasons, &json!({"chat": reasons}))
    );
    let idle = json!({"concurrency": 0, "ttft": 0, "tps": 0});
    let master = json!({"route": "chat", "enabled": true, "source": "default", "trips": idle});
    assert_eq!(shown["rate_limit"], master);
    let all = port.get("/multi/_429_status?all=1").await.json();
    assert_eq!((&all["scope"], &all["total"]), (&json!("all"), &json!(2)));
    assert_eq!(all["by_route"].as_object().unwrap().len(), 2);
    port.post("/multi/_429_status?reset=1").await;
    assert_eq!(
        port.get("/chat/_429_status").await.json()["total"],
        json!(2)
    );
    let reset = port.post("/multi/_429_status?reset=1&all=1").await.json();
    assert_eq!(
        reset,
        json!({"reset": true, "scope": "all", "before": reasons})
    );
    assert_eq!(
        port.get("/chat/_429_status").await.json()["total"],
        json!(0)
    );
    let counter = r#"llm_router_refusals_total{route="chat",gate="concurrency",bucket="-"}"#;
    assert_eq!(metric(&port, counter).await, "1", "the page goes on");
}

#[tokio::test]
async fn trips_are_counted_apart_and_the_page_never_goes_back() {
    let port = Port::over("", &[("chat", FAST)]);
    let off = port.post("/chat/_rate_limit_toggle?on=0").await.json();
    assert_eq!(
        (&off["switch"], &off["after"]),
        (&json!("rate-limit"), &json!(false))
    );
    let _held: Vec<_> = (0..4).map(|_| ask(&port, None).unwrap()).collect();
    let status = port.get("/chat/_rate_limit_status").await.json();
    let trips = json!({"concurrency": 2, "ttft": 0, "tps": 0});
    assert_eq!(
        status,
        json!({"route": "chat", "enabled": false, "source": "runtime", "trips": trips})
    );
    assert_eq!(
        port.get("/chat/_429_status").await.json()["total"],
        json!(0)
    );
    let series = r#"llm_router_rate_limit_trips_total{route="chat",gate="concurrency"}"#;
    assert_eq!(metric(&port, series).await, "2");
    let zeroed = port
        .post("/chat/_rate_limit_toggle?reset_counters=1")
        .await
        .json();
    assert_eq!(
        (
            &zeroed["counters_reset"],
            &zeroed["before"],
            &zeroed["after"]
        ),
        (&json!(true), &json!(false), &json!(false))
    );
    let status = port.get("/chat/_rate_limit_status").await.json();
    assert_eq!(
        (&status["trips"]["concurrency"], &status["source"]),
        (&json!(0), &json!("runtime"))
    );
    assert_eq!(metric(&port, series).await, "2");
    let back = port.post("/chat/_rate_limit_toggle?reset=1").await.json();
    assert_eq!(
        (&back["after"], &back["source"]),
        (&json!(true), &json!("default"))
    );
    assert_eq!(ask(&port, None).unwrap_err().code(), "concurrency_limit");
}

#[tokio::test]
async fn session_status_counts_by_bucket() {
    let file = format!(
        "{FAST}session_prio: true\nsession_prio_table: [[1, .5, 1], {{min_turn: 4, share: 1, tol: 1.5}}]\n"
    );
    let port = Port::over("", &[("chat", &file)]);
    let cold = port.get("/chat/_session_status").await.json();
    assert_eq!((cold.get("hit_rate"), &cold["nohdr"]), (None, &json!(0)));
    let held = ask(&port, Some(1)).unwrap();
    assert_eq!(ask(&port, Some(1)).unwrap_err().bucket(), Some(1));
    let _warm = ask(&port, None).unwrap();
    port.route().tokens(&held.facts, 100, 25);
    insta::assert_snapshot!(
        "session_status",
        pretty(&port.get("/chat/_session_status").await)
    );
    let graded =
        r#"llm_router_session_prio_requests_total{route="chat",bucket="1",result="refused"}"#;
    let without = r#"llm_router_session_prio_nohdr_total{route="chat",result="admitted"}"#;
    let cached = r#"llm_router_session_prio_tokens_total{route="chat",bucket="1",kind="cached"}"#;
    for (series, count) in [(graded, "1"), (without, "1"), (cached, "25")] {
        assert_eq!(metric(&port, series).await, count);
    }
    port.post("/chat/_session_prio_toggle?reset_counters=1")
        .await;
    let zeroed = port.get("/chat/_session_status").await.json();
    assert_eq!(
        (
            &zeroed["table"][0]["refused"],
            &zeroed["nohdr"],
            &zeroed["ptok"]
        ),
        (&json!(0), &json!(0), &json!(0))
    );
    assert_eq!(metric(&port, graded).await, "1");
    let off = port.post("/chat/_session_prio_toggle?on=0").await.json();
    assert_eq!(
        (&off["before"], &off["source_before"]),
        (&json!(true), &json!("route"))
    );
}

#[tokio::test]
async fn a_peers_units_are_held_back_beside_the_requests_on_it() {
    let port = Port::over("", &[("chat", FAST)]);
    let peer = "peer=10.0.0.11:8000";
    let set = async |query: &str| {
        let reply = port.post(&format!("/chat/_active_conns_set?{query}")).await;
        (reply.status.as_u16(), reply.json())
    };
    let active = async || port.get("/chat/_active_conns").await.json()["10.0.0.11:8000"].clone();
    let running = ask(&port, None).unwrap();
    let (status, held) = set(&format!("{peer}&value=2")).await;
    assert_eq!(status, 200, "{held}");
    assert_eq!(
        held,
        json!({"ok": true, "route": "chat", "action": "set", "peer": "10.0.0.11:8000", "before": 1, "value": 2})
    );
    assert_eq!(active().await, json!(2));
    assert!(ask(&port, None).is_err(), "the pool is full");
    let shown = port.get("/_routes").await.json()["routes"][0]["pools"][0]["peers"][0].clone();
    assert_eq!(
        (&shown["in_flight"], &shown["held_back"]),
        (&json!(2), &json!(1))
    );
    let series = r#"llm_router_override_active{route="chat",switch="active-conns"}"#;
    assert_eq!(metric(&port, series).await, "1");
    for bad in [
        "",
        "value=1",
        peer,
        "peer=10.0.0.99:1&value=1",
        "flush=1&value=1",
        "delete=1",
        "peer=10.0.0.11:8000&value=-1",
        "peer=10.0.0.11:8000&value=10001",
        "peer=10.0.0.11:8000&value=1&delete=1",
        // A request is running on this peer.
        "peer=10.0.0.11:8000&value=0",
    ] {
        assert_eq!(set(bad).await.0, 400, "{bad}");
        assert_eq!(active().await, json!(2), "{bad}");
    }
    assert_eq!(set(&format!("{peer}&value=1")).await.1["value"], json!(1));
    drop(running);
    assert_eq!(active().await, json!(0));
    set(&format!("{peer}&value=5")).await;
    let (_, deleted) = set(&format!("{peer}&delete=1")).await;
    assert_eq!(
        (&deleted["action"], &deleted["given_back"]),
        (&json!("delete"), &json!(5))
    );
    set(&format!("{peer}&value=7")).await;
    let (_, flushed) = set("flush=1").await;
    assert_eq!(
        flushed,
        json!({"ok": true, "route": "chat", "action": "flush_all", "given_back": 7})
    );
    assert_eq!(active().await, json!(0));
    assert_eq!(metric(&port, series).await, "0");
    assert_eq!(
        port.get("/chat/_active_conns_set?flush=1").await.status,
        405
    );
    let afar = port
        .send(
            "10.9.9.9",
            "POST",
            "/chat/_active_conns_set?flush=1",
            &[],
            "",
        )
        .await;
    assert_eq!(afar.status, 403);
}

#[tokio::test(start_paused = true)]
async fn cluster_avg_is_per_pool_and_of_the_route() {
    let port = Port::over(
        "",
        &[("multi", &format!("{MODELS}cluster_avg_interval: 10s\n"))],
    );
    let route = port.route();
    let _held: Vec<_> = [0, 0, 1]
        .map(|pool| {
            route
                .reserve(PlacementRequest::new(PoolId(pool), None))
                .unwrap()
        })
        .into();
    route.tick();
    for _ in 0..2 {
        tokio::time::advance(Duration::from_secs(10)).await;
        route.tick();
    }
    let average = port.get("/multi/_cluster_avg").await.json();
    let of = |average: &Value| {
        (
            average["realtime_sum"].clone(),
            average["samples"].clone(),
            average["avg_5min"].clone(),
        )
    };
    let expect = |count: u64| (json!(count), json!(2), json!(count));
    assert_eq!(of(&average), expect(3));
    assert_eq!(of(&average["pools"]["m1"]), expect(2));
    assert_eq!(of(&average["pools"]["m2"]), expect(1));
    let buckets = average["buckets"].as_object().unwrap();
    assert!(
        buckets.values().all(|count| *count == json!(3)),
        "{average}"
    );
    assert!(
        buckets.contains_key(&average["cur_bucket_idx"].to_string()),
        "{average}"
    );
}

#[tokio::test]
async fn every_series_of_the_gates_is_there_from_the_start() {
    let port = Port::over(
        "",
        &[(
            "chat",
            &format!("{FAST}adaptive_cc: true\ntps_limit_tps: 20\n"),
        )],
    );
    let page = port.get("/metrics").await.text;
    let switches = [
        "rate-limit",
        "ttft",
        "ttft-429",
        "tps",
        "session-prio",
        "affinity",
        "ttft-limit",
        "tps-limit",
    ];
    for switch in switches {
        let series = format!(r#"llm_router_override_active{{route="chat",switch="{switch}"}} 0"#);
        assert!(page.contains(&series), "{series} is not in\n{page}");
    }
    for series in [
        r#"llm_router_limit{route="chat",model="-"} 1.0"#,
        r#"llm_router_adaptive_limit{route="chat",model="-"} 1.0"#,
        r#"llm_router_adaptive_limit_max{route="chat",model="-"} 2.0"#,
        r#"llm_router_adaptive_has_signal{route="chat",model="-"} 0.0"#,
        r#"llm_router_ttft_ewma_seconds{route="chat",model="-",metric="p80"} NaN"#,
        r#"llm_router_ttft_threshold_seconds{route="chat",model="-",metric="p80"} 1.0"#,
        r#"llm_router_tps_ewma{route="chat",model="-",metric="p80"} NaN"#,
        r#"llm_router_tps_threshold{route="chat",model="-",metric="p80"} 20.0"#,
        r#"llm_router_ttft_tripped{route="chat",model="-"} 0"#,
        r#"llm_router_rate_limit_trips_total{route="chat",gate="tps"} 0"#,
        r#"llm_router_session_prio_requests_total{route="chat",bucket="32",result="admitted"} 0"#,
        r#"llm_router_session_prio_nohdr_total{route="chat",result="refused"} 0"#,
        r#"llm_router_refusals_total{route="chat",gate="rule",bucket="-"} 0"#,
    ] {
        assert!(page.contains(series), "{series} is not in\n{page}");
    }
    let plain = Port::chat().get("/metrics").await.text;
    assert!(!plain.contains("llm_router_adaptive_limit{"), "{plain}");
    assert!(
        plain.contains(
            r#"llm_router_ttft_threshold_seconds{route="chat",model="-",metric="p80"} +Inf"#
        ),
        "{plain}"
    );
}

#[tokio::test(start_paused = true)]
async fn route_debug_shows_every_gate_for_a_turn() {
    let port = Port::over("", &[("chat", &format!("{FAST}session_prio: true\n"))]);
    first_token_took(&port, 1000.0).await;
    let of_turn = async |turn: &str| {
        port.get(&format!("/chat/_route_debug?turn={turn}"))
            .await
            .json()["explanation"]
            .clone()
    };
    let first = of_turn("1").await;
    assert_eq!(first["gates"][1]["gate"], json!("ttft"));
    assert_eq!(
        (&first["gates"][1]["trips"], &first["gates"][1]["limit"]),
        (&json!(true), &json!(900)),
        "turn 1 is held out until the release point"
    );
    let warm = of_turn("40").await;
    assert_eq!(
        (&warm["gates"][1]["trips"], &warm["gates"][1]["limit"]),
        (&json!(false), &json!(1500))
    );
    assert_eq!(
        warm["outcome"]["send"]["facts"]["grade"]["bucket"],
        json!(32)
    );
    assert_eq!(port.get("/chat/_route_debug?turn=0").await.status, 400);
}

#[test]
fn the_built_in_switches_are_the_cores() {
    let mut tables = Tables::new();
    let table = tables.table("", &[("chat", CHAT)]);
    let route = table.routes().next().unwrap();
    assert_eq!(route.switches(), Switches::DEFAULT);
}
