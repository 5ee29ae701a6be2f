//! The members of a record that can be filtered by or shown. Bodies are not parsed until they are
//! printed: they are most of a record's bytes.

use std::borrow::Cow;

use answers::finish::chat_word;
use chrono::DateTime;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// One record. A member of an unexpected type counts as absent: old senders and engines vary, and
/// the rest of the record is still useful.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Line<'a> {
    #[serde(deserialize_with = "lenient")]
    v: Option<u32>,
    #[serde(deserialize_with = "lenient")]
    ts: Option<String>,
    #[serde(deserialize_with = "lenient")]
    ts_end: Option<String>,
    #[serde(deserialize_with = "lenient")]
    pub(super) request_id: Option<String>,
    #[serde(deserialize_with = "lenient")]
    pub(super) route: Option<String>,
    #[serde(deserialize_with = "lenient")]
    pub(super) session_id: Option<String>,
    #[serde(deserialize_with = "lenient")]
    pub(super) tenant: Option<String>,
    #[serde(deserialize_with = "lenient")]
    pub(super) method: Option<String>,
    #[serde(deserialize_with = "lenient")]
    pub(super) uri: Option<String>,
    #[serde(deserialize_with = "lenient")]
    pub(super) session_src: Option<String>,
    #[serde(deserialize_with = "lenient")]
    pub(super) attempts: Option<u32>,
    #[serde(deserialize_with = "lenient")]
    pub(super) status: Option<u16>,
    #[serde(deserialize_with = "lenient")]
    pub(super) peer_name: Option<String>,
    #[serde(deserialize_with = "lenient")]
    pub(super) peer: Option<String>,
    #[serde(deserialize_with = "lenient")]
    pub(super) mode: Option<String>,
    #[serde(deserialize_with = "lenient")]
    model: Option<String>,
    #[serde(deserialize_with = "lenient")]
    model_req: Option<String>,
    #[serde(deserialize_with = "lenient")]
    pub(super) first_chunk_t: Option<f64>,
    #[serde(deserialize_with = "lenient")]
    pub(super) rt: Option<f64>,
    #[serde(deserialize_with = "lenient")]
    finish_reason: Option<String>,
    #[serde(deserialize_with = "lenient")]
    reject_reason: Option<String>,
    #[serde(deserialize_with = "lenient")]
    complete: Option<bool>,
    #[serde(deserialize_with = "lenient")]
    client_gone: Option<bool>,
    #[serde(deserialize_with = "lenient")]
    usage: Option<Usage>,
    #[serde(deserialize_with = "lenient")]
    resp_meta: Option<RespMeta>,
    #[serde(borrow)]
    req_body: Option<&'a RawValue>,
    #[serde(deserialize_with = "lenient")]
    req_body_b64: Option<bool>,
    #[serde(borrow)]
    resp_body: Option<&'a RawValue>,
    #[serde(deserialize_with = "lenient")]
    resp_body_b64: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RespMeta {
    #[serde(deserialize_with = "lenient")]
    model: Option<String>,
    #[serde(deserialize_with = "lenient")]
    finish_reason: Option<String>,
    #[serde(deserialize_with = "lenient")]
    stop_reason: Option<String>,
    #[serde(deserialize_with = "lenient")]
    usage: Option<Box<RawValue>>,
}

/// Usage in version 2, which has one set of names.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Usage {
    #[serde(deserialize_with = "lenient")]
    prompt: Option<f64>,
    #[serde(deserialize_with = "lenient")]
    completion: Option<f64>,
    #[serde(deserialize_with = "lenient")]
    cached: Option<f64>,
}

/// A value of the wanted type; `None` for another type.
fn lenient<'de, D: Deserializer<'de>, T: DeserializeOwned>(from: D) -> Result<Option<T>, D::Error> {
    let value: &RawValue = Deserialize::deserialize(from)?;
    Ok(serde_json::from_str(value.get()).ok())
}

impl<'a> Line<'a> {
    /// Parses a record from a line; `None` for other content and for a later major version.
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

    /// Arrival of the request in UTC; the stored text when it is no time.
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

    /// Arrival without the year, `01-02 10:00:01`.
    pub(super) fn start_short(&self) -> Option<String> {
        let at = DateTime::parse_from_rfc3339(self.ts.as_deref()?).ok()?;
        Some(at.to_utc().format("%m-%d %H:%M:%S").to_string())
    }

    /// The model that answered, else the requested one.
    pub(super) fn model(&self) -> Option<&str> {
        let of_response = self.resp_meta.as_ref().and_then(|meta| meta.model.as_ref());
        let model = self.model.as_ref().or(of_response);
        model.or(self.model_req.as_ref()).map(String::as_str)
    }

    /// Whether this model was requested or answered.
    pub(super) fn is_of_model(&self, model: &str) -> bool {
        self.model() == Some(model) || self.model_req.as_deref() == Some(model)
    }

    /// The requested model, when another one answered.
    pub(super) fn other_model_asked(&self) -> Option<&str> {
        let asked = self.model_req.as_deref();
        asked.filter(|asked| self.model() != Some(asked))
    }

    /// Whether the request went to this peer, given by name or address. Old senders append `
    /// (retry#N)`.
    pub(super) fn is_of_peer(&self, peer: &str) -> bool {
        let address = self.peer.as_deref().and_then(|peer| peer.split(' ').next());
        self.peer_name.as_deref() == Some(peer) || address == Some(peer)
    }

    /// Prompt tokens that the engine found in its cache.
    pub(super) fn cached(&self) -> Option<u64> {
        let cached = self.usage.as_ref()?.cached?;
        Some(cached as u64)
    }

    /// Why the exchange ended: the refusal or the finish reason, else the reason for the
    /// truncation, in the words of `bodylog_truncated_total`.
    pub(super) fn ending(&self) -> Option<&str> {
        let of_response = self.resp_meta.as_ref().and_then(|meta| {
            let finish = meta.finish_reason.as_deref();
            finish.or(meta.stop_reason.as_deref())
        });
        let finish = self.finish_reason.as_deref().or(of_response.map(chat_word));
        let said = self.reject_reason.as_deref().or(finish);
        said.or_else(|| self.cut_by())
    }

    fn cut_by(&self) -> Option<&'static str> {
        if self.status == Some(499) || self.client_gone == Some(true) {
            return Some("client_abort");
        }
        let is_cut = self.status == Some(200) && self.complete == Some(false);
        is_cut.then_some("no_finish")
    }

    /// Prompt and completion tokens.
    pub(super) fn tokens(&self) -> (Option<u64>, Option<u64>) {
        // The cast saturates: negative values and NaN become 0.
        let count = |tokens: f64| tokens as u64;
        if let Some(usage) = &self.usage {
            return (usage.prompt.map(count), usage.completion.map(count));
        }
        let raw = self.resp_meta.as_ref().and_then(|meta| meta.usage.as_ref());
        match raw.and_then(|raw| answers::Usage::of(raw.get().as_bytes())) {
            Some(usage) => (Some(usage.prompt), Some(usage.completion)),
            None => (None, None),
        }
    }

    /// The request body as stored, and whether that is base64.
    pub(super) fn request(&self) -> (Cow<'a, str>, bool) {
        (body(self.req_body), self.req_body_b64 == Some(true))
    }

    /// The stored answer, and whether that is base64.
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
        // Not a string: show it unchanged.
        Err(_) => raw.get().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Line<'_> {
        Line::read(text.as_bytes()).unwrap_or_else(|| panic!("a record: {text}"))
    }

    #[test]
    fn a_member_of_another_kind_costs_itself_and_not_the_record() {
        let line = read(
            r#"{"v":null,"request_id":"r","status":"200","rt":"fast","peer":5,"route":["x"],"client_gone":"yes",
            "usage":"none","resp_meta":{"model":7,"finish_reason":"stop","usage":"many"},"req_body":{"a":1}}"#,
        );
        assert_eq!(line.request_id.as_deref(), Some("r"));
        assert_eq!((line.status, line.ending()), (None, Some("stop")));
        assert_eq!(line.tokens(), (None, None));
        assert_eq!(line.request().0, r#"{"a":1}"#);
        assert!(Line::read(b"{\"v\":3}").is_none() && Line::read(b"[]").is_none());
    }

    #[test]
    fn tokens_are_found_however_an_engine_spells_them() {
        for usage in [
            r#"{"prompt_tokens":7,"completion_tokens":2}"#,
            r#"{"prompt_tokens":7.0,"completion_tokens":2.0}"#,
            r#"{"input_tokens":7,"output_tokens":2}"#,
            r#"{"prompt_tokens":7,"input_tokens":7,"completion_tokens":2,"output_tokens":2}"#,
            r#"{"prompt_tokens":null,"input_tokens":7,"output_tokens":2}"#,
            r#"{"input_tokens":2,"cache_read_input_tokens":5,"output_tokens":2}"#,
        ] {
            let text = format!(r#"{{"resp_meta":{{"usage":{usage}}}}}"#);
            assert_eq!(read(&text).tokens(), (Some(7), Some(2)), "{usage}");
        }
    }

    #[test]
    fn an_end_says_what_cut_the_answer_off() {
        for (text, ending) in [
            (r#"{"status":200,"complete":true}"#, None),
            (r#"{"status":200,"complete":false}"#, Some("no_finish")),
            (
                r#"{"status":200,"complete":false,"client_gone":true}"#,
                Some("client_abort"),
            ),
            (r#"{"status":499}"#, Some("client_abort")),
            (
                r#"{"status":200,"client_gone":true,"finish_reason":"stop"}"#,
                Some("stop"),
            ),
            (
                r#"{"status":200,"resp_meta":{"stop_reason":"end_turn"}}"#,
                Some("stop"),
            ),
            (r#"{"status":502,"complete":false}"#, None),
        ] {
            assert_eq!(read(text).ending(), ending, "{text}");
        }
    }
}
