use http::Request;

use super::*;

const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

fn parts(uri: &str, headers: &[(&str, &str)]) -> Parts {
    let mut request = Request::builder().uri(uri);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap().into_parts().0
}

fn caller(peer: &str, headers: &[(&str, &str)]) -> Caller {
    Caller::of(peer.parse().unwrap(), &parts("/", headers))
}

fn callers() -> impl Iterator<Item = Caller> {
    [(true, true), (true, false), (false, true), (false, false)]
        .into_iter()
        .map(|(is_loopback, is_from_a_page)| Caller {
            is_loopback,
            is_from_a_page,
        })
}

#[test]
fn loopback_is_an_address_and_a_name_of_this_host() {
    for peer in ["127.0.0.1", "127.8.0.9", "::1", "::ffff:127.0.0.1"] {
        for host in [
            "localhost",
            "LOCALHOST:8090",
            "127.0.0.1",
            "127.0.0.1:1",
            "[::1]",
            "[::1]:8080",
        ] {
            assert!(caller(peer, &[("host", host)]).is_loopback, "{peer} {host}");
        }
    }
    for peer in ["10.0.0.1", "::2", "::ffff:10.0.0.1", "0.0.0.0"] {
        assert!(
            !caller(peer, &[("host", "localhost")]).is_loopback,
            "{peer}"
        );
    }
    let foreign = [
        "router.example",
        "localhost.evil.example",
        "evil@localhost",
        "127.0.0.2",
        "::1",
        "[::1",
        "localhost:",
        "localhost:80:80",
        "localhost:x",
        "",
        "127.0.0.1.",
        "0",
    ];
    for host in foreign {
        assert!(
            !caller("127.0.0.1", &[("host", host)]).is_loopback,
            "{host}"
        );
    }
}

#[test]
fn a_request_without_a_name_or_with_two_is_not_loopback_unless_both_are_ours() {
    assert!(!caller("127.0.0.1", &[]).is_loopback);
    assert!(
        !caller(
            "127.0.0.1",
            &[("host", "localhost"), ("host", "evil.example")]
        )
        .is_loopback
    );
    let absolute = |uri, headers: &[_]| Caller::of(HERE, &parts(uri, headers)).is_loopback;
    assert!(absolute("http://localhost:8080/x", &[]));
    assert!(absolute("http://127.0.0.1/x", &[("host", "localhost")]));
    assert!(!absolute("http://evil.example/x", &[("host", "localhost")]));
    assert!(!absolute("http://localhost/x", &[("host", "evil.example")]));
}

#[test]
fn whatever_a_proxy_adds_ends_loopback() {
    for name in [
        "forwarded",
        "via",
        "x-real-ip",
        "x-forwarded-for",
        "X-Forwarded-Host",
        "x-forwarded-proto",
        "x-forwarded-",
    ] {
        assert!(
            !caller("127.0.0.1", &[("host", "localhost"), (name, "")]).is_loopback,
            "{name}"
        );
    }
    assert!(caller("127.0.0.1", &[("host", "localhost"), ("x-forward", "1")]).is_loopback);
}

#[test]
fn pages_are_known_by_what_browsers_add() {
    for headers in [
        &[("origin", "https://evil.example")][..],
        &[("origin", "null")],
        &[("origin", "http://localhost:8090")],
        &[("sec-fetch-site", "cross-site")],
        &[("sec-fetch-site", "same-site")],
        &[("sec-fetch-site", "none"), ("sec-fetch-site", "cross-site")],
        &[("sec-fetch-site", "")],
    ] {
        assert!(caller("127.0.0.1", headers).is_from_a_page, "{headers:?}");
    }
    for headers in [
        &[][..],
        &[("sec-fetch-site", "none")],
        &[("sec-fetch-site", "same-origin")],
    ] {
        assert!(!caller("127.0.0.1", headers).is_from_a_page, "{headers:?}");
    }
}

#[test]
fn public_reads_follow_their_class() {
    for caller in callers() {
        for has_key in [true, false] {
            let read = |class| public_read(class, caller, has_key);
            assert_eq!(read(StatusAccess::Off), Err(Denied::Hidden));
            assert_eq!(read(StatusAccess::Open), Ok(()));
            assert_eq!(read(StatusAccess::Key).is_ok(), has_key);
            assert_eq!(read(StatusAccess::Loopback).is_ok(), caller.is_loopback);
        }
    }
}

#[test]
fn public_writes_are_for_loopback_and_never_for_pages() {
    for caller in callers() {
        for class in [
            StatusAccess::Loopback,
            StatusAccess::Key,
            StatusAccess::Open,
        ] {
            let allowed = caller.is_loopback && !caller.is_from_a_page;
            assert_eq!(
                public_write(class, caller).is_ok(),
                allowed,
                "{class:?} {caller:?}"
            );
        }
        assert_eq!(public_write(StatusAccess::Off, caller), Err(Denied::Hidden));
    }
}

#[test]
fn the_admin_port_takes_loopback_or_the_token() {
    for caller in callers() {
        for token in [Token::Right, Token::Wrong, Token::NotConfigured] {
            let known = caller.is_loopback || token == Token::Right;
            assert_eq!(
                admin_read(AdminRead::Token, caller, token).is_ok(),
                known,
                "{caller:?} {token:?}"
            );
            assert_eq!(admin_read(AdminRead::Open, caller, token), Ok(()));
            let writes = known && !caller.is_from_a_page;
            assert_eq!(
                admin_write(caller, token).is_ok(),
                writes,
                "{caller:?} {token:?}"
            );
        }
    }
    let far = Caller {
        is_loopback: false,
        is_from_a_page: false,
    };
    assert_eq!(admin_write(far, Token::Wrong), Err(Denied::NoToken));
    assert_eq!(
        admin_write(far, Token::NotConfigured),
        Err(Denied::Forbidden)
    );
}
