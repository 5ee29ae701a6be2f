//! `llmctl` on a terminal: redrawn pages, questions, and colour.

use system_tests::peer::Peer;
use system_tests::router::Router;
use system_tests::terminal::Terminal;
use tokio::process::Command;

use crate::common::{CHAT, CHAT_PATH, over};

/// The sequence that clears a terminal.
const WIPE: &str = "\x1b[H\x1b[2J";

/// The end of a question.
const QUESTION: &str = "[y/N] ";

/// `llmctl` without any settings of this machine, on a terminal of a known type.
fn llmctl(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_llmctl-under-test"));
    command
        .args(arguments)
        .env_clear()
        .env("TERM", "xterm")
        .env("LANG", "C.UTF-8");
    command
}

fn url(router: &Router) -> String {
    format!("http://{}", router.admin)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watched_status_is_drawn_over_the_last_until_ctrl_c() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "").start().await;
    let watch = llmctl(&["status", "--watch", "--router", &url(&router)]);
    let mut terminal = Terminal::start(watch);
    let pages = |shown: &str| shown.matches("serving, version").count();
    let shown = terminal.until("two pages", |shown| pages(shown) >= 2).await;
    let mut pages = shown.split(WIPE);
    assert_eq!(pages.next(), Some(""), "{shown}");
    assert!(
        pages.all(|page| page.contains("serving, version")),
        "{shown}"
    );
    terminal.interrupt();
    assert_eq!(terminal.ended().await.0, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watched_router_that_is_gone_is_said_on_the_page() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "").start().await;
    let url = url(&router);
    drop(router);
    let mut terminal = Terminal::start(llmctl(&["status", "--watch", "--router", &url]));
    let failures = |shown: &str| shown.matches("could not reach").count();
    let shown = terminal
        .until("two failures", |shown| failures(shown) >= 2)
        .await;
    assert!(shown.starts_with(WIPE), "wiped after it was said: {shown}");
    terminal.interrupt();
    assert_eq!(terminal.ended().await.0, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_go_when_the_operator_says_yes() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("keys");
    let before = "# ours\nsk-a:alice\nsk-b:bob\n";
    let revoke = ["keys", "revoke", "alice", "--file", file.to_str().unwrap()];
    // The last input is that of Ctrl-D.
    for (keys, yes) in [
        ("y\n", true),
        ("YES\n", true),
        ("n\n", false),
        ("\n", false),
        ("\x04", false),
    ] {
        std::fs::write(&file, before).unwrap();
        let mut terminal = Terminal::start(llmctl(&revoke));
        let asked = terminal
            .until("a question", |shown| shown.ends_with(QUESTION))
            .await;
        assert!(
            asked.starts_with("Remove ") && asked.contains(" of alice from "),
            "{asked}"
        );
        assert_eq!(
            std::fs::read_to_string(&file).unwrap(),
            before,
            "before the answer"
        );
        terminal.types(keys);
        let (code, shown) = terminal.ended().await;
        assert_eq!(code, if yes { 0 } else { 1 }, "{keys:?}: {shown}");
        assert_eq!(shown.contains("nothing was removed"), !yes, "{shown}");
        let after = std::fs::read_to_string(&file).unwrap();
        assert_eq!(after.contains("alice"), !yes, "{keys:?}: {after}");
    }
    std::fs::write(&file, before).unwrap();
    let terminal = Terminal::start(llmctl(&[&revoke[..], &["--yes"]].concat()));
    let (code, shown) = terminal.ended().await;
    assert_eq!((code, shown.contains(QUESTION)), (0, false), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_is_asked_about_first() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "").start().await;
    let mut terminal = Terminal::start(llmctl(&["drain", "--router", &url(&router)]));
    let asked = terminal
        .until("a question", |shown| shown.ends_with(QUESTION))
        .await;
    assert!(asked.contains(&router.admin.to_string()), "{asked}");
    terminal.types("n\n");
    let (code, shown) = terminal.ended().await;
    assert_eq!(code, 1, "{shown}");
    assert!(shown.contains("nothing was drained"), "{shown}");
    assert_eq!(router.post(CHAT_PATH, CHAT).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn colour_is_for_terminals_that_want_it() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "").start().await;
    let shown = async |name: &str, value: &str| {
        let mut status = llmctl(&["status", "--router", &url(&router)]);
        status.env(name, value);
        let (code, shown) = Terminal::start(status).ended().await;
        assert_eq!(code, 0, "{shown}");
        shown.contains("\x1b[")
    };
    assert!(
        shown("NO_COLOR", "").await,
        "an empty variable counts as none"
    );
    assert!(!shown("NO_COLOR", "1").await);
    assert!(!shown("TERM", "dumb").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn top_shows_the_fleet_changes_a_switch_and_leaves_the_terminal_as_it_was() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "").start().await;
    let mut terminal = Terminal::start(llmctl(&["top", "--router", &url(&router)]));
    terminal
        .until("the fleet", |shown| shown.contains("healthy"))
        .await;
    // The first of the switches: chosen, confirmed.
    terminal.types("t");
    terminal
        .until("the switches", |shown| shown.contains("leaves)"))
        .await;
    terminal.types("\r");
    terminal
        .until("the question", |shown| shown.contains("confirm"))
        .await;
    terminal.types("y");
    terminal
        .until("what it did", |shown| shown.contains("(llmctl"))
        .await;
    terminal.types("q");
    let (code, shown) = terminal.ended().await;
    assert_eq!(code, 0);
    // Back from the alternate screen.
    assert!(
        shown.trim_end().ends_with("\x1b[?1049l") || shown.contains("\x1b[?1049l"),
        "{shown:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn top_without_a_terminal_prints_one_page() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "").start().await;
    let page = llmctl(&["top", "--router", &url(&router)])
        .stdin(std::process::Stdio::null())
        .output()
        .await
        .expect("llmctl runs");
    let text = String::from_utf8_lossy(&page.stdout);
    assert!(
        page.status.success() && text.contains("serving, version"),
        "{text}"
    );
}
