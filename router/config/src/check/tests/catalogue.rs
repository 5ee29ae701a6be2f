//! Tests every option of every file against every error that an option can have.

use crate::options::{
    BODYLOG_SECTION, BODYLOG_SPOOL, CORS, DEFAULTABLE, FINDINGS, KEYS, Kind, MAIN, Meta, PEER,
    ROUTE, SERVER,
};
use crate::report::{Problem, Severity};
use crate::testing::{lines, main, peer, route};

/// Checks a text at the place of an option.
type Check = fn(&str) -> Vec<Problem>;

fn in_route(text: &str) -> Vec<Problem> {
    route(&format!("peers: []\n{text}\n")).1
}

fn in_peer(text: &str) -> Vec<Problem> {
    peer(&text.replace('\n', "\n  "))
}

fn in_server(text: &str) -> Vec<Problem> {
    main(&format!("server:\n  {}\n", text.replace('\n', "\n  "))).1
}

fn in_findings(text: &str) -> Vec<Problem> {
    in_server(&format!("findings:\n  {}", text.replace('\n', "\n  ")))
}

fn in_cors(text: &str) -> Vec<Problem> {
    in_server(&format!("cors:\n  {}", text.replace('\n', "\n  ")))
}

fn in_keys(text: &str) -> Vec<Problem> {
    main(&format!("keys:\n  {}\n", text.replace('\n', "\n  "))).1
}

fn in_bodylog(text: &str) -> Vec<Problem> {
    main(&format!("bodylog:\n  {}\n", text.replace('\n', "\n  "))).1
}

fn in_spool(text: &str) -> Vec<Problem> {
    in_bodylog(&format!("spool:\n  {}", text.replace('\n', "\n  ")))
}

fn in_defaults(text: &str) -> Vec<Problem> {
    main(&format!("defaults:\n  {}\n", text.replace('\n', "\n  "))).1
}

fn keys_of(section: &Meta) -> &'static [&'static Meta] {
    match section.kind {
        Kind::Section(keys) => keys(),
        _ => &[],
    }
}

/// Every key with a value of its own, and its place.
fn every() -> Vec<(&'static str, &'static Meta, Check)> {
    let places: [(&str, &[&'static Meta], Check); 9] = [
        ("route", &ROUTE, in_route),
        ("peer", PEER, in_peer),
        ("server", keys_of(&SERVER), in_server),
        ("findings", keys_of(&FINDINGS), in_findings),
        ("cors", keys_of(&CORS), in_cors),
        ("keys", keys_of(&KEYS), in_keys),
        ("defaults", &DEFAULTABLE, in_defaults),
        ("bodylog", keys_of(&BODYLOG_SECTION), in_bodylog),
        ("spool", keys_of(&BODYLOG_SPOOL), in_spool),
    ];
    places
        .into_iter()
        .flat_map(|(place, keys, check)| keys.iter().map(move |meta| (place, *meta, check)))
        // These keys have rules about combinations, which the tests of those rules cover.
        .filter(|(_, meta, _)| {
            let together = ["peers", "peers_by_model", "address", "url"];
            !together.contains(&meta.key) && !meta.key.starts_with("tls_")
        })
        .collect()
}

/// A value that every kind of option rejects.
fn wrong_type(kind: &Kind) -> &'static str {
    match kind {
        Kind::ApiKeys
        | Kind::Aliases
        | Kind::Thresholds(_)
        | Kind::Eject
        | Kind::HealthCheck
        | Kind::PeersFrom
        | Kind::Owners
        | Kind::Section(_) => "[1, 2]",
        _ => "{a: 1}",
    }
}

/// Values of the right type that are out of range or not among the allowed words.
fn out_of_range(kind: &Kind) -> Vec<&'static str> {
    match *kind {
        Kind::Bool => vec!["maybe", "2", "\"\"", "~"],
        Kind::Whole { min, .. } => {
            let zero = if min == 0 { "-0" } else { "0" };
            vec![
                zero,
                "-1",
                "1.5",
                "1000001",
                "99999999999999999999",
                "\"5\"",
                "0x10",
                "five",
                "~",
                "true",
            ]
        }
        Kind::Integer => vec!["1.5", "99999999999999999999", "high", "~", "\"1\""],
        Kind::WholeOrAuto { .. } => vec![
            "0", "-1", "1.5", "1000001", "\"5\"", "five", "~", "true", "off",
        ],
        Kind::PageUrl => vec!["h:1/metrics", "ftp://h/x", "http://u:p@h/x", "~", "5"],
        Kind::WholeOrOff { .. } => vec!["0", "-1", "1.5", "1000001", "\"5\"", "five", "~", "true"],
        Kind::Number(_) => vec![
            "-1", ".nan", ".inf", "1000001", "1e400", "\"1\"", "much", "~", "off",
        ],
        Kind::NumberOrOff(_) => vec![
            "0", "-1", ".nan", ".inf", "1e400", "\"1\"", "much", "~", "on",
        ],
        Kind::Thresholds(_) => vec![
            "5",
            "off",
            "~",
            "{m: 0}",
            "{m: -1}",
            "{m: off}",
            "{m: \"5\"}",
            "{m: [5]}",
            "{m: 5, m: 5}",
        ],
        Kind::Eject => vec![
            "5",
            "on",
            "~",
            "{consecutive: 0}",
            "{share: 0}",
            "{share: 1.5}",
            "{window: off}",
            "{time: 0s}",
            "{max_share: half}",
        ],
        Kind::Owners => vec![
            "5",
            "[a]",
            "{a: 5}",
            "{a: {max_concurrency: 0}}",
            "{a: {requests_per_minute: many}}",
        ],
        Kind::PeersFrom => vec![
            "5",
            "engines.json",
            "{}",
            "{file: a, dns: {name: b, port: 1}}",
            "{dns: {name: a}}",
            "{dns: {name: a, port: 0}}",
            "{dns: {name: a, port: 1, refresh: 1ms}}",
        ],
        Kind::HealthCheck => vec![
            "5",
            "on",
            "~",
            "{kind: models}",
            "{idle: 0s}",
            "{timeout: off}",
            "{api: chats}",
            "{model: []}",
        ],
        Kind::Metrics => vec![
            "5",
            "~",
            "on",
            "[5]",
            "[{}]",
            "[{metric: p95, threshold: 5}]",
            "[{metric: p95, q: 0, threshold: 5}]",
            "[{metric: p95, q: 1, threshold: 5}]",
            "[{metric: p95, q: .95}]",
            "[{metric: avg, threshold: -1}]",
            "[{metric: \"\", q: .5, threshold: 5}]",
            "[{metric: avg, threshold: 5, unit: ms}]",
            "[{metric: avg, threshold: 5}, {metric: avg, threshold: 6}]",
        ],
        Kind::Buckets => vec![
            "5",
            "~",
            "[5]",
            "[[1, 1]]",
            "[[1, .5, 1, 1]]",
            "[[2, .5, 1]]",
            "[[1, 0, 1]]",
            "[[1, 1.1, 1]]",
            "[[1, .5, .9]]",
            "[[1, .5, 1], [1, 1, 1]]",
            "[[1, .5, 1], [4, 1, 1], [3, 1, 1]]",
            "[[1, .5, 1.6]]",
            "[{min_turn: 1, share: .5}]",
            "[{min_turn: 1, share: .5, tol: 1, name: x}]",
        ],
        Kind::Bodies => vec![
            "all",
            "~",
            "5",
            "truncate",
            "truncate()",
            "truncate(0)",
            "truncate(x)",
            "[full]",
        ],
        Kind::BodyPaths => vec!["messages", "~", "[\"\"]", "[a..b]", "[\".a\"]", "[[a]]"],
        Kind::Address => vec!["h", "h:0", "h:99999", "\"http://h:1\"", "5", "[x]"],
        Kind::Duration { off, .. } => {
            let mut bad = vec![
                "-1s", "1d", "5 s", ".nan", ".inf", "soon", "~", "99999h", "1e3", "[1s]",
            ];
            bad.extend((!off).then_some("off"));
            bad
        }
        Kind::Size { .. } => vec![
            "0",
            "-1",
            "10mb",
            "1.5g",
            "big",
            "~",
            "9999999t",
            "18446744073709551616",
        ],
        Kind::Choice(_) => vec!["nonsense", "\"\"", "~", "5", "[x]"],
        Kind::Status(_) => vec!["200", "42", "\"429\"", "too many", "~"],
        Kind::Text | Kind::Secret => vec!["\"\"", "\" \"", "~", "true", "[x]"],
        Kind::File => vec!["\"\"", "\" \"", "true", "[x]"],
        Kind::Listen => vec![
            "8080",
            ":8080",
            "localhost:80",
            "1.2.3.4",
            "1.2.3.4:99999",
            "::1:80",
            "~",
        ],
        Kind::Cidrs => vec!["10.0.0.0/8", "[10.0.0.0/33]", "[x]", "[\"\"]", "[[]]", "~"],
        Kind::Routes => vec!["r", "[Chat]", "[v1]", "[a, a]", "[\"\"]", "[[]]", "~"],
        Kind::Origins => vec!["https://h", "[h]", "[https://h/]", "[\"\"]", "[[]]", "~"],
        Kind::RouteName => vec!["Chat", "v1", "-a", "\"a b\"", "\"\"", "[x]", "healthz"],
        Kind::UrlPath => vec![
            "health",
            "\"\"",
            "\"/a b\"",
            "/../x",
            "http://h/x",
            "~",
            "\"/a#b\"",
        ],
        Kind::Prefixes => vec![
            "/x", "[x]", "[/]", "[/v1]", "[/v1/x]", "[/_x]", "[\"\"]", "[{a: 1}]", "~",
        ],
        Kind::SessionSources => vec![
            "user",
            "[\"header:\"]",
            "[x-id]",
            "[\"a..b\"]",
            "[user, user]",
            "[[user]]",
            "~",
        ],
        Kind::Aliases => vec![
            "~",
            "m",
            "[m]",
            "{a: \"\"}",
            "{a: ~}",
            "{a: [b]}",
            "{a: a}",
            "{a: b, b: a}",
            "{'*x*': b}",
            "{a: 'b*'}",
        ],
        Kind::Rules => vec!["~", "x", "[x]", "[{}]", "[{field: a, op: eq}]"],
        Kind::ApiKeys => vec![
            "~",
            "sk",
            "{\"\": x}",
            "{sk: \"\"}",
            "{sk: ~}",
            "{sk: [x]}",
            "{\"a b\": x}",
            "{\"sha256:12\": x}",
        ],
        _ => vec![],
    }
}

#[test]
fn a_wrong_type_is_an_error_at_the_key() {
    for (place, meta, check) in every() {
        let problems = check(&format!("{}: {}", meta.key, wrong_type(&meta.kind)));
        let at_key = problems
            .iter()
            .filter(|p| p.severity != Severity::Warning && p.key.ends_with(meta.key))
            .count();
        assert_eq!(at_key, 1, "{place} {}: {:?}", meta.key, lines(&problems));
        assert!(
            problems[0].message.contains("expected"),
            "{place} {}: {}",
            meta.key,
            problems[0].message
        );
    }
}

#[test]
fn a_value_out_of_range_is_an_error_at_the_key() {
    for (place, meta, check) in every() {
        // Null is a valid value of these two.
        let nullable = |value: &str| value == "~" && meta.default == "null";
        for value in out_of_range(&meta.kind)
            .into_iter()
            .filter(|value| !nullable(value))
        {
            let problems = check(&format!("{}: {value}", meta.key));
            let errors: Vec<_> = problems
                .iter()
                .filter(|p| p.severity != Severity::Warning)
                .collect();
            assert!(
                !errors.is_empty(),
                "{place} {}: {value} is accepted",
                meta.key
            );
            assert!(
                errors.iter().all(|p| p.key.contains(meta.key)),
                "{place} {}: {:?}",
                meta.key,
                lines(&problems)
            );
        }
    }
}

#[test]
fn only_a_boolean_a_rule_and_a_gate_are_forgiven() {
    for (place, meta, check) in every() {
        let problems = check(&format!("{}: {}", meta.key, wrong_type(&meta.kind)));
        let forgiven = problems.iter().all(|p| !p.is_fatal());
        assert_eq!(
            forgiven,
            meta.is_of_a_gate() || matches!(meta.kind, Kind::Bool | Kind::Rules),
            "{place} {}: {:?}",
            meta.key,
            lines(&problems)
        );
    }
}

#[test]
fn a_second_time_is_an_error_that_names_both_places() {
    for (place, meta, check) in every() {
        let value = good(meta);
        let problems = check(&format!("{}: {value}\n{}: {value}", meta.key, meta.key));
        let twice = problems.iter().find(|p| p.message.contains("twice"));
        let twice = twice.unwrap_or_else(|| panic!("{place} {}: {:?}", meta.key, lines(&problems)));
        assert_eq!(twice.labels.len(), 1, "{place} {}", meta.key);
        assert!(
            twice.labels[0].span.end <= twice.span.as_ref().unwrap().start,
            "{place} {}",
            meta.key
        );
    }
}

#[test]
fn an_undefined_variable_is_an_error_that_names_it_and_nothing_else() {
    for (place, meta, check) in every() {
        let value = match meta.kind {
            Kind::Cidrs | Kind::Origins | Kind::Routes | Kind::Prefixes | Kind::SessionSources => {
                "[\"${NOPE}\"]"
            }
            Kind::ApiKeys => "{sk: \"${NOPE}\"}",
            _ => "${NOPE}",
        };
        let problems = check(&format!("{}: {value}", meta.key));
        assert_eq!(
            problems.len(),
            1,
            "{place} {}: {:?}",
            meta.key,
            lines(&problems)
        );
        assert!(problems[0].is_fatal() && problems[0].message.contains("`NOPE` is not set"));
        assert!(
            problems[0].key.contains(meta.key),
            "{place} {}: {}",
            meta.key,
            problems[0].key
        );
    }
}

#[test]
fn a_misspelt_key_is_an_error_that_names_the_nearest() {
    for (place, meta, check) in every() {
        let mut key = meta.key.to_owned();
        key.insert(2, 'q');
        let problems = check(&format!("{key}: 1"));
        let unknown = problems
            .iter()
            .find(|p| p.message.contains(&format!("unknown key `{key}`")));
        let unknown = unknown.unwrap_or_else(|| panic!("{place} {key}: {:?}", lines(&problems)));
        assert!(
            unknown
                .message
                .contains(&format!("did you mean `{}`?", meta.key)),
            "{place}: {}",
            unknown.message
        );
    }
}

#[test]
fn a_good_value_and_every_built_in_default_are_accepted() {
    for (place, meta, check) in every() {
        for value in [
            Some(good(meta)),
            meta.has_literal_default().then_some(meta.default),
        ]
        .into_iter()
        .flatten()
        {
            let problems = check(&format!("{}: {value}", meta.key));
            assert!(
                problems.is_empty(),
                "{place} {}: {value}: {:?}",
                meta.key,
                lines(&problems)
            );
        }
    }
    for meta in MAIN {
        let problems = main(&format!("{}: {}\n", meta.key, meta.default)).1;
        assert!(problems.is_empty(), "{}: {:?}", meta.key, lines(&problems));
    }
}

/// A valid value of the option's kind.
fn good(meta: &Meta) -> &'static str {
    match meta.kind {
        // When this option is on, it needs a threshold.
        Kind::Bool if meta.key == "adaptive_cc" => "false",
        Kind::Bool => "true",
        Kind::Whole { min: 400, .. } => "413",
        Kind::Whole { .. } | Kind::Integer => "7",
        Kind::WholeOrOff { .. } | Kind::WholeOrAuto { .. } => "7",
        Kind::PageUrl => "http://h:9/metrics?model=m",
        Kind::Number(bounds) | Kind::NumberOrOff(bounds) => {
            if bounds.contain(0.8) {
                "0.8"
            } else {
                "1.5"
            }
        }
        Kind::Metrics => "[{metric: avg, threshold: 0}, {metric: p95, q: .95, threshold: 8000}]",
        Kind::Eject => "{consecutive: 3, time: 10s}",
        Kind::Owners => "{alice: {max_concurrency: 8}, 'team-*': {requests_per_minute: 60}}",
        Kind::PeersFrom => "{dns: {name: vllm.inference, port: 8000}}",
        Kind::HealthCheck => "{kind: generate, idle: 30s, model: m}",
        Kind::Buckets => "[[1, .5, 1], {min_turn: 2, share: 1, tol: 1.5}]",
        Kind::Bodies => "truncate(64k)",
        Kind::BodyPaths => "[messages.*.content, input.0]",
        Kind::Address => "H:9999",
        Kind::Duration { .. } => "60s",
        Kind::Size { .. } => "200m",
        Kind::Choice(words) => words()[0],
        Kind::Status(_) => "503",
        Kind::Text | Kind::Secret | Kind::File => "some-text",
        Kind::Listen => "127.0.0.1:0",
        Kind::Cidrs => "[10.0.0.0/8]",
        Kind::Origins => "[https://h:3000]",
        Kind::Routes => "[other]",
        Kind::RouteName => "a-route.1",
        Kind::UrlPath => "/health?x=1",
        Kind::Prefixes => "[/tokenize]",
        Kind::SessionSources => "[user]",
        Kind::ApiKeys => "{sk-a: bob}",
        Kind::Aliases => "{gpt-4o: qwen3, 'x-*': 'y-*'}",
        Kind::Rules => "[{field: a, op: exists}]",
        _ => "{}",
    }
}

#[test]
fn every_key_is_documented() {
    for (place, meta, _) in every() {
        assert!(
            meta.doc.ends_with('.') && !meta.default.is_empty(),
            "{place} {}",
            meta.key
        );
    }
}
