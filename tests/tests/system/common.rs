//! Shared by all suites: a setup of the program under test, and typical requests.

use std::process::Output;

use system_tests::peer::Peer;
use system_tests::router::{Router, Setup};

/// A chat request without a session.
pub(crate) const CHAT: &str = r#"{"model":"tiny","messages":[{"role":"user","content":"hi"}]}"#;

/// A streamed chat request without a session.
pub(crate) const CHAT_STREAM: &str =
    r#"{"model":"tiny","stream":true,"messages":[{"role":"user","content":"hi"}]}"#;

/// The path of chat requests to the route `r`.
pub(crate) const CHAT_PATH: &str = "/r/v1/chat/completions";

/// An empty setup.
pub(crate) fn setup() -> Setup {
    Setup::new(env!("CARGO_BIN_EXE_router-under-test"))
}

/// `peers: […]` in file order.
pub(crate) fn peers(peers: &[&Peer]) -> String {
    let list: Vec<_> = peers.iter().map(|peer| peer.yaml()).collect();
    format!("peers: [{}]\n", list.join(", "))
}

/// A setup with the one route `r` over these peers. They are probed once an hour, so that probes do
/// not influence the test.
pub(crate) fn over(list: &[&Peer], options: &str) -> Setup {
    setup().route(
        "r",
        &format!("{}health_check_interval: 1h\n{options}\n", peers(list)),
    )
}

/// A session id whose home among `count` peers is `index`, by the contract's `crc32(sid) % n`.
pub(crate) fn session_at(index: u32, count: u32) -> String {
    (0..)
        .map(|n| format!("session-{n}"))
        .find(|sid| crc32fast::hash(sid.as_bytes()) % count == index)
        .unwrap()
}

/// The output of `curl` for a path of the public port, over HTTP/2 with prior knowledge.
pub(crate) async fn curl_h2(router: &Router, arguments: &[&str], path: &str) -> Output {
    tokio::process::Command::new("curl")
        .args(["-sS", "--noproxy", "*", "--http2-prior-knowledge"])
        .args(arguments)
        .arg(format!("http://{}{path}", router.public))
        .output()
        .await
        .unwrap()
}
