//! The load gates and the body log: combinations, tables and layers.

use router_core::layered::Source;
use router_core::signal::Statistic;

use crate::report::{Problem, Severity};
use crate::testing::{lines, main, route};
use crate::valid::{Bodies, RouteOptions};

const PEERS: &str = "peers: [{address: \"a:1\", max_concurrency: 8}, {address: \"b:1\", max_concurrency: 4, priority: 1}]\n";

/// The problems of a route with these lines.
fn said(text: &str) -> Vec<String> {
    lines(&route(&format!("{PEERS}{text}\n")).1)
}

fn options(text: &str) -> RouteOptions {
    let (route, problems) = route(&format!("{PEERS}{text}\n"));
    assert!(problems.is_empty(), "{text}: {:?}", lines(&problems));
    route.options
}

#[test]
fn combinations_that_cannot_work_are_errors_with_the_reason() {
    let cases = [
        (
            "adaptive_cc: true",
            "warning adaptive_cc: nothing moves the limit: neither TTFT nor the decode rate has a threshold",
        ),
        (
            "adaptive_cc: true\nttft_limit_ms: 5\nadaptive_cc_use_ttft: false",
            "warning adaptive_cc: nothing moves the limit: `adaptive_cc_use_ttft` is off",
        ),
        (
            "adaptive_cc: true\nttft_limit_ms: off",
            "warning adaptive_cc: nothing moves the limit",
        ),
        (
            "adaptive_cc_slack_frac: .9",
            "error adaptive_cc_slack_frac: `adaptive_cc_slack_frac` is 0.9, not below `adaptive_cc_pressure_frac`, 0.9",
        ),
        (
            "adaptive_cc_pressure_frac: .5",
            "error adaptive_cc_pressure_frac: `adaptive_cc_slack_frac` is 0.7, not below",
        ),
        (
            "adaptive_cc_min: 5\nadaptive_cc_init: 4",
            "error adaptive_cc_min: `adaptive_cc_min` is 5, above `adaptive_cc_init`, 4",
        ),
        (
            "adaptive_cc_init_frac: .3",
            "error adaptive_cc_init_frac: `adaptive_cc_min_frac` is 0.4, above `adaptive_cc_init_frac`, 0.3",
        ),
        (
            "ttft_ttl: 5s",
            "error ttft_ttl: `ttft_ttl` is 5s, shorter than `ttft_window`",
        ),
        (
            "tps_window: 2m",
            "error tps_window: `tps_ttl` is 1m, shorter than `tps_window`",
        ),
        (
            "session_prio_table: [[2, 1, 1]]",
            "error session_prio_table[0]: the first bucket starts at turn 1",
        ),
        (
            "session_prio_table: [[1, .5, 1], [4, .8, 1], [4, 1, 1]]",
            "error session_prio_table[2]: buckets ascend: turn 4 does not come after 4",
        ),
        (
            "session_prio_table: [[1, .5, 1], [4, 1, 3]]",
            "error session_prio_table: the bucket of turn 4 has the tolerance 3, above `session_prio_severe`, 1.5",
        ),
        (
            "session_prio_table: [[1, 1.5, 1]]",
            "error session_prio_table[0][1]: expected a number above 0 and at most 1",
        ),
        (
            "ttft_metrics: [{metric: p95, q: 95, threshold: 5}]",
            "error ttft_metrics[0].q: expected a number above 0 and below 1, found the number `95`",
        ),
        (
            "tps_metrics: [{metric: p95, q: .05, threshold: 5}, {metric: p95, q: .1, threshold: 5}]",
            "error tps_metrics[1]: the metric `p95` is in this table already",
        ),
        (
            "ttft_metrics: [{metric: p95, threshold: 5}]",
            "error ttft_metrics[0]: `q` is missing",
        ),
    ];
    for (text, expected) in cases {
        let said = said(text);
        assert!(
            said.len() == 1 && said[0].starts_with(expected),
            "{text}: {said:?}"
        );
    }
}

#[test]
fn an_adaptive_limit_that_nothing_moves_is_off_and_the_route_serves() {
    let (route, problems) = route(&format!("{PEERS}adaptive_cc: true\n"));
    assert!(!problems.iter().any(Problem::is_error));
    let enabled = route.options.adaptive.enabled;
    assert_eq!(
        (enabled.value, enabled.source),
        (false, Source::DefaultInvalid)
    );
}

#[test]
fn either_signal_alone_is_enough_for_the_adaptive_limit() {
    for signal in [
        "ttft_limit_ms: 5000",
        "tps_limit_tps: 20",
        "ttft_metrics: [{metric: avg, threshold: 5}]",
        "tps_metrics: [{metric: avg, threshold: 5}]\nadaptive_cc_use_ttft: false",
    ] {
        assert!(
            options(&format!("adaptive_cc: true\n{signal}"))
                .adaptive
                .enabled
                .value
        );
    }
}

#[test]
fn bounds_beyond_the_peers_are_a_warning() {
    let problems = route(&format!("{PEERS}adaptive_cc_min: 9\n")).1;
    assert_eq!(problems.len(), 1, "{:?}", lines(&problems));
    assert_eq!(problems[0].severity, Severity::Warning);
    assert!(
        problems[0].message.contains("8 is in force"),
        "the largest tier is the static maximum: {}",
        problems[0].message
    );
}

#[test]
fn a_threshold_of_a_model_that_is_not_there_is_a_warning() {
    let problems =
        route("peers_by_model: {glm-4: []}\nttft_limit_by_model: {glm4: 5, glm-4: 6}\n").1;
    assert_eq!(
        lines(&problems),
        [
            "warning ttft_limit_by_model: no model of this route is named `glm4`; did you mean `glm-4`?"
        ]
    );
}

#[test]
fn tables_are_read_in_both_spellings() {
    let options = options(
        "ttft_metrics: [{metric: avg, q: .5, threshold: 9}, {metric: p80, q: .8, threshold: 0}]\n\
         session_prio_table: [[1, .5, 1], {min_turn: 3, share: 1, tol: 1.5}]",
    );
    let metrics = options.ttft.metrics.value.unwrap();
    assert_eq!(
        metrics
            .iter()
            .map(|m| (&*m.name, m.statistic))
            .collect::<Vec<_>>(),
        [("avg", Statistic::Mean), ("p80", Statistic::Quantile(0.8))]
    );
    let buckets = options.priority.table.value.unwrap();
    assert_eq!(
        buckets
            .iter()
            .map(|b| (b.min_turn, b.share, b.tol))
            .collect::<Vec<_>>(),
        [(1, 0.5, 1.0), (3, 1.0, 1.5)]
    );
}

#[test]
fn an_empty_table_is_none() {
    assert!(options("ttft_metrics: []").ttft.metrics.value.is_none());
    assert!(
        options("session_prio_table: []")
            .priority
            .table
            .value
            .is_none()
    );
}

#[test]
fn bodies_are_kept_whole_cut_or_not_at_all() {
    let of = |text: &str| {
        options(&format!("bodylog_bodies: {text}"))
            .bodylog
            .bodies
            .value
    };
    assert_eq!(of("full"), Bodies::Full);
    assert_eq!(of("none"), Bodies::None);
    assert_eq!(of("truncate(64k)"), Bodies::Truncate(64 << 10));
    for text in ["full", "none", "truncate(64k)"] {
        assert_eq!(of(text).to_string(), text);
    }
}

#[test]
fn what_defaults_holds_wrong_is_said_once_there() {
    let problems = main("defaults: {adaptive_cc_slack_frac: .95, adaptive_cc: true}\n").1;
    assert_eq!(problems.len(), 1, "{:?}", lines(&problems));
    assert_eq!(
        problems[0].key, "defaults.adaptive_cc_slack_frac",
        "a route may add the threshold that `adaptive_cc` needs"
    );
}

#[test]
fn off_in_a_route_is_a_value() {
    let off = options("ttft_limit_ms: off").ttft.limit;
    assert_eq!((off.value, off.source), (None, Source::Route));
    let unset = options("").ttft.limit;
    assert_eq!((unset.value, unset.source), (None, Source::Default));
}

#[test]
fn a_wrong_number_of_a_gate_leaves_the_route_up_with_the_safe_reading() {
    let wrong = [
        "ttft_limit_ms: soon",
        "tps_limit_tps: -1",
        "ttft_window: 0s",
        "adaptive_cc_min: 0",
        "session_prio_severe: .nan",
        "ttft_window: 60s\nttft_ttl: 30s",
        "adaptive_cc: true\nttft_limit_ms: 500\nadaptive_cc_slack_frac: .95",
        "adaptive_cc: true\nttft_limit_ms: 500\nadaptive_cc_min: 9\nadaptive_cc_init: 3",
    ];
    for text in wrong {
        let (route, problems) = route(&format!("peers: []\n{text}\n"));
        let is_tolerated = |problem: &Problem| problem.severity == Severity::Tolerated;
        assert!(
            !problems.is_empty() && problems.iter().all(is_tolerated),
            "{text}: {:?}",
            lines(&problems)
        );
        let options = &route.options;
        assert!(!options.adaptive.enabled.value, "{text}");
        assert!(
            options.ttft.ttl.value >= options.ttft.window.value,
            "{text}"
        );
    }
}
