use std::time::Duration;

use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Registry;
use router_core::decision::{Choice, Facts, Mode};
use service::exposition::Format;

use super::*;
use crate::settled::Settled;
use crate::testing::{attempt, settled};
use answers::Meter;

/// A process without live state.
#[derive(Debug)]
struct Nothing;

impl prometheus_client::collector::Collector for Nothing {
    fn encode(&self, _: DescriptorEncoder<'_>) -> std::fmt::Result {
        Ok(())
    }
}

fn labels(route: &str, pools: &[(Option<&str>, &[&str])]) -> RouteLabels {
    let pools = pools.iter().map(|(model, peers)| {
        (
            model.map(Arc::from),
            peers.iter().map(|peer| PeerKey::new(*peer)).collect(),
        )
    });
    RouteLabels {
        route: route.into(),
        pools: pools.collect(),
        buckets: vec![1, 2],
        fallbacks: Vec::new(),
        aliases: Vec::new(),
    }
}

fn done(model: Option<&str>, peer: Option<&str>, code: u16) -> Settled {
    Settled {
        model: model.map(Arc::from),
        attempts: peer.map(attempt).into_iter().collect(),
        status: code,
        ..settled()
    }
}

/// The measurements of an answer with this `usage`.
fn meter(usage: &str) -> Option<Meter> {
    let mut meter = Meter::document();
    meter.feed(format!("{{\"usage\":{usage}}}").as_bytes());
    meter.finish();
    Some(meter)
}

/// Counts a request for a model that no engine lists.
fn count(metrics: &RouteMetrics, settled: &Settled) {
    metrics.request_done(settled, |_| false);
}

fn page(metrics: &Arc<Metrics>) -> String {
    metrics.text()
}

fn series<'a>(page: &'a str, prefix: &str) -> Vec<&'a str> {
    page.lines()
        .filter(|line| line.starts_with(prefix))
        .collect()
}

#[test]
fn series_exist_at_zero_from_registration() {
    let metrics = Arc::new(Metrics::default());
    metrics.sync(&[labels("chat", &[(None, &["a:1", "b:1"])])]);
    let page = page(&metrics);
    for expected in [
        r#"llm_router_requests_total{route="chat",model="-",peer="a:1",code="200"} 0"#,
        r#"llm_router_requests_total{route="chat",model="-",peer="b:1",code="200"} 0"#,
        r#"llm_router_refusals_total{route="chat",gate="concurrency",bucket="-"} 0"#,
        r#"llm_router_refusals_total{route="chat",gate="ttft",bucket="1"} 0"#,
        r#"llm_router_refusals_total{route="chat",gate="tps",bucket="2"} 0"#,
        r#"llm_router_refusals_total{route="chat",gate="rule",bucket="-"} 0"#,
        r#"llm_router_retries_total{route="chat",peer="a:1"} 0"#,
        r#"llm_router_peer_bans_total{route="chat",peer="b:1"} 0"#,
        r#"llm_router_tokens_total{route="chat",model="-",owner="-",kind="prompt"} 0"#,
        r#"llm_router_tokens_total{route="chat",model="-",owner="-",kind="reasoning"} 0"#,
        r#"llm_router_request_seconds_count{route="chat"} 0"#,
        r#"llm_router_ttft_seconds_count{route="chat"} 0"#,
        r#"llm_router_inter_chunk_seconds_count{route="chat"} 0"#,
        r#"llm_router_overhead_seconds_count{route="chat"} 0"#,
        r#"llm_router_placements_total{route="chat",mode="hash_fallback"} 0"#,
        "llm_router_config_last_reload_success 0.0",
        concat!(
            "llm_router_build_info{version=\"",
            env!("CARGO_PKG_VERSION"),
            "\"} 1"
        ),
    ] {
        assert!(
            page.lines().any(|line| line == expected),
            "{expected}\nnot in\n{page}"
        );
    }
}

#[test]
fn a_reset_of_the_refusals_leaves_the_page_alone() {
    let metrics = Arc::new(Metrics::default());
    metrics.sync(&[labels("chat", &[(None, &["a:1"])])]);
    let chat = metrics.route(&"chat".into());
    chat.refused(Gate::Ttft, Some(2));
    chat.refused(Gate::Ttft, None);
    chat.refused(Gate::Rule, None);
    assert_eq!(chat.reset_refusals(), [0, 2, 0, 1]);
    chat.refused(Gate::Ttft, Some(2));
    assert_eq!(chat.refusals(), [0, 1, 0, 0]);
    let page = page(&metrics);
    let counted = r#"llm_router_refusals_total{route="chat",gate="ttft",bucket="2"} 2"#;
    assert!(page.contains(counted), "{page}");
    assert!(!page.contains(r#"gate="rule",bucket="1""#), "{page}");
}

#[test]
fn series_of_removed_routes_and_peers_disappear() {
    let metrics = Arc::new(Metrics::default());
    let both = [
        labels("chat", &[(None, &["a:1", "b:1"])]),
        labels("embed", &[(None, &["c:1"])]),
    ];
    metrics.sync(&both);
    let chat = metrics.route(&"chat".into());
    let embed = metrics.route(&"embed".into());
    count(&chat, &done(Some("m1"), Some("b:1"), 200));
    assert!(page(&metrics).contains("b:1"));

    metrics.sync(&[labels("chat", &[(None, &["a:1"])])]);
    count(&chat, &done(Some("m1"), Some("b:1"), 200));
    count(&embed, &done(Some("m1"), Some("c:1"), 200));
    let page = page(&metrics);
    assert!(!page.contains("b:1") && !page.contains("embed"), "{page}");
    assert!(
        page.contains(r#"{route="chat",model="m1",peer="other",code="200"} 1"#),
        "{page}"
    );
}

#[test]
fn series_that_stay_keep_their_counts() {
    let metrics = Arc::new(Metrics::default());
    let configured = [labels(
        "chat",
        &[(Some("m1"), &["a:1"]), (Some("m2"), &["a:1"])],
    )];
    metrics.sync(&configured);
    metrics
        .route(&"chat".into())
        .request_done(&done(Some("m1"), Some("a:1"), 200), |_| false);
    metrics.sync(&configured);
    let kept = r#"llm_router_requests_total{route="chat",model="m1",peer="a:1",code="200"} 1"#;
    assert!(page(&metrics).contains(kept));
    metrics.sync(&[labels("chat", &[(Some("m2"), &["a:1"])])]);
    assert!(!page(&metrics).contains("m1"));
}

#[test]
fn the_series_without_a_model_goes_once_a_model_is_known() {
    let metrics = Arc::new(Metrics::default());
    let configured = [labels("chat", &[(None, &["a:1", "b:1"])])];
    metrics.sync(&configured);
    metrics
        .route(&"chat".into())
        .request_done(&done(Some("m1"), Some("a:1"), 200), |_| false);
    metrics.sync(&configured);
    let page = page(&metrics);
    assert_eq!(
        series(&page, "llm_router_requests_total"),
        [
            r#"llm_router_requests_total{route="chat",model="-",peer="b:1",code="200"} 0"#,
            r#"llm_router_requests_total{route="chat",model="m1",peer="a:1",code="200"} 1"#,
        ]
    );
}

#[test]
fn invented_models_are_capped() {
    let metrics = Arc::new(Metrics::default());
    metrics.sync(&[labels("chat", &[(Some("real"), &["a:1"])])]);
    let chat = metrics.route(&"chat".into());
    for n in 0..1000 {
        count(
            &chat,
            &done(Some(&format!("invented-{n}")), Some("a:1"), 200),
        );
    }
    count(&chat, &done(Some(&"long".repeat(100)), Some("a:1"), 200));
    count(&chat, &done(Some("real"), Some("a:1"), 200));
    let page = page(&metrics);
    let requests = series(&page, "llm_router_requests_total");
    assert_eq!(
        requests.len(),
        64 + 2,
        "64 names, the configured one, and `other`"
    );
    let other = format!(
        "model=\"other\",peer=\"a:1\",code=\"200\"}} {}",
        1000 - 64 + 1
    );
    assert!(requests.iter().any(|line| line.ends_with(&other)), "{page}");
}

#[test]
fn a_refused_model_takes_no_place_from_a_real_one() {
    let metrics = Arc::new(Metrics::default());
    metrics.sync(&[labels("chat", &[(None, &["a:1"])])]);
    let chat = metrics.route(&"chat".into());
    for n in 0..100 {
        count(&chat, &done(Some(&format!("invented-{n}")), None, 400));
    }
    count(&chat, &done(Some("real"), Some("a:1"), 200));
    let page = page(&metrics);
    assert!(!page.contains("invented"), "{page}");
    assert!(
        page.contains(r#"model="real",peer="a:1",code="200"} 1"#),
        "{page}"
    );
}

#[test]
fn invented_models_push_out_neither_listed_nor_configured_ones() {
    let metrics = Arc::new(Metrics::default());
    metrics.sync(&[labels("chat", &[(Some("configured"), &["a:1"])])]);
    let chat = metrics.route(&"chat".into());
    let ask = |model: &str| {
        let settled = done(Some(model), Some("a:1"), 200);
        chat.request_done(&settled, |model| model == "listed");
    };
    for n in 0..200 {
        ask(&format!("invented-{n}"));
    }
    ask("listed");
    ask("configured");
    let page = page(&metrics);
    for model in ["listed", "configured"] {
        let line = format!(r#"{{route="chat",model="{model}",peer="a:1",code="200"}} 1"#);
        assert!(page.contains(&line), "{line}\n{page}");
    }
    let other = r#"{route="chat",model="other",peer="a:1",code="200"} 136"#;
    assert!(page.contains(other), "{page}");
}

#[test]
fn a_model_that_nobody_asks_for_any_more_gives_its_place_to_a_new_one_and_its_counts_to_other() {
    let metrics = Arc::new(Metrics::default());
    metrics.sync(&[labels("chat", &[(None, &["a:1"])])]);
    let chat = metrics.route(&"chat".into());
    let ask = |model: &str, later: u64| {
        let mut settled = Settled {
            meter: meter(r#"{"prompt_tokens":7,"completion_tokens":5}"#),
            ..done(Some(model), Some("a:1"), 200)
        };
        settled.times.ended += Duration::from_secs(later);
        count(&chat, &settled);
    };
    for n in 0..64 {
        ask(&format!("old-{n}"), 0);
    }
    ask("old-1", 599);
    ask("early", 599);
    ask("new", 601);
    let page = page(&metrics);
    assert!(
        page.contains(r#"model="new",peer="a:1",code="200"} 1"#),
        "{page}"
    );
    assert!(
        page.contains(r#"model="old-1",peer="a:1",code="200"} 2"#),
        "{page}"
    );
    assert!(!page.contains(r#"model="old-0""#), "{page}");
    let other = r#"model="other",peer="a:1",code="200"} 2"#;
    assert!(page.contains(other), "`early` and `old-0`: {page}");
    let tokens =
        r#"llm_router_tokens_total{route="chat",model="other",owner="-",kind="prompt"} 14"#;
    assert!(page.contains(tokens), "{page}");
}

#[test]
fn tokens_are_counted_by_kind_model_and_owner() {
    let metrics = Arc::new(Metrics::default());
    metrics.sync(&[labels("chat", &[(None, &["a:1"])])]);
    let chat = metrics.route(&"chat".into());
    let usage = r#"{"prompt_tokens":7,"completion_tokens":5,"total_tokens":12,
        "prompt_tokens_details":{"cached_tokens":4},
        "completion_tokens_details":{"reasoning_tokens":2}}"#;
    for owner in [Some("team"), Some("team"), None] {
        count(
            &chat,
            &Settled {
                owner: owner.map(Arc::from),
                meter: meter(usage),
                ..done(Some("m1"), Some("a:1"), 200)
            },
        );
    }
    let page = page(&metrics);
    for line in [
        r#"llm_router_prompt_tokens_total{route="chat",peer="a:1"} 21"#,
        r#"llm_router_cached_tokens_total{route="chat",peer="a:1"} 12"#,
    ] {
        assert!(page.lines().any(|have| have == line), "{line}\n{page}");
    }
    for (owner, kind, sum) in [
        ("team", "prompt", 14),
        ("team", "completion", 10),
        ("team", "cached", 8),
        ("team", "reasoning", 4),
        ("-", "completion", 5),
    ] {
        let line = format!(
            r#"llm_router_tokens_total{{route="chat",model="m1",owner="{owner}",kind="{kind}"}} {sum}"#
        );
        assert!(page.lines().any(|have| have == line), "{line}\n{page}");
    }
}

#[test]
fn token_series_are_capped_by_model_and_owner_and_sums_saturate() {
    let metrics = Arc::new(Metrics::default());
    metrics.sync(&[labels("chat", &[(None, &["a:1"])])]);
    let chat = metrics.route(&"chat".into());
    let usage = format!(r#"{{"prompt_tokens":{},"completion_tokens":0}}"#, u64::MAX);
    for n in 0..300 {
        let (model, owner) = (format!("model-{n}"), format!("owner-{n}"));
        for (model, owner) in [(&*model, "o"), ("m", &*owner)] {
            count(
                &chat,
                &Settled {
                    owner: Some(owner.into()),
                    meter: meter(&usage),
                    ..done(Some(model), Some("a:1"), 200)
                },
            );
        }
    }
    let page = page(&metrics);
    let tokens = series(&page, "llm_router_tokens_total");
    let distinct = |label: &str| {
        let values = tokens.iter().map(|line| {
            let from = line.find(label).unwrap() + label.len();
            line[from..].split('"').next().unwrap()
        });
        values.collect::<std::collections::BTreeSet<_>>().len()
    };
    assert_eq!(distinct("model=\""), 64 + 2, "64 names, `other` and `-`");
    assert_eq!(distinct("owner=\""), 200 + 2, "200 owners, `other` and `-`");
    let other = r#"model="m",owner="other",kind="prompt"} 18446744073709551615"#;
    assert!(tokens.iter().any(|line| line.ends_with(other)), "{page}");
}

#[test]
fn placements_are_counted_by_mode() {
    let metrics = Arc::new(Metrics::default());
    metrics.sync(&[labels("chat", &[(None, &["a:1"])])]);
    let chat = metrics.route(&"chat".into());
    for mode in [Some(Mode::Hash), Some(Mode::Sticky), Some(Mode::Hash), None] {
        let facts = Facts::default();
        count(
            &chat,
            &Settled {
                choice: mode.map(|mode| Choice::Send { mode, facts }),
                ..done(None, Some("a:1"), 200)
            },
        );
    }
    let page = page(&metrics);
    for (mode, count) in [("hash", 2), ("sticky", 1), ("pin", 0)] {
        let line = format!(r#"llm_router_placements_total{{route="chat",mode="{mode}"}} {count}"#);
        assert!(page.lines().any(|have| have == line), "{line}\n{page}");
    }
}

#[test]
fn hostile_label_values_are_escaped() {
    let metrics = Arc::new(Metrics::default());
    metrics.sync(&[labels("chat", &[(None, &["a:1"])])]);
    metrics.route(&"chat".into()).request_done(
        &done(Some("a\"} 1\nevil_total 7\\"), Some("a:1"), 200),
        |_| false,
    );
    let page = page(&metrics);
    assert!(series(&page, "evil").is_empty(), "{page}");
    assert!(page.contains(r#"model="a\"} 1\nevil_total 7\\""#), "{page}");
}

#[test]
fn every_sample_follows_the_type_of_its_family() {
    let metrics = Arc::new(Metrics::default());
    metrics.sync(&[labels("chat", &[(None, &["a:1"])])]);
    let all = Page::new(&metrics, Nothing);
    let text = String::from_utf8(all.render(Format::Text).unwrap()).unwrap();
    let mut family = ("", "");
    let mut seen = std::collections::BTreeSet::new();
    for line in text.lines() {
        if let Some(declared) = line.strip_prefix("# TYPE ") {
            family = declared.split_once(' ').unwrap();
            assert!(seen.insert(family.0), "{} is declared twice", family.0);
        } else if !line.starts_with('#') {
            let name = line.split(['{', ' ']).next().unwrap();
            let base = match family.1 {
                "histogram" => ["_bucket", "_sum", "_count"]
                    .iter()
                    .find_map(|s| name.strip_suffix(s))
                    .unwrap(),
                _ => name,
            };
            assert_eq!(base, family.0, "{line}");
            assert_eq!(family.1 == "counter", name.ends_with("_total"), "{line}");
        }
    }
    assert!(seen.contains("process_resident_memory_bytes"), "{seen:?}");
    assert!(
        text.contains(r#"llm_router_request_seconds_bucket{route="chat",le="1"} 0"#),
        "{text}"
    );
}

#[test]
fn openmetrics_ends_with_eof_and_spells_bounds_as_floats() {
    let metrics = Arc::new(Metrics::default());
    metrics.sync(&[labels("chat", &[(None, &["a:1"])])]);
    let page = Page::new(&metrics, Nothing)
        .render(Format::OpenMetrics)
        .unwrap();
    let page = String::from_utf8(page).unwrap();
    assert!(page.ends_with("\n# EOF\n"));
    assert!(
        page.contains("# TYPE llm_router_requests counter\n"),
        "{page}"
    );
    assert!(page.contains("# TYPE llm_router_build info\n"), "{page}");
    assert!(
        page.contains(r#"le="1.0""#) && page.contains(r#"le="0.0001""#),
        "{page}"
    );
}

#[test]
fn protobuf_carries_native_buckets() {
    let metrics = Arc::new(Metrics::default());
    metrics.sync(&[labels("chat", &[(None, &["a:1"])])]);
    let chat = metrics.route(&"chat".into());
    chat.chunk_gaps(&[0.01, 0.02, 0.04]);
    assert!(
        !Page::new(&metrics, Nothing)
            .render(Format::Protobuf)
            .unwrap()
            .is_empty()
    );

    let mut registry = Registry::default();
    registry.register_collector(Box::new(encode::Counted(Arc::clone(&metrics))));
    let families = prometheus_client::encoding::prometheus_protobuf::encode(&registry).unwrap();
    let gaps = families
        .iter()
        .find(|f| f.name == "llm_router_inter_chunk_seconds")
        .unwrap();
    let histogram = gaps.metric[0].histogram.as_ref().unwrap();
    assert_eq!(histogram.sample_count, 3);
    assert_eq!(histogram.schema, 3);
    assert!(!histogram.positive_span.is_empty() && !histogram.bucket.is_empty());
}

#[test]
fn the_tally_of_reloads_remembers_the_last_good_one() {
    let metrics = Arc::new(Metrics::default());
    metrics.reload().applied(1_790_000_000_500);
    metrics.reload().refused();
    let page = page(&metrics);
    assert!(
        page.contains("llm_router_config_last_reload_success 0.0\n"),
        "{page}"
    );
    assert!(
        page.contains("last_reload_success_timestamp_seconds 1790000000.5\n"),
        "{page}"
    );
    assert!(
        page.contains("llm_router_config_reloads_total{result=\"refused\"} 1\n"),
        "{page}"
    );
}

#[test]
fn the_docs_hold_the_families() {
    use catalogue::{process, proxy, router};
    use service::families::reference::pin;

    pin("Router", &[router::ALL, process::ALL]).unwrap();
    pin("Router, peers as placement sees them", &[proxy::ALL]).unwrap();
}
