//! Tests of refused callers, on both ports.

use super::*;

#[tokio::test]
async fn only_post_writes_and_405_says_what_is_allowed() {
    let port = Port::chat();
    for (method, target, allow) in [
        ("GET", "/chat/_affinity_toggle?on=0", "POST"),
        ("HEAD", "/chat/_affinity_toggle?reset=1", "POST"),
        ("PUT", "/chat/_affinity_toggle?on=0", "GET, HEAD, POST"),
        ("DELETE", "/chat/_affinity_toggle", "GET, HEAD, POST"),
        ("POST", "/chat/_route_state", "GET, HEAD"),
        ("PUT", "/chat/_route_inspect", "GET, HEAD, POST"),
        ("GET", "/_reload", "POST"),
        ("GET", "/_drain", "POST"),
        ("POST", "/_routes", "GET,HEAD"),
        ("POST", "/_sessions", "GET,HEAD"),
        ("GET", "/finish_session?session_id=s", "POST"),
        ("GET", "/chat/finish_session?session_id=s", "POST"),
        ("POST", "/metrics", "GET,HEAD"),
    ] {
        let reply = port.send("127.0.0.1", method, target, &[], "").await;
        assert_eq!(reply.status, 405, "{method} {target}");
        assert_eq!(reply.headers["allow"], allow, "{method} {target}");
        if method != "HEAD" {
            assert_eq!(
                reply.json()["error"]["code"],
                json!("method_not_allowed"),
                "{method} {target}"
            );
        }
    }
    assert_eq!(
        port.get("/chat/_affinity_toggle").await.json()["enabled"],
        json!(true)
    );
    assert!(!port.controlled.drain.is_cancelled());
}

#[tokio::test]
async fn what_does_not_exist_is_404_json() {
    let port = Port::chat();
    for target in [
        "/nothing",
        "/chat/_nothing",
        "/chat/nothing",
        "/nosuch/_route_state",
        "/chat/_a/_b",
        "/_ttft_toggle",
    ] {
        let reply = port.get(target).await;
        assert_eq!(reply.status, 404, "{target}");
        assert_eq!(
            reply.json()["error"]["type"],
            json!("not_found_error"),
            "{target}"
        );
    }
}

#[tokio::test]
async fn every_guarded_path_is_guarded() {
    let port = Port::chat();
    for (method, target) in [
        ("GET", "/_routes"),
        ("GET", "/_decisions"),
        ("GET", "/_sessions"),
        ("POST", "/finish_session?session_id=s"),
        ("POST", "/chat/finish_session?session_id=s"),
        ("POST", "/_reload"),
        ("POST", "/_drain"),
        ("GET", "/chat/_health_status"),
        ("GET", "/chat/_active_conns"),
        ("GET", "/chat/_route_state"),
        ("GET", "/chat/_route_debug"),
        ("POST", "/chat/_route_inspect"),
        ("GET", "/chat/_decisions"),
        ("GET", "/chat/_affinity_toggle"),
        ("POST", "/chat/_affinity_toggle?on=0"),
        ("GET", "/chat/_nothing"),
    ] {
        for (peer, headers) in [
            ("10.0.0.9", &[][..]),
            ("127.0.0.1", &[("x-forwarded-for", "127.0.0.1")]),
            ("127.0.0.1", &[("host", "evil.example")]),
        ] {
            let reply = port.send(peer, method, target, headers, "").await;
            assert_eq!(reply.status, 403, "{method} {target} {peer} {headers:?}");
            assert!(!reply.text.contains("10.0.0.11"), "{}", reply.text);
        }
    }
    for target in ["/healthz", "/readyz", "/metrics"] {
        assert_eq!(
            port.send("10.0.0.9", "GET", target, &[("via", "x")], "")
                .await
                .status,
            200,
            "{target}"
        );
    }
    assert!(!port.controlled.drain.is_cancelled());
    assert!(port.route().affinity().value);
}

#[tokio::test]
async fn no_page_writes_even_from_this_host() {
    let port = Port::chat();
    for headers in [
        [("origin", "http://localhost:8090")],
        [("sec-fetch-site", "cross-site")],
    ] {
        for target in ["/chat/_affinity_toggle?on=0", "/_reload", "/_drain"] {
            let reply = port.send("127.0.0.1", "POST", target, &headers, "").await;
            assert_eq!(
                (reply.status, &reply.json()["error"]["code"]),
                (StatusCode::FORBIDDEN, &json!("cross_site_request"))
            );
        }
    }
    assert!(port.route().affinity().value && !port.controlled.drain.is_cancelled());
}

#[tokio::test]
async fn the_token_opens_from_afar() {
    let port = Port::over("", &[("chat", CHAT)]);
    let token = port.tables.directory().join("token");
    std::fs::write(&token, "tok-1\n").unwrap();
    let port = Port::over(
        &format!("server: {{admin_token_file: {}}}", token.display()),
        &[("chat", CHAT)],
    );
    let right = [
        ("authorization", "Bearer tok-1"),
        ("host", "router.example"),
    ];
    assert_eq!(
        port.send("10.0.0.9", "GET", "/_routes", &right, "")
            .await
            .status,
        200
    );
    assert_eq!(
        port.send(
            "10.0.0.9",
            "POST",
            "/chat/_affinity_toggle?on=0",
            &right,
            ""
        )
        .await
        .status,
        200
    );
    let wrong = port
        .send(
            "10.0.0.9",
            "GET",
            "/_routes",
            &[("authorization", "Bearer tok-2")],
            "",
        )
        .await;
    assert_eq!(wrong.status, 401);
    assert_eq!(wrong.headers["www-authenticate"], "Bearer");
    let open = Port::over("server: {admin_read: open}", &[("chat", CHAT)]);
    assert_eq!(
        open.send("10.0.0.9", "GET", "/_routes", &[], "")
            .await
            .status,
        200
    );
    assert_eq!(
        open.send("10.0.0.9", "POST", "/_reload", &[], "")
            .await
            .status,
        403
    );
}

mod on_the_public_port {
    use super::*;

    fn admit(
        main: &str,
        method: &str,
        name: &str,
        headers: &[(&str, &str)],
        has_key: bool,
    ) -> Result<(), u16> {
        let table = Tables::new().table(main, &[("chat", CHAT)]);
        let mut request = Request::builder()
            .method(method)
            .uri(format!("/chat/{name}"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let parts = request.body(()).unwrap().into_parts().0;
        let name = name.split('?').next().unwrap();
        public::admit(
            &table,
            Endpoint::of(name),
            &parts,
            "127.0.0.1".parse().unwrap(),
            has_key,
        )
        .map_err(|why| why.answer().status().as_u16())
    }

    const NEAR: &[(&str, &str)] = &[("host", "localhost")];
    const FAR: &[(&str, &str)] = &[("host", "localhost"), ("x-forwarded-for", "203.0.113.9")];

    #[test]
    fn classes_decide_over_reads() {
        for (class, near, far) in [
            ("loopback", Ok(()), Err(403)),
            ("open", Ok(()), Ok(())),
            ("off", Err(404), Err(404)),
        ] {
            let main = format!("server: {{status_access: '{class}'}}");
            assert_eq!(
                admit(&main, "GET", "_route_state", NEAR, true),
                near,
                "{class}"
            );
            assert_eq!(
                admit(&main, "GET", "_route_state", FAR, true),
                far,
                "{class}"
            );
        }
        let key = "server: {status_access: key}";
        assert_eq!(admit(key, "GET", "_route_state", FAR, true), Ok(()));
        assert_eq!(admit(key, "GET", "_route_state", NEAR, false), Err(401));
        assert!(admit(key, "GET", "_429_status", FAR, true).is_ok());
        let everywhere = "_429_status?all=1";
        assert_eq!(admit(key, "GET", everywhere, FAR, true), Err(403));
        assert!(admit(key, "GET", everywhere, NEAR, true).is_ok());
    }

    #[test]
    fn writes_are_for_loopback_whatever_the_class() {
        for class in ["loopback", "key", "open"] {
            let main = format!("server: {{status_access: {class}}}");
            let write = |headers| admit(&main, "POST", "_affinity_toggle", headers, true);
            assert!(write(NEAR).is_ok(), "{class}");
            assert_eq!(write(FAR), Err(403), "{class}");
            assert_eq!(
                write(&[("host", "localhost"), ("origin", "null")]),
                Err(403),
                "{class}"
            );
        }
    }

    #[test]
    fn unknown_endpoints_are_404_for_those_who_may_look() {
        assert_eq!(admit("", "GET", "_nothing", NEAR, true), Err(404));
        assert_eq!(admit("", "GET", "_nothing", FAR, true), Err(403));
    }
}
