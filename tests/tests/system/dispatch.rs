//! Which route a path selects, and what is forwarded.

use serde_json::json;
use system_tests::peer::Peer;
use system_tests::wait::until_answer;
use system_tests::wire::call;

use crate::common::{CHAT, over, peers, setup};

#[tokio::test(flavor = "multi_thread")]
async fn prefix_names_the_route_and_the_raw_rest_is_forwarded() {
    let (a, b) = (Peer::plain().await, Peer::plain().await);
    let router = setup()
        .route("a", &peers(&[&a]))
        .route("b", &peers(&[&b]))
        .start()
        .await;
    let reply = router
        .post("/a/v1/chat/completions?x=%2F&y=a+b&z", CHAT)
        .await;
    assert_eq!(reply.status, 200);
    assert_eq!(
        a.arrived(1).await[0].target,
        "/v1/chat/completions?x=%2F&y=a+b&z"
    );
    assert_eq!(a.requests()[0].body, CHAT.as_bytes());
    assert!(b.requests().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn encoded_octets_after_v1_are_forwarded_as_they_came() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "").start().await;
    assert_eq!(router.get("/r/v1/models/org%2Fname%20x").await.status, 200);
    assert_eq!(peer.arrived(1).await[0].target, "/v1/models/org%2Fname%20x");
}

#[tokio::test(flavor = "multi_thread")]
async fn base_path_of_a_peer_url_is_prepended() {
    let peer = Peer::plain().await;
    let route = format!("peers: [{{url: 'http://{}/base/path'}}]", peer.address);
    let router = setup().route("r", &route).start().await;
    assert_eq!(router.post("/r/v1/embeddings", "{}").await.status, 200);
    assert_eq!(
        peer.arrived(1).await.pop().unwrap().target,
        "/base/path/v1/embeddings"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn default_route_takes_paths_without_a_prefix() {
    let (a, b) = (Peer::plain().await, Peer::plain().await);
    let setup = setup().server("default_route: b").route("a", &peers(&[&a]));
    let router = setup.route("b", &peers(&[&b])).start().await;
    assert_eq!(router.post("/v1/chat/completions", CHAT).await.status, 200);
    assert_eq!((a.requests().len(), b.requests().len()), (0, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_only_route_takes_paths_without_a_prefix() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "").start().await;
    assert_eq!(router.post("/v1/chat/completions", CHAT).await.status, 200);
    assert_eq!(peer.requests().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn model_key_chooses_the_route_without_a_prefix() {
    let (a, b) = (Peer::plain().await, Peer::plain().await);
    let by_model =
        |model: &str, peer: &Peer| format!("peers_by_model: {{{model}: [{}]}}", peer.yaml());
    let setup = setup()
        .route("a", &by_model("model-a", &a))
        .route("b", &by_model("model-b", &b));
    let router = setup.start().await;
    assert_eq!(
        router
            .post("/v1/chat/completions", r#"{"model":"model-b"}"#)
            .await
            .status,
        200
    );
    assert_eq!((a.requests().len(), b.requests().len()), (0, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn model_id_learned_from_the_peers_chooses_the_route() {
    let listing = |id: &'static str| {
        Peer::spawn_with_probes(move |seen, mut exchange| async move {
            let body = match seen.is_probe() {
                true => json!({"object": "list", "data": [{"id": id, "object": "model"}]}),
                false => json!({"served_by": id}),
            };
            exchange
                .reply(
                    200,
                    &[("content-type", "application/json")],
                    body.to_string(),
                )
                .await;
            exchange
        })
    };
    let (a, b) = (listing("learned-a").await, listing("learned-b").await);
    let router = setup()
        .route("a", &peers(&[&a]))
        .route("b", &peers(&[&b]))
        .start()
        .await;
    let reply = until_answer("the model to be learned", async || {
        let reply = router
            .post("/v1/chat/completions", r#"{"model":"learned-b"}"#)
            .await;
        (reply.status == 200).then_some(reply)
    });
    assert_eq!(reply.await.json()["served_by"], "learned-b");
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_route_is_404_and_lists_the_routes() {
    let peer = Peer::plain().await;
    let setup = setup()
        .route("alpha", &peers(&[&peer]))
        .route("beta", &peers(&[&peer]));
    let router = setup.start().await;
    let reply = router.post("/nosuch/v1/chat/completions", CHAT).await;
    assert_eq!(
        (reply.status, &reply.json()["error"]["code"]),
        (404, &json!("route_not_found"))
    );
    for name in ["alpha", "beta"] {
        assert!(reply.text().contains(name), "{}", reply.text());
    }
    assert_eq!(reply.header("x-should-retry"), "false");
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_model_without_a_prefix_is_404_and_lists_the_routes() {
    let peer = Peer::plain().await;
    let setup = setup()
        .route("alpha", &peers(&[&peer]))
        .route("beta", &peers(&[&peer]));
    let router = setup.start().await;
    let reply = router
        .post("/v1/chat/completions", r#"{"model":"nobody-serves-this"}"#)
        .await;
    assert_eq!(reply.status, 404);
    assert!(
        reply.text().contains("alpha") && reply.text().contains("beta"),
        "{}",
        reply.text()
    );
    assert!(peer.requests().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn model_outside_a_by_model_route_is_400_with_the_supported_list() {
    let peer = Peer::plain().await;
    let route = format!("peers_by_model: {{m1: [{0}], m2: [{0}]}}", peer.yaml());
    let router = setup().route("r", &route).start().await;
    let reply = router
        .post("/r/v1/chat/completions", r#"{"model":"m3"}"#)
        .await;
    let error = &reply.json()["error"];
    assert_eq!(
        (reply.status, &error["code"]),
        (400, &json!("model_not_supported"))
    );
    assert_eq!(error["supported_models"], json!(["m1", "m2"]));
    assert_eq!(reply.header("x-should-retry"), "false");
    assert!(peer.requests().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn dot_segments_and_encoded_slashes_before_v1_are_refused() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "").start().await;
    let targets = [
        "/r/../r/v1/chat/completions",
        "/x/../r/v1/chat/completions",
        "/./r/v1/chat/completions",
        "/r/./v1/chat/completions",
        "/%2e%2e/r/v1/chat/completions",
        "/r/%2E%2E/r/v1/chat/completions",
        "/r/.%2e/r/v1/chat/completions",
        "/%2e/r/v1/chat/completions",
        "/r%2Fv1/chat/completions",
        "/r%2fv1/v1/chat/completions",
    ];
    for target in targets {
        assert_eq!(router.post(target, CHAT).await.status, 400, "{target}");
    }
    assert!(peer.requests().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn paths_outside_v1_need_extra_paths() {
    let peer = Peer::plain().await;
    let setup = setup().route("plain", &peers(&[&peer]));
    let router = setup
        .route(
            "extra",
            &format!("{}extra_paths: [/tokenize]", peers(&[&peer])),
        )
        .start()
        .await;
    let refused = router.post("/plain/tokenize", "{}").await;
    assert_eq!(
        (refused.status, refused.header("content-type")),
        (404, "application/json")
    );
    assert_eq!(router.post("/extra/tokenize", "{}").await.status, 200);
    assert_eq!(router.post("/extra/detokenize", "{}").await.status, 404);
    assert_eq!(peer.arrived(1).await[0].target, "/tokenize");
    assert_eq!(peer.requests().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn empty_peer_list_answers_503_with_retry_after_five() {
    let router = setup().route("r", "peers: []").start().await;
    let reply = router.post("/r/v1/chat/completions", CHAT).await;
    assert_eq!(
        (reply.status, &reply.json()["error"]["code"]),
        (503, &json!("no_healthy_peer"))
    );
    assert_eq!(reply.header("retry-after"), "5");
}

#[tokio::test(flavor = "multi_thread")]
async fn models_of_a_route_are_the_union_of_its_peers_in_file_order() {
    let listing = |ids: [&'static str; 2], tag: &'static str| {
        Peer::spawn_with_probes(move |_, mut exchange| async move {
            let data: Vec<_> = ids
                .iter()
                .map(|id| json!({"id": id, "object": "model", "tag": tag}))
                .collect();
            let body = json!({"object": "list", "data": data}).to_string();
            exchange
                .reply(200, &[("content-type", "application/json")], body)
                .await;
            exchange
        })
    };
    let (first, second) = (
        listing(["m2", "m1"], "first").await,
        listing(["m1", "m3"], "second").await,
    );
    let router = setup().route("r", &peers(&[&first, &second])).start().await;
    let models = until_answer("both lists", async || {
        let reply = router.get("/r/v1/models").await;
        let data = reply.json()["data"].as_array().cloned().unwrap_or_default();
        (data.len() == 3).then_some(data)
    });
    let shown: Vec<_> = models
        .await
        .iter()
        .map(|m| (m["id"].clone(), m["tag"].clone()))
        .collect();
    let expected = [("m2", "first"), ("m1", "first"), ("m3", "second")]
        .map(|(id, tag)| (json!(id), json!(tag)));
    assert_eq!(shown, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn models_of_a_by_model_route_are_answered_locally() {
    let peer = Peer::plain().await;
    let route = format!("peers_by_model: {{zeta: [{0}], alpha: [{0}]}}", peer.yaml());
    let router = setup().route("r", &route).start().await;
    let reply = router.get("/r/v1/models").await;
    let ids: Vec<_> = reply.json()["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| m["id"].clone())
        .collect();
    assert_eq!(reply.status, 200);
    assert!(
        ids.contains(&json!("zeta")) && ids.contains(&json!("alpha")) && ids.len() == 2,
        "{ids:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn models_without_a_prefix_are_the_union_over_routes() {
    let peer = Peer::plain().await;
    let by_model = |model: &str| format!("peers_by_model: {{{model}: [{}]}}", peer.yaml());
    let router = setup()
        .route("a", &by_model("in-a"))
        .route("b", &by_model("in-b"))
        .start()
        .await;
    let text = router.get("/v1/models").await.text();
    assert!(text.contains("in-a") && text.contains("in-b"), "{text}");
    let one = router.get("/v1/models/in%2Db").await;
    assert_eq!((one.status, &one.json()["id"]), (200, &json!("in-b")));
    let none = router.get("/v1/models/in-c").await;
    assert_eq!(
        (none.status, &none.json()["error"]["code"]),
        (404, &json!("model_not_found"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn finish_session_is_idempotent_and_checks_method_and_parameter() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "").start().await;
    for target in [
        "/r/finish_session?session_id=s1",
        "/finish_session?session_id=s1",
    ] {
        for _ in 0..2 {
            let reply = call(router.public, "POST", target, &[], "").await;
            let json = reply.json();
            assert_eq!(
                (reply.status, &json["status"], &json["session_id"]),
                (200, &json!("ok"), &json!("s1"))
            );
            assert!(json["released"].is_u64(), "{json}");
        }
    }
    assert_eq!(
        call(router.public, "POST", "/r/finish_session", &[], "")
            .await
            .status,
        400
    );
    assert_eq!(
        router.get("/r/finish_session?session_id=s1").await.status,
        405
    );
    let nowhere = router
        .post("/nosuch/finish_session?session_id=s1", "")
        .await;
    assert_eq!(
        (nowhere.status, &nowhere.json()["error"]["routes"]),
        (404, &json!(["r"]))
    );
    assert!(peer.requests().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn anything_else_is_a_json_404() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "").start().await;
    for target in [
        "/",
        "/r",
        "/r/",
        "/favicon.ico",
        "/r/_nosuch",
        "/R/v1/models",
    ] {
        let reply = router.get(target).await;
        assert_eq!(
            (reply.status, reply.header("content-type")),
            (404, "application/json"),
            "{target}"
        );
        assert!(reply.json()["error"]["message"].is_string(), "{target}");
        assert_eq!(reply.header("x-should-retry"), "false", "{target}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn health_is_open_and_ready_means_a_usable_peer() {
    let peer = Peer::plain().await;
    let with_keys = over(&[&peer], "").keys("sk-a:alice\n").start().await;
    assert_eq!(with_keys.get("/health").await.status, 200);
    assert_eq!(with_keys.get("/ready").await.status, 200);
    let without_peers = setup().route("r", "peers: []").start().await;
    assert_eq!(without_peers.get("/health").await.status, 200);
    assert_eq!(without_peers.get("/ready").await.status, 503);
}

#[tokio::test(flavor = "multi_thread")]
async fn merge_models_off_proxies_the_list() {
    let peer = Peer::spawn_with_probes(|_, mut exchange| async move {
        exchange
            .reply(
                200,
                &[("content-type", "application/json")],
                r#"{"data":[],"from":"engine"}"#,
            )
            .await;
        exchange
    });
    let peer = peer.await;
    let router = over(&[&peer], "merge_models: false").start().await;
    assert_eq!(router.get("/r/v1/models").await.json()["from"], "engine");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_peers_serve_is_known_from_the_first_request_on() {
    let lists = |model: &'static str| {
        Peer::spawn_with_probes(move |seen, mut exchange| async move {
            let body = if seen.is_probe() {
                tokio::time::sleep(std::time::Duration::from_millis(400)).await;
                json!({"object": "list", "data": [{"id": model, "object": "model"}]})
            } else {
                json!({"answered": model})
            };
            let json = [("content-type", "application/json")];
            exchange.reply(200, &json, body.to_string()).await;
            exchange
        })
    };
    let (a, b) = (lists("ma").await, lists("mb").await);
    let setup = setup().route("a", &peers(&[&a])).route("b", &peers(&[&b]));
    let router = setup.start().await;
    let ask = router.post("/v1/chat/completions", r#"{"model":"mb"}"#);
    assert_eq!(ask.await.json()["answered"], "mb");
    let list = router.get("/v1/models").await.json();
    let ids = list["data"].as_array().unwrap();
    let ids: Vec<_> = ids.iter().map(|entry| &entry["id"]).collect();
    assert_eq!(ids, ["ma", "mb"]);
}
