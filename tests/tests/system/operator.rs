//! `llmctl toggle`, `limit`, `status` and `route explain` against real routers.

use std::process::Output;

use serde_json::Value;
use system_tests::peer::Peer;
use system_tests::router::Router;

use crate::common::{CHAT, CHAT_PATH, over};

/// `llmctl` with these routers and nothing of this machine's settings.
async fn llmctl(routers: &[&Router], arguments: &[&str]) -> Output {
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_llmctl-under-test"));
    command.args(arguments).env_clear();
    for router in routers {
        command.args(["--router", &format!("http://{}", router.admin)]);
    }
    command.output().await.unwrap()
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_switch_is_set_and_reset_on_every_replica() {
    let peer = Peer::plain().await;
    let (a, b) = (
        over(&[&peer], "").start().await,
        over(&[&peer], "").start().await,
    );
    let set = llmctl(&[&a, &b], &["toggle", "rate-limit", "--on", "0"]).await;
    assert_eq!(code(&set), 0, "{set:?}");
    let shown = stdout(&set);
    let changed = |line: &&str| line.contains("on (default)") && line.ends_with("off (runtime)");
    assert_eq!(shown.lines().filter(changed).count(), 2, "{shown}");
    for router in [&a, &b] {
        let shown = router.admin_get("/r/_rate_limit_toggle").await;
        assert_eq!(shown.json()["enabled"], false);
    }
    let reset = llmctl(
        &[&a],
        &["toggle", "rate-limit", "--reset", "--output", "json"],
    )
    .await;
    assert_eq!(json(&reset)[0]["before"], false);
    assert_eq!(json(&reset)[0]["source"], "default");
    let look = llmctl(&[&b], &["toggle", "rate-limit", "--route", "r"]).await;
    assert!(stdout(&look).contains("off (runtime)"), "{}", stdout(&look));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_replica_away_does_not_keep_the_others_from_changing() {
    let peer = Peer::plain().await;
    let (a, b) = (
        over(&[&peer], "").start().await,
        over(&[&peer], "").start().await,
    );
    let gone = format!("http://{}", b.admin);
    b.stop().await;
    let set = llmctl(
        &[&a],
        &["toggle", "ttft-429", "--on", "0", "--router", &gone],
    )
    .await;
    assert_eq!(code(&set), 3, "{set:?}");
    assert!(stdout(&set).contains("off (runtime)"), "{}", stdout(&set));
    let nobody = llmctl(&[&a], &["toggle", "ttft", "--on", "0", "--route", "nobody"]).await;
    assert_eq!(code(&nobody), 1, "{nobody:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn junk_is_a_usage_error_and_changes_nothing() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "").start().await;
    let cases: [&[&str]; 9] = [
        &["toggle", "rate-limit", "--on", "2"],
        &["toggle", "rate-limit", "--on", "yes"],
        &["toggle", "rate-limit", "--on", "0", "--reset"],
        &["toggle", "nonsense", "--on", "0"],
        &["limit", "ttft", "--ms", "0"],
        &["limit", "ttft", "--ms", "-5"],
        &["limit", "ttft", "--ms", "5", "--reset"],
        &["limit", "ttft", "--ttl", "60"],
        &["limit", "tps", "--tps", "many"],
    ];
    for arguments in cases {
        let output = llmctl(&[&router], arguments).await;
        assert_eq!(code(&output), 2, "{arguments:?}: {output:?}");
    }
    let status = llmctl(&[&router], &["status"]).await;
    assert!(!stdout(&status).contains("OVERRIDE"), "{}", stdout(&status));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_is_set_for_a_while_and_status_says_what_is_left() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "ttft_limit_ms: 30000").start().await;
    let set = llmctl(
        &[&router],
        &[
            "limit", "ttft", "--ms", "12000", "--ttl", "1h", "--output", "json",
        ],
    )
    .await;
    assert_eq!(code(&set), 0, "{set:?}");
    let (of, set) = (["before", "value", "left_s", "shadowed"], json(&set));
    assert_eq!(
        of.map(|key| set[0][key].as_f64().unwrap()),
        [30000.0, 12000.0, 3600.0, 30000.0]
    );
    let status = stdout(&llmctl(&[&router], &["status"]).await);
    assert!(status.contains("ttft limit  12000 ms"), "{status}");
    assert!(
        status.contains("s more") && status.contains("30000 ms"),
        "{status}"
    );
    let explained = llmctl(
        &[&router],
        &["route", "explain", "r", "--session", "s", "--turn", "3"],
    )
    .await;
    assert!(
        stdout(&explained).contains("threshold 12000.0 ms"),
        "{explained:?}"
    );
    let options = router.admin_get("/r/_route_opts").await.json();
    let row = options["options"]
        .as_array()
        .unwrap()
        .iter()
        .find(|row| row["key"] == "ttft_limit_ms");
    assert_eq!(row.unwrap()["source"], "runtime");
    let reset = llmctl(&[&router], &["limit", "ttft", "--reset"]).await;
    assert!(stdout(&reset).contains("30000 ms (route)"), "{reset:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_shown_and_finished_on_every_replica() {
    let peer = Peer::plain().await;
    let sticky = "affinity: sticky_least_loaded";
    let (a, b) = (
        over(&[&peer], sticky).start().await,
        over(&[&peer], sticky).start().await,
    );
    for router in [&a, &b] {
        let headers = [("x-session-id", "talk")];
        let reply = router.post_with(CHAT_PATH, &headers, CHAT).await;
        assert_eq!(reply.header("x-routed-mode"), "sticky_new");
    }
    let shown = llmctl(&[&a, &b], &["session", "show", "talk"]).await;
    assert_eq!(code(&shown), 0, "{shown:?}");
    let home = peer.address.to_string();
    let table = stdout(&shown);
    let lives = table.lines().filter(|line| line.contains(&home)).count();
    assert_eq!(lives, 2, "{table}");
    let shown = llmctl(
        &[&a],
        &[
            "session", "show", "talk", "--route", "r", "--output", "json",
        ],
    )
    .await;
    assert_eq!(json(&shown)[0]["homes"][0]["peer"], home, "{shown:?}");
    for (released, left) in [(1, 1), (0, 0)] {
        let done = llmctl(
            &[&a, &b],
            &["session", "finish", "talk", "--output", "json"],
        )
        .await;
        assert_eq!(code(&done), 0, "{done:?}");
        let counts = [&json(&done)[0]["released"], &json(&done)[1]["released"]];
        assert_eq!(counts, [released, left], "{done:?}");
    }
    let gone = stdout(&llmctl(&[&a], &["session", "show", "talk"]).await);
    assert!(gone.contains("nowhere"), "{gone}");
    let nobody = llmctl(&[&a], &["session", "show", "talk", "--route", "nobody"]).await;
    assert_eq!(code(&nobody), 1, "{nobody:?}");
    let usage = llmctl(&[&a], &["session", "finish"]).await;
    assert_eq!(code(&usage), 2, "{usage:?}");
}
