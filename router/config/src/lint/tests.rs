use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::{env, fs};

use super::CATALOGUE;
use crate::report::{Problem, Severity};
use crate::testing::{advised_main, advised_route};
use crate::{Env, RoutesAt, Sources, load};

/// The file that describes the warnings. `UPDATE_DOCS=1` rewrites its table.
const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/route-check.md");

/// The markers around the table.
const BEGIN: &str = "<!-- The table is made from the code, and a test keeps it so. -->\n";
const END: &str = "<!-- end of the table -->\n";

const PEERS: &str = "peers: [{address: a:1}, {address: b:1}]\n";

/// A warning, a route that causes it, and a similar route that does not.
const ROUTES: &[(&str, &str, &str)] = &[
    (
        "adaptive-unmoved",
        "adaptive_cc: true\n",
        "adaptive_cc: true\nttft_limit_ms: 500\n",
    ),
    (
        "affinity-unused",
        "affinity: none\nsession_sources: [\"header:x-chat\"]\n",
        "affinity: none\n",
    ),
    (
        "affinity-unused",
        "affinity_enabled: false\nsession_sources: [\"header:x-chat\"]\n",
        "session_sources: [\"header:x-chat\"]\n",
    ),
    (
        "ban-lapses",
        "health_ban_ttl: 15s\n",
        "health_ban_ttl: 30s\n",
    ),
    (
        "ban-lapses",
        "health_check_interval: 10m\n",
        "health_check_interval: 1m\n",
    ),
    (
        "hold-lapses",
        "load_signal: engine\nhold_max: 3s\n",
        "load_signal: engine\nhold_max: 4s\n",
    ),
    (
        "hold-lapses",
        "load_signal: engine\nstale_after: 60s\n",
        "load_signal: engine\nstale_after: 60s\nstale_policy: exclude\n",
    ),
    (
        "rule-never-matches",
        "reject_rules: [{all: [{field: max_tokens, op: gt, value: 9}, {field: max_tokens, op: lt, value: 5}]}]\n",
        "reject_rules: [{all: [{field: max_tokens, op: gt, value: 5}, {field: max_tokens, op: lt, value: 9}]}]\n",
    ),
    (
        "rule-shadowed",
        "reject_rules: [{field: max_tokens, op: gt, value: 5}, {field: max_tokens, op: gt, value: 9}]\n",
        "reject_rules: [{field: max_tokens, op: gt, value: 9}, {field: max_tokens, op: gt, value: 5}]\n",
    ),
    (
        "rules-off",
        "reject_rules: [{field: stream, op: exists}]\nreject_rules_enabled: false\n",
        "reject_rules: [{field: stream, op: exists}]\n",
    ),
    (
        "session-ttl-short",
        "affinity: sticky_least_loaded\nsession_ttl: 10s\n",
        "affinity: sticky_least_loaded\nsession_ttl: 0\n",
    ),
    (
        "session-ttl-short",
        "affinity: sticky_least_loaded\nsession_ttl: 5m\nrequest_timeout: 10m\n",
        "affinity: sticky_least_loaded\nsession_ttl: 20m\nrequest_timeout: 10m\n",
    ),
    (
        "stale-budget",
        "load_signal: engine\nstale_after: 2s\n",
        "load_signal: engine\nstale_after: 3s\n",
    ),
    (
        "stale-budget",
        "load_signal: engine\npoll_interval: 5s\n",
        "load_signal: engine\npoll_interval: 5s\nstale_after: 10s\n",
    ),
    (
        "unused-option",
        "wait_max: 5\n",
        "full_policy: wait\nwait_max: 5\n",
    ),
    (
        "unused-option",
        "session_ttl: 1h\n",
        "affinity: sticky_least_loaded\nsession_ttl: 1h\n",
    ),
    (
        "unused-option",
        "affinity: none\nhash: rendezvous\n",
        "hash: crc32\n",
    ),
    (
        "unused-option",
        "poll_interval: 2s\n",
        "load_signal: in_flight\n",
    ),
    (
        "unused-option",
        "normalize: slots\n",
        "balance: least_busy\nnormalize: slots\n",
    ),
    (
        "unused-option",
        "adaptive_cc_dec: .9\n",
        "adaptive_cc: true\ntps_limit_tps: 20\nadaptive_cc_dec: .9\n",
    ),
    (
        "unused-option",
        "cross_tier_fallback: true\n",
        "max_more_tries: 1\n",
    ),
    (
        "unused-option",
        "full_policy: overflow\nfull_status: 503\n",
        "full_status: 503\n",
    ),
    (
        "unused-option",
        "reject_rules_status: 400\n",
        "reject_rules: []\n",
    ),
    (
        "unused-option",
        "pin_fallback: none\n",
        "pin_model: true\npin_fallback: none\n",
    ),
];

/// The same for files with their own peers.
const PEER_FILES: &[(&str, &str, &str)] = &[
    (
        "unreachable-tier",
        "peers: [{address: a:1, priority: 1}, {address: b:1, enabled: false}]\n",
        "peers: [{address: a:1, priority: 1}, {address: b:1}, {address: c:1, enabled: false}]\n",
    ),
    (
        "unreachable-tier",
        "peers_by_model: {m: [{address: a:1, enabled: false}]}\n",
        "peers_by_model: {m: [{address: a:1}]}\n",
    ),
    (
        "unused-weight",
        "peers: [{address: a:1, weight: 2}, {address: b:1}]\n",
        "balance: least_busy\npeers: [{address: a:1, weight: 2}, {address: b:1}]\n",
    ),
    (
        "unused-weight",
        "balance: least_busy\npeers: [{address: a:1, weight: 2}, {address: b:1, weight: 2}]\n",
        "balance: least_busy\npeers: [{address: a:1}, {address: b:1}]\n",
    ),
    (
        "unequal-slots",
        "balance: least_busy\npeers: [{address: a:1, slots: 2}, {address: b:1, slots: 8}]\n",
        "balance: least_busy\nnormalize: slots\npeers: [{address: a:1, slots: 2}, {address: b:1, slots: 8}]\n",
    ),
    (
        "unequal-slots",
        "balance: idle_aware\npeers: [{address: a:1, slots: 4}, {address: b:1, slots: 8}]\n",
        "peers: [{address: a:1, slots: 4}, {address: b:1, slots: 8}]\n",
    ),
    (
        "split-role",
        "peers: [{address: a:1}, {address: b:1, role: prefill}]\n",
        "peers: [{address: a:1}, {address: b:1, role: regular}]\n",
    ),
    (
        "doubled-v1",
        "peers: [{url: \"http://a:1/v1\"}]\n",
        "peers: [{url: \"http://a:1/base\"}]\n",
    ),
    (
        "loose-boolean",
        "merge_models: no\npeers: [{address: a:1}]\n",
        "merge_models: false\npeers: [{address: a:1}]\n",
    ),
    (
        "polled-anyway",
        "balance: least_busy\nload_signal: in_flight\npeers: [{address: a:1}]\n",
        "balance: least_busy\nload_signal: engine\npeers: [{address: a:1}]\n",
    ),
    (
        "bound-above-peers",
        "adaptive_cc: true\ntps_limit_tps: 20\nadaptive_cc_min: 50\npeers: [{address: a:1}]\n",
        "adaptive_cc: true\ntps_limit_tps: 20\nadaptive_cc_min: 5\npeers: [{address: a:1}]\n",
    ),
    (
        "limit-of-no-model",
        "ttft_limit_by_model: {mm: 5}\npeers_by_model: {m: [{address: a:1}]}\n",
        "ttft_limit_by_model: {m: 5}\npeers_by_model: {m: [{address: a:1}]}\n",
    ),
    (
        "capped-by-server",
        "max_body_size: 1g\npeers: [{address: a:1}]\n",
        "max_body_size: 1m\npeers: [{address: a:1}]\n",
    ),
];

/// The same for main files.
const MAINS: &[(&str, &str, &str)] = &[
    (
        "drain-cuts",
        "server: {request_timeout: 20m}\n",
        "server: {request_timeout: 5m}\n",
    ),
    (
        "drain-cuts",
        "server: {request_timeout: 5m, drain_timeout: 1m}\n",
        "server: {drain_timeout: 1m}\n",
    ),
    (
        "body-never-accepted",
        "server: {max_body_size: 10m, max_buffered_bytes: 5m}\n",
        "server: {max_body_size: 10m, max_buffered_bytes: 50m}\n",
    ),
    (
        "tls-off",
        "bodylog: {tls_ca_file: ca.pem}\n",
        "bodylog: {tls_ca_file: ca.pem, tls: true}\n",
    ),
    (
        "tls-off",
        "bodylog: {tls: false, tls_cert_file: a.pem, tls_key_file: b.pem}\n",
        "bodylog: {tls: false, tls_cert_file: null}\n",
    ),
];

/// Codes that the tests of whole directories cover.
const ELSEWHERE: [&str; 4] = [
    "key-file-open",
    "ignored-file",
    "no-routes-directory",
    "ttl-variable",
];

fn codes(problems: &[Problem]) -> Vec<&'static str> {
    assert!(
        problems.iter().all(|p| p.severity == Severity::Warning),
        "{problems:?}"
    );
    problems
        .iter()
        .map(|p| p.code.expect("a warning has a code"))
        .collect()
}

/// Every pair, with the warnings of each file.
fn told() -> Vec<(&'static str, Vec<Problem>, Vec<Problem>)> {
    let mut told = Vec::new();
    for (code, unwise, wise) in ROUTES {
        let advised = |text: &str| advised_route(&format!("{PEERS}{text}"));
        told.push((*code, advised(unwise), advised(wise)));
    }
    for (code, unwise, wise) in PEER_FILES {
        told.push((*code, advised_route(unwise), advised_route(wise)));
    }
    for (code, unwise, wise) in MAINS {
        told.push((*code, advised_main(unwise), advised_main(wise)));
    }
    told
}

#[test]
fn each_unwise_file_earns_its_warning_and_the_wise_one_next_to_it_does_not() {
    for (code, unwise, wise) in told() {
        assert!(codes(&unwise).contains(&code), "{code}: {unwise:?}");
        assert!(!codes(&wise).contains(&code), "{code}: {wise:?}");
    }
}

#[test]
fn every_warning_is_in_the_catalogue_and_has_a_test() {
    let catalogue: BTreeSet<_> = CATALOGUE.iter().map(|advice| advice.code).collect();
    let mut seen: BTreeSet<_> = told().iter().map(|(code, ..)| *code).collect();
    seen.extend(ELSEWHERE);
    assert_eq!(seen, catalogue);
    assert!(CATALOGUE.is_sorted_by_key(|advice| advice.code));
}

#[test]
fn an_option_written_as_its_default_misleads_nobody() {
    let file = "peers: [{address: a:1, weight: 1}]\nwait_max: 1024\nnormalize: off\nadaptive_cc_min: off\n";
    assert_eq!(codes(&advised_route(file)), [""; 0]);
}

#[test]
fn a_warning_points_at_its_key() {
    let problems = advised_route(&format!("{PEERS}wait_max: 5\n"));
    assert_eq!(problems[0].position(), (2, 11));
    assert_eq!(
        problems[0].title(),
        "wait_max: does nothing without `full_policy: wait`"
    );
    let problems = advised_main("server: {request_timeout: 20m}\n");
    assert_eq!(problems[0].key, "server.request_timeout");
}

/// Makes a directory with a main file, a route and a key file, and returns the result of a check
/// with warnings.
fn whole(mode: u32) -> Vec<Problem> {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    fs::create_dir(at("routes")).unwrap();
    fs::write(at("routes/r.yaml"), PEERS).unwrap();
    fs::write(at("keys"), "sk-a:x\n").unwrap();
    fs::set_permissions(at("keys"), fs::Permissions::from_mode(mode)).unwrap();
    fs::write(at("router.yaml"), "keys: {file: keys}\n").unwrap();
    let sources = Sources {
        config: Some(at("router.yaml")),
        routes: RoutesAt::Main,
        env: Env::fixed([] as [(&str, &str); 0]),
        advise: true,
    };
    load(&sources).problems
}

#[test]
fn a_key_file_that_others_may_read_is_warned_of() {
    assert_eq!(codes(&whole(0o644)), ["key-file-open"]);
    assert_eq!(codes(&whole(0o640)), [""; 0]);
}

#[test]
fn a_router_that_loads_files_gives_no_advice() {
    let directory = tempfile::tempdir().unwrap();
    let route = directory.path().join("r.yaml");
    fs::write(&route, format!("{PEERS}wait_max: 5\n")).unwrap();
    let said = |advise| {
        let sources = Sources {
            config: None,
            routes: RoutesAt::Files(vec![route.clone()]),
            env: Env::fixed([] as [(&str, &str); 0]),
            advise,
        };
        let problems = load(&sources).problems;
        problems.iter().filter(|p| p.path() == route).count()
    };
    assert_eq!((said(false), said(true)), (0, 1));
}

/// The table for the docs.
fn table() -> String {
    let mut table = "| code | said by | meaning |\n|---|---|---|\n".to_owned();
    for advice in CATALOGUE {
        let by = if advice.also_at_load {
            "every load"
        } else {
            "the check"
        };
        table.push_str(&format!(
            "| `{}` | {by} | {} |\n",
            advice.code, advice.sentence
        ));
    }
    table
}

#[test]
fn the_docs_hold_every_warning() {
    let kept = fs::read_to_string(PATH).unwrap_or_default();
    let begin = kept
        .find(BEGIN)
        .expect("the docs have a place for the table")
        + BEGIN.len();
    let end = kept.find(END).expect("the table has an end");
    if env::var_os("UPDATE_DOCS").is_some() {
        fs::write(
            PATH,
            format!("{}{}{}", &kept[..begin], table(), &kept[end..]),
        )
        .unwrap();
        return;
    }
    assert!(
        kept[begin..end] == table(),
        "docs/route-check.md is behind the code; run this test with UPDATE_DOCS=1"
    );
}
