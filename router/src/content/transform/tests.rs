//! Each transform against the vectors of its specification, then all of them against a model.

mod billing;
mod hoist;
mod kimi;
mod model;
mod turns;
mod usage;

use super::*;
use crate::content::{Fields, Inspection};

const NOTHING: Wanted = Wanted::NOTHING;

const USAGE: Wanted = Wanted {
    include_usage: true,
    ..NOTHING
};

const EVERYTHING: Wanted = Wanted {
    include_usage: true,
    cch_strip: true,
    kimi_normalize: Some(IdStrategy::Rerank),
    system_hoist: SystemHoist::Leading,
};

/// [`Transformed`] with the body in one piece.
#[derive(Debug, Default, PartialEq)]
struct Done {
    body: Option<Vec<u8>>,
    asked_for_usage: bool,
    headers_stripped: usize,
    ids_renamed: usize,
    messages_hoisted: usize,
}

/// What becomes of a body that a client sends.
fn transform(body: &[u8], wanted: Wanted) -> Done {
    let places = Inspection::read(&Fields::new([]), body).places();
    let body = Bytes::copy_from_slice(body);
    let done = places.map(|places| super::transform(&body, &places, wanted));
    let done = done.unwrap_or_default();
    Done {
        body: done.body.map(|parts| parts.joined().to_vec()),
        asked_for_usage: done.asked_for_usage,
        headers_stripped: done.headers_stripped,
        ids_renamed: done.ids_renamed,
        messages_hoisted: done.messages_hoisted,
    }
}

/// The body that an engine gets.
fn sent(body: &str, wanted: Wanted) -> String {
    let done = transform(body.as_bytes(), wanted);
    String::from_utf8(done.body.unwrap_or_else(|| body.into())).unwrap()
}

#[test]
fn moved_text_is_stripped_first() {
    let header = "x-anthropic-billing-header: cc_version=1; cc_entrypoint=cli; cch=a;";
    let body = format!(
        r#"{{"messages":[{{"role":"system","content":"{header} You are"}},{{"role":"user","content":"hi"}}]}}"#
    );
    let done = transform(body.as_bytes(), EVERYTHING);
    assert_eq!((done.headers_stripped, done.messages_hoisted), (1, 1));
    assert_eq!(
        done.body.as_deref(),
        Some(
            &br#"{"messages":[{"role":"user","content":"hi"}],"system":[{"type":"text","text":" You are"}]}"#[..]
        )
    );
}

#[test]
fn what_is_off_does_nothing() {
    let body = r#"{"stream":true,"system":"x-anthropic-billing-header: cc_version=1; cc_entrypoint=c; cch=1;","model":"kimi-k2.5","messages":[{"role":"system","tool_calls":[{"id":"c","function":{"name":"f"}}]}]}"#;
    assert_eq!(transform(body.as_bytes(), NOTHING), Done::default());
    assert_ne!(sent(body, EVERYTHING), body);
}

#[test]
fn edits_that_would_swell_a_body_are_not_made() {
    let name = "f".repeat(128);
    let answers = r#"{"tool_call_id":"c"},"#.repeat(4_000);
    let body = format!(
        r#"{{"model":"kimi-k2.5","messages":[{{"tool_calls":[{{"id":"c","function":{{"name":"{name}"}}}}]}},{answers}0]}}"#
    );
    assert_eq!(transform(body.as_bytes(), EVERYTHING), Done::default());
    let texts = "\"\",".repeat(40_000);
    let body = format!(r#"{{"messages":[{{"role":"system","content":[{texts}""]}}]}}"#);
    assert_eq!(transform(body.as_bytes(), EVERYTHING), Done::default());
}
