//! One full record: a line of `<dir>/<YYYY-MM-DD>/<HH>.jsonl`.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::members::{Members, named};
use crate::meta::Meta;

/// Declares the record: its struct, the names of the members beside the meta fields and their writer.
/// Before the name of a member stands when it is written: `text` always, `optional` when it is known,
/// `flag` when it is true, `list` when it is not empty.
macro_rules! record {
    (
        $(#[$about:meta])*
        pub struct $Record:ident<$life:lifetime> {
            $(
                $(#[doc = $doc:literal])+
                #[serde($($attribute:tt)*)]
                $kind:ident $name:ident: $Type:ty;
            )*
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
        pub struct $Record<$life> {
            /// The router's data, and the data found in the response
            /// ([`MetaOf::resp_meta`](crate::meta::MetaOf::resp_meta)).
            #[serde(flatten)]
            pub meta: Meta,
            $(
                $(#[doc = $doc])+
                #[serde($($attribute)*)]
                pub $name: $Type,
            )*
        }

        impl $Record<'_> {
            /// The names of the members beside the meta fields. Only the listener writes them.
            pub const BESIDE_META: &'static [&'static str] = &[$(stringify!($name)),*];

            /// Appends the members beside the meta fields to an object that already has those, and
            /// closes it. Ignores [`Record::meta`].
            ///
            /// # Errors
            /// See [`Record::write_json`].
            pub fn write_beside_meta(&self, out: &mut Vec<u8>) -> serde_json::Result<()> {
                let mut object = Members::of(out);
                $( record!(@write $kind object, named!($name), self.$name); )*
                out.push(b'}');
                Ok(())
            }
        }

        /// Name, kind, writer and meaning of every member beside the meta fields.
        #[cfg(test)]
        pub(crate) const TABLE: &[[&str; 4]] = &[$([
            stringify!($name),
            stringify!($kind),
            "receiver",
            concat!($($doc),+),
        ]),*];
    };

    (@write text $object:ident, $name:expr, $value:expr) => { $object.text($name, &$value) };
    (@write optional $object:ident, $name:expr, $value:expr) => {
        $object.optional($name, $value.as_deref())
    };
    (@write flag $object:ident, $name:expr, $value:expr) => { $object.flag($name, $value) };
    (@write list $object:ident, $name:expr, $value:expr) => {
        if !$value.is_empty() {
            $object.json($name, &$value)?;
        }
    };
}

record! {
    /// One exchange as stored. The meta fields are on the top level, next to these.
    pub struct Record<'a> {
        /// The address from which the frame came. It replaces any value from the sender.
        #[serde(default, borrow, skip_serializing_if = "Option::is_none")]
        optional source_addr: Option<Cow<'a, str>>;
        /// End of the exchange, `ts` plus `rt`, in the offset of `ts`; absent when `ts` is not a
        /// valid time.
        #[serde(default, borrow, skip_serializing_if = "Option::is_none")]
        optional ts_end: Option<Cow<'a, str>>;
        /// The request body, or its base64.
        #[serde(default, borrow)]
        text req_body: Cow<'a, str>;
        /// Only present, and true, when the request body is base64.
        #[serde(default, skip_serializing_if = "is_false")]
        flag req_body_b64: bool;
        /// The text of the answer if the response has one, else the response body, or its base64.
        #[serde(default, borrow)]
        text resp_body: Cow<'a, str>;
        /// Only present, and true, when the response body is base64.
        #[serde(default, skip_serializing_if = "is_false")]
        flag resp_body_b64: bool;
        /// The choices, if there are several: `{index, text, reasoning, tool_calls,
        /// finish_reason}`. `resp_body` is then the text of the first choice.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        list resp_choices: Vec<Value>;
    }
}

fn is_false(value: &bool) -> bool {
    !*value
}

/// Never shows a body.
impl std::fmt::Debug for Record<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Record")
            .field("meta", &self.meta)
            .finish_non_exhaustive()
    }
}

impl Record<'_> {
    /// Whether this program can read the record: false for a later major version.
    pub fn is_readable(&self) -> bool {
        self.meta.v.unwrap_or(1) <= crate::meta::SCHEMA
    }

    /// Appends the record as JSON, with the same bytes as `serde_json`, in a tenth of the time if
    /// the bodies are prose.
    ///
    /// # Errors
    /// None: all keys are text and no number is infinite.
    pub fn write_json(&self, out: &mut Vec<u8>) -> serde_json::Result<()> {
        serde_json::to_writer(&mut *out, &self.meta)?;
        // Opened again for the members beside the meta fields.
        let _ = out.pop_if(|end| *end == b'}');
        self.write_beside_meta(out)
    }
}

#[cfg(test)]
mod tests;
