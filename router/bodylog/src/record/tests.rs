use ::service::buffers::Buffers;
use http::HeaderMap;
use proto::meta::Meta;
use tokio::sync::mpsc;

use super::*;
use crate::budget::MemoryBudget;
use crate::exchange::Wanted;
use crate::pipe::Pipe;
use crate::sampling::Sampler;
use crate::sender::Shared;
use crate::spool::Identity;
use crate::testing::{ALL, Ending, begun, route};

/// The recording settings, and the paths that are redacted.
#[derive(Clone, Copy)]
struct Options(Wanted, &'static [&'static str]);

const PLAIN: Options = Options(ALL, &[]);

/// At most these bytes of each body.
const fn bodies(body_bytes_max: u64) -> Options {
    let wanted = Wanted {
        body_bytes_max,
        ..ALL
    };
    Options(wanted, &[])
}

/// The record of an exchange, if there is one: `exchange` plays it.
fn offered(
    Options(wanted, paths): Options,
    headers: &[(&'static str, &str)],
    exchange: impl FnOnce(&mut Capture, &mut Ending),
) -> Option<Record> {
    let shared = Shared::new(
        Arc::default(),
        MemoryBudget::new(1 << 20),
        None,
        Identity::fresh(),
        Buffers::default(),
    );
    let (records, mut waiting) = mpsc::channel(1);
    let pipe = Arc::new(Pipe {
        records,
        shared: Arc::new(shared),
        sampler: Sampler::new(1),
    });
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.insert(*name, value.parse().unwrap());
    }
    let mut capture = Capture::begin(&pipe, &begun(&route(paths), wanted, &map)).unwrap();
    let mut ending = Ending::default();
    exchange(&mut capture, &mut ending);
    capture.settle(Box::new(ending));
    waiting.try_recv().ok()
}

/// The record of an exchange that is one.
fn record_of(
    options: Options,
    headers: &[(&'static str, &str)],
    exchange: impl FnOnce(&mut Capture, &mut Ending),
) -> Record {
    offered(options, headers, exchange).expect("it is recorded")
}

/// Its meta object, as a reader sees it.
fn read(record: &Record, bodies: &Stored) -> Meta {
    let json = record.meta(bodies).to_json_within(1 << 20).unwrap();
    Meta::from_json(&json).unwrap()
}

/// See [`read`].
fn meta_of(
    options: Options,
    headers: &[(&'static str, &str)],
    exchange: impl FnOnce(&mut Capture, &mut Ending),
) -> Meta {
    let record = record_of(options, headers, exchange);
    read(&record, &record.bodies())
}

/// A peer's answer begins.
fn answer(capture: &mut Capture, status: u16, content_type: &str) {
    let head = http::Response::builder()
        .status(status)
        .header("content-type", content_type);
    capture.answered(&head.body(()).unwrap().into_parts().0, Duration::ZERO);
}

#[test]
fn with_a_share_of_nothing_errors_broken_and_slow_answers_are_recorded_and_no_others() {
    let body = Bytes::from(vec![b'x'; 200_000]);
    let share_of_nothing = Options(
        Wanted {
            pct: 0.0,
            slow: Some(Duration::from_secs(30)),
            ..ALL
        },
        &[],
    );
    let recorded = |status: u16, end: End, seconds: u64| {
        let record = offered(share_of_nothing, &[], |capture, ending| {
            capture.request(&Bytes::from_static(b"{}"));
            answer(capture, status, "application/json");
            capture.chunk(&body, Instant::now());
            (ending.status, ending.end) = (status, end);
            ending.took = Duration::from_secs(seconds);
        })?;
        let bodies = record.bodies();
        assert_eq!(&bodies.request[..], b"{}");
        let meta = read(&record, &bodies);
        Some((meta.sampled_by.unwrap(), meta.resp_body_truncated.unwrap()))
    };
    let by = |reason: &str, is_cut: bool| Some((reason.to_owned(), is_cut));
    assert_eq!(recorded(200, End::Whole, 1), None);
    assert_eq!(recorded(429, End::Whole, 1), None);
    assert_eq!(recorded(200, End::Left, 1), None);
    // Only of an error is it known before its body comes that it is recorded.
    assert_eq!(recorded(500, End::Whole, 1), by("error", false));
    assert_eq!(recorded(200, End::Broken, 1), by("truncated", true));
    assert_eq!(recorded(200, End::Whole, 31), by("slow", true));
}

#[test]
fn bodies_are_kept_whole_in_part_or_not_at_all_and_counted_in_any_case() {
    for (max, request, response, is_cut) in [
        (u64::MAX, "0123456789", "abcdefghij", false),
        (
            8,
            "01234567",
            "abcdef\n[BODYLOG_TRUNCATED 2 BYTES MISSING IN MIDDLE]\nij",
            true,
        ),
        (0, "", "", false),
    ] {
        let record = record_of(bodies(max), &[], |capture, _| {
            capture.request(&Bytes::from_static(b"0123456789"));
            answer(capture, 200, "text/plain");
            capture.chunk(&Bytes::from_static(b"abcdefghij"), Instant::now());
        });
        let bodies = record.bodies();
        assert_eq!(
            (&bodies.request[..], &bodies.response[..]),
            (request.as_bytes(), response.as_bytes()),
            "{max}"
        );
        let meta = read(&record, &bodies);
        assert_eq!(
            (meta.req_bytes, meta.resp_bytes, meta.chunk_count),
            (Some(10), Some(10), Some(1))
        );
        assert_eq!(
            (meta.req_body_truncated, meta.resp_body_truncated),
            (Some(is_cut), Some(is_cut)),
            "{max}"
        );
        assert_eq!(meta.shed, None);
    }
}

#[test]
fn a_body_that_was_announced_and_never_read_is_not_all_there() {
    let cases: [(&[(&str, &str)], bool); 3] = [
        (&[("content-length", "12")], true),
        (&[("transfer-encoding", "chunked")], true),
        (&[("content-length", "0")], false),
    ];
    for (headers, is_missing) in cases {
        let meta = meta_of(PLAIN, headers, |capture, _| {
            capture.refused("body_too_large");
        });
        assert_eq!(meta.req_body_truncated, Some(is_missing), "{headers:?}");
        let meta = meta_of(PLAIN, headers, |capture, _| {
            capture.request(&Bytes::from_static(b"{}"));
        });
        assert_eq!(meta.req_body_truncated, Some(false), "{headers:?}");
    }
}

#[test]
fn a_client_that_left_is_told_apart_from_a_peer_that_broke_off() {
    for (end, is_gone, has_end) in [
        (End::Whole, false, true),
        (End::Broken, false, false),
        (End::Left, true, false),
    ] {
        let meta = meta_of(PLAIN, &[], |capture, ending| {
            capture.chunk(&Bytes::from_static(b"x"), Instant::now());
            ending.end = end;
        });
        assert_eq!((meta.client_gone, meta.complete), (is_gone, Some(has_end)));
        assert!(meta.first_chunk_t.is_some());
        assert_eq!(meta.last_chunk_t.is_some(), has_end, "{end:?}");
    }
}

#[test]
fn a_session_id_is_hidden_where_its_place_in_the_body_is() {
    let of = |options: Options, source: &str| {
        let meta = meta_of(options, &[], |capture, ending| {
            capture.session(b"somebody");
            ending.source = source.into();
        });
        meta.session_id.unwrap()
    };
    let options = Options(ALL, &["user"]);
    assert_eq!(of(options, "body.user"), redact::REDACTED);
    assert_eq!(of(options, "header.x-session-id"), "somebody");
    assert_eq!(of(PLAIN, "body.user"), "somebody");
}

#[test]
fn the_end_of_a_cut_stream_does_not_bring_back_what_is_hidden() {
    let options = Options(bodies(64).0, &["c"]);
    let record = record_of(options, &[], |capture, _| {
        answer(capture, 200, "text/event-stream");
        for _ in 0..10 {
            let event = Bytes::from_static(b"data: {\"c\":\"hidden hidden hidden\"}\n\n");
            capture.chunk(&event, Instant::now());
        }
    });
    let mut kept = Vec::new();
    assert!(record.capture.tap.write_to(&mut kept).is_some());
    assert!(String::from_utf8_lossy(&kept).ends_with("hidden\"}\n\n"));
    let stored = String::from_utf8(record.bodies().response.to_vec()).unwrap();
    assert!(!stored.contains("hidden"), "{stored}");
    assert!(stored.contains("[BODYLOG_TRUNCATED"), "{stored}");
}

#[test]
fn whether_a_stream_was_asked_for_is_told_whatever_is_stored() {
    let body = Bytes::from_static(br#"{"stream":false,"messages":[{"content":"long"}]}"#);
    for max in [u64::MAX, 0, 8] {
        for asked in [Some(true), Some(false), None] {
            let meta = meta_of(bodies(max), &[], |capture, _| {
                capture.request(&body);
                capture.asked_for_stream(asked);
                answer(capture, 200, "application/json");
            });
            assert_eq!(meta.stream, asked, "{max}");
        }
    }
    // An engine may stream without being asked, or to a request that cannot be read.
    let meta = meta_of(PLAIN, &[], |capture, _| {
        answer(capture, 200, "text/event-stream");
    });
    assert_eq!(meta.stream, Some(true));
}

#[test]
fn times_are_rounded_to_milliseconds() {
    assert_eq!(seconds(Duration::from_micros(1_234_567)), 1.235);
}
