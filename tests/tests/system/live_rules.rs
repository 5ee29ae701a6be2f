//! The rules around live load: full pools, load bounds, pins without a peer, draining, silence.

use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};
use system_tests::router::Router;
use system_tests::wait::{until, until_answer};
use system_tests::wire::{Reply, call};
use tokio::task::JoinSet;

use crate::common::{CHAT, CHAT_PATH, setup};
use crate::gpu::{
    FAST, Gpu, SAYS, Says, addresses, backends, chat, counted, over, peers_at, placed,
    until_backend, until_counted, until_reloaded,
};

/// An engine that is busy with requests of other clients. Its model pins nothing.
const BUSY: Says = Says {
    others: 1,
    model: "other",
    ..SAYS
};

fn chat_of(route: &str) -> String {
    format!("/{route}/v1/chat/completions")
}

async fn turn(router: &Router, session: &str) -> (String, String) {
    let headers = [("x-session-id", session)];
    placed(&router.post_with(CHAT_PATH, &headers, CHAT).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_waits_until_the_engine_is_done_with_what_others_sent() {
    let gpu = Gpu::open(BUSY).await;
    let route = format!(
        "{}{FAST}full_policy: wait\nwait_timeout: 1m\n",
        peers_at(&addresses([&gpu]))
    );
    let router = setup().route("r", &route).start().await;
    let (served, ()) = tokio::join!(chat(&router), async {
        until_counted(&router, "proxy_waiting", &[], 1.0).await;
        assert_eq!(gpu.chats(), 0);
        gpu.others.store(0, Ordering::SeqCst);
    });
    assert_eq!(served.1, "least_busy");
    for (name, labels) in [
        ("proxy_selected_total", &["reason=\"waited\""][..]),
        ("proxy_wait_seconds_count", &[]),
        ("proxy_ttfb_seconds_count", &[]),
    ] {
        until_counted(&router, name, labels, 1.0).await;
    }
    assert_eq!(counted(&router, "proxy_waiting", &[]).await, Some(0.0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_that_others_fill_refuses_overflows_or_lets_wait_as_told() {
    let gpu = Gpu::open(BUSY).await;
    let route = |policy: &str| {
        format!(
            "{}{FAST}full_policy: {policy}\n",
            peers_at(&addresses([&gpu]))
        )
    };
    let router = setup()
        .route("reject", &route("reject\nfull_status: 503"))
        .route("overflow", &route("overflow"))
        .route("wait", &route("wait\nwait_timeout: 200ms"))
        .start()
        .await;
    let refused = router.post(&chat_of("reject"), CHAT).await;
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert_eq!(refused.json()["error"]["code"], "concurrency_limit");
    assert!(!refused.header("retry-after").is_empty());
    let rejected = ["route=\"reject\"", "reason=\"concurrency_limit\""];
    assert_eq!(
        counted(&router, "proxy_rejected_total", &rejected).await,
        Some(1.0)
    );
    for name in ["overflow", "wait"] {
        placed(&router.post(&chat_of(name), CHAT).await);
        let route = format!("route=\"{name}\"");
        let labels = [route.as_str(), "reason=\"overflow\""];
        assert_eq!(
            counted(&router, "proxy_selected_total", &labels).await,
            Some(1.0),
            "{name}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hot_home_takes_no_new_session_and_keeps_the_warm_ones() {
    let (home, other) = (Gpu::new(SAYS).await, Gpu::new(SAYS).await);
    let peers =
        [&home, &other].map(|gpu| format!("{{address: '{}', max_concurrency: 9}}", gpu.address()));
    let route = format!(
        "peers: [{}]\nhealth_check_interval: 1h\naffinity_max_load_factor: 1\n",
        peers.join(", ")
    );
    let router = setup().route("r", &route).start().await;
    let at_home = |n: &u32| crc32fast::hash(format!("session-{n}").as_bytes()).is_multiple_of(2);
    let homed: Vec<String> = (0..)
        .filter(at_home)
        .take(4)
        .map(|n| format!("session-{n}"))
        .collect();
    let mut turns = JoinSet::new();
    let mut counts = (0, 0);
    // (session, expected peer). The bound is the mean of the running requests and the new one,
    // rounded up.
    for (session, goes_home) in [
        (0, true),
        (1, false),
        (2, true),
        (0, true),
        (1, false),
        (3, false),
    ] {
        let (public, session) = (router.public, homed[session].clone());
        turns.spawn(async move {
            let headers = [
                ("x-session-id", session.as_str()),
                ("content-type", "application/json"),
            ];
            let reply = call(public, "POST", CHAT_PATH, &headers, CHAT).await;
            (goes_home, placed(&reply).1)
        });
        if goes_home {
            counts.0 += 1;
        } else {
            counts.1 += 1;
        }
        let what = format!("{counts:?} requests at the engines");
        until(&what, || (home.chats(), other.chats()) == counts).await;
    }
    home.gate.open(9);
    other.gate.open(9);
    while let Some(turn) = turns.join_next().await {
        let (goes_home, mode) = turn.unwrap();
        assert_eq!(mode, if goes_home { "hash" } else { "hash_fallback" });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_whose_engines_are_out_is_served_by_any_or_refused_as_told() {
    let nine = Says {
        model: "9B-1",
        alias: "nine",
        ..SAYS
    };
    let (four, nine) = (Gpu::open(SAYS).await, Gpu::open(nine).await);
    let both = peers_at(&addresses([&four, &nine]));
    let router = setup()
        .route("any", &format!("{both}{FAST}"))
        .route("same", &format!("{both}{FAST}pin_fallback: same_model\n"))
        .start()
        .await;
    let ask = async |route: &str| {
        let body = CHAT.replace("tiny", "9B-1");
        router.post(&chat_of(route), &body).await
    };
    for route in ["any", "same"] {
        assert_eq!(
            placed(&ask(route).await),
            ("gpu1".to_owned(), "pin".to_owned())
        );
    }
    drop(nine);
    for route in ["any", "same"] {
        let route = format!("route=\"{route}\"");
        let labels = [route.as_str(), "backend=\"gpu1\""];
        until_counted(&router, "proxy_backend_fresh", &labels, 0.0).await;
    }
    assert_eq!(
        placed(&ask("any").await),
        ("gpu0".to_owned(), "least_busy".to_owned())
    );
    let fallback = [
        "route=\"any\"",
        "reason=\"pin_fallback\"",
        "backend=\"gpu0\"",
    ];
    assert_eq!(
        counted(&router, "proxy_selected_total", &fallback).await,
        Some(1.0)
    );
    let refused = ask("same").await;
    assert_eq!(
        (refused.status, &refused.json()["error"]["code"]),
        (503, &json!("no_healthy_peer"))
    );
    let none = ["route=\"same\"", "reason=\"no_healthy_peer\""];
    assert_eq!(
        counted(&router, "proxy_rejected_total", &none).await,
        Some(1.0)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_nobody_lists_is_routed_or_not_found_as_told() {
    let gpu = Gpu::open(SAYS).await;
    let peers = peers_at(&addresses([&gpu]));
    let router = setup()
        .route("route", &format!("{peers}{FAST}"))
        .route(
            "strict",
            &format!("{peers}{FAST}unknown_model: not_found\n"),
        )
        .start()
        .await;
    let body = CHAT.replace("tiny", "unheard-of");
    let ask = async |route: &str| router.post(&chat_of(route), &body).await;
    assert_eq!(placed(&ask("route").await).1, "least_busy");
    let refused = ask("strict").await;
    let error = &refused.json()["error"];
    assert_eq!(
        (refused.status, &error["code"], &error["type"]),
        (404, &json!("model_not_found"), &json!("not_found_error"))
    );
    assert_eq!(refused.header("x-should-retry"), "false");
    let unknown = ["route=\"strict\"", "reason=\"unknown_model\""];
    assert_eq!(
        counted(&router, "proxy_rejected_total", &unknown).await,
        Some(1.0)
    );
    let known = CHAT.replace("tiny", "small");
    assert_eq!(
        placed(&router.post(&chat_of("strict"), &known).await).1,
        "least_busy",
        "every engine lists it: nothing was left for the model to decide"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_draining_peer_keeps_its_sessions_and_gets_no_new_one() {
    let (a, b) = (Gpu::open(SAYS).await, Gpu::open(SAYS).await);
    let route = |draining: &str| {
        let peer = |name: &str, gpu: &Gpu| {
            format!(
                "{{name: {name}, address: '{}', max_concurrency: 9, draining: {}}}",
                gpu.address(),
                name == draining
            )
        };
        format!(
            "peers: [{}, {}]\nhealth_check_interval: 1h\naffinity: sticky_least_loaded\n",
            peer("a", &a),
            peer("b", &b)
        )
    };
    let router = setup().route("r", &route("")).start().await;
    let (home, mode) = turn(&router, "old").await;
    assert_eq!(mode, "sticky_new");
    router.replace("routes/r.yaml", &route(&home));
    until_reloaded(&router).await;
    assert_eq!(
        turn(&router, "old").await,
        (home.clone(), "sticky".to_owned())
    );
    for n in 0..4 {
        let (new, _) = turn(&router, &format!("new-{n}")).await;
        assert_ne!(new, home, "session {n}");
    }
    for _ in 0..3 {
        assert_ne!(chat(&router).await.0, home, "a request without a session");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn polling_that_a_reload_turns_on_costs_no_request() {
    let says = Says {
        slow: Duration::from_secs(3),
        ..SAYS
    };
    let gpu = Gpu::open(says).await;
    let peers = peers_at(&addresses([&gpu]));
    let router = setup()
        .route("r", &format!("{peers}health_check_interval: 1h\n"))
        .start()
        .await;
    assert_eq!(chat(&router).await.1, "least_conn");
    let polled =
        "balance: least_busy\npoll_timeout: 10s\nstale_after: 20s\nhealth_check_interval: 1h\n";
    router.replace("routes/r.yaml", &format!("{peers}{polled}"));
    until_reloaded(&router).await;
    let reply = router.post(CHAT_PATH, CHAT).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    until_backend(&router, "gpu0", "its first sample", |gpu| gpu["busy"] == 0).await;
    assert_eq!(chat(&router).await.0, "gpu0");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_silent_from_the_start_is_held_or_out_as_told() {
    for (policy, status) in [("hold", 200), ("exclude", 503)] {
        let gpu = Gpu::open(SAYS).await;
        gpu.hangs.store(true, Ordering::SeqCst);
        let options = format!(
            "{}balance: least_busy\nfull_policy: overflow\npoll_interval: 100ms\npoll_timeout: 300ms\nstale_policy: {policy}\n",
            peers_at(&addresses([&gpu]))
        );
        let router = setup().route("r", &options).start().await;
        let polled = ["result=\"hung\""];
        until_answer("a poll that hung", async || {
            let hung = counted(&router, "proxy_backend_polls_total", &polled).await?;
            (hung >= 1.0).then_some(())
        })
        .await;
        assert_eq!(
            router.post(CHAT_PATH, CHAT).await.status,
            status,
            "{policy}"
        );
        let shown = &backends(&router).await["gpu0"];
        assert_eq!(shown["held"], policy == "hold", "{shown}");
        assert_eq!(shown["busy"], Value::Null, "it never said");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn merged_models_are_those_of_the_usable_peers_in_file_order() {
    let says = |model, alias| Says {
        model,
        alias,
        ..SAYS
    };
    let [a, b, again] = [
        Gpu::open(says("A", "first")).await,
        Gpu::open(says("B", "second")).await,
        Gpu::open(says("A", "third")).await,
    ];
    let router = over(&addresses([&a, &b, &again]), "balance: least_busy")
        .start()
        .await;
    let list = async || router.get("/r/v1/models").await.json();
    let entry = |id: &str, alias: &str| json!({"id": id, "aliases": [alias], "object": "model"});
    let both = json!({"object": "list", "data": [entry("A", "first"), entry("B", "second")]});
    until_answer("both models", async || (list().await == both).then_some(())).await;
    let asked = a.peer.requests().len();
    assert_eq!(list().await, both);
    let lists = |gpu: &Gpu| {
        let seen = gpu.peer.requests();
        seen.iter()
            .skip(asked)
            .filter(|seen| seen.target == "/v1/models")
            .count()
    };
    assert_eq!(lists(&a), 0, "no engine is asked for it");
    drop(b);
    let left = json!({"object": "list", "data": [entry("A", "first")]});
    until_answer("the dead peer's model to be gone", async || {
        (list().await == left).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_series_exists_at_zero_from_registration_and_moves() {
    let gpu = Gpu::open(Says {
        model: "other",
        ..SAYS
    })
    .await;
    let options = "balance: idle_aware\naffinity: sticky_least_loaded\nmax_sessions: 1";
    let router = over(&addresses([&gpu]), options).start().await;
    let zero = async |name: &str, labels: &[&str]| {
        let value = counted(&router, name, labels).await;
        assert_eq!(value, Some(0.0), "{name} {labels:?}");
    };
    for reason in [
        "strategy",
        "pin",
        "pin_fallback",
        "overflow",
        "waited",
        "sticky",
        "prefix",
    ] {
        let reason = format!("reason=\"{reason}\"");
        let labels = [
            "route=\"r\"",
            "backend=\"gpu0\"",
            "strategy=\"idle_aware\"",
            &reason,
        ];
        zero("proxy_selected_total", &labels).await;
    }
    for reason in [
        "concurrency_limit",
        "ttft_limit",
        "tps_limit",
        "rejected_by_rule",
        "no_healthy_peer",
        "unknown_model",
    ] {
        zero(
            "proxy_rejected_total",
            &["route=\"r\"", &format!("reason=\"{reason}\"")],
        )
        .await;
    }
    for result in [
        "dead",
        "hung",
        "loading",
        "misconfigured",
        "unusable",
        "blind",
        "sleeping",
    ] {
        let result = format!("result=\"{result}\"");
        zero("proxy_backend_polls_total", &["backend=\"gpu0\"", &result]).await;
    }
    for name in [
        "proxy_waiting",
        "proxy_wait_seconds_count",
        "proxy_ttfb_seconds_count",
        "proxy_request_seconds_count",
        "proxy_sessions_evicted_total",
        "proxy_sessions_expired_total",
    ] {
        zero(name, &["route=\"r\""]).await;
    }
    chat(&router).await;
    for session in ["one", "two"] {
        turn(&router, session).await;
    }
    for (name, labels, value) in [
        ("proxy_selected_total", &["reason=\"strategy\""][..], 1.0),
        ("proxy_selected_total", &["reason=\"sticky\""], 2.0),
        ("proxy_sessions_evicted_total", &[], 1.0),
        ("proxy_ttfb_seconds_count", &[], 3.0),
        ("proxy_request_seconds_count", &[], 3.0),
    ] {
        until_counted(&router, name, labels, value).await;
    }
    let sampled = counted(
        &router,
        "proxy_backend_polls_total",
        &["result=\"sampled\""],
    )
    .await;
    assert!(sampled > Some(0.0), "{sampled:?}");
    let json = [("accept", "application/json")];
    let shown = call(router.public, "GET", "/proxy/metrics", &json, "")
        .await
        .json();
    assert_eq!(shown["routes"][0]["sessions_evicted"], 1);
    assert_eq!(shown["backends"][0]["selected"]["sticky"], 2);
    assert!(
        shown["backends"][0]["polls"]["sampled"].as_u64() > Some(0),
        "{shown}"
    );
    let page = router.admin_get("/metrics").await.text();
    let peer = gpu.address();
    for line in [
        format!(
            "llm_router_selected_total{{route=\"r\",peer=\"{peer}\",strategy=\"idle_aware\",reason=\"sticky\"}} 2"
        ),
        format!("llm_router_polls_total{{route=\"r\",peer=\"{peer}\",result=\"dead\"}} 0"),
        "llm_router_sessions_evicted_total{route=\"r\",model=\"-\"} 1".to_owned(),
        "llm_router_wait_seconds_count{route=\"r\"} 0".to_owned(),
    ] {
        assert!(
            page.lines().any(|found| found == line),
            "{line} is missing in\n{page}"
        );
    }
}

/// Three routes with one session each: `r` with the shared key, `own` with its own key, `open` for
/// everybody.
async fn three_routes(gpu: &Gpu, server: &str) -> Router {
    let route = |keys: &str| {
        format!(
            "{}health_check_interval: 1h\naffinity: sticky_least_loaded\n{keys}\n",
            peers_at(&addresses([gpu]))
        )
    };
    let router = setup()
        .server(server)
        .keys("sk-one:team\n")
        .route("r", &route(""))
        .route("own", &route("api_keys: {sk-two: other}"))
        .route("open", &route("api_keys: {}"))
        .start()
        .await;
    for (name, key) in [("r", "sk-one"), ("own", "sk-two"), ("open", "any")] {
        let bearer = format!("Bearer {key}");
        let headers = [
            ("x-session-id", "a%20b"),
            ("authorization", bearer.as_str()),
        ];
        placed(&router.post_with(&chat_of(name), &headers, CHAT).await);
    }
    router
}

async fn with_key(router: &Router, method: &str, target: &str, key: &str) -> Reply {
    let bearer = format!("Bearer {key}");
    call(
        router.public,
        method,
        target,
        &[("authorization", &bearer)],
        "",
    )
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn finish_session_releases_where_the_key_opens_and_says_why_not() {
    let gpu = Gpu::open(SAYS).await;
    let router = three_routes(&gpu, "status_access: loopback").await;
    // The id is decoded once: the text of the header is the id itself.
    let id = "session_id=a%2520b";
    let finish =
        async |path: &str, key: &str| with_key(&router, "POST", &format!("{path}?{id}"), key).await;
    for path in ["/r/finish_session", "/own/finish_session"] {
        for method in ["POST", "GET"] {
            let reply = with_key(&router, method, &format!("{path}?{id}"), "sk-wrong").await;
            assert_eq!(reply.status, 401, "{method} {path}");
        }
    }
    for path in ["/finish_session", "/r/finish_session"] {
        let reply = with_key(&router, "GET", &format!("{path}?{id}"), "sk-one").await;
        assert_eq!((reply.status, reply.header("allow")), (405, "POST"));
        for query in ["", "?session_id="] {
            let reply = with_key(&router, "POST", &format!("{path}{query}"), "sk-one").await;
            assert_eq!(reply.status, 400, "{path}{query}");
        }
    }
    for (path, key, released) in [
        ("/finish_session", "nobody", 1),
        ("/finish_session", "sk-one", 1),
        ("/finish_session", "sk-one", 0),
        ("/own/finish_session", "sk-two", 1),
        ("/own/finish_session", "sk-two", 0),
    ] {
        let reply = finish(path, key).await;
        let expected = json!({"status": "ok", "session_id": "a%20b", "released": released});
        assert_eq!(
            (reply.status, reply.json()),
            (200, expected),
            "{path} {key}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_and_decisions_at_the_root_follow_status_access() {
    let gpu = Gpu::open(SAYS).await;
    let far = [
        ("x-forwarded-for", "198.51.100.7"),
        ("authorization", "Bearer sk-one"),
    ];
    for (class, refused) in [("loopback", 403), ("key", 200), ("open", 200), ("off", 404)] {
        let router = three_routes(&gpu, &format!("status_access: {class}")).await;
        for path in ["/_sessions", "/_decisions"] {
            let reply = call(router.public, "GET", path, &far, "").await;
            assert_eq!(reply.status, refused, "{class} {path}");
        }
        let near = with_key(&router, "GET", "/_sessions?session_id=a%2520b", "sk-one").await;
        let expected: &[&str] = match class {
            "off" => continue,
            "key" => &["open", "r"],
            _ => &["open", "own", "r"],
        };
        let routes = near.json()["routes"].as_array().unwrap().clone();
        let names: Vec<_> = routes.iter().map(|route| route["route"].clone()).collect();
        assert_eq!(names, expected, "{class}");
        for route in &routes {
            assert_eq!(route["homes"][0]["name"], "gpu0", "{route}");
        }
        let decisions = with_key(&router, "GET", "/_decisions", "sk-one")
            .await
            .json();
        let receipts = decisions["decisions"].as_array().unwrap();
        assert_eq!(receipts.len(), expected.len(), "{class}");
        let admin = router
            .admin_get("/_sessions?session_id=a%2520b")
            .await
            .json();
        assert_eq!(admin["routes"].as_array().unwrap().len(), 3);
        let post = with_key(&router, "POST", "/_sessions", "sk-one").await;
        assert_eq!(post.status, 405, "{class}");
    }
}
