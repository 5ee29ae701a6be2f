//! The page as a strict reader sees it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use prometheus_client::encoding::prometheus_protobuf;
use prometheus_client::encoding::prometheus_protobuf::prometheus_data_model::MetricFamily;

use super::*;
use crate::aggregate::State;
use crate::aggregate::places::{Pod, Reading};
use crate::histogram::Edges;
use crate::now::Now;
use crate::poll::{self, Polled, RoutePoll, RouterPoll};
use crate::resolver::{Replicas, Resolver, Source};
use crate::shared::Committed;
use crate::tail::{Tail, Where};

const ROWS: &[&str] = &[
    r#"{"v":2,"pid":"p","epoch":1,"seq":1,"route":"chat","tenant":"team \"a\"","backend":"a:1","model":"m","status":200,"stream":true,"complete":true,"finish_reason":"stop","attempts":2,"frt":0.25,"lct":1.25,"rt":1.5,"upstream_connect_t":0.001,"queue_t":0.0,"req_bytes":10,"resp_bytes":20,"prompt_tokens":7000,"completion_tokens":21,"cached_tokens":64,"reasoning_tokens":3,"total_tokens":7021}"#,
    r#"{"v":2,"pid":"p","epoch":1,"seq":2,"route":"chat","tenant":"b","backend":"a:1","model":"m","status":200,"stream":false,"complete":false,"rt":0.1}"#,
    r#"{"v":2,"pid":"p","epoch":1,"seq":3,"route":"chat","backend":"(none)","status":429,"reject_reason":"ttft","rt":0.001}"#,
    r#"{"v":2,"pid":"p","epoch":1,"seq":4,"route":"by\\model","backend":"b:1","model":"line\nbreak","status":499,"stream":true,"frt":0.7,"rt":2000,"resp_body_truncated":true}"#,
];

fn shared() -> Arc<Shared> {
    let shared = Shared::default();
    let mut state = State::default();
    for row in ROWS {
        state.line(row.as_bytes(), 1_767_369_600_000).unwrap();
    }
    state.line(b"no row", 0).unwrap_err();
    let reasons = BTreeMap::from([("ttft".into(), 3), ("rule".into(), 1)]);
    let reading = BTreeMap::from([("chat".into(), reasons)]);
    state.refusals_mut().read("router:8090", &reading);
    state.settle(1_767_369_600_000, None);
    shared.publish(Committed {
        view: state.view(),
        positions: Tail::from_start(Where::rows(Path::new("nowhere"))).positions(),
        lag_bytes: 0,
        is_caught_up: true,
        at: Now::read(),
    });
    shared.polled(polled(&["router:8090"]));
    shared.resolved(resolver());
    Arc::new(shared)
}

fn resolver() -> Resolver {
    let replicas = |service: &str, desired| Replicas {
        service: service.into(),
        route: "chat".into(),
        endpoints: 3,
        ready: 2,
        desired,
    };
    let resolver = Resolver {
        services: vec![replicas("ns/a", Some(4)), replicas("ns/b", None)],
        routes: Arc::new(["chat".into()]),
        ..Resolver::default()
    };
    resolver.health.asked(&Source::Routes);
    resolver.health.failed(&Source::Routes, "status 403");
    resolver
}

fn polled(routers: &[&str]) -> Polled {
    let state = r#"{"active_level":2,"limit":64,"healthy_peers_in_level":1,"by_priority":{"2":{"peers":[
        {"name":"gpu-a","peer":"a:1","banned":false,"active":7,"max":64},
        {"name":"gpu-b","peer":"b:1","banned":true,"active":0,"max":null}]}}}"#;
    let limiter = r#"{"active":true,"ewma_tps":{"_":41.7,"m":null},"adaptive_cc":{"_":57.4},
        "adaptive_cc_min":{"_":8},"adaptive_cc_max":{"_":64},"adaptive_cc_conc":{"_":31,"m":[]},"adaptive_cc_rej":{"_":2}}"#;
    // An empty table of Lua is a list in JSON.
    let ttft = r#"{"active":true,"ewma_ms":{"_":6850},"adaptive_cc":[]}"#;
    fn reading<T: serde::de::DeserializeOwned>(text: &str) -> poll::Reading<T> {
        poll::Reading {
            value: Some(serde_json::from_str(text).unwrap()),
            is_fresh: true,
            at_ms: Some(1_767_369_600_000),
        }
    }
    let route = RoutePoll {
        state: reading(state),
        tps: reading(limiter),
        ttft: reading(ttft),
    };
    let routers = routers.iter().map(|router| RouterPoll {
        router: (*router).into(),
        tells_routes: true,
        routes: BTreeMap::from([("chat".into(), route.clone())]),
    });
    Polled {
        routers: routers.collect(),
        errors: 2,
        is_up: Some(true),
        last_success_ms: Some(1_767_369_600_000),
    }
}

fn page_of(shared: &Arc<Shared>, format: Format) -> String {
    let page = Page::new(shared, "openresty_");
    String::from_utf8(page.render(format).unwrap()).unwrap()
}

/// A sample: name, labels in their order, value.
type Sample = (String, LabelSet, f64);

/// Names and values.
type LabelSet = Vec<(String, String)>;

/// Reads `name{label="value",…} number`, and nothing else.
fn sample(line: &str) -> Sample {
    let name_len = line
        .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .unwrap();
    let (name, mut rest) = line.split_at(name_len);
    assert!(
        !name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit()),
        "{line}"
    );
    let mut labels = Vec::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        loop {
            let (label, after) = rest.split_once("=\"").unwrap();
            assert!(
                label.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'),
                "{line}"
            );
            let mut value = String::new();
            let mut chars = after.char_indices();
            let end = loop {
                match chars.next().unwrap() {
                    (at, '"') => break at,
                    (_, '\\') => match chars.next().unwrap().1 {
                        'n' => value.push('\n'),
                        c @ ('"' | '\\') => value.push(c),
                        c => panic!("escape {c} in {line}"),
                    },
                    (_, c) => value.push(c),
                }
            };
            labels.push((label.to_owned(), value));
            rest = &after[end + 1..];
            match rest.strip_prefix(',') {
                Some(more) => rest = more,
                None => break,
            }
        }
        rest = rest.strip_prefix('}').unwrap();
    }
    let value = rest.strip_prefix(' ').unwrap();
    let value = match value {
        "+Inf" => f64::INFINITY,
        number => number.parse().unwrap(),
    };
    (name.to_owned(), labels, value)
}

/// Whether a page has a sample, however its number is written.
fn has(page: &str, line: &str) -> bool {
    let mut samples = page.lines().filter(|line| !line.starts_with('#'));
    samples.any(|found| sample(found) == sample(line))
}

/// Families by name: type and samples, in order. Panics where the page is not as it must be.
fn families(page: &str) -> BTreeMap<String, (String, Vec<Sample>)> {
    let mut families: BTreeMap<String, (String, Vec<Sample>)> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    let mut current = String::new();
    for line in page.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            current = help.split_once(' ').unwrap().0.to_owned();
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').unwrap();
            assert_eq!(name, current, "HELP and TYPE go together");
            let new = families.insert(name.to_owned(), (kind.to_owned(), Vec::new()));
            assert!(new.is_none(), "{name} is there twice");
        } else if line == "# EOF" {
            current.clear();
        } else {
            let sample = sample(line);
            assert!(
                seen.insert((sample.0.clone(), sample.1.clone())),
                "twice: {line}"
            );
            let (_, samples) = families.get_mut(&current).unwrap();
            assert!(sample.0.starts_with(&current), "{line} below {current}");
            samples.push(sample);
        }
    }
    families
}

/// Upper edge, cumulative count.
type Bucket = (f64, f64);

/// Buckets rise to the count, edges rise to infinity.
fn check_histogram(name: &str, samples: &[Sample]) {
    let mut by_labels: BTreeMap<LabelSet, (Vec<Bucket>, f64)> = BTreeMap::new();
    for (sample, labels, value) in samples {
        let mut labels = labels.clone();
        let le = labels.iter().position(|(label, _)| label == "le");
        let le = le.map(|at| labels.remove(at).1);
        let entry = by_labels.entry(labels).or_default();
        match (sample.strip_prefix(name).unwrap(), le) {
            ("_bucket", Some(le)) => {
                let edge = if le == "+Inf" {
                    f64::INFINITY
                } else {
                    le.parse().unwrap()
                };
                entry.0.push((edge, *value));
            }
            ("_count", None) => entry.1 = *value,
            ("_sum", None) => assert!(*value >= 0.0),
            other => panic!("{name}: {other:?}"),
        }
    }
    for (labels, (buckets, count)) in by_labels {
        assert!(
            buckets.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1),
            "{name} {labels:?}"
        );
        assert_eq!(
            *buckets.last().unwrap(),
            (f64::INFINITY, count),
            "{name} {labels:?}"
        );
        assert!(count > 0.0, "{name} {labels:?}");
    }
}

const COUNTERS: &[&str] = &[
    "bodylog_requests_total",
    "bodylog_prompt_tokens_total",
    "bodylog_completion_tokens_total",
    "bodylog_cached_tokens_total",
    "bodylog_reasoning_tokens_total",
    "bodylog_total_tokens_total",
    "bodylog_req_bytes_total",
    "bodylog_resp_bytes_total",
    "bodylog_finish_reason_total",
    "bodylog_retries_total",
    "bodylog_truncated_total",
    "bodylog_usage_missing_total",
    "bodylog_rejects_total",
    "bodylog_tenant_requests_total",
    "bodylog_tenant_tokens_total",
    "bodylog_exporter_lines_total",
    "bodylog_exporter_bad_lines_total",
    "bodylog_exporter_duplicates_total",
    "bodylog_exporter_file_resets_total",
    "bodylog_exporter_recovery_total",
    "bodylog_exporter_cold_starts_total",
    "bodylog_exporter_connections_rejected_total",
    "bodylog_exporter_checkpoint_fallbacks_total",
    "bodylog_exporter_checkpoint_errors_total",
    "bodylog_exporter_read_errors_total",
    "bodylog_exporter_capped_total",
    "bodylog_exporter_log_lines_dropped_total",
    "openresty_rejected_total",
    "openresty_poll_errors_total",
    "bodylog_route_resolver_errors_total",
];

const HISTOGRAMS: &[&str] = &[
    "bodylog_rt_seconds",
    "bodylog_ttft_seconds",
    "bodylog_output_tok_per_second",
    "bodylog_overall_output_tok_per_second",
    "bodylog_decode_output_tok_per_second",
    "bodylog_tpot_seconds",
    "bodylog_prompt_tokens",
    "bodylog_completion_tokens",
    "bodylog_router_overhead_seconds",
];

const GAUGES: &[&str] = &[
    "bodylog_exporter_offset_bytes",
    "bodylog_exporter_last_ts_seconds",
    "bodylog_exporter_lag_bytes",
    "bodylog_exporter_last_commit_seconds",
    "bodylog_exporter_checkpoint_bytes",
    "bodylog_exporter_connections",
    "bodylog_exporter_series",
    "bodylog_exporter_poll_up",
    "bodylog_exporter_poll_age_seconds",
    "bodylog_exporter_build_info",
    "openresty_route_active_level",
    "openresty_route_active_limit",
    "openresty_route_healthy_peers",
    "openresty_peer_active_conns",
    "openresty_peer_banned",
    "openresty_peer_max_concurrency",
    "openresty_tps_limiter_active",
    "openresty_ttft_limiter_active",
    "openresty_tps_ewma",
    "openresty_ttft_ewma_ms",
    "openresty_adaptive_cc",
    "openresty_adaptive_cc_min",
    "openresty_adaptive_cc_max",
    "openresty_adaptive_cc_conc",
    "openresty_adaptive_cc_rej",
    "openresty_poll_up",
    "openresty_poll_last_success_seconds",
    "bodylog_service_replicas",
    "bodylog_service_replicas_ready",
    "bodylog_service_replicas_desired",
    "bodylog_route_resolver_up",
    "bodylog_route_resolver_pods",
    "bodylog_route_resolver_routes",
];

#[test]
fn the_text_page_is_strict_and_has_every_name() {
    let families = families(&page_of(&shared(), Format::Text));
    let of_type = |kind: &str| -> BTreeSet<&str> {
        let of_type = families.iter().filter(|(_, family)| family.0 == kind);
        of_type.map(|(name, _)| name.as_str()).collect()
    };
    assert_eq!(of_type("counter"), COUNTERS.iter().copied().collect());
    assert_eq!(of_type("histogram"), HISTOGRAMS.iter().copied().collect());
    assert_eq!(of_type("gauge"), GAUGES.iter().copied().collect());
    for name in HISTOGRAMS {
        check_histogram(name, &families[*name].1);
    }
}

#[test]
fn the_openmetrics_page_has_each_family_name_once_and_the_same_samples() {
    let shared = shared();
    let page = page_of(&shared, Format::OpenMetrics);
    assert!(page.ends_with("# EOF\n"));
    let open = families(&page);
    let samples = |families: &BTreeMap<String, (String, Vec<Sample>)>| -> BTreeSet<String> {
        let names = families.values().flat_map(|family| &family.1);
        names.map(|sample| sample.0.clone()).collect()
    };
    assert_eq!(
        samples(&open),
        samples(&families(&page_of(&shared, Format::Text)))
    );
    // A counter family is named without the suffix; a name that a histogram has is no counter's.
    assert_eq!(open["bodylog_requests"].0, "counter");
    assert_eq!(open["bodylog_prompt_tokens"].0, "histogram");
    assert_eq!(open["bodylog_prompt_tokens_total"].0, "unknown");
    for name in HISTOGRAMS {
        check_histogram(name, &open[*name].1);
    }
}

#[test]
fn label_values_come_back_as_they_were() {
    let families = families(&page_of(&shared(), Format::Text));
    let values = |family: &str, label: &str| -> BTreeSet<String> {
        let samples = families[family].1.iter().flat_map(|sample| &sample.1);
        let values = samples.filter(|(name, _)| name == label);
        values.map(|(_, value)| value.clone()).collect()
    };
    assert!(values("bodylog_tenant_requests_total", "tenant").contains("team \"a\""));
    assert!(values("bodylog_requests_total", "route").contains("by\\model"));
    // Control characters are replaced: a line stays a line.
    assert!(values("bodylog_requests_total", "model").contains("line\u{fffd}break"));
}

#[test]
fn the_numbers_are_those_of_the_rows() {
    let page = page_of(&shared(), Format::Text);
    for line in [
        r#"bodylog_requests_total{service="chat",route="chat",backend="a:1",model="m",status_class="2xx",stream="true"} 1"#,
        r#"bodylog_ttft_seconds_sum{service="chat",route="chat",backend="a:1",model="m",prompt_bucket="0006k_0008k"} 0.25"#,
        r#"bodylog_output_tok_per_second_sum{service="chat",route="chat",backend="a:1",model="m",prompt_bucket="0006k_0008k"} 14"#,
        r#"bodylog_decode_output_tok_per_second_sum{service="chat",route="chat",backend="a:1",model="m"} 21"#,
        r#"bodylog_tpot_seconds_sum{service="chat",route="chat",backend="a:1",model="m"} 0.05"#,
        r#"bodylog_retries_total{service="chat",route="chat",backend="a:1",model="m"} 1"#,
        r#"bodylog_finish_reason_total{service="chat",route="chat",backend="a:1",model="m",finish_reason="none"} 1"#,
        r#"bodylog_truncated_total{service="by\\model",route="by\\model",backend="b:1",model="line�break",cause="capture"} 1"#,
        r#"bodylog_rejects_total{route="chat",status="429",reason="ttft"} 1"#,
        r#"bodylog_tenant_tokens_total{service="chat",route="chat",tenant="team \"a\"",kind="completion"} 21"#,
        r#"bodylog_exporter_bad_lines_total{kind="json"} 1"#,
        r#"bodylog_exporter_series{metric="bodylog_requests_total"} 4"#,
        r#"openresty_peer_banned{service="chat",route="chat",peer="b:1",name="gpu-b",priority="2"} 1"#,
        r#"openresty_tps_ewma{service="chat",route="chat",model="_"} 41.7"#,
        r#"openresty_rejected_total{service="chat",route="chat",reason="ttft"} 3"#,
        r#"openresty_rejected_total{service="chat",route="chat",reason="tps"} 0"#,
        r#"openresty_rejected_total{service="chat",route="chat",reason="rule"} 1"#,
        "openresty_poll_up 1",
        r#"bodylog_service_replicas{service="ns/a",route="chat"} 3"#,
        r#"bodylog_service_replicas_ready{service="ns/b",route="chat"} 2"#,
        r#"bodylog_service_replicas_desired{service="ns/a",route="chat"} 4"#,
        "bodylog_route_resolver_up 0",
        "bodylog_route_resolver_pods 0",
        "bodylog_route_resolver_routes 1",
        "bodylog_route_resolver_errors_total 1",
    ] {
        assert!(has(&page, line), "no {line} in\n{page}");
    }
    // Neither null nor a list is a number.
    assert!(
        !page.contains(r#"openresty_peer_max_concurrency{service="chat",route="chat",peer="b:1""#)
    );
    assert!(!page.contains(r#"openresty_tps_ewma{service="chat",route="chat",model="m""#));
    // Nor is a wish that nobody knows zero.
    assert!(!page.contains(r#"bodylog_service_replicas_desired{service="ns/b""#));
}

#[test]
fn what_a_cluster_tells_is_shown_where_one_is_asked() {
    let shared = shared();
    let mut state = State::default();
    let pod = Pod {
        address: [10, 0, 0, 1].into(),
        route: "chat".into(),
        service: "ns/a".into(),
    };
    let reading = Reading {
        services: BTreeMap::from([("chat".into(), "ns/a".into())]),
        pods: vec![pod],
        ..Reading::default()
    };
    state.places(Some(&reading), 0);
    let row = r#"{"backend":"10.0.0.1:8000","model":"m","status":200,"tenant":"t"}"#;
    state.line(row.as_bytes(), 0).unwrap();
    shared.publish(Committed {
        view: state.view(),
        positions: Tail::from_start(Where::rows(Path::new("nowhere"))).positions(),
        lag_bytes: 0,
        is_caught_up: true,
        at: Now::read(),
    });
    let page = page_of(&shared, Format::Text);
    for line in [
        r#"bodylog_requests_total{service="ns/a",route="chat",backend="10.0.0.1:8000",model="m",status_class="2xx",stream="unknown"} 1"#,
        r#"bodylog_tenant_requests_total{service="ns/a",route="chat",tenant="t"} 1"#,
        r#"openresty_route_active_limit{service="ns/a",route="chat"} 64"#,
        "bodylog_route_resolver_pods 1",
    ] {
        assert!(has(&page, line), "no {line} in\n{page}");
    }
}

#[test]
fn several_routers_are_told_apart() {
    let shared = shared();
    shared.polled(polled(&["router:8090", "router-2:8090"]));
    let page = page_of(&shared, Format::Text);
    families(&page);
    for line in [
        r#"openresty_route_active_limit{service="chat",route="chat",router="router-2:8090"} 64"#,
        r#"openresty_rejected_total{service="chat",route="chat",router="router:8090",reason="ttft"} 3"#,
        r#"bodylog_exporter_poll_up{route="chat",router="router:8090",endpoint="_tps_status"} 1"#,
    ] {
        assert!(has(&page, line), "no {line} in\n{page}");
    }
}

#[test]
fn the_prefix_of_polled_names_can_be_changed() {
    let page = Page::new(&shared(), "llm_router_polled_");
    let page = String::from_utf8(page.render(Format::Text).unwrap()).unwrap();
    assert!(!page.contains("openresty_"));
    assert!(page.contains("llm_router_polled_route_active_limit{"));
}

#[test]
fn protobuf_has_native_and_classic_buckets_of_restored_histograms() {
    let page = Page::new(&shared(), "openresty_");
    assert!(!page.render(Format::Protobuf).unwrap().is_empty());
    let families = prometheus_protobuf::encode(&page.prometheus).unwrap();
    let named: BTreeMap<&str, &MetricFamily> = families
        .iter()
        .map(|family| (family.name.as_str(), family))
        .collect();
    assert_eq!(named.len(), families.len(), "each name once");
    for name in COUNTERS.iter().chain(HISTOGRAMS).chain(GAUGES) {
        assert!(named.contains_key(name), "{name}");
    }
    let rt = named["bodylog_rt_seconds"];
    let histogram = rt
        .metric
        .iter()
        .filter_map(|metric| metric.histogram.as_ref())
        .find(|histogram| histogram.sample_sum == 1.5)
        .unwrap();
    assert_eq!(histogram.schema, 3);
    assert!(histogram.zero_threshold > 0.0);
    // 1.5 lies in (2^(4/8), 2^(5/8)].
    assert_eq!(
        (
            histogram.positive_span[0].offset,
            histogram.positive_span[0].length
        ),
        (5, 1)
    );
    assert_eq!(histogram.positive_delta, [1]);
    assert_eq!(histogram.bucket.len(), Edges::Seconds.bounds().len() + 1);
    assert_eq!(
        histogram.start_timestamp.as_ref().unwrap().seconds,
        1_767_369_600
    );
}

#[test]
fn before_the_first_epoch_the_page_is_still_a_page() {
    let page = page_of(&Arc::default(), Format::Text);
    let families = families(&page);
    assert!(families.contains_key("bodylog_exporter_build_info"));
    assert!(!page.contains("bodylog_requests"));
    assert!(!page.contains("_resolver_"), "no cluster is asked");
}

#[test]
fn the_docs_hold_the_families() {
    use super::catalogue::{cluster, own, polled, traffic};
    use service::families::reference::pin;

    let tables = [own::ALL, traffic::ALL, cluster::ALL, polled::ALL];
    pin("bodylog-exporter", &tables).unwrap();
}
