//! `include_usage`: makes a stream report its usage when the client did not ask for it.
//!
//! A client that sets `continuous_usage_stats` has decided about usage. Adding `include_usage`
//! would give it chunks that it did not ask for.
//!
//! The member is inserted, or its value replaced, where the parser of the engine will find it. An
//! object or array in its place is an unknown extension and stays unchanged.

use answers::cursor::{Cursor, Span, is_key};

use super::Places;
use crate::content::splice::Splices;

const OPTIONS: &[u8] = br#""stream_options":{"include_usage":true}"#;

/// `stream_options` when it is an object.
#[derive(Default)]
struct Options {
    has_members: bool,
    include_usage: Option<Span>,
    continuous: Option<Span>,
}

/// Whether `stream` is true and usage was not requested. If so, adds the edits that request it.
pub(super) fn ask(body: &[u8], places: &Places, splices: &mut Splices) -> bool {
    if !places.is_stream {
        return false;
    }
    let Some(value) = &places.stream_options else {
        splices.insert(places.end - 1, [b",", OPTIONS].concat());
        return true;
    };
    match &body[value.clone()] {
        b"null" => {
            let object = &OPTIONS[OPTIONS.len() - br#"{"include_usage":true}"#.len()..];
            splices.replace(value.clone(), object);
            true
        }
        [b'{', ..] => ask_in(body, value, splices),
        _ => false,
    }
}

fn ask_in(body: &[u8], object: &Span, splices: &mut Splices) -> bool {
    let Some(options) = options(body, object) else {
        return false;
    };
    if options
        .continuous
        .is_some_and(|value| &body[value] == b"true")
    {
        return false;
    }
    let Some(flag) = options.include_usage else {
        let comma = if options.has_members { "," } else { "" };
        let text = format!(r#""include_usage":true{comma}"#);
        splices.insert(object.start + 1, text.into_bytes());
        return true;
    };
    match &body[flag.clone()] {
        b"true" | [b'{' | b'[', ..] => false,
        _ => {
            splices.replace(flag, &b"true"[..]);
            true
        }
    }
}

fn options(body: &[u8], object: &Span) -> Option<Options> {
    let mut options = Options::default();
    Cursor::at(body, object.start).members(|cursor, key| {
        options.has_members = true;
        let value = cursor.skip()?;
        let key = &body[key];
        if is_key(key, "include_usage") {
            options.include_usage = Some(value);
        } else if is_key(key, "continuous_usage_stats") {
            options.continuous = Some(value);
        }
        Some(())
    })?;
    Some(options)
}
