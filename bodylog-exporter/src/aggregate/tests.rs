use super::*;

const HOUR: i64 = 3_600_000;

/// A state that has read these lines, all good.
fn read(lines: &[String]) -> State {
    let mut state = State::default();
    for line in lines {
        state.line(line.as_bytes(), 0).unwrap();
    }
    state
}

fn row(backend: &str, model: &str) -> String {
    format!(r#"{{"route":"chat","backend":"{backend}","model":"{model}","status":200}}"#)
}

/// Requests by backend and model.
fn requests(state: &State) -> Vec<(String, String, u64)> {
    let view = state.view();
    let series = view.series.iter().map(|series| {
        (
            series.labels.backend.to_string(),
            series.labels.model.to_string(),
            series.requests.iter().flatten().sum(),
        )
    });
    series.collect()
}

fn counted(backend: &str, model: &str, count: u64) -> (String, String, u64) {
    (backend.to_owned(), model.to_owned(), count)
}

#[test]
fn an_empty_row_has_stand_ins_for_labels() {
    let state = read(&[r#"{"ts":"","backend":"(none)","status":0}"#.to_owned()]);
    let view = state.view();
    let labels = &view.series[0].labels;
    assert_eq!(&*labels.route, "unknown");
    assert_eq!(&*labels.backend, "(none)");
    assert_eq!(&*labels.model, "unknown");
    assert_eq!(view.series[0].requests[3][2], 1, "other, unknown");
}

#[test]
fn lines_that_are_no_rows_are_counted_by_kind_and_change_nothing_else() {
    let mut state = State::default();
    for (line, kind) in [
        (&b"not json"[..], BadLine::Json),
        (b"{\"status\":200", BadLine::Json),
        (b"[]", BadLine::Json),
        (b"{\"status\":\"two hundred\"}", BadLine::Json),
        (b"{\"route\":\"\xff\"}", BadLine::Json),
        (b"{\"v\":99,\"status\":200}", BadLine::Version),
    ] {
        assert_eq!(state.line(line, 0), Err(kind), "{line:?}");
    }
    let view = state.view();
    assert_eq!(view.own.lines, 6);
    assert_eq!(view.own.bad_lines[&BadLine::Json], 5);
    assert_eq!(view.own.bad_lines[&BadLine::Version], 1);
    assert!(view.series.is_empty());
}

#[test]
fn members_that_are_not_known_are_skipped() {
    let state = read(&[r#"{"backend":"a:1","status":200,"new":{"deep":[1]}}"#.to_owned()]);
    assert_eq!(requests(&state), [counted("a:1", "unknown", 1)]);
}

#[test]
fn a_retried_backend_is_the_same_backend() {
    let state = read(&[row("a:1", "m"), row("a:1 (retry#1)", "m")]);
    assert_eq!(requests(&state), [counted("a:1", "m", 2)]);
}

#[test]
fn a_cluster_fills_in_what_a_row_leaves_open() {
    let pod = |route: &str, service: &str| places::Pod {
        address: [10, 0, 0, 1].into(),
        route: route.into(),
        service: service.into(),
    };
    let mut reading = Reading {
        pods: vec![pod("chat", "ns/a")],
        ..Reading::default()
    };
    reading.services.insert("chat".into(), "ns/a".into());
    let mut state = State::default();
    let row = |backend: &str, route: &str| {
        format!(
            r#"{{"backend":"{backend}","route":"{route}","model":"m","tenant":"t","status":503}}"#
        )
    };
    let rows = [
        row("10.0.0.1:8000", ""),
        row("10.0.0.1:8000", "own"),
        row("(none)", "chat"),
        row("10.0.0.2:8000", "chat"),
        row("10.0.0.2:8000", ""),
    ];
    for row in &rows {
        state.line(row.as_bytes(), 0).unwrap();
    }
    assert!(
        state
            .view()
            .series
            .iter()
            .all(|s| s.labels.service.is_none())
    );
    assert!(state.places(Some(&reading), 0));
    for row in &rows {
        state.line(row.as_bytes(), 0).unwrap();
    }
    let view = state.view();
    let labels = view.series.iter().map(|series| &series.labels);
    let with_service = labels
        .filter_map(|labels| Some([&*labels.route, &*labels.backend, labels.service.as_deref()?]));
    let with_service: Vec<_> = with_service.collect();
    assert_eq!(
        with_service,
        [
            ["chat", "(none)", "ns/a"],
            ["chat", "10.0.0.1:8000", "ns/a"],
            ["chat", "10.0.0.2:8000", "ns/a"],
            ["own", "10.0.0.1:8000", "ns/a"],
        ]
    );
    assert_eq!(
        view.series.len(),
        5 + 4,
        "what was counted before stays what it was"
    );
    let tenants = view.tenants.iter().map(|tenant| &tenant.labels);
    let tenants: Vec<_> = tenants.map(|t| (&*t.route, t.service.as_deref())).collect();
    assert!(tenants.contains(&("chat", Some("ns/a"))), "{tenants:?}");
    assert!(tenants.contains(&("unknown", None)), "{tenants:?}");

    let text = serde_json::to_string(&state).unwrap();
    let mut back: State = serde_json::from_str(&text).unwrap();
    assert_eq!(back.view().series.len(), 9);
    back.line(rows[0].as_bytes(), 0).unwrap();
    assert_eq!(back.view().series.len(), 9, "found again under its key");
    assert!(back.no_places() && back.view().services.is_empty());
}

#[test]
fn backends_beyond_the_cap_share_other() {
    let lines: Vec<_> = (0..600).map(|i| row(&format!("b{i:04}:1"), "m")).collect();
    let mut state = read(&lines);
    // A backend that has its place keeps it.
    state.line(row("b0001:1", "m").as_bytes(), 0).unwrap();
    state.line(row("b0599:1", "m").as_bytes(), 0).unwrap();
    let requests = requests(&state);
    assert_eq!(requests.len(), 513);
    assert!(requests.contains(&counted("b0001:1", "m", 2)));
    assert!(requests.contains(&counted("other", "m", 89)));
    let capped = state.view().capped;
    assert!(capped.contains(&(Label::Backend, 89)), "{capped:?}");
}

#[test]
fn combinations_beyond_the_cap_share_other_by_route() {
    let mut state = State::default();
    for i in 0..5000 {
        let line = row(&format!("b{}:1", i % 500), &format!("m{}", i / 500));
        state.line(line.as_bytes(), 0).unwrap();
    }
    let view = state.view();
    assert!(view.series.len() <= Label::Series.values_max() + 1);
    let total: u64 = requests(&state).iter().map(|row| row.2).sum();
    assert_eq!(total, 5000, "no row is lost to a cap");
}

#[test]
fn a_label_value_cannot_become_another_series_key() {
    let state = read(&[
        r#"{"route":"a\u001fb","backend":"c","model":"m","status":200}"#.to_owned(),
        r#"{"route":"a","backend":"b\u001fc","model":"m","status":200}"#.to_owned(),
    ]);
    assert_eq!(state.view().series.len(), 2);
}

#[test]
fn idle_series_are_retired_once_they_were_scraped() {
    let mut state = State::default();
    state.line(row("a:1", "m").as_bytes(), 0).unwrap();
    state.line(row("(none)", "unknown").as_bytes(), 0).unwrap();

    state.settle(2 * HOUR, None);
    assert_eq!(state.view().series.len(), 2, "nobody saw it yet");
    state.settle(2 * HOUR + 60_000, Some(30_000));
    assert_eq!(state.view().series.len(), 2, "scraped before it was shown");
    state.settle(2 * HOUR + 120_000, Some(HOUR));
    assert_eq!(requests(&state), [counted("(none)", "unknown", 1)]);
    state.settle(25 * HOUR, Some(25 * HOUR));
    assert!(state.view().series.is_empty());

    // It comes back from zero, with a creation time of its own.
    state.line(row("a:1", "m").as_bytes(), 26 * HOUR).unwrap();
    let view = state.view();
    assert_eq!(view.series[0].created_ms, 26 * HOUR);
    assert_eq!(requests(&state), [counted("a:1", "m", 1)]);
}

#[test]
fn a_retired_backend_gives_its_place_back() {
    let mut state = State::default();
    for i in 0..512 {
        state
            .line(row(&format!("b{i}:1"), "m").as_bytes(), 0)
            .unwrap();
    }
    state.settle(2 * HOUR, Some(HOUR));
    state.line(row("new:1", "m").as_bytes(), 2 * HOUR).unwrap();
    assert_eq!(requests(&state), [counted("new:1", "m", 1)]);
}

#[test]
fn tenants_are_counted_by_route() {
    let line = |tenant: &str, tokens: u64| {
        format!(r#"{{"route":"chat","tenant":"{tenant}","status":200,"prompt_tokens":{tokens}}}"#)
    };
    let state = read(&[line("a", 3), line("b", 4), line("a", 5), line("", 9)]);
    let tenants: Vec<_> = state
        .view()
        .tenants
        .iter()
        .map(|s| (s.labels.tenant.to_string(), s.requests, s.tokens[0]))
        .collect();
    assert_eq!(tenants, [("a".into(), 2, 8), ("b".into(), 1, 4)]);
}

#[test]
fn refusals_are_counted_by_route_status_and_reason() {
    let line = |status: u16, reason: &str| {
        format!(
            r#"{{"route":"chat","backend":"(none)","status":{status},"reject_reason":"{reason}"}}"#
        )
    };
    let state = read(&[
        line(429, "ttft"),
        line(429, "ttft"),
        line(503, ""),
        line(200, ""),
    ]);
    let rejects: Vec<_> = state
        .view()
        .rejects
        .iter()
        .map(|r| (r.key.status, r.key.reason.to_string(), r.count))
        .collect();
    assert_eq!(
        rejects,
        [(429, "ttft".into(), 2), (503, "unknown".into(), 1)]
    );
}

#[test]
fn the_newest_row_tells_how_far_counting_is() {
    let mut state = read(&[
        r#"{"ts":"2026-01-02T23:59:59.900Z","rt":0.2,"status":200}"#.to_owned(),
        r#"{"ts":"2026-01-02T00:00:00Z","ts_end":"2026-01-03T00:00:00.100+08:00","status":200}"#
            .to_owned(),
    ]);
    state.settle(0, None);
    // The last row of the epoch counts: 2026-01-02T16:00:00.100Z.
    assert_eq!(state.view().own.last_end_ms, 1_767_369_600_100);
    state
        .line(br#"{"ts":"2026-01-01T00:00:00Z","status":200}"#, 0)
        .unwrap();
    state.settle(0, None);
    assert_eq!(
        state.view().own.last_end_ms,
        1_767_369_600_100,
        "never back"
    );
    state.line(br#"{"ts":"tomorrow","status":200}"#, 0).unwrap();
    state.settle(0, None);
}

#[test]
fn a_view_does_not_change_with_the_state() {
    let mut state = read(&[row("a:1", "m")]);
    let view = state.view();
    state.line(row("a:1", "m").as_bytes(), 0).unwrap();
    assert_eq!(view.series[0].requests[0][2], 1);
    assert_eq!(state.view().series[0].requests[0][2], 2);
}

#[test]
fn it_comes_back_from_text() {
    let mut state = read(&[
        row("a:1", "m"),
        r#"{"pid":"p","epoch":1,"seq":1,"route":"chat","tenant":"t","status":429,"reject_reason":"tps"}"#
            .to_owned(),
        r#"{"request_id":"r","ts":"t","status":200,"rt":1.5}"#.to_owned(),
    ]);
    let reasons = BTreeMap::from([("ttft".into(), 3)]);
    let reading = BTreeMap::from([("chat".into(), reasons)]);
    state.refusals_mut().read("router:1", &reading);
    state.settle(0, None);
    let text = serde_json::to_string(&state).unwrap();
    let back: State = serde_json::from_str(&text).unwrap();
    assert!(back.is_sound());
    state.key = String::new();
    assert_eq!(
        back,
        State {
            key: String::new(),
            ..state
        }
    );
}

#[path = "../../fuzz/check.rs"]
mod check;

#[test]
fn the_corpus_of_the_fuzzer_passes_its_check() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus/rows");
    let mut seen = 0;
    for entry in std::fs::read_dir(corpus).unwrap() {
        check::rows(&std::fs::read(entry.unwrap().path()).unwrap());
        seen += 1;
    }
    assert!(seen >= 14, "{seen} files in {corpus}");
}
