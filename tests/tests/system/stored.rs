//! Objects that engines store: the engine that made one serves it.

use std::sync::Arc;

use parking_lot::Mutex;

use serde_json::{Value, json};
use system_tests::peer::Peer;
use system_tests::router::Router;
use system_tests::wire::{Reply, call};

use crate::common::{over, peers, setup};

/// An engine that stores responses and knows its own alone.
async fn engine(name: &'static str) -> Peer {
    let stored: Arc<Mutex<Vec<String>>> = Arc::default();
    Peer::spawn(move |seen, mut exchange| {
        let stored = Arc::clone(&stored);
        async move {
            let kind = [("content-type", "application/json")];
            let known = |id: &str| stored.lock().iter().any(|it| it == id);
            let body: Value = serde_json::from_slice(&seen.body).unwrap_or_default();
            let id = seen.target.split('/').nth(3).map(str::to_owned);
            let previous = body["previous_response_id"].as_str();
            let (status, answer) = match (seen.method.as_str(), id) {
                ("POST", None) if previous.is_none_or(known) => {
                    let id = format!("resp_{name}_{}", stored.lock().len());
                    stored.lock().push(id.clone());
                    (200, json!({"id": id, "by": name}))
                }
                ("DELETE", Some(id)) if known(&id) => {
                    stored.lock().retain(|it| *it != id);
                    (200, json!({"id": id, "deleted": true, "by": name}))
                }
                (_, Some(id)) if known(&id) => (200, json!({"id": id, "by": name})),
                _ => (
                    404,
                    json!({"error": {"message": "no such response"}, "by": name}),
                ),
            };
            if body["stream"] == true {
                exchange.open_stream().await;
                let event = json!({"type": "response.created", "response": answer});
                exchange
                    .chunk(format!("event: response.created\ndata: {event}\n\n"))
                    .await;
                exchange.end_chunks().await;
            } else {
                exchange.reply(status, &kind, answer.to_string()).await;
            }
            exchange
        }
    })
    .await
}

async fn engines() -> [Peer; 4] {
    [
        engine("a").await,
        engine("b").await,
        engine("c").await,
        engine("d").await,
    ]
}

fn all(peers: &[Peer; 4]) -> Vec<&Peer> {
    peers.iter().collect()
}

/// Makes a response with a session of its own. Returns its id and its engine.
async fn made(router: &Router, prefix: &str, session: &str, stream: bool) -> (String, String) {
    let body = json!({"model": "m", "input": "hi", "stream": stream}).to_string();
    let session = [("x-session-id", session)];
    let path = format!("{prefix}/v1/responses");
    let reply = router.post_with(&path, &session, &body).await;
    let answer = match stream {
        false => reply.json(),
        true => {
            let text = reply.text();
            let (_, data) = text.split_once("data: ").unwrap();
            serde_json::from_str::<Value>(data.trim()).unwrap()["response"].clone()
        }
    };
    let text = |name: &str| answer[name].as_str().unwrap().to_owned();
    (text("id"), text("by"))
}

async fn ask(router: &Router, method: &str, path: &str) -> Reply {
    call(router.public, method, path, &[], "").await
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_about_a_response_goes_to_the_engine_that_made_it() {
    let engines = engines().await;
    let router = over(&all(&engines), "max_more_tries: 0").start().await;
    for (n, stream) in [false, true, false, true, false, true]
        .into_iter()
        .enumerate()
    {
        let (id, by) = made(&router, "/r", &format!("s{n}"), stream).await;
        for (method, below) in [("GET", ""), ("POST", "/cancel"), ("GET", "/input_items")] {
            let path = format!("/r/v1/responses/{id}{below}");
            let reply = ask(&router, method, &path).await;
            assert_eq!(
                (reply.status, &reply.json()["by"]),
                (200, &json!(by)),
                "{method} {path}"
            );
            assert_eq!(reply.header("x-routed-retries"), "0");
        }
        let body = json!({"model": "m", "input": "more", "previous_response_id": id}).to_string();
        let other = [("x-session-id", "a session that lives elsewhere")];
        let next = router.post_with("/r/v1/responses", &other, &body).await;
        assert_eq!((next.status, &next.json()["by"]), (200, &json!(by)));
        let path = format!("/r/v1/responses/{id}");
        assert_eq!(ask(&router, "DELETE", &path).await.json()["by"], json!(by));
        assert_eq!(ask(&router, "GET", &path).await.status, 404);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_id_is_looked_for_once_and_then_known() {
    let engines = engines().await;
    let first = over(&all(&engines), "").start().await;
    let second = over(&all(&engines), "max_more_tries: 0").start().await;
    for n in 0..4 {
        let (id, by) = made(&first, "/r", &format!("s{n}"), false).await;
        let path = format!("/r/v1/responses/{id}");
        for _ in 0..2 {
            let found = ask(&second, "GET", &path).await;
            assert_eq!((found.status, &found.json()["by"]), (200, &json!(by)));
        }
        let again = ask(&second, "GET", &path).await;
        assert_eq!(again.header("x-routed-retries"), "0");
    }
    let missing = ask(&second, "GET", "/r/v1/responses/resp_of_nobody").await;
    assert_eq!(
        (missing.status, missing.header("x-routed-retries")),
        (404, "3")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_path_without_a_route_finds_the_route_that_made_the_id() {
    let [a, b, c, d] = engines().await;
    let router = setup()
        .route("one", &peers(&[&a, &b]))
        .route("two", &peers(&[&c, &d]))
        .start()
        .await;
    for prefix in ["/one", "/two"] {
        let (id, by) = made(&router, prefix, "s", false).await;
        let reply = ask(&router, "GET", &format!("/v1/responses/{id}")).await;
        assert_eq!((reply.status, &reply.json()["by"]), (200, &json!(by)));
    }
    let reply = ask(&router, "GET", "/v1/responses/resp_of_nobody").await;
    assert_eq!(
        (reply.status, &reply.json()["error"]["code"]),
        (404, &json!("id_not_found"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn responses_that_are_not_stored_are_not_remembered() {
    let engines = engines().await;
    let router = over(&all(&engines), "").start().await;
    let body = json!({"model": "m", "input": "hi", "store": false}).to_string();
    let reply = router
        .post_with("/r/v1/responses", &[("x-session-id", "s")], &body)
        .await;
    let by = reply.json()["by"].clone();
    let body = json!({"model": "m", "input": "more", "previous_response_id": reply.json()["id"]});
    let mut seen = Vec::new();
    for n in 0..12 {
        let session = format!("other {n}");
        let session = [("x-session-id", session.as_str())];
        let next = router
            .post_with("/r/v1/responses", &session, &body.to_string())
            .await;
        seen.push(next.json()["by"].clone());
    }
    assert!(seen.iter().any(|it| *it != by), "sessions decide: {seen:?}");
}
