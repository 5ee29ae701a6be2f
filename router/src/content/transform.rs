//! Corrects requests for the engine: byte-preserving edits, each with a switch of its own.
//!
//! One scan finds everything that the transforms look for. Each transform adds splices over the
//! original bytes, and all are applied together. Moving system messages is a second stage over the
//! result, because the moved text may have been edited. A body that is not a JSON object passes
//! unchanged, and so does a body that the edits would more than double.

mod billing;
mod edit_scan;
mod hoist;
mod kimi;
mod usage;

use std::borrow::Cow;

use self::edit_scan::{EditScan, Notes};
pub use self::kimi::is_kimi;
use super::splice::Splices;
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

/// What the transforms changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transformed {
    /// The edited body; `None` when nothing was edited.
    pub body: Option<Vec<u8>>,
    /// Whether the request was changed to ask for usage that the client had not asked for.
    pub asked_for_usage: bool,
    /// Texts from which a billing header was removed.
    pub headers_stripped: usize,
    /// Tool-call ids replaced, in calls and in their answers.
    pub ids_renamed: usize,
    /// System messages moved out of `messages`.
    pub messages_hoisted: usize,
}

/// Edits a request's body. Parts that are not understood stay unchanged. Invalid JSON may be edited
/// if it begins like an object and ends well.
pub fn transform(body: &[u8], wanted: Wanted) -> Transformed {
    let mut done = in_place(body, wanted).unwrap_or_default();
    if wanted.system_hoist != SystemHoist::Off {
        let edited = done.body.as_deref().map_or(body, |edited| edited);
        if let Some((hoisted, messages)) = moved(edited, wanted.system_hoist) {
            done.body = Some(hoisted);
            done.messages_hoisted = messages;
        }
    }
    done
}

/// The first stage: texts, ids and options.
fn in_place(body: &[u8], wanted: Wanted) -> Option<Transformed> {
    let notes = Notes {
        headers: wanted.cch_strip && billing::may_be_in(body),
        calls: wanted.kimi_normalize.is_some(),
        systems: SystemHoist::Off,
    };
    if !(wanted.include_usage || notes.headers || notes.calls) {
        return None;
    }
    let edit_scan = EditScan::of(body, notes)?;
    let mut splices = room(body);
    let asked_for_usage = wanted.include_usage && usage::ask(body, &edit_scan, &mut splices);
    let headers_stripped = billing::strip(&edit_scan, &mut splices);
    let ids_renamed = match wanted.kimi_normalize {
        Some(strategy) => kimi::rename(body, &edit_scan, strategy, &mut splices),
        None => 0,
    };
    Some(Transformed {
        body: Some(splices.apply(body)?),
        asked_for_usage,
        headers_stripped,
        ids_renamed,
        messages_hoisted: 0,
    })
}

/// The second stage: moves system messages. Returns the body and how many moved.
fn moved(body: &[u8], hoist: SystemHoist) -> Option<(Vec<u8>, usize)> {
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
