//! Tests of the endpoints about the process.

use std::time::Duration;

use http::Method;

use super::*;
use crate::control::Reloaded;
use crate::state::Phase;
use router_config::report::{Problem, Severity};

#[tokio::test]
async fn readiness_follows_peers_and_phase() {
    let port = Port::over(
        "",
        &[
            ("chat", CHAT),
            ("empty", "peers: []"),
            ("broken", "peers: 7"),
        ],
    );
    let ready = port.get("/readyz").await;
    assert_eq!(ready.status, 200);
    assert_eq!(
        ready.json(),
        json!({"status": "ready", "usable_routes": 1, "routes": 3})
    );
    let chat = port.current.load_full();
    let chat = chat.get("chat").unwrap().route().unwrap().clone();
    for peer in chat.distinct_peers() {
        chat.observe(&peer.spec.key, Evidence::Failed);
    }
    let unready = port.get("/readyz").await;
    assert_eq!(
        (unready.status, &unready.json()["status"]),
        (StatusCode::SERVICE_UNAVAILABLE, &json!("unready"))
    );
    chat.observe(&chat.distinct_peers()[0].spec.key, Evidence::Healthy);
    assert_eq!(port.get("/readyz").await.status, 200);
    port.lifecycle.advance(Phase::DrainDelay);
    let leaving = port.get("/readyz").await;
    assert_eq!(
        (leaving.status, &leaving.json()["status"]),
        (StatusCode::SERVICE_UNAVAILABLE, &json!("draining"))
    );
    let health = port.get("/healthz").await;
    assert_eq!((health.status, &*health.text), (StatusCode::OK, "ok\n"));
}

#[tokio::test]
async fn a_router_may_stay_ready_without_peers_but_not_without_routes() {
    let main = "server: {ready_without_peers: true}";
    let port = Port::over(main, &[("chat", CHAT)]);
    let chat = port.current.load_full();
    let chat = chat.get("chat").unwrap().route().unwrap().clone();
    for peer in chat.distinct_peers() {
        chat.observe(&peer.spec.key, Evidence::Failed);
    }
    let ready = port.get("/readyz").await;
    assert_eq!(
        (ready.status, ready.json()),
        (
            StatusCode::OK,
            json!({"status": "ready", "usable_routes": 0, "routes": 1})
        )
    );
    port.lifecycle.advance(Phase::DrainDelay);
    assert_eq!(port.get("/readyz").await.json()["status"], "draining");
    let broken = Port::over(main, &[("broken", "peers: 7")]);
    assert_eq!(broken.get("/readyz").await.json()["status"], "unready");
}

#[tokio::test]
async fn targets_name_every_enabled_peer_once_and_its_page() {
    let port = Port::over(
        "",
        &[
            (
                "chat",
                "peers: [{address: '10.0.0.1:8000', name: a}, {address: '10.0.0.2:8000', enabled: false}]",
            ),
            (
                "code",
                "peers: [{address: '10.0.0.1:8000', name: a}, {url: 'https://engines.example/two', name: b},\n\
                 {address: '10.0.0.3:8000', name: c, metrics_url: 'http://10.0.0.3:9400/load'}]",
            ),
        ],
    );
    let group = |target: &str, scheme: &str, path: &str, peer: &str, route: &str| {
        json!({"targets": [target], "labels":
            {"__scheme__": scheme, "__metrics_path__": path, "peer": peer, "route": route}})
    };
    let reply = port.get("/_targets").await;
    assert_eq!(reply.headers["content-type"], "application/json");
    assert_eq!(
        serde_json::from_str::<Value>(&reply.text).unwrap(),
        json!([
            group("10.0.0.1:8000", "http", "/metrics", "a", "chat,code"),
            group("10.0.0.3:9400", "http", "/load", "c", "code"),
            group("engines.example:443", "https", "/two/metrics", "b", "code"),
        ])
    );
}

#[tokio::test]
async fn routes_say_what_is_in_force_and_why_not() {
    let port = Port::over(
        "",
        &[
            ("chat", CHAT),
            ("broken", "peers:\n  - {adress: 10.0.0.1:1}\n"),
        ],
    );
    let reply = port.get("/_routes").await;
    let directory = port.tables.directory().display().to_string();
    // Each new option changes the fingerprint.
    let fingerprint = reply.json()["routes"][1]["fingerprint"].clone();
    let text = pretty(&reply)
        .replace(&directory, "DIR")
        .replace(fingerprint.as_str().unwrap(), "FINGERPRINT")
        .replace(env!("CARGO_PKG_VERSION"), "VERSION");
    insta::assert_snapshot!("routes", text);
}

#[tokio::test]
async fn reload_answers_what_came_of_it() {
    let mut port = Port::chat();
    let path = std::path::Path::new("routes/chat.yaml");
    let bad = Problem::of_file(Severity::Error, path, "it is empty");
    let odd = Problem::of_file(Severity::Warning, path, "write `true`");
    let results = [
        Reloaded {
            routes: vec!["chat".into()],
            problems: vec![odd.clone()],
            refused: false,
        },
        Reloaded {
            routes: vec!["chat".into()],
            problems: vec![bad, odd],
            refused: true,
        },
    ];
    let router = port.router.clone();
    let post = async || {
        let request = Request::builder()
            .method(Method::POST)
            .uri("/_reload")
            .header("host", "localhost");
        let mut request = request.body(Body::empty()).unwrap();
        request
            .extensions_mut()
            .insert(PeerAddr("127.0.0.1:1".parse().unwrap()));
        let response = router.clone().oneshot(request).await.unwrap();
        let status = response.status();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice::<Value>(&bytes).unwrap())
    };
    let mut answers = Vec::new();
    for result in results {
        let (answer, ()) = tokio::join!(post(), async {
            let asked =
                tokio::time::timeout(Duration::from_secs(30), port.controlled.reload.recv());
            asked.await.unwrap().unwrap().send(result).unwrap();
        });
        answers.push(answer);
    }
    let warning = json!({"file": "routes/chat.yaml", "line": 1, "column": 1, "message": "write `true`", "severity": "warning"});
    assert_eq!(
        answers[0],
        (
            StatusCode::OK,
            json!({"ok": true, "routes": ["chat"], "errors": [], "warnings": [warning]})
        )
    );
    let error = json!({"file": "routes/chat.yaml", "line": 1, "column": 1, "message": "it is empty", "severity": "error"});
    assert_eq!(
        answers[1],
        (
            StatusCode::UNPROCESSABLE_ENTITY,
            json!({"ok": false, "routes": ["chat"], "errors": [error], "warnings": [warning]})
        )
    );
    drop(port.controlled.reload);
    assert_eq!(post().await.0, StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test]
async fn drain_pulls_the_string_once() {
    let port = Port::chat();
    for _ in 0..2 {
        let reply = port.post("/_drain").await;
        assert_eq!(
            (reply.status, reply.json()),
            (StatusCode::OK, json!({"draining": true}))
        );
        assert!(port.controlled.drain.is_cancelled() && !port.controlled.cut.is_cancelled());
    }
}

#[tokio::test]
async fn the_page_shows_the_present() {
    let port = Port::over("", &[("chat", CHAT), ("multi", MULTI)]);
    let _held = port.reserve("s");
    port.observe("gpu-b", Evidence::Failed);
    let reply = port.get("/metrics").await;
    assert_eq!(
        reply.headers["content-type"],
        "text/plain; version=0.0.4; charset=utf-8"
    );
    let page = reply.text;
    for expected in [
        r#"llm_router_limit{route="chat",model="-"} 4.0"#,
        r#"llm_router_limit{route="multi",model="m2"} 20.0"#,
        r#"llm_router_peer_healthy{route="chat",peer="10.0.0.11:8000"} 1"#,
        r#"llm_router_peer_healthy{route="chat",peer="10.0.0.12:8000"} 0"#,
        r#"llm_router_in_flight{route="chat",peer="10.0.0.13:8000"} 0"#,
        r#"llm_router_in_flight{route="multi",peer="10.0.0.12:8000"} 0"#,
        r#"llm_router_sessions{route="chat"} 0"#,
        r#"llm_router_override_active{route="chat",switch="affinity"} 0"#,
        r#"llm_router_route_valid{route="chat"} 1"#,
        r#"llm_router_key_file_status{status="missing"} 1"#,
        r#"llm_router_key_file_status{status="ok"} 0"#,
        "llm_router_buffered_bytes 0.0",
    ] {
        assert!(
            page.lines().any(|line| line == expected),
            "{expected}\nnot in\n{page}"
        );
    }
    // A disabled peer does not count as unhealthy.
    assert!(
        !page.contains(r#"llm_router_peer_healthy{route="multi",peer="10.0.0.12:8000"}"#),
        "{page}"
    );
    let in_flight: f64 = page
        .lines()
        .filter(|line| line.starts_with("llm_router_in_flight{route=\"chat\""))
        .map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap())
        .sum();
    assert!((in_flight - 1.0).abs() < f64::EPSILON, "{page}");
    let accept = [(
        "accept",
        "application/openmetrics-text;version=1.0.0;q=0.9,text/plain;q=0.1",
    )];
    let open = port.send("10.0.0.9", "GET", "/metrics", &accept, "").await;
    assert!(
        open.text.ends_with("# EOF\n")
            && open.headers["content-type"]
                .to_str()
                .unwrap()
                .starts_with("application/openmetrics")
    );
}
