//! One full record: a line of `<dir>/<YYYY-MM-DD>/<HH>.jsonl`.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::members::{Members, named};
use crate::meta::Meta;

/// One exchange as stored. The meta fields are on the top level, next to these.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Record<'a> {
    /// The router's data, and the data found in the response
    /// ([`MetaOf::resp_meta`](crate::meta::MetaOf::resp_meta)).
    #[serde(flatten)]
    pub meta: Meta,
    /// The address from which the frame came. It replaces any value from the sender.
    #[serde(default, borrow, skip_serializing_if = "Option::is_none")]
    pub source_addr: Option<Cow<'a, str>>,
    /// End of the exchange, `ts` plus `rt`, in the offset of `ts`; absent when `ts` is not a valid
    /// time.
    #[serde(default, borrow, skip_serializing_if = "Option::is_none")]
    pub ts_end: Option<Cow<'a, str>>,
    /// The request body, or its base64.
    #[serde(default, borrow)]
    pub req_body: Cow<'a, str>,
    /// Only present, and true, when the request body is base64.
    #[serde(default, skip_serializing_if = "is_false")]
    pub req_body_b64: bool,
    /// The text of the answer if the response has one, else the response body, or its base64.
    #[serde(default, borrow)]
    pub resp_body: Cow<'a, str>,
    /// Only present, and true, when the response body is base64.
    #[serde(default, skip_serializing_if = "is_false")]
    pub resp_body_b64: bool,
    /// The choices, if there are several: `{index, text, reasoning, tool_calls, finish_reason}`.
    /// `resp_body` is then the text of the first choice.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resp_choices: Vec<Value>,
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

    /// Appends the members beside the meta fields to an object that already has those, and closes
    /// it. Ignores [`Record::meta`].
    ///
    /// # Errors
    /// See [`Record::write_json`].
    pub fn write_beside_meta(&self, out: &mut Vec<u8>) -> serde_json::Result<()> {
        let mut object = Members::of(out);
        object.optional(named!("source_addr"), self.source_addr.as_deref());
        object.optional(named!("ts_end"), self.ts_end.as_deref());
        object.text(named!("req_body"), &self.req_body);
        object.flag(named!("req_body_b64"), self.req_body_b64);
        object.text(named!("resp_body"), &self.resp_body);
        object.flag(named!("resp_body_b64"), self.resp_body_b64);
        if !self.resp_choices.is_empty() {
            object.json(named!("resp_choices"), &self.resp_choices)?;
        }
        out.push(b'}');
        Ok(())
    }
}

#[cfg(test)]
mod tests;
