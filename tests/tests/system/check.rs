//! `--check`, start-up on broken files, and the command line.

use system_tests::peer::Peer;

use crate::common::{over, peers, setup};

#[tokio::test(flavor = "multi_thread")]
async fn sound_files_are_zero() {
    let peer = Peer::plain().await;
    let finished = over(&[&peer], "").run(&["--check"]).await;
    assert_eq!(
        finished.code,
        Some(0),
        "{}{}",
        finished.stdout,
        finished.stderr
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_variable_counts_as_none() {
    let mut setup = setup();
    for name in ["LISTEN", "ADMIN_LISTEN", "LOG_FORMAT", "CONFIG"] {
        setup = setup.env(&format!("LLM_ROUTER_{name}"), "");
    }
    let finished = setup.run(&["--check"]).await;
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_variable_asks_for_the_check_as_the_flag_does() {
    let setup = || setup().route("r", "peers: []");
    let asked = setup().env("LLM_ROUTER_CHECK", "1").run(&[]).await;
    assert_eq!(asked.code, Some(0), "{}", asked.stderr);
    assert!(asked.stdout.contains("1 route file"), "{}", asked.stdout);
    let router = setup().env("LLM_ROUTER_CHECK", "0").start().await;
    assert_eq!(router.get("/health").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_problem_of_every_file_is_reported_at_once() {
    let setup = setup()
        .server("listn: 1.2.3.4:5")
        .server("drain_delay: soon");
    let setup = setup.route(
        "one",
        "peers: [{address: 'no-port'}]\nhash: crc33\nmax_more_tries: -1\n",
    );
    let setup = setup.route(
        "two",
        "peers: []\nmax_body_size: lots\nhash: crc32\nhash: rendezvous\n",
    );
    let finished = setup.run(&["--check"]).await;
    let report = format!("{}\n{}", finished.stdout, finished.stderr);
    assert_eq!(finished.code, Some(1), "{report}");
    let expected = [
        "router.yaml:2:3",
        "listn",
        "listen",
        "soon",
        "one.yaml:1",
        "no-port",
        "one.yaml:2:7",
        "crc33",
        "rendezvous",
        "one.yaml:3",
        "two.yaml:2:16",
        "lots",
        "two.yaml:4",
    ];
    for text in expected {
        assert!(report.contains(text), "{text:?} is missing in:\n{report}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reserved_and_malformed_route_names_are_errors() {
    for name in [
        "v1",
        "health",
        "healthz",
        "ready",
        "readyz",
        "proxy",
        "metrics",
        "console",
        "finish_session",
        "_x",
        "Upper",
    ] {
        let finished = setup()
            .route("file", &format!("name: {name}\npeers: []\n"))
            .run(&["--check"])
            .await;
        assert_eq!(finished.code, Some(1), "{name}");
    }
    for name in ["a", "0", "a.b-c_d", "v1x"] {
        let finished = setup()
            .route("file", &format!("name: {name}\npeers: []\n"))
            .run(&["--check"])
            .await;
        assert_eq!(
            finished.code,
            Some(0),
            "{name}: {}{}",
            finished.stdout,
            finished.stderr
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_usage_is_two() {
    for arguments in [
        &["--nosuch"][..],
        &["--log-format", "xml"],
        &["--listen", "nowhere"],
    ] {
        let finished = setup().run(arguments).await;
        assert_eq!(finished.code, Some(2), "{arguments:?}: {}", finished.stderr);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn start_on_a_broken_main_file_is_one() {
    let finished = setup()
        .server("drain_delay: 0s")
        .server("nosuch: 1")
        .run(&[])
        .await;
    assert_eq!(finished.code, Some(1));
    assert!(finished.stderr.contains("nosuch"), "{}", finished.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_named_config_is_one() {
    let setup = setup();
    let finished = setup.run(&["--check"]).await;
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_router-under-test"));
    command
        .current_dir(setup.path())
        .args(["--check", "--config", "nosuch.yaml"]);
    let finished = system_tests::program::Program::spawn(command)
        .finish()
        .await;
    assert_eq!(finished.code, Some(1), "{}", finished.stderr);
    assert!(finished.stderr.contains("nosuch.yaml") || finished.stdout.contains("nosuch.yaml"));
}

#[tokio::test(flavor = "multi_thread")]
async fn environment_expands_in_scalars_and_undefined_variables_are_errors() {
    let peer = Peer::plain().await;
    let route = "peers: [{address: '${ENGINE_ADDRESS}', name: '${ENGINE_NAME:-engine-a}'}]\n";
    let setup = setup()
        .route("r", route)
        .env("ENGINE_ADDRESS", &peer.address.to_string());
    let router = setup.start().await;
    let reply = router
        .post(crate::common::CHAT_PATH, crate::common::CHAT)
        .await;
    assert_eq!(
        (reply.status, reply.header("x-proxy-backend")),
        (200, "engine-a")
    );
    let finished = crate::common::setup()
        .route("r", route)
        .run(&["--check"])
        .await;
    assert_eq!(finished.code, Some(1));
    assert!(format!("{}{}", finished.stdout, finished.stderr).contains("ENGINE_ADDRESS"));
}

#[tokio::test(flavor = "multi_thread")]
async fn later_features_are_unknown_keys() {
    let peer = Peer::plain().await;
    for option in [
        "prefill_policy: random",
        "state: redis://localhost",
        "upload: s3://records",
    ] {
        let finished = setup()
            .route("r", &format!("{}{option}\n", peers(&[&peer])))
            .run(&["--check"])
            .await;
        assert_eq!(finished.code, Some(1), "{option}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn booleans_of_other_spellings_are_accepted_with_a_warning() {
    let peer = Peer::plain().await;
    for value in ["yes", "No", "ON", "off", "1", "0"] {
        let finished = over(&[&peer], &format!("cross_tier_fallback: {value}"))
            .run(&["--check"])
            .await;
        let report = format!("{}{}", finished.stdout, finished.stderr);
        assert_eq!(finished.code, Some(0), "{value}: {report}");
        assert!(report.contains("warning"), "{value}: {report}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn healthcheck_probes_the_admin_port() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "").start().await;
    let run = async |listen: String| {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_router-under-test"));
        command
            .current_dir(router.path())
            // A small image has no root certificates, and plain http does not need them.
            .env("SSL_CERT_FILE", "/nonexistent")
            .env("SSL_CERT_DIR", router.path().join("routes"))
            .args(["healthcheck", "--admin-listen", &listen]);
        system_tests::program::Program::spawn(command)
            .finish()
            .await
            .code
    };
    assert_eq!(run(router.admin.to_string()).await, Some(0));
    let refusing = system_tests::peer::Refusing::bind();
    assert_ne!(run(refusing.address.to_string()).await, Some(0));
}
