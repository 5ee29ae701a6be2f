//! Rules between options, and the values read from a valid file.

use std::time::Duration;

use router_core::affinity::Hash;
use router_core::layered::Source;

use crate::report::{Severity, Style, render};
use crate::testing::{lines, main, peer, route};
use crate::valid::Peer;

/// The single problem of a route file.
fn only(text: &str) -> String {
    let problems = route(text).1;
    assert_eq!(problems.len(), 1, "{text}: {:?}", lines(&problems));
    lines(&problems).remove(0)
}

fn peers(text: &str) -> Vec<Peer> {
    let (mut route, problems) = route(text);
    assert!(problems.is_empty(), "{:?}", lines(&problems));
    route.pools.remove(0).peers
}

#[test]
fn a_route_has_one_kind_of_peers() {
    assert!(only("hash: crc32\n").contains("`peers` is missing"));
    assert!(only("peers: []\npeers_by_model: {m: []}\n").contains("not both"));
    assert!(only("peers:\n").contains("peers: expected a list of peers, found nothing"));
    assert!(only("peers_by_model: {}\n").contains("expected a mapping from model"));
    assert!(only("").contains("the file is empty"));
    assert!(only("- a\n").contains("expected a mapping"));
    assert!(route("peers: []\n").1.is_empty());
}

#[test]
fn state_is_kept_in_memory_and_a_url_there_is_not_shown() {
    let problems = main("state: memory\nrouts: x\n").1;
    assert_eq!(problems.len(), 1, "{:?}", lines(&problems));
    let problems = main("state: redis://u:SECRET@host:6379/0\n").1;
    let shown = render(&problems, Style::Plain);
    assert!(shown.contains("unknown key `state`") && !shown.contains("SECRET"));
}

#[test]
fn a_peer_has_one_address() {
    assert!(only("peers: [{name: a}]\n").contains("peers[0]: `address` is missing"));
    assert!(only("peers: [{address: \"a:1\", url: \"http://b\"}]\n").contains("not both"));
    assert!(only("peers: [{address: \"http://me:pw@b:1\"}]\n").contains("found a URL"));
    assert!(only("peers: [\"a:1\"]\n").contains("expected a peer"));
}

#[test]
fn a_peer_is_in_its_pool_once() {
    assert!(
        only("peers: [{address: \"a:80\"}, {url: \"http://A/x\"}]\n")
            .contains("the peer `a:80` is in this pool twice")
    );
    assert!(
        only("peers: [{address: \"a:1\", name: x}, {address: \"b:1\", name: x}]\n")
            .contains("the name `x` is in this pool twice")
    );
    let shared =
        "peers_by_model: {m: [{address: \"a:1\"}], n: [{address: \"a:1\", max_concurrency: 3}]}\n";
    assert!(
        route(shared).1.is_empty(),
        "one engine may serve two models"
    );
    let torn = "peers_by_model: {m: [{address: \"a:80\"}], n: [{url: \"http://a/x\"}]}\n";
    assert!(only(torn).contains("under another model too"));
    assert!(only("peers_by_model: {m: [], m: []}\n").contains("`m` is here twice"));
}

#[test]
fn slots_is_another_name_for_max_concurrency() {
    let both = peer("slots: 3\n  max_concurrency: 3");
    assert!(
        lines(&both)[0].contains("another name"),
        "{:?}",
        lines(&both)
    );
    let of = peers(
        "default_max: 9\npeers: [{address: \"a:1\", slots: 3}, {address: \"b:1\", max_concurrency: 4}, {address: \"c:1\"}]\n",
    );
    assert_eq!(
        of.iter().map(|p| p.max_concurrency).collect::<Vec<_>>(),
        [3, 4, 9]
    );
}

#[test]
fn no_concurrency_is_an_error_that_names_the_way() {
    let problems = peer("max_concurrency: 0");
    assert!(problems[0].is_fatal());
    assert!(
        problems[0]
            .help
            .as_deref()
            .unwrap()
            .contains("enabled: false")
    );
}

#[test]
fn a_peer_is_named_after_its_address() {
    let of =
        peers("peers: [{address: \"A:1\"}, {url: \"https://b/base\", name: cloud, gpu: 4090}]\n");
    assert_eq!(
        (&*of[0].name, of[0].key.as_str(), of[0].tls),
        ("a:1", "a:1", false)
    );
    assert_eq!(
        (
            &*of[1].name,
            of[1].key.as_str(),
            of[1].tls,
            &*of[1].base_path
        ),
        ("cloud", "b:443", true, "/base")
    );
    assert_eq!(of[1].gpu.as_deref(), Some("4090"));
}

#[test]
fn a_base_path_that_doubles_v1_is_a_warning() {
    let problems = route("peers: [{url: \"http://a/v1\"}]\n").1;
    assert_eq!(
        (problems.len(), problems[0].severity),
        (1, Severity::Warning)
    );
}

#[test]
fn expanded_scalars_are_what_they_look_like() {
    let of = peers(
        "peers: [{address: \"h:${PORT}\", max_concurrency: \"${NUMBER}\", enabled: \"${FLAG}\", api_key: \"${SECRET}\", priority: \"${X:--3}\"}]\n",
    );
    assert_eq!(
        (
            of[0].key.as_str(),
            of[0].max_concurrency,
            of[0].enabled,
            of[0].priority
        ),
        ("h:8000", 7, true, -3)
    );
    assert_eq!(of[0].api_key.as_ref().unwrap().expose(), "12345");
}

#[test]
fn a_scalar_that_is_expanded_in_part_stays_a_text() {
    assert!(only("peers: []\ndefault_max: 1${NUMBER}\n").contains("found the text `17`"));
    assert!(
        route("peers: []\nhealth_timeout: ${NUMBER}s\n")
            .1
            .is_empty()
    );
}

#[test]
fn keys_are_never_expanded() {
    assert!(only("peers: []\n\"${FLAG}\": 1\n").contains("unknown key `${FLAG}`"));
}

#[test]
fn an_empty_credential_is_an_error() {
    assert!(lines(&peer("api_key: \"${EMPTY}\""))[0].ends_with("api_key: is empty"));
    assert!(only("peers: []\napi_keys: {sk: \"${EMPTY}\"}\n").contains("the owner is empty"));
    assert!(only("peers: []\napi_keys: {\"\": x}\n").contains("a key is empty"));
}

#[test]
fn loose_booleans_are_accepted_with_a_warning() {
    for (word, value) in [
        ("yes", true),
        ("ON", true),
        ("1", true),
        ("No", false),
        ("off", false),
        ("0", false),
    ] {
        let (route, problems) = route(&format!("peers: []\ntransparent: {word}\n"));
        assert_eq!(route.options.transparent.value, value, "{word}");
        assert_eq!(route.options.transparent.source, Source::Route);
        assert_eq!(
            problems.iter().map(|p| p.severity).collect::<Vec<_>>(),
            [Severity::Warning],
            "{word}"
        );
    }
    for word in ["true", "True", "TRUE", "false"] {
        assert!(
            route(&format!("peers: []\ntransparent: {word}\n"))
                .1
                .is_empty(),
            "{word}"
        );
    }
}

#[test]
fn an_invalid_boolean_leaves_the_route_up_with_the_default_and_says_so() {
    let (route, problems) = route("peers: []\nmerge_models: perhaps\n");
    assert_eq!(
        (
            route.options.merge_models.value,
            route.options.merge_models.source
        ),
        (true, Source::DefaultInvalid)
    );
    assert_eq!(problems[0].severity, Severity::Tolerated);
    assert_eq!(problems[0].severity.as_str(), "error");
}

#[test]
fn every_option_names_its_source() {
    let (route, _) = route("peers: []\nhash: rendezvous\n");
    assert_eq!(
        (route.options.hash.value, route.options.hash.source),
        (Hash::Rendezvous, Source::Route)
    );
    assert_eq!(
        (
            route.options.default_max.value,
            route.options.default_max.source
        ),
        (20, Source::Default)
    );
}

#[test]
fn request_timeout_may_be_off() {
    let (off, problems) = route("peers: []\nrequest_timeout: off\n");
    assert!(problems.is_empty());
    assert_eq!(
        (
            off.options.request_timeout.value,
            off.options.request_timeout.source
        ),
        (None, Source::Route)
    );
    let on = route("peers: []\nrequest_timeout: 5\n").0;
    assert_eq!(
        on.options.request_timeout.value,
        Some(Duration::from_secs(5))
    );
}

#[test]
fn api_keys_tell_shared_from_open() {
    assert_eq!(route("peers: []\n").0.options.api_keys.value, None);
    let open = route("peers: []\napi_keys: {}\n").0.options.api_keys.value;
    assert!(open.unwrap().is_empty());
    assert!(
        only("peers: []\napi_keys:\n").contains("expected a mapping"),
        "nothing is not open"
    );
}

#[test]
fn a_body_limit_above_the_servers_is_capped_and_said() {
    let (route, problems) = route("peers: []\nmax_body_size: 1g\n");
    assert_eq!(route.options.max_body_size.value, 200 << 20);
    assert_eq!(problems[0].severity, Severity::Warning);
}

#[test]
fn the_ports_of_the_process_differ() {
    let problems = main("server: {listen: \"127.0.0.1:80\", admin_listen: \"127.0.0.1:80\"}\n").1;
    assert!(
        lines(&problems)[0].contains("both 127.0.0.1:80"),
        "{:?}",
        lines(&problems)
    );
    assert!(
        main("server: {listen: \"127.0.0.1:0\", admin_listen: \"127.0.0.1:0\"}\n")
            .1
            .is_empty()
    );
}

#[test]
fn a_key_in_the_wrong_place_is_told_where_it_belongs() {
    let help = |text: &str| main(text).1.remove(0).help.unwrap();
    assert!(help("balance: least_conn\n").contains("under `defaults:`"));
    assert!(help("listen: 0.0.0.0:80\n").contains("under `server:`"));
    assert!(help("defaults: {peers: []}\n").contains("in a route file alone"));
}

#[test]
fn keys_of_later_features_are_unknown() {
    for key in ["prefill_pool", "decode_pool"] {
        assert!(
            only(&format!("peers: []\n{key}: 1\n")).contains("unknown key"),
            "{key}"
        );
    }
    assert!(lines(&main("state: x\n").1)[0].contains("unknown key"));
}

#[test]
fn an_unknown_key_that_resembles_none_names_the_nearest_all_the_same() {
    let line = only("peers: []\ntimeout: 5s\n");
    assert!(
        line.contains("; the nearest known key is `wait_timeout`"),
        "{line}"
    );
    let long = "z".repeat(65);
    let line = only(&format!("peers: []\n{long}: 1\n"));
    assert!(!line.contains("nearest"), "{line}");
}

#[test]
fn an_empty_section_is_an_empty_one() {
    assert!(main("server:\nkeys:\ndefaults:\n").1.is_empty());
    assert!(main("").1.is_empty());
    assert!(
        lines(&main("server: 5\n").1)[0]
            .contains("server: expected a mapping, found the number `5`")
    );
    let keys = &main("keys: /etc/keys\n").1[0];
    assert_eq!(
        keys.help.as_deref(),
        Some("known keys here: file, on_missing")
    );
}

#[test]
fn paths_of_the_main_file_are_beside_it() {
    let text = "server: {admin_token_file: token}\nkeys: {file: keys}\nroutes: /abs\n";
    let of = main(text).0;
    assert_eq!(of.keys.file.to_str(), Some("keys"));
    assert_eq!(of.routes_dir.to_str(), Some("/abs"));
}

#[test]
fn problems_are_bounded() {
    let text: String = (0..1000).map(|i| format!("zz{i}: 1\n")).collect();
    let problems = route(&format!("peers: []\n{text}")).1;
    assert_eq!(problems.len(), 201);
    assert!(
        problems
            .last()
            .unwrap()
            .message
            .contains("800 more problems")
    );
}

#[test]
fn tls_of_the_body_log_is_off_until_it_is_on_and_a_certificate_has_a_key() {
    let (file, problems) = main("bodylog: {listener: 'h:1'}\n");
    assert!(problems.is_empty() && file.bodylog.tls.is_none());
    let text = "bodylog: {listener: 'h:1', tls: true, tls_ca_file: ca.pem, tls_cert_file: c.pem, tls_key_file: k.pem}\n";
    let (file, problems) = main(text);
    assert!(problems.is_empty(), "{:?}", lines(&problems));
    let tls = file.bodylog.tls.unwrap();
    assert!(tls.ca_file.is_some_and(|file| file.ends_with("ca.pem")));
    let (cert, key) = tls.identity.unwrap();
    assert!(cert.ends_with("c.pem") && key.ends_with("k.pem"));

    let problems = main("bodylog: {tls: true, tls_cert_file: c.pem}\n").1;
    assert_eq!(
        lines(&problems),
        ["error bodylog: `tls_cert_file` needs `tls_key_file` beside it"]
    );
}
