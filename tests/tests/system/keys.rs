//! Authentication: the key file, its rotation, and per-route keys.

use serde_json::json;
use system_tests::peer::Peer;
use system_tests::router::Router;
use system_tests::wait::until_answer;
use system_tests::wire::call;

use crate::common::{CHAT, CHAT_PATH, over, peers, setup};

async fn status_with(router: &Router, path: &str, headers: &[(&str, &str)]) -> u16 {
    router.post_with(path, headers, CHAT).await.status
}

async fn status(router: &Router, authorization: &str) -> u16 {
    status_with(router, CHAT_PATH, &[("authorization", authorization)]).await
}

async fn becomes(router: &Router, authorization: &str, expected: u16) {
    until_answer(
        &format!("{authorization} to answer {expected}"),
        async || (status(router, authorization).await == expected).then_some(()),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bearer_in_any_case_and_x_api_key_are_accepted() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "").keys("sk-a:alice\n").start().await;
    for authorization in ["Bearer sk-a", "bearer sk-a", "BEARER   sk-a"] {
        assert_eq!(status(&router, authorization).await, 200, "{authorization}");
    }
    assert_eq!(
        status_with(&router, CHAT_PATH, &[("x-api-key", "sk-a")]).await,
        200
    );
    for authorization in [
        "Bearer sk-b",
        "Bearer sk-",
        "Bearer sk-aa",
        "sk-a",
        "Basic sk-a",
        "Bearer",
    ] {
        assert_eq!(status(&router, authorization).await, 401, "{authorization}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn with_both_headers_authorization_decides() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "").keys("sk-a:alice\n").start().await;
    let both = |authorization, key| [("authorization", authorization), ("x-api-key", key)];
    assert_eq!(
        status_with(&router, CHAT_PATH, &both("Bearer sk-a", "wrong")).await,
        200
    );
    assert_eq!(
        status_with(&router, CHAT_PATH, &both("Bearer wrong", "sk-a")).await,
        401
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_and_wrong_key_get_the_same_bytes() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "").keys("sk-a:alice\n").start().await;
    let missing = router.post(CHAT_PATH, CHAT).await;
    let wrong = router
        .post_with(CHAT_PATH, &[("authorization", "Bearer nope")], CHAT)
        .await;
    assert_eq!((missing.status, wrong.status), (401, 401));
    assert_eq!(missing.body, wrong.body);
    assert_eq!(missing.json()["error"]["code"], json!("invalid_api_key"));
    assert_eq!(missing.header("www-authenticate"), "Bearer");
    assert!(peer.requests().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn key_file_grammar_takes_commas_lines_comments_and_hashes() {
    let peer = Peer::plain().await;
    let digest = sha256_hex("sk-hashed");
    let file = format!("# team keys\r\nsk-a:alice, sk-b:team:x ,  ,sk-c\nsha256:{digest}:carol\n");
    let router = over(&[&peer], "").keys(&file).start().await;
    for key in ["sk-a", "sk-b", "sk-c", "sk-hashed"] {
        assert_eq!(
            status(&router, &format!("Bearer {key}")).await,
            200,
            "{key}"
        );
    }
    for key in [
        "alice",
        "team:x",
        "# team keys",
        digest.as_str(),
        "sk-b:team",
    ] {
        assert_eq!(
            status(&router, &format!("Bearer {key}")).await,
            401,
            "{key}"
        );
    }
}

fn sha256_hex(text: &str) -> String {
    use sha2::Digest;
    sha2::Sha256::digest(text.as_bytes())
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_file_status_is_reported_and_on_missing_allow_passes() {
    let peer = Peer::plain().await;
    for (content, expected) in [
        (None, "missing"),
        (Some(""), "empty"),
        (Some("# only\n , \n"), "empty"),
    ] {
        let setup = over(&[&peer], "").main("keys: {file: keys, on_missing: allow}");
        if let Some(content) = content {
            setup.write("keys", content);
        }
        let router = setup.start().await;
        assert_eq!(router.post(CHAT_PATH, CHAT).await.status, 200, "{expected}");
        let health = router.admin_get("/r/_health_status").await.json();
        assert_eq!(health["_meta"]["key_file_status"], json!(expected));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unreadable_file_at_start_follows_on_missing() {
    let peer = Peer::plain().await;
    // A directory cannot be read as a file, not even by root.
    for (policy, expected) in [("allow", 200), ("deny", 401)] {
        let setup =
            over(&[&peer], "").main(&format!("keys: {{file: routes, on_missing: {policy}}}"));
        let router = setup.start().await;
        assert_eq!(
            router.post(CHAT_PATH, CHAT).await.status,
            expected,
            "{policy}"
        );
        let health = router.admin_get("/r/_health_status").await.json();
        assert_eq!(health["_meta"]["key_file_status"], json!("unreadable"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn on_missing_deny_refuses_everyone() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "")
        .main("keys: {file: nosuch, on_missing: deny}")
        .start()
        .await;
    assert_eq!(router.post(CHAT_PATH, CHAT).await.status, 401);
    assert_eq!(status(&router, "Bearer anything").await, 401);
    assert_eq!(router.get("/health").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn rotation_takes_effect_by_itself() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "").keys("sk-old:alice\n").start().await;
    assert_eq!(status(&router, "Bearer sk-old").await, 200);
    router.replace("keys", "sk-new:alice\n");
    becomes(&router, "Bearer sk-new", 200).await;
    assert_eq!(status(&router, "Bearer sk-old").await, 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_set_that_was_loaded_never_falls_open() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "").keys("sk-a:alice\n").start().await;
    let status_is = async |expected: &'static str| {
        router
            .admin_until("/r/_health_status", expected, |json| {
                json["_meta"]["key_file_status"] == expected
            })
            .await;
        assert_eq!(
            router.post(CHAT_PATH, CHAT).await.status,
            401,
            "without a key, file {expected}"
        );
        assert_eq!(
            status(&router, "Bearer sk-a").await,
            200,
            "with the key, file {expected}"
        );
    };
    router.replace("keys", "sk-a:al");
    router.admin_post("/_reload").await;
    status_is("unreadable").await;
    router.replace("keys", "");
    router.admin_post("/_reload").await;
    status_is("empty").await;
    std::fs::remove_file(router.path().join("keys")).unwrap();
    router.admin_post("/_reload").await;
    status_is("missing").await;
    std::fs::create_dir(router.path().join("keys")).unwrap();
    router.admin_post("/_reload").await;
    status_is("unreadable").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn route_keys_replace_the_shared_file() {
    let peer = Peer::plain().await;
    let setup = setup()
        .keys("sk-shared:all\n")
        .route("shared", &peers(&[&peer]));
    let setup = setup.route(
        "own",
        &format!("{}api_keys: {{sk-own: bob}}", peers(&[&peer])),
    );
    let router = setup
        .route("open", &format!("{}api_keys: {{}}", peers(&[&peer])))
        .start()
        .await;
    let expectations = [
        ("/shared", "sk-shared", 200),
        ("/shared", "sk-own", 401),
        ("/own", "sk-own", 200),
        ("/own", "sk-shared", 401),
        ("/open", "anything", 200),
    ];
    for (route, key, expected) in expectations {
        let path = format!("{route}/v1/chat/completions");
        let bearer = format!("Bearer {key}");
        assert_eq!(
            status_with(&router, &path, &[("authorization", &bearer)]).await,
            expected,
            "{route} {key}"
        );
    }
    assert_eq!(
        status_with(&router, "/open/v1/chat/completions", &[]).await,
        200
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn key_is_checked_before_the_body_is_read() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "").keys("sk-a:alice\n").start().await;
    for path in [CHAT_PATH, "/v1/chat/completions"] {
        let mut wire = system_tests::wire::Wire::connect(router.public).await;
        let head =
            format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n\r\n");
        wire.send(head).await;
        assert_eq!(wire.head("POST").await.status, 401, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn validated_credential_stops_at_the_router_unless_told() {
    let peer = Peer::plain().await;
    let setup = setup().keys("sk-a:alice\n").route("stop", &peers(&[&peer]));
    let setup = setup.route("pass", &format!("{}forward_auth: true", peers(&[&peer])));
    let own = format!(
        "peers: [{{address: {}, api_key: engine-key}}]",
        peer.address
    );
    let router = setup
        .route("own", &own)
        .route("open", &format!("{}api_keys: {{}}", peers(&[&peer])))
        .start()
        .await;
    for route in ["stop", "pass", "own", "open"] {
        let path = format!("/{route}/v1/chat/completions");
        assert_eq!(
            status_with(&router, &path, &[("authorization", "Bearer sk-a")]).await,
            200,
            "{route}"
        );
    }
    let seen: Vec<_> = peer
        .requests()
        .iter()
        .map(|r| r.headers.get("authorization").map(str::to_owned))
        .collect();
    let bearer = |key: &str| Some(format!("Bearer {key}"));
    assert_eq!(
        seen,
        [None, bearer("sk-a"), bearer("engine-key"), bearer("sk-a")]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_appear_neither_in_the_log_nor_in_answers() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "")
        .keys("sk-very-secret:alice\n")
        .start()
        .await;
    let refused = router
        .post_with(
            CHAT_PATH,
            &[("authorization", "Bearer guessed-secret")],
            CHAT,
        )
        .await;
    assert_eq!(status(&router, "Bearer sk-very-secret").await, 200);
    assert!(!refused.text().contains("guessed-secret"));
    let log = router.stop().await;
    for secret in ["sk-very-secret", "guessed-secret"] {
        assert!(
            !log.stdout.contains(secret) && !log.stderr.contains(secret),
            "{secret} is in the log"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn odd_key_files_load_what_is_sound() {
    let peer = Peer::plain().await;
    let crowd: String = (0..100_000)
        .map(|n| format!("sk-{n}:owner-{n}\n"))
        .collect();
    for (name, file) in [
        (
            "byte order mark and CRLF",
            "\u{feff}sk-99999:x\r\nsk-2:y\r\n".to_owned(),
        ),
        ("crowd", crowd),
    ] {
        let router = over(&[&peer], "").keys(&file).start().await;
        assert_eq!(status(&router, "Bearer sk-99999").await, 200, "{name}");
        assert_eq!(status(&router, "Bearer sk-x").await, 401, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_route_does_not_open_what_needs_a_key() {
    let peer = Peer::plain().await;
    let open = format!("{}api_keys: {{}}\n", peers(&[&peer]));
    let shared = setup()
        .keys("sk-one:team\n")
        .route("open", &open)
        .route("closed", &peers(&[&peer]));
    let own = format!("{}api_keys: {{sk-one: team}}\n", peers(&[&peer]));
    let of_a_route = setup().route("open", &open).route("own", &own);
    for setup in [shared, of_a_route] {
        let router = setup.start().await;
        assert_eq!(router.get("/proxy/metrics").await.status, 401);
        let key = [("x-api-key", "sk-one")];
        let page = call(router.public, "GET", "/proxy/metrics", &key, "").await;
        assert_eq!(page.status, 200);
        assert!(page.text().contains("route=\"open\""));
    }
    let nobody = setup().route("open", &open).start().await;
    assert_eq!(nobody.get("/proxy/metrics").await.status, 200);
}
