//! `llmctl` against real routers: every command that queries a router, and its output when a router
//! is down or refuses.

use std::path::Path;
use std::process::Output;

use serde_json::Value;
use system_tests::peer::{Gate, Peer};
use system_tests::router::Router;
use system_tests::wait::until_answer;

use crate::common::{CHAT, CHAT_PATH, over, setup};

/// Runs `llmctl` with these routers and without any settings of this machine.
async fn llmctl(routers: &[&Router], arguments: &[&str]) -> Output {
    let urls: Vec<_> = routers.iter().map(|router| url(router)).collect();
    at(&urls, arguments).await
}

/// Runs `llmctl` with these admin URLs.
async fn at(urls: &[String], arguments: &[&str]) -> Output {
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_llmctl-under-test"));
    command
        .args(arguments)
        .env_clear()
        .stdin(std::process::Stdio::null());
    for url in urls {
        command.args(["--router", url]);
    }
    command.output().await.unwrap()
}

fn url(router: &Router) -> String {
    format!("http://{}", router.admin)
}

/// The same port under a host name that is not loopback, so that the token decides, as for a caller
/// on another machine.
fn from_afar(router: &Router) -> String {
    format!("http://[::ffff:127.0.0.1]:{}", router.admin.port())
}

/// The URL of a port without a listener.
fn nowhere() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
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

/// Commands that query a router, as a user would type them.
const ASKING: [&[&str]; 9] = [
    &["status"],
    &["toggle", "rate-limit"],
    &["toggle", "affinity", "--on", "0"],
    &["limit", "ttft", "--ms", "5000"],
    &["reload"],
    &["drain", "--yes"],
    &["route", "list"],
    &["route", "show", "r"],
    &["route", "explain", "r", "--last"],
];

#[tokio::test(flavor = "multi_thread")]
async fn every_command_says_that_a_router_cannot_be_reached() {
    let gone = nowhere();
    for arguments in ASKING {
        let asked = at(std::slice::from_ref(&gone), arguments).await;
        assert_eq!(code(&asked), 3, "{arguments:?}: {asked:?}");
        assert!(stderr(&asked).contains(&gone), "{arguments:?}: {asked:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_command_says_that_the_token_is_missing_or_wrong() {
    let peer = Peer::plain().await;
    let over = over(&[&peer], "").server("admin_token_file: token");
    over.write("token", "right");
    over.write("wrong", "wrong");
    let router = over.start().await;
    let (wrong, right) = (router.path().join("wrong"), router.path().join("token"));
    let afar = [from_afar(&router)];
    let with = |arguments: &[&'static str], token: &Path| {
        let mut all: Vec<String> = arguments.iter().map(|&text| text.to_owned()).collect();
        all.extend(["--token-file".to_owned(), token.display().to_string()]);
        all
    };
    for arguments in ASKING {
        let bare = at(&afar, arguments).await;
        assert_eq!(code(&bare), 1, "{arguments:?}: {bare:?}");
        assert!(
            stderr(&bare).contains("--token-file"),
            "{arguments:?}: {bare:?}"
        );
        let all = with(arguments, &wrong);
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        let refused = at(&afar, &all).await;
        assert_eq!(code(&refused), 1, "{arguments:?}: {refused:?}");
        assert!(stderr(&refused).contains("admin_token_file"), "{refused:?}");
        assert!(!stderr(&refused).contains("Bearer wrong"), "{refused:?}");
    }
    let all = with(&["status"], &right);
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    assert_eq!(code(&at(&afar, &all).await), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn half_the_replicas_refusing_leaves_the_answers_of_the_others() {
    let peer = Peer::plain().await;
    let (a, b) = (
        over(&[&peer], "").start().await,
        over(&[&peer], "").start().await,
    );
    let routers = [url(&a), from_afar(&b)];
    let status = at(&routers, &["status"]).await;
    assert_eq!(code(&status), 1, "{status:?}");
    let shown = stdout(&status);
    assert!(
        shown.contains("serving") && shown.contains("no answer"),
        "{shown}"
    );
    assert!(stderr(&status).contains("refused"), "{status:?}");
    let told = at(&routers, &["status", "--output", "json"]).await;
    let told = json(&told);
    assert_eq!(told[0]["status"]["phase"], "serving");
    assert!(told[1]["error"].is_string(), "{told}");
    let set = at(&routers, &["toggle", "affinity", "--on", "0"]).await;
    assert_eq!(code(&set), 1, "{set:?}");
    let shown = a.admin_get("/r/_affinity_toggle").await;
    assert_eq!(shown.json()["enabled"], false);
    let worst = at(&[url(&a), from_afar(&b), nowhere()], &["status"]).await;
    assert_eq!(code(&worst), 3, "{worst:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_shows_what_was_refused_and_where() {
    let peer = Peer::plain().await;
    let (a, b) = (
        over(&[&peer], "").start().await,
        over(&[&peer], "").start().await,
    );
    let fine = llmctl(&[&a, &b], &["reload"]).await;
    assert_eq!(code(&fine), 0, "{fine:?}");
    a.replace("routes/r.yaml", "peers:\n  - {adress: 127.0.0.1:1}\n");
    let refused = llmctl(&[&a, &b], &["reload"]).await;
    assert_eq!(code(&refused), 1, "{refused:?}");
    let shown = stdout(&refused);
    assert!(
        shown.contains("r.yaml:2:6") && shown.contains("did you mean `address`"),
        "{shown}"
    );
    let told = llmctl(&[&a], &["reload", "--output", "json"]).await;
    assert_eq!(json(&told)[0]["errors"][0]["line"], 2);
    let status = stdout(&llmctl(&[&a], &["status"]).await);
    let is_old = status.contains("an older version of the file is in force");
    assert!(is_old, "{status}");
    let both = stdout(&llmctl(&[&a, &b], &["status"]).await);
    let row = both.lines().find(|line| line.starts_with("r file"));
    assert!(row.unwrap().ends_with("DIFFERS"), "{both}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_asks_every_peer_and_names_those_that_fail() {
    let peer = Peer::plain().await;
    let dead = nowhere();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("r.yaml").display().to_string();
    let yaml = format!(
        "peers: [{{url: \"{dead}\", name: dead}}, {}]\n",
        peer.yaml()
    );
    std::fs::write(&file, yaml).unwrap();
    let check = ["route", "check", &file, "--probe"];
    let shown = at(&[], &check).await;
    assert_eq!(code(&shown), 1, "{shown:?}");
    let last = stdout(&shown);
    assert!(
        last.ends_with("no errors, no warnings; 1 of 2 peers failed\n"),
        "{last}"
    );
    let annotated = at(&[], &[&check[..], &["--output", "github"]].concat()).await;
    let expected = format!("::error file={file},title=peer dead::route r: {dead}/v1/models: ");
    let annotated = stdout(&annotated);
    assert!(annotated.starts_with(&expected), "{annotated}");
    assert_eq!(annotated.lines().count(), 1, "{annotated}");
    let told = json(&at(&[], &[&check[..], &["--output", "json"]].concat()).await);
    let probes = told["probes"].as_array().unwrap();
    let mut outcomes: Vec<_> = probes
        .iter()
        .map(|probe| probe["outcome"].as_str())
        .collect();
    outcomes.sort();
    assert_eq!(outcomes, [Some("failed"), Some("healthy")]);
    let alone = format!("peers: [{}]\n", peer.yaml());
    std::fs::write(&file, alone).unwrap();
    let fine = at(&[], &[&check[..], &["--strict"]].concat()).await;
    assert_eq!(code(&fine), 0, "{fine:?}");
    assert!(stdout(&fine).ends_with("; 1 peer asked\n"), "{fine:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drained_router_ends() {
    let peer = Peer::plain().await;
    let mut router = over(&[&peer], "").start().await;
    let drained = llmctl(&[&router], &["drain", "--output", "json"]).await;
    assert_eq!(code(&drained), 0, "{drained:?}");
    assert_eq!(json(&drained)[0]["draining"], true);
    assert_eq!(router.program.exited().await.code(), Some(0));
}

async fn with_key(router: &Router, key: &str) -> u16 {
    let header = format!("Bearer {key}");
    router
        .post_with(CHAT_PATH, &[("authorization", &header)], CHAT)
        .await
        .status
}

/// Runs `llmctl keys …` on the router's own key file.
async fn keys(router: &Router, arguments: &[&str]) -> Output {
    let file = router.path().join("keys").display().to_string();
    let all = [&["keys"], arguments, &["--file", &file]].concat();
    at(&[], &all).await
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_added_rotated_and_revoked_and_the_router_takes_each() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "")
        .keys("# ours\nsk-first:ops\n")
        .start()
        .await;
    assert_eq!(with_key(&router, "sk-first").await, 200);
    let added = keys(&router, &["add", "alice", "--hashed"]).await;
    assert_eq!(code(&added), 0, "{added:?}");
    let secret = stdout(&added).trim().to_owned();
    assert_eq!(stdout(&added), format!("{secret}\n"));
    assert!(!stderr(&added).contains(&secret), "{added:?}");
    let file = router.path().join("keys").display().to_string();
    let live = ["keys", "check", "--live", "--file", &file];
    let checked = llmctl(&[&router], &live).await;
    assert_eq!(code(&checked), 0, "{checked:?}");
    assert_eq!(with_key(&router, &secret).await, 200);
    let rotated = keys(&router, &["rotate", "alice"]).await;
    let newer = stdout(&rotated).trim().to_owned();
    assert_eq!(code(&llmctl(&[&router], &live).await), 0);
    assert_eq!(with_key(&router, &secret).await, 200);
    assert_eq!(with_key(&router, &newer).await, 200);
    let ended = keys(&router, &["revoke", "alice", "--old"]).await;
    assert_eq!(code(&ended), 0, "{ended:?}");
    assert_eq!(code(&llmctl(&[&router], &live).await), 0);
    assert_eq!(with_key(&router, &secret).await, 401);
    assert_eq!(with_key(&router, &newer).await, 200);
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.starts_with("# ours\nsk-first:ops\nsha256:"), "{text}");
    let listed = keys(&router, &["list"]).await;
    for secret in ["sk-first", &secret, &newer] {
        assert!(!stdout(&listed).contains(secret), "{listed:?}");
        assert!(!router.log().contains(secret));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_of_keys_proves_which_routers_have_them() {
    let peer = Peer::plain().await;
    let (a, b) = (
        over(&[&peer], "").keys("sk-a:x\n").start().await,
        over(&[&peer], "").keys("sk-a:y\n").start().await,
    );
    let file = a.path().join("keys").display().to_string();
    let check = ["keys", "check", "--live", "--wait", "0", "--file", &file];
    let checked = llmctl(&[&a, &b], &check).await;
    assert_eq!(code(&checked), 1, "{checked:?}");
    let shown = stdout(&checked);
    let rows: Vec<_> = shown
        .lines()
        .filter(|line| line.starts_with("http"))
        .collect();
    assert!(
        rows[0].ends_with("in force") && rows[1].contains("it has other keys"),
        "{shown}"
    );
    assert!(!shown.contains("sk-a"), "{shown}");
    let partial = at(&[url(&a), nowhere()], &check).await;
    assert_eq!(code(&partial), 3, "{partial:?}");
    assert!(stdout(&partial).contains("in force"), "{partial:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_file_that_is_a_directory_is_named_by_everyone() {
    let peer = Peer::plain().await;
    let over = over(&[&peer], "").main("keys: {file: keys}");
    std::fs::create_dir(over.path().join("keys")).unwrap();
    let router = over.start().await;
    for arguments in [
        &["check"][..],
        &["list"],
        &["add", "alice"],
        &["rotate", "alice"],
        &["revoke", "alice"],
    ] {
        let failed = keys(&router, arguments).await;
        assert_eq!(code(&failed), 1, "{arguments:?}: {failed:?}");
        let said = stdout(&failed) + &stderr(&failed);
        assert!(said.contains("is a directory"), "{arguments:?}: {said}");
    }
    let status = stdout(&llmctl(&[&router], &["status"]).await);
    assert!(
        status.contains("is unreadable") && status.contains("open to everyone"),
        "{status}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decision_is_found_by_its_request_on_whichever_router_it_was() {
    let peer = Peer::plain().await;
    let (a, b) = (
        over(&[&peer], "").start().await,
        over(&[&peer], "").start().await,
    );
    b.post_with(CHAT_PATH, &[("x-request-id", "rid-7")], CHAT)
        .await;
    let explain = |more: &[&'static str]| [&["route", "explain", "r"], more].concat();
    let found = llmctl(&[&a, &b], &explain(&["--request-id", "rid-7"])).await;
    assert_eq!(code(&found), 0, "{found:?}");
    assert!(stdout(&found).contains("rid-7"), "{found:?}");
    let last = llmctl(&[&a, &b], &explain(&["--last", "--output", "json"])).await;
    assert_eq!(json(&last)["request_id"], "rid-7");
    let unknown = llmctl(&[&a, &b], &explain(&["--request-id", "rid-8"])).await;
    assert_eq!(code(&unknown), 1, "{unknown:?}");
    let partial = at(&[nowhere(), url(&b)], &explain(&["--request-id", "rid-7"])).await;
    assert_eq!(code(&partial), 0, "{partial:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_route_whose_peers_are_all_banned_is_explained() {
    let port = nowhere().rsplit_once(':').unwrap().1.to_owned();
    let yaml = format!("peers: [{{address: \"127.0.0.1:{port}\", name: dead}}]\n");
    let router = setup().route("r", &yaml).start().await;
    let explained = until_answer("the only peer to be banned", async || {
        let explained = llmctl(&[&router], &["route", "explain", "r"]).await;
        assert_eq!(code(&explained), 0, "{explained:?}");
        let shown = stdout(&explained);
        shown.contains("no_healthy_peer").then_some(shown)
    })
    .await;
    assert!(
        explained.contains("a probe of a banned peer would have to succeed"),
        "{explained}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_is_given_does_not_hide_the_rule_that_refuses_the_body() {
    let peer = Peer::plain().await;
    let rule = "reject_rules: [{name: big, field: max_tokens, op: gt, value: 5}]";
    let router = over(&[&peer], rule).start().await;
    let body = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(body.path(), r#"{"max_tokens": 6}"#).unwrap();
    let body = body.path().to_str().unwrap();
    let asked = ["route", "explain", "r", "--session", "talk", "--body", body];
    let shown = stdout(&llmctl(&[&router], &asked).await);
    for words in [
        "rejected_by_rule",
        "content rule `big`",
        "talk (from --session)",
    ] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn status_leads_from_a_429_to_the_number_and_the_place_to_look() {
    let gate = Gate::default();
    let peer = Peer::gated(&gate).await;
    let router = over(&[&peer], "default_max: 1").start().await;
    let first = router.post(CHAT_PATH, CHAT);
    let asked = async {
        peer.arrived(1).await;
        let refused = router.post(CHAT_PATH, CHAT).await;
        assert_eq!(refused.status, 429);
        let status = llmctl(&[&router], &["status"]).await;
        gate.open(1);
        stdout(&status)
    };
    let (_, shown) = tokio::join!(first, asked);
    for words in ["full: 1 in flight of 1", "llmctl route show r"] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn status_names_the_dead_engine_and_how_long_a_switch_has_been_off() {
    let peer = Peer::plain().await;
    let port = nowhere().rsplit_once(':').unwrap().1.to_owned();
    let yaml = format!(
        "peers: [{{address: \"127.0.0.1:{port}\", name: dead}}, {}]\nhealth_check_interval: 1h\nbalance: round_robin\n",
        peer.yaml()
    );
    let router = setup().route("r", &yaml).start().await;
    for _ in 0..3 {
        assert_eq!(router.post(CHAT_PATH, CHAT).await.status, 200);
    }
    llmctl(&[&router], &["toggle", "ttft", "--on", "0"]).await;
    let shown = until_answer("status to name the dead peer", async || {
        let shown = stdout(&llmctl(&[&router], &["status"]).await);
        shown.contains("peer dead").then_some(shown)
    })
    .await;
    assert!(shown.contains("cannot be reached"), "{shown}");
    assert!(shown.contains("switch ttft is off by hand"), "{shown}");
    let row = shown.lines().find(|line| line.contains("until reset"));
    assert!(row.unwrap().contains(" s ago"), "{shown}");
}

/// A document with the type name in place of each value. Programs rely on which keys exist.
fn shape(value: &Value) -> Value {
    match value {
        Value::Null => "null".into(),
        Value::Bool(_) => "boolean".into(),
        Value::Number(_) => "number".into(),
        Value::String(_) => "text".into(),
        Value::Array(items) => items.first().map(shape).into_iter().collect(),
        Value::Object(keys) => keys
            .iter()
            .map(|(key, value)| {
                let is_address = key.contains(':');
                let key = if is_address { "host:port" } else { key };
                (key.to_owned(), shape(value))
            })
            .collect(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_json_of_every_command_that_asks_a_router_keeps_its_shape() {
    let peer = Peer::plain().await;
    let options = "affinity: sticky_least_loaded\nttft_limit_ms: 30000";
    let router = over(&[&peer], options).keys("sk-a:x\n").start().await;
    let headers = [("x-session-id", "talk"), ("authorization", "Bearer sk-a")];
    assert_eq!(
        router.post_with(CHAT_PATH, &headers, CHAT).await.status,
        200
    );
    let file = router.path().join("keys").display().to_string();
    for (name, arguments) in [
        ("toggle_set", &["toggle", "ttft-429", "--on", "0"][..]),
        ("toggle", &["toggle", "ttft-429"]),
        ("limit_set", &["limit", "ttft", "--ms", "5000"]),
        ("limit", &["limit", "ttft"]),
        ("status", &["status"]),
        ("session_show", &["session", "show", "talk"]),
        ("session_finish", &["session", "finish", "talk"]),
        ("route_list_live", &["route", "list"]),
        ("route_show_live", &["route", "show", "r"]),
        (
            "route_explain_live",
            &["route", "explain", "r", "--session", "talk"],
        ),
        ("route_explain_last", &["route", "explain", "r", "--last"]),
        (
            "keys_check_live",
            &["keys", "check", "--live", "--file", &file],
        ),
        ("reload", &["reload"]),
        ("drain", &["drain"]),
    ] {
        let told = llmctl(&[&router], &[arguments, &["--output", "json"]].concat()).await;
        assert_eq!(code(&told), 0, "{name}: {told:?}");
        let told = serde_json::to_string_pretty(&shape(&json(&told))).unwrap();
        insta::assert_snapshot!(format!("json_{name}"), told);
    }
}
