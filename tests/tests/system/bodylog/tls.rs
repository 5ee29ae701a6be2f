//! Records over TLS: the router verifies the certificate, and reads its files again for each
//! connection.

use std::fs;

use system_tests::tls::Authority;

use super::*;

fn over_tls(authority: &Authority, store: &TempDir) -> Start {
    let [certificate, key] = authority.leaf();
    listener_over(store.path())
        .option("--tls-cert", &certificate.display())
        .option("--tls-key", &key.display())
}

/// Like [`spooled`], with `more` keys.
fn spooled_with(listener: &Listener, more: &str) -> String {
    let plain = spooled(listener.frames);
    format!("{}, tls: true{more}}}", plain.strip_suffix('}').unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn records_travel_over_tls_under_the_systems_authorities() {
    let authority = Authority::make();
    let engine = engine(Options::default()).await;
    let store = directory();
    let mut listener = Listener::start(over_tls(&authority, &store)).await;
    let router = over(&engine, "")
        .main(&spooled_with(&listener, ""))
        .env("SSL_CERT_FILE", &authority.root().to_string_lossy())
        .start()
        .await;
    let mut asked = ask_many(&router, "before", 20).await;
    let large = chat(&"x".repeat(3 << 20), 2).to_string();
    ask(router.public, "large", &large).await;
    asked.insert("large".to_owned());
    settled(&router, asked.len()).await;
    listener.kill().await;
    asked.extend(ask_many(&router, "while", 20).await);
    listener.restart().await;
    settled(&router, asked.len()).await;
    assert_once(&listener, &asked);
    let record = listener.get("/records?request_id=large").await.json();
    assert_eq!(record["req_body"], large);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listener_with_an_unknown_certificate_gets_nothing_until_its_authority_is_named() {
    let (authority, stranger) = (Authority::make(), Authority::make());
    let engine = engine(Options::default()).await;
    let store = directory();
    let listener = Listener::start(over_tls(&authority, &store)).await;
    let setup = over(&engine, "").main(&spooled_with(&listener, ", tls_ca_file: authorities.pem"));
    setup.write(
        "authorities.pem",
        &fs::read_to_string(stranger.root()).unwrap(),
    );
    let router = setup.start().await;
    let asked = ask_many(&router, "waits", 10).await;
    router.program.logged("invalid peer certificate").await;
    spilled(&router, 10).await;
    assert_eq!(acked(&router).await, 0);
    assert!(listener.records().is_empty());

    router.replace(
        "authorities.pem",
        &fs::read_to_string(authority.root()).unwrap(),
    );
    settled(&router, asked.len()).await;
    assert_once(&listener, &asked);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listener_that_asks_for_a_certificate_gets_the_routers() {
    let authority = Authority::make();
    let engine = engine(Options::default()).await;
    let store = directory();
    let asks = over_tls(&authority, &store).option("--tls-client-ca", &authority.root().display());
    let listener = Listener::start(asks).await;
    let ca = format!(", tls_ca_file: {}", authority.root().display());
    let [certificate, key] = authority.leaf();
    let identity = format!(
        "{ca}, tls_cert_file: {}, tls_key_file: {}",
        certificate.display(),
        key.display()
    );
    let without = over(&engine, "")
        .main(&spooled_with(&listener, &ca))
        .start()
        .await;
    ask_many(&without, "without", 3).await;
    spilled(&without, 3).await;
    let with = over(&engine, "")
        .main(&spooled_with(&listener, &identity))
        .start()
        .await;
    let asked = ask_many(&with, "with", 3).await;
    settled(&with, 3).await;
    assert_once(&listener, &asked);
    assert_eq!(acked(&without).await, 0);
}
