//! Corrects requests for the engine: byte-preserving edits, each with a switch of its own.
//!
//! The walk that reads a request notes where its options are and which edits may apply. Only when
//! one may, a scan finds everything that it looks for. Each transform adds splices over the
//! original bytes, and all are applied together. Moving system messages is a second stage over the
//! result, because the moved text may have been edited. A body that is not a JSON object passes
//! unchanged, and so does a body that the edits would more than double.

mod billing;
mod edit_scan;
mod hoist;
mod kimi;
mod usage;

use std::borrow::Cow;

use answers::cursor::Span;
use bytes::Bytes;

use self::edit_scan::{EditScan, Notes};
pub use self::kimi::is_kimi;
use super::splice::{Parts, Splices};
pub use router_config::valid::{IdStrategy, SystemHoist};

/// Bytes that edits may add to a body, on top of the body's own length.
const ADDED_MIN: usize = 64 << 10;

/// The transforms to apply to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// `include_usage`.
    pub include_usage: bool,
    /// `cch_strip`.
    pub cch_strip: bool,
    /// `kimi_normalize`, and the way to make ids.
    pub kimi_normalize: Option<IdStrategy>,
    /// `system_hoist`.
    pub system_hoist: SystemHoist,
}

impl Wanted {
    /// No transform.
    pub const NOTHING: Self = Self {
        include_usage: false,
        cch_strip: false,
        kimi_normalize: None,
        system_hoist: SystemHoist::Off,
    };
}

/// What the walk over a JSON object noted for the transforms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// The position after the object.
    pub end: usize,
    /// `stream` is true.
    pub is_stream: bool,
    /// `stream_options`.
    pub stream_options: Option<Span>,
    /// The edits that may apply.
    pub signs: Signs,
}

/// Strings that some edit looks for, wherever they are. Without a sign, the edit has nothing to do,
/// and nothing is searched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Signs {
    /// One begins like a billing header.
    pub billing_header: bool,
    /// One is `system`.
    pub system_role: bool,
}

/// What the transforms changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transformed {
    /// The edited body; `None` when nothing was edited.
    pub body: Option<Parts>,
    /// Whether the request was changed to ask for usage that the client had not asked for.
    pub asked_for_usage: bool,
    /// Texts from which a billing header was removed.
    pub headers_stripped: usize,
    /// Tool-call ids replaced, in calls and in their answers.
    pub ids_renamed: usize,
    /// System messages moved out of `messages`.
    pub messages_hoisted: usize,
}

/// Edits a request's body, which is one JSON object with these places. Parts that are not
/// understood stay unchanged.
pub fn transform(body: &Bytes, places: &Places, wanted: Wanted) -> Transformed {
    let mut done = in_place(body, places, wanted).unwrap_or_default();
    if wanted.system_hoist != SystemHoist::Off && places.signs.system_role {
        let edited = done.body.as_ref().map(Parts::joined);
        let edited = edited.as_ref().unwrap_or(body);
        if let Some((hoisted, messages)) = moved(edited, wanted.system_hoist) {
            done.body = Some(hoisted);
            done.messages_hoisted = messages;
        }
    }
    done
}

/// The first stage: texts, ids and options.
fn in_place(body: &Bytes, places: &Places, wanted: Wanted) -> Option<Transformed> {
    let mut splices = room(body);
    let mut done = Transformed {
        asked_for_usage: wanted.include_usage && usage::ask(body, places, &mut splices),
        ..Transformed::default()
    };
    let notes = Notes {
        headers: wanted.cch_strip && places.signs.billing_header,
        calls: wanted.kimi_normalize.is_some(),
        systems: SystemHoist::Off,
    };
    if notes != Notes::NOTHING
        && let Some(edit_scan) = EditScan::of(body, notes)
    {
        done.headers_stripped = billing::strip(&edit_scan, &mut splices);
        if let Some(strategy) = wanted.kimi_normalize {
            done.ids_renamed = kimi::rename(body, &edit_scan, strategy, &mut splices);
        }
    }
    done.body = Some(splices.apply(body)?);
    Some(done)
}

/// The second stage: moves system messages. Returns the body and how many moved.
fn moved(body: &Bytes, hoist: SystemHoist) -> Option<(Parts, usize)> {
    let notes = Notes {
        systems: hoist,
        ..Notes::NOTHING
    };
    let edit_scan = EditScan::of(body, notes)?;
    let mut splices = room(body);
    let messages = hoist::hoist(body, &edit_scan, &mut splices);
    Some((splices.apply(body)?, messages))
}

fn room(body: &[u8]) -> Splices {
    Splices::at_most(body.len() + ADDED_MIN)
}

/// The text as a JSON string. The text must need no escapes.
fn quoted(text: &str) -> Cow<'static, [u8]> {
    Cow::Owned([b"\"", text.as_bytes(), b"\""].concat())
}

#[cfg(test)]
mod tests;
