//! `include_usage`: a stream that was not asked for its usage is asked.
//!
//! The member is inserted, or its value replaced, where the parser of the engine will find it; an
//! object or array in its place is somebody's extension and is left alone.

use crate::content::scan::{Span, is_key, member, members};
use crate::content::splice::Splices;

const OPTIONS: &[u8] = br#""stream_options":{"include_usage":true}"#;

/// Whether `stream` is true and usage was not asked for; adds the edits that ask for it.
pub(super) fn ask(body: &[u8], top: &Span, splices: &mut Splices) -> bool {
    let (mut stream, mut options) = (None, None);
    let read = members(body, top, |member| {
        let key = &body[member.key];
        if is_key(key, "stream") {
            stream = Some(member.value);
        } else if is_key(key, "stream_options") {
            options = Some(member.value);
        }
    });
    let is_stream = stream.is_some_and(|value| &body[value] == b"true");
    if read.is_none() || !is_stream {
        return false;
    }
    let Some(options) = options else {
        splices.insert(top.end - 1, [b",", OPTIONS].concat());
        return true;
    };
    match &body[options.clone()] {
        b"null" => {
            let object = &OPTIONS[OPTIONS.len() - br#"{"include_usage":true}"#.len()..];
            splices.replace(options, object);
            true
        }
        [b'{', ..] => ask_in(body, &options, splices),
        _ => false,
    }
}

fn ask_in(body: &[u8], options: &Span, splices: &mut Splices) -> bool {
    let mut is_empty = true;
    if members(body, options, |_| is_empty = false).is_none() {
        return false;
    }
    let Some(flag) = member(body, options, "include_usage") else {
        let comma = if is_empty { "" } else { "," };
        let text = format!(r#""include_usage":true{comma}"#);
        splices.insert(options.start + 1, text.into_bytes());
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
