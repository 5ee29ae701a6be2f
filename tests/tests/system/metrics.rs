//! `/metrics` and `/proxy/metrics`: the promised names, in the promised formats.

use system_tests::peer::{Gate, Peer};
use system_tests::wire::call;

use crate::common::{CHAT, CHAT_PATH, CHAT_STREAM, over, setup};

const NAMES: [&str; 13] = [
    "llm_router_requests_total",
    "llm_router_refusals_total",
    "llm_router_request_seconds",
    "llm_router_ttft_seconds",
    "llm_router_inter_chunk_seconds",
    "llm_router_overhead_seconds",
    "llm_router_tokens_total",
    "llm_router_in_flight",
    "llm_router_limit",
    "llm_router_peer_healthy",
    "llm_router_sessions",
    "llm_router_config_last_reload_success",
    "llm_router_build_info",
];

/// The sum of a metric's samples that carry every label. `None` if there is no such sample.
fn sample(text: &str, name: &str, labels: &[&str]) -> Option<f64> {
    let of_name = text.lines().filter(|line| {
        let rest = line.strip_prefix(name);
        rest.is_some_and(|rest| rest.starts_with(['{', ' ']))
    });
    let carrying = of_name.filter(|line| labels.iter().all(|label| line.contains(label)));
    let values = carrying.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    values.reduce(|sum, value| sum + value)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_promised_series_exists() {
    let gate = Gate::default();
    gate.open(8);
    let peer = Peer::streaming(&gate, "data: {\"choices\":[]}\n\n", &["data: [DONE]\n\n"]).await;
    let router = over(&[&peer], "").start().await;
    assert_eq!(router.post(CHAT_PATH, CHAT_STREAM).await.status, 200);
    let reply = router.admin_get("/metrics").await;
    assert!(
        reply
            .header("content-type")
            .starts_with("text/plain; version=0.0.4"),
        "{}",
        reply.header("content-type")
    );
    let text = reply.text();
    for name in NAMES {
        assert!(
            text.lines().any(|line| line.starts_with(name)),
            "{name} is missing in:\n{text}"
        );
        assert!(
            text.contains(&format!("# TYPE {name} ")),
            "{name} has no type"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_refusals_and_gauges_move() {
    let gate = Gate::default();
    let peer = Peer::gated(&gate).await;
    let address = peer.address.to_string();
    let route = format!("peers: [{{address: {address}, max_concurrency: 1}}]");
    let router = setup().route("r", &route).start().await;
    let text = async || router.admin_get("/metrics").await.text();
    let refused = ["route=\"r\"", "gate=\"concurrency\""];
    assert_eq!(
        sample(&text().await, "llm_router_refusals_total", &refused),
        Some(0.0),
        "it exists from registration"
    );
    let (reply, ()) = tokio::join!(router.post(CHAT_PATH, CHAT), async {
        peer.running(1).await;
        assert_eq!(router.post(CHAT_PATH, CHAT).await.status, 429);
        system_tests::wait::until_answer("the gauge of the running request", async || {
            (sample(&text().await, "llm_router_in_flight", &["route=\"r\""]) == Some(1.0))
                .then_some(())
        })
        .await;
        gate.open(1);
    });
    assert_eq!(reply.status, 200);
    let expected = [
        ("llm_router_requests_total", "code=\"200\"", 1.0),
        ("llm_router_requests_total", "code=\"429\"", 1.0),
        ("llm_router_refusals_total", "gate=\"concurrency\"", 1.0),
        ("llm_router_in_flight", "", 0.0),
        ("llm_router_limit", "", 1.0),
        ("llm_router_peer_healthy", &address, 1.0),
    ];
    for (name, label, value) in expected {
        let what = format!("{name} with {label} to be {value}");
        system_tests::wait::until_answer(&what, async || {
            (sample(&text().await, name, &["route=\"r\"", label]) == Some(value)).then_some(())
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn openmetrics_and_protobuf_by_accept() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "").start().await;
    let get =
        async |accept: &str| call(router.admin, "GET", "/metrics", &[("accept", accept)], "").await;
    let open = get("application/openmetrics-text; version=1.0.0").await;
    assert!(
        open.header("content-type")
            .starts_with("application/openmetrics-text")
    );
    assert!(open.text().ends_with("# EOF\n"));
    let protobuf = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited";
    let reply = get(protobuf).await;
    assert!(
        reply
            .header("content-type")
            .starts_with("application/vnd.google.protobuf"),
        "{}",
        reply.header("content-type")
    );
    assert!(!reply.body.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn access_line_has_its_fixed_form() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "").start().await;
    router
        .post_with(CHAT_PATH, &[("x-request-id", "rid-1")], CHAT)
        .await;
    router
        .program
        .logged("rid=rid-1 POST /r/v1/chat/completions -> 200 (")
        .await;
    let log = router.log();
    let line = log
        .lines()
        .find(|line| line.contains("rid=rid-1 POST"))
        .unwrap();
    for field in ["route=r", "mode=least_conn", "retries=0", "peer="] {
        assert!(line.contains(field), "{field} is missing in {line}");
    }
}
