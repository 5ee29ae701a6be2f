//! Where the router finds a session id, and that the id brings the conversation back to one engine.

use std::collections::HashSet;

use serde_json::json;
use system_tests::peer::Peer;
use system_tests::wait::until_answer;

use crate::common::{CHAT, CHAT_PATH, over, session_at};

/// Headers, body, expected id, expected source.
type SourceCase<'a> = (&'a [(&'a str, &'a str)], &'a str, &'a str, &'a str);

#[tokio::test(flavor = "multi_thread")]
async fn each_of_the_six_sources_is_used_and_named() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "").start().await;
    let cases: [SourceCase; 8] = [
        (
            &[("x-litellm-session-id", "h1")],
            "{}",
            "h1",
            "header.x-litellm-session-id",
        ),
        (
            &[("x-claude-code-session-id", "h2")],
            "{}",
            "h2",
            "header.x-claude-code-session-id",
        ),
        (&[("X-Session-Id", "h3")], "{}", "h3", "header.x-session-id"),
        (
            &[],
            r#"{"metadata":{"session_id":"b1"}}"#,
            "b1",
            "body.metadata.session_id",
        ),
        (
            &[],
            r#"{"litellm_metadata":{"session_id":42}}"#,
            "42",
            "body.litellm_metadata.session_id",
        ),
        (
            &[],
            r#"{"metadata":{"user_id":{"session_id":"b3"}}}"#,
            "b3",
            "body.metadata.user_id.session_id",
        ),
        (
            &[],
            r#"{"metadata":{"user_id":"plain"}}"#,
            "plain",
            "body.metadata.user_id",
        ),
        (&[], r#"{"user":"bob"}"#, "bob", "body.user"),
    ];
    for (headers, body, session, source) in cases {
        let reply = router.post_with(CHAT_PATH, headers, body).await;
        let shown = (
            reply.header("x-routed-session"),
            reply.header("x-routed-source"),
        );
        assert_eq!(shown, (session, source), "{body}");
        assert_eq!(reply.header("x-routed-mode"), "hash", "{body}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn json_text_in_user_id_gives_its_session_id() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "").start().await;
    let reply = router
        .post(
            CHAT_PATH,
            r#"{"metadata":{"user_id":"{\"session_id\":\"z\"}"}}"#,
        )
        .await;
    let shown = (
        reply.header("x-routed-session"),
        reply.header("x-routed-source"),
    );
    assert_eq!(shown, ("z", "body.metadata.user_id.session_id"));
}

#[tokio::test(flavor = "multi_thread")]
async fn first_non_blank_source_wins_and_nothing_is_none() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "").start().await;
    let order = [("x-session-id", "late"), ("x-litellm-session-id", "early")];
    let body = r#"{"metadata":{"session_id":"body"},"user":"bob"}"#;
    let reply = router.post_with(CHAT_PATH, &order, body).await;
    assert_eq!(reply.header("x-routed-session"), "early");
    let blank = [("x-litellm-session-id", "   "), ("x-session-id", "a")];
    assert_eq!(
        router
            .post_with(CHAT_PATH, &blank, body)
            .await
            .header("x-routed-session"),
        "a"
    );
    let reply = router
        .post(
            CHAT_PATH,
            r#"{"metadata":{"session_id":" \u3000"},"user":"bob"}"#,
        )
        .await;
    assert_eq!(reply.header("x-routed-source"), "body.user");
    let reply = router.post(CHAT_PATH, CHAT).await;
    let shown =
        ["x-routed-session", "x-routed-source", "x-routed-mode"].map(|name| reply.header(name));
    assert_eq!(shown, ["-", "none", "least_conn"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn integers_keep_every_digit() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "").start().await;
    let digits = "90071992547409931234567890";
    let reply = router
        .post(
            CHAT_PATH,
            &format!(r#"{{"metadata":{{"session_id":{digits}}}}}"#),
        )
        .await;
    assert_eq!(reply.header("x-routed-session"), digits);
}

#[tokio::test(flavor = "multi_thread")]
async fn crc32_places_a_session_by_file_order_and_keeps_it() {
    let engines = [
        Peer::plain().await,
        Peer::plain().await,
        Peer::plain().await,
    ];
    let router = over(&[&engines[0], &engines[1], &engines[2]], "")
        .start()
        .await;
    for (index, engine) in engines.iter().enumerate() {
        let session = session_at(u32::try_from(index).unwrap(), 3);
        for _ in 0..3 {
            let reply = router
                .post_with(CHAT_PATH, &[("x-session-id", &session)], CHAT)
                .await;
            assert_eq!(reply.header("x-routed-peer"), engine.address.to_string());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rendezvous_moves_only_the_lost_peers_sessions() {
    let engines = [
        Peer::plain().await,
        Peer::plain().await,
        Peer::plain().await,
    ];
    let [a, b, c] = &engines;
    let options = "hash: rendezvous";
    let router = over(&[a, b, c], options).start().await;
    let homes = async || {
        let mut homes = Vec::new();
        for n in 0..60 {
            let reply = router
                .post_with(CHAT_PATH, &[("x-session-id", &format!("s{n}"))], CHAT)
                .await;
            homes.push(reply.header("x-routed-peer").to_owned());
        }
        homes
    };
    let before = homes().await;
    assert_eq!(before.iter().collect::<HashSet<_>>().len(), 3);
    let two = crate::common::peers(&[a, c]);
    router.replace("routes/r.yaml", &format!("{two}{options}\n"));
    let lost = b.address.to_string();
    let moved = before.iter().position(|home| *home == lost).unwrap();
    until_answer("the smaller route", async || {
        let session = format!("s{moved}");
        let reply = router
            .post_with(CHAT_PATH, &[("x-session-id", &session)], CHAT)
            .await;
        (reply.header("x-routed-peer") != lost).then_some(())
    })
    .await;
    for (old, new) in before.iter().zip(homes().await) {
        assert!(*old == lost || *old == new, "{old} moved to {new}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn affinity_toggle_balances_every_request_until_reset() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "").start().await;
    let mode = async || {
        let reply = router
            .post_with(CHAT_PATH, &[("x-session-id", "s")], CHAT)
            .await;
        reply.header("x-routed-mode").to_owned()
    };
    assert_eq!(mode().await, "hash");
    let off = router.admin_post("/r/_affinity_toggle?on=0").await;
    assert_eq!(off.status, 200);
    assert_eq!(mode().await, "least_conn");
    assert!(off.text().contains("runtime"), "{}", off.text());
    assert_eq!(
        router
            .admin_post("/r/_affinity_toggle?reset=1")
            .await
            .status,
        200
    );
    assert_eq!(mode().await, "hash");
    let bad = router.admin_post("/r/_affinity_toggle?on=perhaps").await;
    assert_eq!(bad.status, 400);
    assert_eq!(mode().await, "hash");
}

#[tokio::test(flavor = "multi_thread")]
async fn raw_session_ids_are_not_in_the_log() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "").start().await;
    router
        .post_with(CHAT_PATH, &[("x-session-id", "very-private-session")], CHAT)
        .await;
    let log = router.stop().await;
    assert!(!log.stdout.contains("very-private") && !log.stderr.contains("very-private"));
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_that_are_not_sound_json_are_forwarded_without_a_session() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "").start().await;
    let nested = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let long = format!(r#"{{"messages":"{}"}}"#, "x".repeat(9 << 20));
    let bodies: [&[u8]; 7] = [
        b"",
        b"{\"user\":",
        b"\xff\xfe{}",
        b"[]",
        b"null",
        nested.as_bytes(),
        long.as_bytes(),
    ];
    for (n, body) in bodies.into_iter().enumerate() {
        let reply = system_tests::wire::call(router.public, "POST", CHAT_PATH, &[], body).await;
        assert_eq!(
            (reply.status, reply.header("x-routed-source")),
            (200, "none"),
            "body {n}"
        );
        assert!(
            peer.requests().pop().unwrap().body == body,
            "body {n} was changed"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_home_falls_back_or_keeps_as_told() {
    let gate = system_tests::peer::Gate::default();
    let (home, other) = (Peer::gated(&gate).await, Peer::plain().await);
    let route = |saturated: &str| {
        format!(
            "peers: [{{address: {}, max_concurrency: 1}}, {{address: {}, max_concurrency: 9}}]\nhash_saturated: {saturated}\n",
            home.address, other.address
        )
    };
    let setup = crate::common::setup()
        .route("fallback", &route("fallback"))
        .route("keep", &route("keep"));
    let router = setup.start().await;
    let session = session_at(0, 2);
    let headers = [("x-session-id", session.as_str())];
    for (n, name) in ["fallback", "keep"].into_iter().enumerate() {
        let path = format!("/{name}/v1/chat/completions");
        let (_, reply) = tokio::join!(router.post_with(&path, &headers, CHAT), async {
            home.running(1).await;
            if name == "keep" {
                let second = router.post_with(&path, &headers, CHAT);
                let opened = async {
                    home.running(2).await;
                    gate.open(2);
                };
                return tokio::join!(second, opened).0;
            }
            let reply = router.post_with(&path, &headers, CHAT).await;
            gate.open(1);
            reply
        });
        let expected = [("hash_fallback", &other), ("hash", &home)][n];
        let shown = (
            reply.header("x-routed-mode"),
            reply.header("x-routed-peer").to_owned(),
        );
        assert_eq!(
            shown,
            (expected.0, expected.1.address.to_string()),
            "{name}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn finish_session_counts_nothing_for_stateless_placement() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "").start().await;
    router
        .post_with(CHAT_PATH, &[("x-session-id", "s")], CHAT)
        .await;
    let reply = router.post("/r/finish_session?session_id=s", "").await;
    assert_eq!(reply.json()["released"], json!(0));
}

/// How ten clients send the id of a conversation, as listed in docs/sessions.md.
const CLIENTS: [(&str, &[&str], &str, &str); 10] = [
    (
        "Claude Code",
        &["x-claude-code-session-id"],
        "{}",
        "header.x-claude-code-session-id",
    ),
    (
        "Codex",
        &["session-id"],
        r#"{"prompt_cache_key":"ID"}"#,
        "header.session-id",
    ),
    (
        "opencode",
        &["x-session-affinity", "x-session-id"],
        "{}",
        "header.x-session-id",
    ),
    ("Cursor-like", &[], r#"{"user":"ID"}"#, "body.user"),
    (
        "aider",
        &["x-session-id"],
        r#"{"temperature":0}"#,
        "header.x-session-id",
    ),
    (
        "LibreChat",
        &["x-conversation-id"],
        r#"{"user":"one-user"}"#,
        "header.x-conversation-id",
    ),
    (
        "Open WebUI",
        &[],
        r#"{"metadata":{"session_id":"ID"}}"#,
        "body.metadata.session_id",
    ),
    (
        "LiteLLM",
        &["x-litellm-session-id"],
        "{}",
        "header.x-litellm-session-id",
    ),
    (
        "LangChain",
        &[],
        r#"{"prompt_cache_key":"ID"}"#,
        "body.prompt_cache_key",
    ),
    (
        "Vercel AI",
        &[],
        r#"{"prompt_cache_key":"ID","stream":false}"#,
        "body.prompt_cache_key",
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_of_each_of_ten_clients_stays_on_one_engine() {
    let (a, b, c) = (
        Peer::plain().await,
        Peer::plain().await,
        Peer::plain().await,
    );
    let router = over(&[&a, &b, &c], "").start().await;
    for (client, headers, body, source) in CLIENTS {
        let mut peers = HashSet::new();
        for conversation in 0..8 {
            let id = format!("{client}-{conversation}").replace(' ', "-");
            let headers: Vec<_> = headers.iter().map(|name| (*name, id.as_str())).collect();
            let mut homes = HashSet::new();
            for _turn in 0..3 {
                let body = body.replace("ID", &id);
                let reply = router.post_with(CHAT_PATH, &headers, &body).await;
                assert_eq!(reply.header("x-routed-source"), source, "{client}");
                homes.insert(reply.header("x-routed-peer").to_owned());
            }
            assert_eq!(homes.len(), 1, "{client}: {id}");
            peers.extend(homes);
        }
        assert!(
            peers.len() > 1,
            "{client}: every conversation went to one peer"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_fields_of_other_routers_and_apis_are_found() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "").start().await;
    for (body, source) in [
        (
            r#"{"session_params":{"session_id":"s"}}"#,
            "body.session_params.session_id",
        ),
        (r#"{"session_id":"s"}"#, "body.session_id"),
        (r#"{"user_id":"s"}"#, "body.user_id"),
        (r#"{"conversation":"conv_1"}"#, "body.conversation"),
        (
            r#"{"conversation":{"id":"conv_1"}}"#,
            "body.conversation.id",
        ),
        (
            r#"{"safety_identifier":"s","user":"u"}"#,
            "body.safety_identifier",
        ),
    ] {
        let reply = router.post(CHAT_PATH, body).await;
        assert_eq!(reply.header("x-routed-source"), source);
    }
}
