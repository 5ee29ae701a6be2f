//! The members of a record that are filtered by and shown. Bodies stay as they are until they are
//! wanted: they are nearly all of a record.

use std::borrow::Cow;

use chrono::DateTime;
use serde::Deserialize;
use serde_json::value::RawValue;

/// One record. Members that are absent are none; those of either version are understood.
#[derive(Debug, Deserialize)]
pub(super) struct Line<'a> {
    v: Option<u32>,
    ts: Option<String>,
    ts_end: Option<String>,
    pub(super) request_id: Option<String>,
    pub(super) route: Option<String>,
    pub(super) session_id: Option<String>,
    pub(super) status: Option<u16>,
    pub(super) peer_name: Option<String>,
    pub(super) peer: Option<String>,
    pub(super) mode: Option<String>,
    model: Option<String>,
    model_req: Option<String>,
    pub(super) first_chunk_t: Option<f64>,
    pub(super) rt: Option<f64>,
    finish_reason: Option<String>,
    reject_reason: Option<String>,
    usage: Option<Usage>,
    resp_meta: Option<RespMeta>,
    #[serde(borrow)]
    req_body: Option<&'a RawValue>,
    req_body_b64: Option<bool>,
    #[serde(borrow)]
    resp_body: Option<&'a RawValue>,
    resp_body_b64: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
struct RespMeta {
    model: Option<String>,
    finish_reason: Option<String>,
    usage: Option<EngineUsage>,
}

/// Version 2: one set of names.
#[derive(Debug, Deserialize)]
struct Usage {
    prompt: Option<u64>,
    completion: Option<u64>,
}

/// As engines spell it.
#[derive(Debug, Deserialize)]
struct EngineUsage {
    #[serde(alias = "input_tokens")]
    prompt_tokens: Option<u64>,
    #[serde(alias = "output_tokens")]
    completion_tokens: Option<u64>,
}

impl<'a> Line<'a> {
    /// The record in a line; none when it holds another thing, or one of a later major version.
    pub(super) fn read(text: &'a [u8]) -> Option<Self> {
        if !text.trim_ascii_start().starts_with(b"{") {
            return None;
        }
        let line: Self = serde_json::from_slice(text).ok()?;
        (line.v.unwrap_or(1) <= proto::meta::SCHEMA).then_some(line)
    }

    /// When the exchange ended, milliseconds since the Unix epoch.
    pub(super) fn end_ms(&self) -> Option<i64> {
        let ms = |text: &Option<String>| {
            let at = DateTime::parse_from_rfc3339(text.as_deref()?).ok()?;
            Some(at.timestamp_millis())
        };
        ms(&self.ts_end).or_else(|| {
            let took_ms = self.rt.unwrap_or(0.0).max(0.0) * 1000.0;
            Some(ms(&self.ts)?.saturating_add(took_ms as i64))
        })
    }

    /// Arrival of the request, in UTC; as it is written where that is no time.
    pub(super) fn start(&self) -> Option<String> {
        let text = self.ts.as_deref()?;
        let at = DateTime::parse_from_rfc3339(text);
        Some(at.map_or_else(
            |_| text.to_owned(),
            |at| {
                at.to_utc()
                    .to_rfc3339_opts(chrono::SecondsFormat::Millis, true)
            },
        ))
    }

    /// The model that answered, else the one asked for.
    pub(super) fn model(&self) -> Option<&str> {
        let of_response = self.resp_meta.as_ref().and_then(|meta| meta.model.as_ref());
        let model = self.model.as_ref().or(of_response);
        model.or(self.model_req.as_ref()).map(String::as_str)
    }

    /// Why it ended: the refusal, or the finish reason.
    pub(super) fn ending(&self) -> Option<&str> {
        let of_response = self
            .resp_meta
            .as_ref()
            .and_then(|meta| meta.finish_reason.as_ref());
        let finish = self.finish_reason.as_ref().or(of_response);
        self.reject_reason.as_ref().or(finish).map(String::as_str)
    }

    /// Prompt and completion tokens.
    pub(super) fn tokens(&self) -> (Option<u64>, Option<u64>) {
        if let Some(usage) = &self.usage {
            return (usage.prompt, usage.completion);
        }
        let usage = self.resp_meta.as_ref().and_then(|meta| meta.usage.as_ref());
        usage.map_or((None, None), |usage| {
            (usage.prompt_tokens, usage.completion_tokens)
        })
    }

    /// The request body as stored, and whether that is base64.
    pub(super) fn request(&self) -> (Cow<'a, str>, bool) {
        (body(self.req_body), self.req_body_b64 == Some(true))
    }

    /// The answer as stored, likewise.
    pub(super) fn answer(&self) -> (Cow<'a, str>, bool) {
        (body(self.resp_body), self.resp_body_b64 == Some(true))
    }
}

fn body(raw: Option<&RawValue>) -> Cow<'_, str> {
    let Some(raw) = raw else {
        return Cow::Borrowed("");
    };
    match serde_json::from_str::<String>(raw.get()) {
        Ok(text) => text.into(),
        // Not a string: shown as it is.
        Err(_) => raw.get().into(),
    }
}
