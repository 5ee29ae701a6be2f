//! Peers behind https, trusted through `SSL_CERT_FILE`.

use serde_json::json;
use system_tests::peer::{COMPLETION, Peer};
use system_tests::tls::Authority;

use crate::common::{CHAT, CHAT_PATH, setup};

async fn tls_peer(authority: &Authority) -> Peer {
    Peer::spawn_tls(authority.acceptor(), |_, mut exchange| async move {
        exchange
            .reply(200, &[("content-type", "application/json")], COMPLETION)
            .await;
        exchange
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn https_peer_with_a_trusted_certificate_is_used() {
    let authority = Authority::make();
    let peer = tls_peer(&authority).await;
    let url = format!("https://localhost:{}", peer.address.port());
    let setup = setup().route("r", &format!("peers: [{{url: '{url}'}}]"));
    let router = setup
        .env("SSL_CERT_FILE", &authority.root().to_string_lossy())
        .start()
        .await;
    let reply = router.post(CHAT_PATH, CHAT).await;
    assert_eq!((reply.status, reply.text().as_str()), (200, COMPLETION));
    assert_eq!(
        reply.header("x-routed-peer"),
        format!("localhost:{}", peer.address.port())
    );
    assert_eq!(
        peer.requests()[0].headers.get("host").unwrap(),
        format!("localhost:{}", peer.address.port())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_behind_https_is_not_retried_whatever_tls_says_meanwhile() {
    let authority = Authority::make();
    // A body of several writes: the session tickets of TLS 1.3 arrive between them.
    let peer = Peer::spawn_tls(authority.acceptor(), |_, mut exchange| async move {
        exchange.reset();
        exchange
    });
    let peer = peer.await;
    let route = format!(
        "peers: [{{url: 'https://localhost:{}'}}]\nmax_body_size: 20m\nhealth_check_interval: 1h",
        peer.address.port()
    );
    let router = setup()
        .route("r", &route)
        .env("SSL_CERT_FILE", &authority.root().to_string_lossy())
        .start()
        .await;
    let reply = router.post(CHAT_PATH, &"x".repeat(16 << 20)).await;
    assert_eq!(reply.status, 502);
    assert_eq!(peer.requests().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn https_peer_with_an_unknown_certificate_is_banned() {
    let authority = Authority::make();
    let peer = tls_peer(&authority).await;
    let name = format!("localhost:{}", peer.address.port());
    let setup = setup().route("r", &format!("peers: [{{url: 'https://{name}'}}]"));
    let stranger = Authority::make();
    let router = setup
        .env("SSL_CERT_FILE", &stranger.root().to_string_lossy())
        .start()
        .await;
    let reply = router.post(CHAT_PATH, CHAT).await;
    assert!(
        reply.status == 502 || reply.status == 503,
        "{}",
        reply.status
    );
    router
        .admin_until("/r/_health_status", "the ban", |json| {
            json[&name]["banned"] == json!(true)
        })
        .await;
    assert!(peer.tally().seen.is_empty());
}
