//! The router's data about one exchange, apart from the two bodies: the JSON part of a frame.
//!
//! Every field is optional: version 1 senders know few of them, and refused requests have no peer.
//! Within a major version, fields are only ever added. A reader keeps unknown fields, and fields of
//! an unexpected type ([`MetaOf::extra`]), and passes them on.

mod surrogates;

use std::borrow::Cow;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The major version of meta, record and detail row that this code writes. Absent means 1.
pub const SCHEMA: u32 = 2;

/// Token counts under common names, whatever the engine calls them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// Tokens of the whole prompt, including those read from a cache or written into it.
    pub prompt: u64,
    /// Completion tokens, as the engine counts them.
    pub completion: u64,
    /// Prompt tokens read from the engine's prefix cache.
    pub cached: u64,
    /// Completion tokens spent on reasoning.
    pub reasoning: u64,
    /// The engine's total, or else the sum of prompt and completion.
    pub total: u64,
}

/// [`RespMetaOf`] as read.
pub type RespMeta = RespMetaOf<String, Value>;

/// Data found in the response. A sender that has read the usage puts it here verbatim. `S` is the
/// type of its texts, `J` of any JSON value.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RespMetaOf<S, J> {
    /// The completion's id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<S>,
    /// The model that answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<S>,
    /// In the engine's spelling (OpenAI).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finish_reason: Option<S>,
    /// In the engine's spelling (Anthropic).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<S>,
    /// The last usage object, verbatim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<J>,
    /// The second usage object that some engines send, verbatim, even if the client never saw it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actual_usage: Option<J>,
    /// Reasoning text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<S>,
    /// Tool calls with merged fragments, in the order in which they began.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<J>,
    /// The last error object, verbatim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<J>,
}

impl<S, J> RespMetaOf<S, J> {
    /// Whether nothing was found.
    pub fn is_empty(&self) -> bool {
        let texts = [
            &self.id,
            &self.model,
            &self.finish_reason,
            &self.stop_reason,
            &self.reasoning,
        ];
        let values = [&self.usage, &self.actual_usage, &self.error];
        texts.iter().all(|text| text.is_none())
            && values.iter().all(|value| value.is_none())
            && self.tool_calls.is_empty()
    }

    /// Converts its texts and values to another form.
    pub fn map<T, K>(self, text: impl Fn(S) -> T, json: impl Fn(J) -> K) -> RespMetaOf<T, K> {
        RespMetaOf {
            id: self.id.map(&text),
            model: self.model.map(&text),
            finish_reason: self.finish_reason.map(&text),
            stop_reason: self.stop_reason.map(&text),
            usage: self.usage.map(&json),
            actual_usage: self.actual_usage.map(&json),
            reasoning: self.reasoning.map(&text),
            tool_calls: self.tool_calls.into_iter().map(&json).collect(),
            error: self.error.map(&json),
        }
    }
}

/// [`MetaOf`] as read.
pub type Meta = MetaOf<String, Value, Map<String, Value>>;

/// The data about one exchange. Times are seconds from the arrival of the request, rounded to
/// milliseconds. `S` is the type of its texts, `J` of any JSON value, `H` of the headers, so that a
/// writer can borrow them.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(
    default,
    bound(
        deserialize = "S: Default + Deserialize<'de>, J: Default + Deserialize<'de>, H: Default + Deserialize<'de>"
    )
)]
pub struct MetaOf<S, J, H> {
    /// Major version of the schema; absent in version 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub v: Option<u32>,
    /// Arrival of the request: RFC 3339, milliseconds. UTC in version 2, any offset in version 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ts: Option<S>,
    /// The arrival in milliseconds since the Unix epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ts_unix_ms: Option<i64>,
    /// The `x-request-id`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<S>,
    /// The sender: [`Hello::producer`](crate::control::Hello::producer). Set by the receiver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<S>,
    /// The run of the sender. Set by the receiver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// Sequence within the run. Set by the receiver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// The client's address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_ip: Option<S>,
    /// Method.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<S>,
    /// Path and query after the route prefix, with secrets in the query removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uri: Option<S>,
    /// Request headers by lower-case name, with secrets removed. A header that was sent several
    /// times is a list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub req_headers: Option<H>,
    /// Whether headers or other parts were left out because the object was too large.
    #[serde(skip_serializing_if = "is_false")]
    pub meta_trimmed: bool,
    /// Whether the stored request body is incomplete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub req_body_truncated: Option<bool>,
    /// Whether the stored response body is incomplete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resp_body_truncated: Option<bool>,
    /// Size of the request body as received, in bytes, however much of it is stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub req_bytes: Option<u64>,
    /// Size of the response body from the peer, in bytes, however much of it is stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resp_bytes: Option<u64>,
    /// Number of non-empty chunks of the response body.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chunk_count: Option<u64>,
    /// `content-encoding` of the stored response body; absent when it is plain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resp_encoding: Option<S>,
    /// The route.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub route: Option<S>,
    /// The owner of the client's key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<S>,
    /// The model that the request names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_req: Option<S>,
    /// The model that the response names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<S>,
    /// Whether the request asks for a stream; absent when unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream: Option<bool>,
    /// The peer that answered, `host:port`; version 1 appends ` (retry#N)`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer: Option<S>,
    /// The peer without the retry suffix.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer_clean: Option<S>,
    /// The peer's configured name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer_name: Option<S>,
    /// If the peer is a router itself, the peer behind it: its `X-Routed-Peer`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forwarded_to: Option<S>,
    /// Number of attempts, including the last one; 0 for a request that reached no peer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u32>,
    /// The session id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<S>,
    /// Where the session id was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_src: Option<S>,
    /// How the peer was chosen: `X-Routed-Mode`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<S>,
    /// The facts of the decision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision: Option<J>,
    /// Why the router itself refused the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reject_reason: Option<S>,
    /// Status sent to the client; 499 when the client left first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Token counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Why generation ended, in OpenAI's words for every dialect: `stop`, `length`, `tool_calls`, …
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finish_reason: Option<S>,
    /// The engine's own word, if it differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_reason_raw: Option<S>,
    /// Whether the end of the response was seen: the stream's last event, or its full length.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub complete: Option<bool>,
    /// Whether the client left before the response had ended.
    #[serde(skip_serializing_if = "is_false")]
    pub client_gone: bool,
    /// Time of the first non-empty chunk of the response body.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_chunk_t: Option<f64>,
    /// Time of the first event of a stream with generated content; absent when the router could not
    /// read the stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_token_t: Option<f64>,
    /// Time of the end of the response body; absent when it was not seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_chunk_t: Option<f64>,
    /// Time of the end of the exchange.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rt: Option<f64>,
    /// Time to connect to the peer that answered; 0 on an existing connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upstream_connect_t: Option<f64>,
    /// Time spent waiting for a slot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_t: Option<f64>,
    /// Why the exchange is recorded: `all`, `rate`, `error`, `slow`, `truncated`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sampled_by: Option<S>,
    /// The parts left out for lack of space: `bodies` by the sender, `disk` by the receiver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shed: Option<S>,
    /// Lower sequences that have not come are lost: the sender had to drop them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost_before: Option<u64>,
    /// Data found in the response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resp_meta: Option<RespMetaOf<S, J>>,
    /// All other fields, ordered by name.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

fn is_false(value: &bool) -> bool {
    !*value
}

/// Shows only the identifiers, because other values may be secrets or prompts.
impl<S: std::fmt::Debug, J, H> std::fmt::Debug for MetaOf<S, J, H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Meta")
            .field("v", &self.v)
            .field("request_id", &self.request_id)
            .field("route", &self.route)
            .field("status", &self.status)
            .finish_non_exhaustive()
    }
}

/// The bytes are not a JSON object.
#[derive(Debug, thiserror::Error)]
#[error("read the meta object")]
pub struct MetaError(#[source] serde_json::Error);

impl Meta {
    /// Parses a meta object. Bytes that are not UTF-8, and escapes of half a surrogate pair, become
    /// U+FFFD. A known field of an unexpected type goes to [`MetaOf::extra`].
    ///
    /// # Errors
    /// When the bytes are not a JSON object.
    pub fn from_json(bytes: &[u8]) -> Result<Self, MetaError> {
        // The standard check skips over ASCII quickly, while the lossy one goes byte by byte.
        let text = match std::str::from_utf8(bytes) {
            Ok(text) => Cow::Borrowed(text),
            Err(_) => String::from_utf8_lossy(bytes),
        };
        if let Ok(meta) = serde_json::from_str::<Self>(&text) {
            return Ok(meta);
        }
        let text = surrogates::mended(&text).map_or(text, Cow::Owned);
        let all: Map<String, Value> = serde_json::from_str(&text).map_err(MetaError)?;
        let mut sound = Map::new();
        let mut odd = Map::new();
        for (name, value) in all {
            let alone = Value::Object(Map::from_iter([(name.clone(), value.clone())]));
            if Self::deserialize(alone).is_ok() {
                sound.insert(name, value);
            } else {
                odd.insert(name, value);
            }
        }
        let mut meta = Self::deserialize(Value::Object(sound)).map_err(MetaError)?;
        meta.extra.append(&mut odd);
        Ok(meta)
    }

    /// See [`MetaOf::to_json_within`].
    fn trimmed(mut self, limit: usize) -> Option<Bytes> {
        self.meta_trimmed = true;
        self.drop_headers(limit);
        let steps: [fn(&mut Self); 5] = [
            |_| {},
            |meta| meta.req_headers = None,
            |meta| {
                meta.resp_meta = None;
                meta.decision = None;
            },
            |meta| meta.extra.clear(),
            |meta| {
                if let Some(uri) = &mut meta.uri {
                    uri.truncate(uri.floor_char_boundary(KEPT_URI));
                }
            },
        ];
        steps.into_iter().find_map(|step| {
            step(&mut self);
            let json = serde_json::to_vec(&self).ok()?;
            (json.len() <= limit).then(|| Bytes::from(json))
        })
    }

    /// Drops the largest headers until the rest of the object fits.
    fn drop_headers(&mut self, limit: usize) {
        let size = |value: &Value| serde_json::to_vec(value).map_or(0, |json| json.len());
        let mut len = serde_json::to_vec(self).map_or(usize::MAX, |json| json.len());
        let Some(headers) = &mut self.req_headers else {
            return;
        };
        let mut by_size: Vec<(usize, String)> = headers
            .iter()
            .map(|(name, value)| (size(value) + name.len() + 4, name.clone()))
            .collect();
        by_size.sort_by(|a, b| b.cmp(a));
        for (bytes, name) in by_size {
            if len <= limit {
                break;
            }
            headers.remove(&name);
            len = len.saturating_sub(bytes);
        }
    }
}

impl<S: Serialize, J: Serialize, H: Serialize> MetaOf<S, J, H> {
    /// The object as JSON of at most `limit` bytes. To get there, parts are left out in this order:
    /// headers, the largest first; data found in the response; the decision; unknown fields; the
    /// end of the URI. [`MetaOf::meta_trimmed`] reports this. `None` when that is not enough.
    pub fn to_json_within(&self, limit: usize) -> Option<Bytes> {
        let json = serde_json::to_vec(self).ok()?;
        if json.len() <= limit {
            return Some(json.into());
        }
        Meta::from_json(&json).ok()?.trimmed(limit)
    }
}

/// Bytes of the URI that are kept as the last step.
const KEPT_URI: usize = 4 << 10;

#[cfg(test)]
mod tests;
