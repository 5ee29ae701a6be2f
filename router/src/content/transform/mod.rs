//! Requests, put right for the engine: byte-preserving edits, each with a switch of its own.
//!
//! Every transform looks at the original bytes and adds splices; they are applied together. A body
//! that is no JSON object passes as it came.

mod usage;

use super::scan;
use super::splice::Splices;

/// Which transforms act on a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// `include_usage`.
    pub include_usage: bool,
}

/// What a transform changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transformed {
    /// The edited body; `None` when nothing was edited.
    pub body: Option<Vec<u8>>,
    /// The stream was asked for usage that the client had not asked for.
    pub asked_for_usage: bool,
}

/// Edits a request's body.
pub fn transform(body: &[u8], wanted: Wanted) -> Transformed {
    edit(body, wanted).unwrap_or_default()
}

fn edit(body: &[u8], wanted: Wanted) -> Option<Transformed> {
    if wanted == Wanted::default() {
        return None;
    }
    let top = scan::document(body)?;
    let mut splices = Splices::default();
    let asked_for_usage = wanted.include_usage && usage::ask(body, &top, &mut splices);
    if splices.is_empty() {
        return None;
    }
    Some(Transformed {
        body: Some(splices.apply(body)?),
        asked_for_usage,
    })
}

#[cfg(test)]
mod tests;
