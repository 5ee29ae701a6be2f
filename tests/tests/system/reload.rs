//! New files take effect in every way of reloading, cut no stream, and never make things worse.

use rustix::process::Signal;
use serde_json::json;
use system_tests::peer::{Gate, Peer};
use system_tests::router::Router;
use system_tests::wait::until_answer;
use system_tests::wire::{End, Wire};

use crate::common::{CHAT, CHAT_PATH, CHAT_STREAM, over, peers, setup};

const FIRST: &str = "data: {\"choices\":[]}\n\n";
const DONE: &str = "data: [DONE]\n\n";

/// Opens `count` streams and reads the first event of each.
async fn open(router: &Router, count: usize) -> Vec<Wire> {
    let mut wires = Vec::new();
    for _ in 0..count {
        let mut wire = Wire::connect(router.public).await;
        wire.request("POST", CHAT_PATH, &[], CHAT_STREAM.as_bytes())
            .await;
        assert_eq!(wire.head("POST").await.status, 200);
        wire.body_until(FIRST).await;
        wires.push(wire);
    }
    wires
}

/// Reads every stream to its end, which must be clean.
async fn all_end_clean(wires: Vec<Wire>) {
    for mut wire in wires {
        assert_eq!(wire.body().await, (DONE.into(), End::Clean));
    }
}

async fn served_by(router: &Router, peer: &Peer) {
    let expected = peer.address.to_string();
    until_answer("the new peer to serve", async || {
        (router.post(CHAT_PATH, CHAT).await.header("x-routed-peer") == expected).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reload_under_200_streams_cuts_none() {
    let gate = Gate::default();
    let old = Peer::streaming(&gate, FIRST, &[DONE]).await;
    let new = Peer::plain().await;
    let router = over(&[&old], "default_max: 300").start().await;
    let wires = open(&router, 200).await;
    router.replace("routes/r.yaml", &peers(&[&new]));
    assert_eq!(router.admin_post("/_reload").await.status, 200);
    served_by(&router, &new).await;
    router.replace(
        "routes/r.yaml",
        &format!("{}default_max: 7", peers(&[&new])),
    );
    router.program.signal(Signal::HUP);
    served_by(&router, &new).await;
    gate.open(200);
    all_end_clean(wires).await;
    assert_eq!(old.tally().cancelled, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn in_flight_is_kept_across_a_reload_by_peer_key() {
    let gate = Gate::default();
    let peer = Peer::streaming(&gate, FIRST, &[DONE]).await;
    let router = over(&[&peer], "default_max: 3").start().await;
    let wires = open(&router, 3).await;
    router.replace(
        "routes/r.yaml",
        &format!("{}default_max: 2", peers(&[&peer])),
    );
    assert_eq!(router.admin_post("/_reload").await.status, 200);
    let conns = router.admin_get("/r/_active_conns").await.json();
    assert_eq!(conns[peer.address.to_string()], json!(3));
    assert_eq!(router.post(CHAT_PATH, CHAT).await.status, 429);
    gate.open(3);
    all_end_clean(wires).await;
    let target = peer.address.to_string();
    router
        .admin_until("/r/_active_conns", "an empty peer", |json| {
            json[&target] == 0
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sighup_reloads() {
    let (old, new) = (Peer::plain().await, Peer::plain().await);
    let router = over(&[&old], "").start().await;
    router.replace("routes/r.yaml", &peers(&[&new]));
    router.program.signal(Signal::HUP);
    served_by(&router, &new).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn edited_added_and_removed_files_reload_by_themselves() {
    let (old, new) = (Peer::plain().await, Peer::plain().await);
    let router = over(&[&old], "").start().await;
    std::fs::write(router.path().join("routes/r.yaml"), peers(&[&new])).unwrap();
    served_by(&router, &new).await;
    router.replace("routes/added.yaml", &peers(&[&old]));
    let status = async || router.post("/added/v1/chat/completions", CHAT).await.status;
    until_answer("the added route", async || {
        (status().await == 200).then_some(())
    })
    .await;
    std::fs::remove_file(router.path().join("routes/added.yaml")).unwrap();
    until_answer("the removal", async || {
        (status().await == 404).then_some(())
    })
    .await;
    assert_eq!(router.post(CHAT_PATH, CHAT).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn symlink_swap_of_a_mounted_volume_reloads() {
    use std::os::unix::fs::symlink;
    let (old, new) = (Peer::plain().await, Peer::plain().await);
    let setup = setup();
    let at = setup.path().to_owned();
    std::fs::remove_dir(at.join("routes")).unwrap();
    for (version, peer) in [("v1", &old), ("v2", &new)] {
        std::fs::create_dir_all(at.join("volume").join(version)).unwrap();
        std::fs::write(
            at.join("volume").join(version).join("r.yaml"),
            peers(&[peer]),
        )
        .unwrap();
    }
    symlink("v1", at.join("volume/..data")).unwrap();
    symlink("..data/r.yaml", at.join("volume/r.yaml")).unwrap();
    symlink("volume", at.join("routes")).unwrap();
    let router = setup.start().await;
    served_by(&router, &old).await;
    symlink("v2", at.join("volume/..data_tmp")).unwrap();
    std::fs::rename(at.join("volume/..data_tmp"), at.join("volume/..data")).unwrap();
    served_by(&router, &new).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_file_keeps_the_last_good_version_and_says_so() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "").start().await;
    router.replace(
        "routes/r.yaml",
        "peers: [{address: 10.0.0.1:1}]\nmax_more_tris: 2\n",
    );
    let reply = router.admin_post("/_reload").await;
    let error = reply.json()["errors"][0].clone();
    assert_eq!(reply.status, 422);
    assert!(
        error["file"].as_str().unwrap().ends_with("r.yaml"),
        "{error}"
    );
    assert_eq!((&error["line"], &error["column"]), (&json!(2), &json!(1)));
    assert!(
        error["message"]
            .as_str()
            .unwrap()
            .contains("max_more_tries"),
        "{error}"
    );
    assert_eq!(
        router.post(CHAT_PATH, CHAT).await.header("x-routed-peer"),
        peer.address.to_string()
    );
    let metrics = router.admin_get("/metrics").await.text();
    assert!(
        metrics.contains("llm_router_config_last_reload_success 0"),
        "{metrics}"
    );
    router.replace("routes/r.yaml", &peers(&[&peer]));
    assert_eq!(router.admin_post("/_reload").await.status, 200);
    let metrics = router.admin_get("/metrics").await.text();
    assert!(
        metrics.contains("llm_router_config_last_reload_success 1"),
        "{metrics}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_breaks_keeps_its_route_under_the_name_it_had() {
    let peer = Peer::plain().await;
    let good = format!("name: chat\n{}", peers(&[&peer]));
    let router = setup().route("file", &good).start().await;
    for broken in [
        "peers: [",
        "name: other\npeers: 5\n",
        "name: v1\npeers: []\n",
    ] {
        router.replace("routes/file.yaml", broken);
        assert_eq!(router.admin_post("/_reload").await.status, 422);
        let reply = router.post("/chat/v1/chat/completions", CHAT).await;
        assert_eq!(reply.status, 200, "{broken}");
        let listed = router.admin_get("/_routes").await.json();
        let names: Vec<_> = listed["routes"].as_array().unwrap().iter().collect();
        assert_eq!((names.len(), &names[0]["name"]), (1, &json!("chat")));
        assert!(
            !names[0]["errors"].as_array().unwrap().is_empty(),
            "{listed}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_bad_route_does_not_hold_back_another() {
    let (old, new) = (Peer::plain().await, Peer::plain().await);
    let router = over(&[&old], "")
        .route("other", &peers(&[&old]))
        .start()
        .await;
    router.replace("routes/other.yaml", "peers: 5\n");
    router.replace("routes/r.yaml", &peers(&[&new]));
    router.admin_post("/_reload").await;
    served_by(&router, &new).await;
    assert_eq!(
        router.post("/other/v1/chat/completions", CHAT).await.status,
        200
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_main_file_keeps_the_old_one() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "").server("max_body_size: 1k").start().await;
    router.replace(
        "router.yaml",
        "server: {max_body_size: huge}\nroutes: routes/\n",
    );
    assert_eq!(router.admin_post("/_reload").await.status, 422);
    let config = router.admin_get("/_routes").await.json()["config"].clone();
    let error = config["errors"][0].clone();
    assert_eq!(config["last_reload_success"], json!(false));
    assert!(
        error["file"].as_str().unwrap().ends_with("router.yaml"),
        "{config}"
    );
    assert_eq!((&error["line"], &error["column"]), (&json!(1), &json!(25)));
    assert_eq!(router.post(CHAT_PATH, &"x".repeat(2000)).await.status, 413);
    assert_eq!(router.post(CHAT_PATH, CHAT).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_main_file_that_vanishes_keeps_what_it_said() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "")
        .server("max_body_size: 1k")
        .unnamed()
        .start()
        .await;
    std::fs::remove_file(router.path().join("router.yaml")).unwrap();
    let reply = router.admin_post("/_reload").await;
    assert_eq!(reply.status, 422, "{}", reply.text());
    assert_eq!(router.post(CHAT_PATH, &"x".repeat(2000)).await.status, 413);
}

#[tokio::test(flavor = "multi_thread")]
async fn main_file_reloads_its_limits() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "").server("max_body_size: 1k").start().await;
    assert_eq!(router.post(CHAT_PATH, &"x".repeat(2000)).await.status, 413);
    router.replace(
        "router.yaml",
        "server: {max_body_size: 4k, drain_delay: 0s}\nroutes: routes/\nkeys: {file: keys}\n",
    );
    until_answer("the new limit", async || {
        (router.post(CHAT_PATH, &"x".repeat(2000)).await.status == 200).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_files_vanishing_at_once_keeps_the_old_set() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "")
        .route("s", &peers(&[&peer]))
        .start()
        .await;
    for name in ["r", "s"] {
        std::fs::remove_file(router.path().join(format!("routes/{name}.yaml"))).unwrap();
    }
    assert_eq!(router.admin_post("/_reload").await.status, 422);
    let listed = router.admin_get("/_routes").await.json();
    assert!(
        listed["config"]["errors"][0]["message"]
            .as_str()
            .unwrap()
            .contains("the routes stay as they were"),
        "{listed}"
    );
    assert_eq!(router.post(CHAT_PATH, CHAT).await.status, 200);
    assert_eq!(
        router.post("/s/v1/chat/completions", CHAT).await.status,
        200
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_needs_a_restart_is_a_warning_that_says_so() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "").start().await;
    router.replace(
        "router.yaml",
        "server: {listen: '127.0.0.1:1', access_log: off, drain_delay: 0s}\nkeys: {file: keys}\n",
    );
    let reply = router.admin_post("/_reload").await;
    assert_eq!(reply.status, 200);
    let warnings = reply.json()["warnings"].to_string();
    assert!(
        warnings.contains("server.listen: a change from 0.0.0.0:8080 to 127.0.0.1:1 takes effect with the next start"),
        "{warnings}"
    );
    assert!(warnings.contains("server.access_log"), "{warnings}");
    router
        .program
        .logged("to 127.0.0.1:1 takes effect with the next start")
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_admin_token_that_cannot_be_read_is_said_at_start_and_at_reload() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "")
        .server("admin_token_file: token")
        .start()
        .await;
    router.program.logged("no admin token is right").await;
    let warnings = router.admin_post("/_reload").await.json()["warnings"].clone();
    assert!(
        warnings[0]["file"].as_str().unwrap().ends_with("token"),
        "{warnings}"
    );
    router.replace("token", "secret");
    let reply = router.admin_post("/_reload").await;
    assert_eq!(reply.json()["warnings"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_partly_in_force_serves_and_says_so() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "").start().await;
    let flawed = [
        "affinity_enabled: maybe",
        "reject_rules: [{field: max_tokens, op: matchh, value: 1}]",
    ];
    for line in flawed {
        router.replace("routes/r.yaml", &format!("{}{line}\n", peers(&[&peer])));
        let reload = router.admin_post("/_reload").await;
        assert_eq!(reload.status, 422, "{line}");
        assert_eq!(reload.json()["ok"], json!(false));
        assert_eq!(router.post(CHAT_PATH, CHAT).await.status, 200);
        let route = router.admin_get("/_routes").await.json()["routes"][0].clone();
        assert_eq!(route["status"], "partly", "{line}");
        let error = &route["errors"][0];
        let file = error["file"].as_str().unwrap();
        assert!(file.ends_with("routes/r.yaml"), "{file}");
        assert_eq!(error["line"], 2);
        let message = error["message"].as_str().unwrap();
        assert!(
            message.contains("maybe") || message.contains("matchh"),
            "{message}"
        );
    }
    router.replace("routes/r.yaml", &peers(&[&peer]));
    assert_eq!(router.admin_post("/_reload").await.status, 200);
    let routes = router.admin_get("/_routes").await.json();
    assert_eq!(routes["routes"][0]["status"], "ok");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_broken_file_changes_nothing_for_the_only_route() {
    const EMBEDDINGS: &str = r#"{"input":"x"}"#;
    let peer = Peer::plain().await;
    let router = over(&[&peer], "").start().await;
    let embeddings = async || router.post("/v1/embeddings", EMBEDDINGS).await.status;
    assert_eq!(embeddings().await, 200);
    router.replace("routes/new.yaml", "peerz: []\n");
    assert_eq!(router.admin_post("/_reload").await.status, 422);
    assert_eq!(embeddings().await, 200);
    assert_eq!(
        router.post("/new/v1/embeddings", EMBEDDINGS).await.status,
        503
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_route_with_keys_opens_only_when_its_file_says_so() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "api_keys: {sk-own: team}").start().await;
    let without_key = async || router.post(CHAT_PATH, CHAT).await.status;
    assert_eq!(without_key().await, 401);
    router.replace("routes/r.yaml", &peers(&[&peer]));
    let reload = router.admin_post("/_reload").await;
    assert_eq!(reload.status, 422);
    let message = reload.json()["errors"][0]["message"].to_string();
    assert!(message.contains("api_keys: shared"), "{message}");
    assert_eq!(without_key().await, 401);
    let key = [("authorization", "Bearer sk-own")];
    assert_eq!(router.post_with(CHAT_PATH, &key, CHAT).await.status, 200);
    router.replace(
        "routes/r.yaml",
        &format!("{}api_keys: {{}}\n", peers(&[&peer])),
    );
    assert_eq!(router.admin_post("/_reload").await.status, 200);
    assert_eq!(without_key().await, 200);
}
