//! `cch_strip`: removes the billing header that some coding agents put at the start of a prompt.
//!
//! The header changes with every request, so no prefix cache behind it ever hits. It counts at the
//! beginning of a prompt: as the text of `system`, of a message's `content`, or of a block in
//! either. It is recognised only without escapes. It is removed through its last semicolon; the
//! text behind stays, including a blank.

use super::Signs;
use super::edit_scan::EditScan;
use crate::content::splice::Splices;

const NAME: &[u8] = b"x-anthropic-billing-header:";

/// Required, in this order, each up to a semicolon.
const PARTS: [&[u8]; 3] = [b"cc_version=", b"cc_entrypoint=", b"cch="];

impl Signs {
    /// Whether a string, given without its quotes, may begin with a header.
    #[inline]
    pub(in crate::content) fn begins_billing_header(text: &[u8]) -> bool {
        text.starts_with(NAME)
    }
}

/// Removes the headers that the scan found. Returns how many.
pub(super) fn strip(edit_scan: &EditScan, splices: &mut Splices) -> usize {
    let system = edit_scan.system.iter().flat_map(|system| &system.headers);
    let headers = system
        .chain(&edit_scan.messages.headers)
        .chain(&edit_scan.input.headers);
    headers.map(|header| splices.remove(header.clone())).count()
}

/// The length of the billing header at the beginning of a string, which includes its opening quote.
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
