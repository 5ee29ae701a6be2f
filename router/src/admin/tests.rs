use std::net::SocketAddr;
use std::time::Duration;

use http::{Method, StatusCode};
use router_core::book::{Ask, PoolId};
use router_core::decision::{Choice, Receipt};
use router_core::pool::Evidence;
use serde_json::{Value, json};
use tower::ServiceExt;

use super::*;
use crate::config::report::{Problem, Severity};
use crate::control::{Controlled, Reloaded};
use crate::state::{Phase, Reservation, Route};
use crate::testing::Tables;

const CHAT: &str = "
peers:
  - {address: 10.0.0.11:8000, name: gpu-a, max_concurrency: 4, gpu: H100}
  - {address: 10.0.0.12:8000, name: gpu-b, max_concurrency: 2}
  - {address: 10.0.0.13:8000, name: spare, max_concurrency: 8, priority: -1}
";

const MULTI: &str = "
peers_by_model:
  m1: [{address: 10.0.0.11:8000, name: gpu-a}]
  m2: [{address: 10.0.0.12:8000, name: gpu-b, enabled: false}, {address: 10.0.0.11:8000, name: gpu-a}]
";

/// A router's admin port without its sockets.
struct Port {
    tables: Tables,
    current: Arc<ArcSwap<RouteTable>>,
    lifecycle: Lifecycle,
    controlled: Controlled,
    router: Router,
}

struct Reply {
    status: StatusCode,
    headers: http::HeaderMap,
    text: String,
}

impl Reply {
    fn json(&self) -> Value {
        assert!(self.text.ends_with("}\n"), "{}", self.text);
        serde_json::from_str(&self.text).unwrap()
    }
}

impl Port {
    fn over(main: &str, routes: &[(&str, &str)]) -> Self {
        let mut tables = Tables::new();
        let current = Arc::new(ArcSwap::from_pointee(tables.table(main, routes)));
        let lifecycle = Lifecycle::default();
        let (control, controlled) = Control::new();
        let metrics = Arc::clone(&tables.metrics);
        let events = Arc::new(Events::new(Arc::clone(&metrics)));
        let budget = ByteBudget::default();
        let state = AdminState::new(
            Arc::clone(&current),
            lifecycle.clone(),
            control,
            metrics,
            events,
            budget,
        );
        Self {
            tables,
            current,
            lifecycle,
            controlled,
            router: router(state),
        }
    }

    fn chat() -> Self {
        Self::over("", &[("chat", CHAT)])
    }

    fn route(&self) -> Arc<Route> {
        Arc::clone(self.current.load().routes().next().unwrap())
    }

    async fn send(
        &self,
        peer: &str,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Reply {
        let mut request = Request::builder().method(method).uri(target);
        if !headers.iter().any(|(name, _)| *name == "host") {
            request = request.header("host", "localhost:8090");
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut request = request.body(Body::from(body.to_owned())).unwrap();
        request
            .extensions_mut()
            .insert(PeerAddr(SocketAddr::new(peer.parse().unwrap(), 5555)));
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (head, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        Reply {
            status: head.status,
            headers: head.headers,
            text: String::from_utf8(bytes.to_vec()).unwrap(),
        }
    }

    async fn get(&self, target: &str) -> Reply {
        self.send("127.0.0.1", "GET", target, &[], "").await
    }

    async fn post(&self, target: &str) -> Reply {
        self.send("127.0.0.1", "POST", target, &[], "").await
    }

    fn reserve(&self, session: &str) -> Reservation {
        let ask = Ask {
            pool: PoolId(0),
            session: Some(session.as_bytes()),
        };
        self.route().reserve(ask).unwrap().reservation
    }

    fn observe(&self, peer: &str, evidence: Evidence) {
        let route = self.route();
        let key = route
            .distinct_peers()
            .into_iter()
            .find(|p| &*p.spec.name == peer)
            .unwrap()
            .spec
            .key
            .clone();
        route.observe(&key, evidence);
    }
}

/// JSON for a snapshot: pretty, keys in order.
fn pretty(reply: &Reply) -> String {
    serde_json::to_string_pretty(&reply.json()).unwrap()
}

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
    assert_eq!(port.get("/chat/_route_inspect").await.status, 405);
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
               "after": false, "enabled": false, "source": "runtime"})
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
        "?reset_counters=1",
    ] {
        let reply = port.post(&format!("/chat/_affinity_toggle{query}")).await;
        assert_eq!(
            (reply.status, &reply.json()["error"]["param"]),
            (StatusCode::BAD_REQUEST, &Value::Null),
            "{query}"
        );
        assert_eq!(
            port.get("/chat/_affinity_toggle").await.json()["enabled"],
            json!(false),
            "{query}"
        );
    }
}

#[tokio::test]
async fn only_post_writes_and_405_says_what_is_allowed() {
    let port = Port::chat();
    for (method, target, allow) in [
        ("GET", "/chat/_affinity_toggle?on=0", "POST"),
        ("HEAD", "/chat/_affinity_toggle?reset=1", "POST"),
        ("PUT", "/chat/_affinity_toggle?on=0", "GET, HEAD, POST"),
        ("DELETE", "/chat/_affinity_toggle", "GET, HEAD, POST"),
        ("POST", "/chat/_route_state", "GET, HEAD"),
        ("GET", "/chat/_route_inspect", "POST"),
        ("GET", "/_reload", "POST"),
        ("GET", "/_drain", "POST"),
        ("POST", "/_routes", "GET,HEAD"),
        ("POST", "/metrics", "GET,HEAD"),
    ] {
        let reply = port.send("127.0.0.1", method, target, &[], "").await;
        assert_eq!(reply.status, 405, "{method} {target}");
        assert_eq!(reply.headers["allow"], allow, "{method} {target}");
        if method != "HEAD" {
            assert_eq!(
                reply.json()["error"]["code"],
                json!("method_not_allowed"),
                "{method} {target}"
            );
        }
    }
    assert_eq!(
        port.get("/chat/_affinity_toggle").await.json()["enabled"],
        json!(true)
    );
    assert!(!port.controlled.drain.is_cancelled());
}

#[tokio::test]
async fn what_does_not_exist_is_404_json() {
    let port = Port::chat();
    for target in [
        "/",
        "/nothing",
        "/chat/_nothing",
        "/chat/nothing",
        "/nosuch/_route_state",
        "/chat/_a/_b",
        "/_ttft_toggle",
    ] {
        let reply = port.get(target).await;
        assert_eq!(reply.status, 404, "{target}");
        assert_eq!(
            reply.json()["error"]["type"],
            json!("not_found_error"),
            "{target}"
        );
    }
}

#[tokio::test]
async fn every_guarded_path_is_guarded() {
    let port = Port::chat();
    for (method, target) in [
        ("GET", "/_routes"),
        ("GET", "/_decisions"),
        ("POST", "/_reload"),
        ("POST", "/_drain"),
        ("GET", "/chat/_health_status"),
        ("GET", "/chat/_active_conns"),
        ("GET", "/chat/_route_state"),
        ("GET", "/chat/_route_debug"),
        ("POST", "/chat/_route_inspect"),
        ("GET", "/chat/_decisions"),
        ("GET", "/chat/_affinity_toggle"),
        ("POST", "/chat/_affinity_toggle?on=0"),
        ("GET", "/chat/_nothing"),
    ] {
        for (peer, headers) in [
            ("10.0.0.9", &[][..]),
            ("127.0.0.1", &[("x-forwarded-for", "127.0.0.1")]),
            ("127.0.0.1", &[("host", "evil.example")]),
        ] {
            let reply = port.send(peer, method, target, headers, "").await;
            assert_eq!(reply.status, 403, "{method} {target} {peer} {headers:?}");
            assert!(!reply.text.contains("10.0.0.11"), "{}", reply.text);
        }
    }
    for target in ["/healthz", "/readyz", "/metrics"] {
        assert_eq!(
            port.send("10.0.0.9", "GET", target, &[("via", "x")], "")
                .await
                .status,
            200,
            "{target}"
        );
    }
    assert!(!port.controlled.drain.is_cancelled());
    assert!(port.route().affinity().value);
}

#[tokio::test]
async fn no_page_writes_even_from_this_host() {
    let port = Port::chat();
    for headers in [
        [("origin", "http://localhost:8090")],
        [("sec-fetch-site", "cross-site")],
    ] {
        for target in ["/chat/_affinity_toggle?on=0", "/_reload", "/_drain"] {
            let reply = port.send("127.0.0.1", "POST", target, &headers, "").await;
            assert_eq!(
                (reply.status, &reply.json()["error"]["code"]),
                (StatusCode::FORBIDDEN, &json!("cross_site_request"))
            );
        }
    }
    assert!(port.route().affinity().value && !port.controlled.drain.is_cancelled());
}

#[tokio::test]
async fn the_token_opens_from_afar() {
    let port = Port::over("", &[("chat", CHAT)]);
    let token = port.tables.directory().join("token");
    std::fs::write(&token, "tok-1\n").unwrap();
    let port = Port::over(
        &format!("server: {{admin_token_file: {}}}", token.display()),
        &[("chat", CHAT)],
    );
    let right = [
        ("authorization", "Bearer tok-1"),
        ("host", "router.example"),
    ];
    assert_eq!(
        port.send("10.0.0.9", "GET", "/_routes", &right, "")
            .await
            .status,
        200
    );
    assert_eq!(
        port.send(
            "10.0.0.9",
            "POST",
            "/chat/_affinity_toggle?on=0",
            &right,
            ""
        )
        .await
        .status,
        200
    );
    let wrong = port
        .send(
            "10.0.0.9",
            "GET",
            "/_routes",
            &[("authorization", "Bearer tok-2")],
            "",
        )
        .await;
    assert_eq!(wrong.status, 401);
    assert_eq!(wrong.headers["www-authenticate"], "Bearer");
    let open = Port::over("server: {admin_read: open}", &[("chat", CHAT)]);
    assert_eq!(
        open.send("10.0.0.9", "GET", "/_routes", &[], "")
            .await
            .status,
        200
    );
    assert_eq!(
        open.send("10.0.0.9", "POST", "/_reload", &[], "")
            .await
            .status,
        403
    );
}

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
    port.lifecycle.advance(Phase::Leaving);
    let leaving = port.get("/readyz").await;
    assert_eq!(
        (leaving.status, &leaving.json()["status"]),
        (StatusCode::SERVICE_UNAVAILABLE, &json!("draining"))
    );
    let health = port.get("/healthz").await;
    assert_eq!((health.status, &*health.text), (StatusCode::OK, "ok\n"));
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
    let text = pretty(&reply)
        .replace(&directory, "DIR")
        .replace(env!("CARGO_PKG_VERSION"), "VERSION");
    insta::assert_snapshot!("routes", text);
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
        method: "POST".into(),
        path: "/v1/chat/completions".into(),
        session: "-".into(),
        source: "none".into(),
        decision: Choice::Refuse(router_core::admission::Refusal::NoHealthyPeer {
            peers: 1,
            banned: 1,
        }),
        attempts: Vec::new(),
        status: 503,
        duration_ms: 1,
        ttft_ms: None,
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
    assert_eq!(ids("/_decisions?request_id=rid-7").await, ["rid-7"]);
    assert!(ids("/a/_decisions?request_id=rid-7").await.is_empty());
    for bad in ["n=0", "n=257", "n=-1", "n=x", "n=", "n=1&n=2"] {
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
        r#"llm_router_limit{route="chat",model="-"} 4"#,
        r#"llm_router_limit{route="multi",model="m2"} 20"#,
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
    // A disabled peer is not unhealthy.
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

mod on_the_public_port {
    use super::*;

    fn admit(
        main: &str,
        method: &str,
        name: &str,
        headers: &[(&str, &str)],
        has_key: bool,
    ) -> Result<Endpoint, u16> {
        let table = Tables::new().table(main, &[("chat", CHAT)]);
        let mut request = Request::builder()
            .method(method)
            .uri(format!("/chat/{name}"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let parts = request.body(()).unwrap().into_parts().0;
        public::admit(&table, name, &parts, "127.0.0.1".parse().unwrap(), has_key)
            .map_err(|why| why.answer().status().as_u16())
    }

    const NEAR: &[(&str, &str)] = &[("host", "localhost")];
    const FAR: &[(&str, &str)] = &[("host", "localhost"), ("x-forwarded-for", "203.0.113.9")];

    #[test]
    fn classes_decide_over_reads() {
        for (class, near, far) in [
            ("loopback", Ok(()), Err(403)),
            ("open", Ok(()), Ok(())),
            ("off", Err(404), Err(404)),
        ] {
            let main = format!("server: {{status_access: '{class}'}}");
            assert_eq!(
                admit(&main, "GET", "_route_state", NEAR, true).map(drop),
                near,
                "{class}"
            );
            assert_eq!(
                admit(&main, "GET", "_route_state", FAR, true).map(drop),
                far,
                "{class}"
            );
        }
        let key = "server: {status_access: key}";
        assert_eq!(
            admit(key, "GET", "_route_state", FAR, true),
            Ok(Endpoint::RouteState)
        );
        assert_eq!(admit(key, "GET", "_route_state", NEAR, false), Err(401));
    }

    #[test]
    fn writes_are_for_loopback_whatever_the_class() {
        for class in ["loopback", "key", "open"] {
            let main = format!("server: {{status_access: {class}}}");
            let write = |headers| admit(&main, "POST", "_affinity_toggle", headers, true);
            assert!(write(NEAR).is_ok(), "{class}");
            assert_eq!(write(FAR), Err(403), "{class}");
            assert_eq!(
                write(&[("host", "localhost"), ("origin", "null")]),
                Err(403),
                "{class}"
            );
        }
    }

    #[test]
    fn unknown_endpoints_are_404_for_those_who_may_look() {
        assert_eq!(admit("", "GET", "_nothing", NEAR, true), Err(404));
        assert_eq!(admit("", "GET", "_nothing", FAR, true), Err(403));
    }
}
