//! `include_usage`: makes a stream report its usage when the client did not ask for it.
//!
//! A client that sets `continuous_usage_stats` has decided about usage. Adding `include_usage`
//! would give it chunks that it did not ask for.
//!
//! The member is inserted, or its value replaced, where the parser of the engine will find it. An
//! object or array in its place is an unknown extension and stays unchanged.

use super::edit_scan::{EditScan, Options};
use crate::content::splice::Splices;

const OPTIONS: &[u8] = br#""stream_options":{"include_usage":true}"#;

/// Whether `stream` is true and usage was not requested. If so, adds the edits that request it.
pub(super) fn ask(body: &[u8], edit_scan: &EditScan, splices: &mut Splices) -> bool {
    let stream = edit_scan.stream.clone();
    if stream.is_none_or(|value| &body[value] != b"true") {
        return false;
    }
    let Some(options) = &edit_scan.options else {
        splices.insert(edit_scan.top.end - 1, [b",", OPTIONS].concat());
        return true;
    };
    match &body[options.value.clone()] {
        b"null" => {
            let object = &OPTIONS[OPTIONS.len() - br#"{"include_usage":true}"#.len()..];
            splices.replace(options.value.clone(), object);
            true
        }
        [b'{', ..] => ask_in(body, options, splices),
        _ => false,
    }
}

fn ask_in(body: &[u8], options: &Options, splices: &mut Splices) -> bool {
    let continuous = options.continuous.clone();
    if continuous.is_some_and(|value| &body[value] == b"true") {
        return false;
    }
    let Some(flag) = &options.include_usage else {
        let comma = if options.is_empty { "" } else { "," };
        let text = format!(r#""include_usage":true{comma}"#);
        splices.insert(options.value.start + 1, text.into_bytes());
        return true;
    };
    match &body[flag.clone()] {
        b"true" | [b'{' | b'[', ..] => false,
        _ => {
            splices.replace(flag.clone(), &b"true"[..]);
            true
        }
    }
}
