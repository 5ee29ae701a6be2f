//! `cch_strip`: the billing header that some coding agents put at the start of a prompt is taken out.
//!
//! It changes with every request, so that behind it no prefix cache ever hits. It counts where a
//! prompt begins: as the text of `system`, of a message's `content`, or of a block in either. The
//! header is known as it is written, without escapes; through its last semicolon it goes, and what
//! follows stays, a blank included.

use std::sync::LazyLock;

use memchr::memmem::Finder;

use super::edit_scan::EditScan;
use crate::content::splice::Splices;

const NAME: &[u8] = b"x-anthropic-billing-header:";

/// Required, in this order, each up to a semicolon.
const PARTS: [&[u8]; 3] = [b"cc_version=", b"cc_entrypoint=", b"cch="];

/// Whether a scan could find one.
pub(super) fn may_be_in(body: &[u8]) -> bool {
    static FINDER: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(NAME));
    FINDER.find(body).is_some()
}

/// Takes out what the survey found; how many.
pub(super) fn strip(edit_scan: &EditScan, splices: &mut Splices) -> usize {
    let system = edit_scan.system.iter().flat_map(|system| &system.headers);
    let headers = system
        .chain(&edit_scan.messages.headers)
        .chain(&edit_scan.input.headers);
    headers.map(|header| splices.remove(header.clone())).count()
}

/// The length of the header that a string, with its opening quote, begins with.
pub(super) fn header_len(string: &[u8]) -> Option<usize> {
    let text = string.strip_prefix(b"\"")?;
    let mut rest = text.strip_prefix(NAME)?;
    for part in PARTS {
        let blank = rest.iter().take_while(|byte| **byte == b' ').count();
        rest = rest[blank..].strip_prefix(part)?;
        let ends = |byte: &u8| matches!(byte, b';' | b'"' | b'\\');
        let end = rest.iter().position(ends)?;
        rest = rest[end..].strip_prefix(b";")?;
    }
    Some(text.len() - rest.len())
}
