//! Peers from a file and from a name: they come and go under traffic, and a source that fails keeps
//! its last ones.

use serde_json::{Value, json};
use system_tests::peer::Peer;
use system_tests::router::Router;
use system_tests::wait::until_answer;

use crate::common::{CHAT, CHAT_PATH, setup};

fn list(peers: &[&Peer]) -> String {
    let targets: Vec<_> = peers.iter().map(|peer| peer.address.to_string()).collect();
    json!([{"targets": targets, "labels": {"job": "engines", "max_concurrency": "16"}}]).to_string()
}

async fn addresses(router: &Router) -> Vec<String> {
    let page = router.admin_get("/_routes").await.json();
    let peers = page["routes"][0]["pools"][0]["peers"].as_array().cloned();
    let address = |peer: &Value| peer["peer"].as_str().expect("an address").to_owned();
    peers.unwrap_or_default().iter().map(address).collect()
}

async fn until_peers(router: &Router, peers: &[&Peer]) {
    let mut expected: Vec<_> = peers.iter().map(|peer| peer.address.to_string()).collect();
    expected.sort();
    until_answer("the peers of the file", async || {
        (addresses(router).await == expected).then_some(())
    })
    .await;
}

async fn source(router: &Router) -> Value {
    router.admin_get("/_routes").await.json()["routes"][0]["peers_from"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn engines_of_a_watched_file_come_and_go_under_traffic_without_an_error() {
    let (a, b, c) = (
        Peer::plain().await,
        Peer::plain().await,
        Peer::plain().await,
    );
    let setup = setup().route(
        "r",
        "peers_from: {file: engines.json}\nbalance: round_robin\n",
    );
    setup.write("routes/engines.json", &list(&[&b, &a]));
    let router = setup.start().await;
    until_peers(&router, &[&a, &b]).await;
    for peers in [vec![&c, &b, &a], vec![&c], vec![&a, &c], vec![&b]] {
        router.replace("routes/engines.json", &list(&peers));
        // Asked all the while the change is taken up.
        until_answer("the new peers", async || {
            let status = router.post(CHAT_PATH, CHAT).await.status;
            assert_eq!(status, 200);
            let mut expected: Vec<_> = peers.iter().map(|peer| peer.address.to_string()).collect();
            expected.sort();
            (addresses(&router).await == expected).then_some(())
        })
        .await;
    }
    let seen = source(&router).await;
    assert_eq!(seen["peers"], 1);
    assert!(
        seen["source"]
            .as_str()
            .expect("a text")
            .starts_with("file "),
        "{seen}"
    );
    assert_eq!(
        router.admin_get("/_routes").await.json()["routes"][0]["pools"][0]["peers"][0]["max"],
        16
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_breaks_keeps_its_last_peers_and_is_named_until_it_is_whole() {
    let (a, b) = (Peer::plain().await, Peer::plain().await);
    let setup = setup().route("r", "peers_from: {file: engines.json}\n");
    setup.write("routes/engines.json", &list(&[&a]));
    let router = setup.start().await;
    for broken in ["", "[]", "[{\"targets\": [\"10.0"] {
        router.replace("routes/engines.json", broken);
        until_answer("the failure", async || {
            source(&router).await.get("error").map(|_| ())
        })
        .await;
        assert_eq!(
            addresses(&router).await,
            [a.address.to_string()],
            "{broken:?}"
        );
        assert_eq!(router.post(CHAT_PATH, CHAT).await.status, 200);
    }
    until_answer("the finding", async || {
        let page = router.admin_get("/_findings").await.json();
        let found = page["findings"].as_array().cloned().unwrap_or_default();
        found
            .into_iter()
            .find(|finding| finding["code"] == "peer_source_fails")
    })
    .await;
    router.replace("routes/engines.json", &list(&[&a, &b]));
    until_peers(&router, &[&a, &b]).await;
    assert_eq!(source(&router).await.get("error"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_gives_its_addresses_beside_the_peers_of_the_file() {
    let (own, named) = (Peer::plain().await, Peer::plain().await);
    let route = format!(
        "peers: [{{address: '{}'}}]\npeers_from: {{dns: {{name: 127.0.0.1, port: {}, refresh: 100ms}}}}\nbalance: round_robin\n",
        own.address,
        named.address.port()
    );
    let router = setup().route("r", &route).start().await;
    assert_eq!(
        addresses(&router).await,
        [own.address.to_string(), named.address.to_string()]
    );
    for _ in 0..4 {
        assert_eq!(router.post(CHAT_PATH, CHAT).await.status, 200);
    }
    assert!(!named.requests().is_empty() && !own.requests().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_does_not_resolve_is_said_and_the_other_peers_serve() {
    let own = Peer::plain().await;
    let route = format!(
        "peers: [{{address: '{}'}}]\npeers_from: {{dns: {{name: no-such-name.invalid, port: 1}}}}\n",
        own.address
    );
    let router = setup().route("r", &route).start().await;
    assert_eq!(router.post(CHAT_PATH, CHAT).await.status, 200);
    let seen = source(&router).await;
    let error = seen["error"].as_str().expect("an error");
    assert!(
        error.starts_with("`no-such-name.invalid` cannot be resolved"),
        "{seen}"
    );
    assert_eq!((&seen["peers"], seen.get("age_s")), (&json!(0), None));
}
