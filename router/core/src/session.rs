//! Who is asking: the session id and where it came from.
//!
//! The edge looks values up (headers, fields of the body); this module decides which value counts.
//! Source: the field's list and rules in ARCHITECTURE.md, "Session id".

use std::borrow::Cow;
use std::sync::Arc;

/// One place to look for a session id. `label` is what `X-Routed-Source` says.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SessionSource {
    /// Where to look.
    pub place: Place,
    /// `header.<name>` or `body.<path>`.
    pub label: Arc<str>,
}

/// Where a session id may stand.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// A request header, lower case.
    Header(Arc<str>),
    /// A dotted path into the JSON body. Strings and integers count. Where a path goes through a
    /// string that holds JSON text, the text is looked into (`metadata.user_id.session_id`).
    Body(Arc<[Box<str>]>),
}

/// A usable session id: at least one character that is not white space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionId<'a> {
    /// The raw decoded bytes, untrimmed, whatever their length: what placement hashes.
    pub raw: Cow<'a, [u8]>,
    /// `header.<name>` or `body.<path>`.
    pub source: Arc<str>,
}
