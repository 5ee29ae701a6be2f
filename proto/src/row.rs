//! One slim row per exchange, without bodies: a line of `<dir>/details/<YYYY-MM-DD>/<HH>.jsonl`.
//! Metrics and audits come from these rows.
//!
//! A row never contains a body, a header, reasoning text, a tool call, a session id or a client
//! address.

use std::borrow::Cow;
use std::fmt;

use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize};

use crate::members::{Members, named};
use crate::meta::SCHEMA;

/// The backend of an exchange without a peer.
pub const NO_BACKEND: &str = "(none)";

/// Declares the row: its struct, its default, its writer and the table of its members. Before the name
/// of a member stands when it is written: `always` and `text` always, `filled` and `nonzero` unless it
/// is empty or 0, `flag` when it is true, `option` when it is known.
macro_rules! row {
    (
        $(#[$about:meta])*
        pub struct $Row:ident<$life:lifetime> {
            $(
                $(#[doc = $doc:literal])+
                $(#[serde($($attribute:tt)*)])?
                $kind:ident $name:ident: $Type:ty;
            )*
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct $Row<$life> {
            $(
                $(#[doc = $doc])+
                $(#[serde($($attribute)*)])?
                pub $name: $Type,
            )*
        }

        impl<$life> Default for $Row<$life> {
            fn default() -> Self {
                let mut row = Self { $($name: <$Type>::default()),* };
                row.v = SCHEMA;
                row.backend = NO_BACKEND.into();
                row
            }
        }

        impl $Row<'_> {
            /// Appends the row as JSON, with the same bytes as `serde_json`, in less time.
            ///
            /// # Errors
            /// None: all keys are text and no number is infinite.
            pub fn write_json(&self, out: &mut Vec<u8>) -> serde_json::Result<()> {
                out.push(b'{');
                let mut object = Members::of(out);
                $( row!(@write $kind object, named!($name), &self.$name); )*
                out.push(b'}');
                Ok(())
            }
        }

        /// Name and meaning of every member.
        #[cfg(test)]
        pub(crate) const TABLE: &[[&str; 2]] = &[$([stringify!($name), concat!($($doc),+)]),*];
    };

    (@write text $object:ident, $name:expr, $value:expr) => { $object.text($name, $value) };
    (@write filled $object:ident, $name:expr, $value:expr) => { $object.filled($name, $value) };
    (@write flag $object:ident, $name:expr, $value:expr) => { $object.flag($name, *$value) };
    (@write always $object:ident, $name:expr, $value:expr) => { $object.json($name, $value)? };
    (@write nonzero $object:ident, $name:expr, $value:expr) => {
        if *$value != 0 {
            $object.json($name, $value)?;
        }
    };
    (@write option $object:ident, $name:expr, $value:expr) => {
        if let Some(value) = $value {
            $object.json($name, value)?;
        }
    };
}

row! {
    /// One row. Absent text is empty, an absent number or time 0, unless the field says otherwise.
    ///
    /// Parsing borrows from the line where a value has no escapes. Unknown fields are skipped,
    /// because a reader does not pass rows on.
    pub struct DetailRow<'a> {
        /// Major version of the schema; 1 when absent.
        #[serde(default = "first_schema")]
        always v: u32;
        /// Arrival of the request, RFC 3339.
        #[serde(borrow)]
        text ts: Cow<'a, str>;
        /// End of the exchange, in the same offset.
        #[serde(borrow, skip_serializing_if = "str::is_empty")]
        filled ts_end: Cow<'a, str>;
        /// The `x-request-id`.
        #[serde(borrow, skip_serializing_if = "str::is_empty")]
        filled request_id: Cow<'a, str>;
        /// The sender; empty for version 1. A row is unique in (`pid`, `epoch`, `seq`).
        #[serde(borrow, skip_serializing_if = "str::is_empty")]
        filled pid: Cow<'a, str>;
        /// The sender's run.
        #[serde(skip_serializing_if = "is_zero")]
        nonzero epoch: u64;
        /// Sequence within the run, from 1; ascending over the files for one `pid` and `epoch`.
        #[serde(skip_serializing_if = "is_zero")]
        nonzero seq: u64;
        /// The address from which the frame came.
        #[serde(borrow, skip_serializing_if = "str::is_empty")]
        filled source_addr: Cow<'a, str>;
        /// Method.
        #[serde(borrow, skip_serializing_if = "str::is_empty")]
        filled method: Cow<'a, str>;
        /// Path and query after the route prefix.
        #[serde(borrow, skip_serializing_if = "str::is_empty")]
        filled uri: Cow<'a, str>;
        /// The route.
        #[serde(borrow, skip_serializing_if = "str::is_empty")]
        filled route: Cow<'a, str>;
        /// The owner of the key.
        #[serde(borrow, skip_serializing_if = "str::is_empty")]
        filled tenant: Cow<'a, str>;
        /// The model that the request names.
        #[serde(borrow, skip_serializing_if = "str::is_empty")]
        filled model_req: Cow<'a, str>;
        /// The model that the response names.
        #[serde(borrow, skip_serializing_if = "str::is_empty")]
        filled model: Cow<'a, str>;
        /// Whether the request asks for a stream; absent when unknown.
        #[serde(skip_serializing_if = "Option::is_none")]
        option stream: Option<bool>;
        /// Status sent to the client; 0 when unknown.
        always status: u16;
        /// The peer as the sender wrote it; in version 1 with ` (retry#N)`.
        #[serde(borrow, skip_serializing_if = "str::is_empty")]
        filled peer: Cow<'a, str>;
        /// The peer's configured name.
        #[serde(borrow, skip_serializing_if = "str::is_empty")]
        filled peer_name: Cow<'a, str>;
        /// The peer behind the peer.
        #[serde(borrow, skip_serializing_if = "str::is_empty")]
        filled forwarded_to: Cow<'a, str>;
        /// `host:port` of `forwarded_to`, else of the peer, else [`NO_BACKEND`].
        #[serde(borrow)]
        text backend: Cow<'a, str>;
        /// Number of attempts; 0 when unknown or none.
        #[serde(skip_serializing_if = "is_zero_u32")]
        nonzero attempts: u32;
        /// How the peer was chosen.
        #[serde(borrow, skip_serializing_if = "str::is_empty")]
        filled mode: Cow<'a, str>;
        /// Where the session id was found.
        #[serde(borrow, skip_serializing_if = "str::is_empty")]
        filled session_src: Cow<'a, str>;
        /// Why the router itself refused the request.
        #[serde(borrow, skip_serializing_if = "str::is_empty")]
        filled reject_reason: Cow<'a, str>;
        /// Why generation ended, in OpenAI's words.
        #[serde(borrow, skip_serializing_if = "str::is_empty")]
        filled finish_reason: Cow<'a, str>;
        /// Whether the end of the response was seen; absent when unknown.
        #[serde(skip_serializing_if = "Option::is_none")]
        option complete: Option<bool>;
        /// Whether the client left before the response had ended.
        #[serde(skip_serializing_if = "is_false")]
        flag client_gone: bool;
        /// Whether the stored response body is incomplete.
        #[serde(skip_serializing_if = "is_false")]
        flag resp_body_truncated: bool;
        /// First chunk, seconds from the arrival; 0 when there was none.
        always frt: f64;
        /// First event of a stream with generated content, in the same unit; absent when unknown.
        #[serde(skip_serializing_if = "Option::is_none")]
        option first_token_t: Option<f64>;
        /// Time of the last chunk, in the same unit.
        always lct: f64;
        /// Time of the end of the exchange, in the same unit.
        always rt: f64;
        /// Time spent connecting to the peer.
        #[serde(skip_serializing_if = "Option::is_none")]
        option upstream_connect_t: Option<f64>;
        /// Time spent waiting for a slot.
        #[serde(skip_serializing_if = "Option::is_none")]
        option queue_t: Option<f64>;
        /// Non-empty chunks of the response.
        #[serde(deserialize_with = "count")]
        always chunk_count: u64;
        /// Size of the request body in bytes: as received if the sender reports it, else as stored.
        #[serde(deserialize_with = "count")]
        always req_bytes: u64;
        /// Size of the response body in bytes: on the wire if the sender reports it, else as stored.
        #[serde(deserialize_with = "count")]
        always resp_bytes: u64;
        /// Prompt tokens.
        #[serde(deserialize_with = "count")]
        always prompt_tokens: u64;
        /// Completion tokens.
        #[serde(deserialize_with = "count")]
        always completion_tokens: u64;
        /// Prompt tokens from the prefix cache.
        #[serde(deserialize_with = "count")]
        always cached_tokens: u64;
        /// Prompt and completion tokens.
        #[serde(deserialize_with = "count")]
        always total_tokens: u64;
        /// Reasoning tokens.
        #[serde(deserialize_with = "count")]
        always reasoning_tokens: u64;
        /// Why the exchange is recorded.
        #[serde(borrow, skip_serializing_if = "str::is_empty")]
        filled sampled_by: Cow<'a, str>;
        /// The parts left out for lack of space.
        #[serde(borrow, skip_serializing_if = "str::is_empty")]
        filled shed: Cow<'a, str>;
    }
}

impl DetailRow<'_> {
    /// Whether this program can read the row: false for a later major version.
    pub fn is_readable(&self) -> bool {
        self.v <= SCHEMA
    }
}

/// A count from outside. An invalid count is treated as absent: other writers put -1 where a number
/// is missing, and that must not cost a whole exchange.
fn count<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    struct Count;
    impl Visitor<'_> for Count {
        type Value = u64;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a number")
        }

        fn visit_u64<E>(self, value: u64) -> Result<u64, E> {
            Ok(value)
        }

        fn visit_i64<E>(self, value: i64) -> Result<u64, E> {
            Ok(u64::try_from(value).unwrap_or(0))
        }

        fn visit_f64<E>(self, value: f64) -> Result<u64, E> {
            // Saturates: negative values become zero.
            Ok(value as u64)
        }

        fn visit_unit<E>(self) -> Result<u64, E> {
            Ok(0)
        }
    }
    from.deserialize_any(Count)
}

fn first_schema() -> u32 {
    1
}

fn is_zero(value: &u64) -> bool {
    *value == 0
}

fn is_zero_u32(value: &u32) -> bool {
    *value == 0
}

fn is_false(value: &bool) -> bool {
    !*value
}

#[cfg(test)]
mod tests;
