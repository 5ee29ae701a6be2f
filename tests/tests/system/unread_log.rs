//! Programs whose log nobody reads: a stopped terminal, a pager, a collector that hangs.

use rustix::process::Signal;
use system_tests::bodylog::{Listener, Start};
use system_tests::peer::Peer;
use system_tests::wait::within;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::common::{CHAT, CHAT_PATH, over};

/// Broken reloads. Each logs several lines, in total more than a pipe holds.
const RELOADS: usize = 222;
/// Connections that do not speak the protocol. Each could log a line.
const STRANGERS: usize = 734;

#[tokio::test(flavor = "multi_thread")]
async fn a_router_whose_log_nobody_reads_serves_reloads_and_ends() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "")
        .route("broken", "no_such_option: 1\n")
        .unread()
        .start()
        .await;
    for _ in 0..RELOADS {
        within("a reload", router.admin_post("/_reload")).await;
    }
    let answered = within("a request", router.post(CHAT_PATH, CHAT)).await;
    assert_eq!(answered.status, 200);
    let page = router.admin_get("/metrics").await.text();
    assert!(
        page.contains("\nllm_router_log_lines_dropped_total "),
        "{page}"
    );
    router.program.signal(Signal::TERM);
    let mut program = router.program;
    assert_eq!(program.exited().await.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listener_whose_log_nobody_reads_survives_strangers_and_ends() {
    let store = tempfile::tempdir().unwrap();
    let start = Start::new(
        env!("CARGO_BIN_EXE_bodylog-listener-under-test"),
        store.path(),
    )
    .environment([("RUST_LOG".into(), "trace".into())])
    .unread();
    let mut listener = Listener::start(start).await;
    for _ in 0..STRANGERS {
        let mut stranger = TcpStream::connect(listener.frames).await.unwrap();
        // The listener may close in the middle of it.
        let _ = stranger.write_all(b"GET / HTTP/1.1\r\n\r\n").await;
    }
    within("its health", listener.get("/healthz")).await;
    assert_eq!(listener.stop().await.code, Some(0));
}
