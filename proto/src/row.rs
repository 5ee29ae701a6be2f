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

/// One row. Absent text is empty, an absent number or time 0, unless the field says otherwise.
///
/// Parsing borrows from the line where a value has no escapes. Unknown fields are skipped, because
/// a reader does not pass rows on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DetailRow<'a> {
    /// Major version of the schema; 1 when absent.
    #[serde(default = "first_schema")]
    pub v: u32,
    /// Arrival of the request, RFC 3339.
    #[serde(borrow)]
    pub ts: Cow<'a, str>,
    /// End of the exchange, in the same offset.
    #[serde(borrow, skip_serializing_if = "str::is_empty")]
    pub ts_end: Cow<'a, str>,
    /// The `x-request-id`.
    #[serde(borrow, skip_serializing_if = "str::is_empty")]
    pub request_id: Cow<'a, str>,
    /// The sender; empty for version 1. A row is unique in (`pid`, `epoch`, `seq`).
    #[serde(borrow, skip_serializing_if = "str::is_empty")]
    pub pid: Cow<'a, str>,
    /// The sender's run.
    #[serde(skip_serializing_if = "is_zero")]
    pub epoch: u64,
    /// Sequence within the run, from 1; ascending over the files for one `pid` and `epoch`.
    #[serde(skip_serializing_if = "is_zero")]
    pub seq: u64,
    /// The address from which the frame came.
    #[serde(borrow, skip_serializing_if = "str::is_empty")]
    pub source_addr: Cow<'a, str>,
    /// Method.
    #[serde(borrow, skip_serializing_if = "str::is_empty")]
    pub method: Cow<'a, str>,
    /// Path and query after the route prefix.
    #[serde(borrow, skip_serializing_if = "str::is_empty")]
    pub uri: Cow<'a, str>,
    /// The route.
    #[serde(borrow, skip_serializing_if = "str::is_empty")]
    pub route: Cow<'a, str>,
    /// The owner of the key.
    #[serde(borrow, skip_serializing_if = "str::is_empty")]
    pub tenant: Cow<'a, str>,
    /// The model that the request names.
    #[serde(borrow, skip_serializing_if = "str::is_empty")]
    pub model_req: Cow<'a, str>,
    /// The model that the response names.
    #[serde(borrow, skip_serializing_if = "str::is_empty")]
    pub model: Cow<'a, str>,
    /// Whether the request asks for a stream; absent when unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream: Option<bool>,
    /// Status sent to the client; 0 when unknown.
    pub status: u16,
    /// The peer as the sender wrote it; in version 1 with ` (retry#N)`.
    #[serde(borrow, skip_serializing_if = "str::is_empty")]
    pub peer: Cow<'a, str>,
    /// The peer's configured name.
    #[serde(borrow, skip_serializing_if = "str::is_empty")]
    pub peer_name: Cow<'a, str>,
    /// The peer behind the peer.
    #[serde(borrow, skip_serializing_if = "str::is_empty")]
    pub forwarded_to: Cow<'a, str>,
    /// `host:port` of `forwarded_to`, else of the peer, else [`NO_BACKEND`].
    #[serde(borrow)]
    pub backend: Cow<'a, str>,
    /// Number of attempts; 0 when unknown or none.
    #[serde(skip_serializing_if = "is_zero_u32")]
    pub attempts: u32,
    /// How the peer was chosen.
    #[serde(borrow, skip_serializing_if = "str::is_empty")]
    pub mode: Cow<'a, str>,
    /// Where the session id was found.
    #[serde(borrow, skip_serializing_if = "str::is_empty")]
    pub session_src: Cow<'a, str>,
    /// Why the router itself refused the request.
    #[serde(borrow, skip_serializing_if = "str::is_empty")]
    pub reject_reason: Cow<'a, str>,
    /// Why generation ended, in OpenAI's words.
    #[serde(borrow, skip_serializing_if = "str::is_empty")]
    pub finish_reason: Cow<'a, str>,
    /// Whether the end of the response was seen; absent when unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub complete: Option<bool>,
    /// Whether the client left before the response had ended.
    #[serde(skip_serializing_if = "is_false")]
    pub client_gone: bool,
    /// Whether the stored response body is incomplete.
    #[serde(skip_serializing_if = "is_false")]
    pub resp_body_truncated: bool,
    /// First chunk, seconds from the arrival; 0 when there was none.
    pub frt: f64,
    /// First event of a stream with generated content, in the same unit; absent when unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_token_t: Option<f64>,
    /// Time of the last chunk, in the same unit.
    pub lct: f64,
    /// Time of the end of the exchange, in the same unit.
    pub rt: f64,
    /// Time spent connecting to the peer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upstream_connect_t: Option<f64>,
    /// Time spent waiting for a slot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_t: Option<f64>,
    /// Non-empty chunks of the response.
    #[serde(deserialize_with = "count")]
    pub chunk_count: u64,
    /// Size of the request body in bytes: as received if the sender reports it, else as stored.
    #[serde(deserialize_with = "count")]
    pub req_bytes: u64,
    /// Size of the response body in bytes: on the wire if the sender reports it, else as stored.
    #[serde(deserialize_with = "count")]
    pub resp_bytes: u64,
    /// Prompt tokens.
    #[serde(deserialize_with = "count")]
    pub prompt_tokens: u64,
    /// Completion tokens.
    #[serde(deserialize_with = "count")]
    pub completion_tokens: u64,
    /// Prompt tokens from the prefix cache.
    #[serde(deserialize_with = "count")]
    pub cached_tokens: u64,
    /// Prompt and completion tokens.
    #[serde(deserialize_with = "count")]
    pub total_tokens: u64,
    /// Reasoning tokens.
    #[serde(deserialize_with = "count")]
    pub reasoning_tokens: u64,
    /// Why the exchange is recorded.
    #[serde(borrow, skip_serializing_if = "str::is_empty")]
    pub sampled_by: Cow<'a, str>,
    /// The parts left out for lack of space.
    #[serde(borrow, skip_serializing_if = "str::is_empty")]
    pub shed: Cow<'a, str>,
}

impl Default for DetailRow<'_> {
    fn default() -> Self {
        Self {
            v: SCHEMA,
            ts: Cow::Borrowed(""),
            ts_end: Cow::Borrowed(""),
            request_id: Cow::Borrowed(""),
            pid: Cow::Borrowed(""),
            epoch: 0,
            seq: 0,
            source_addr: Cow::Borrowed(""),
            method: Cow::Borrowed(""),
            uri: Cow::Borrowed(""),
            route: Cow::Borrowed(""),
            tenant: Cow::Borrowed(""),
            model_req: Cow::Borrowed(""),
            model: Cow::Borrowed(""),
            stream: None,
            status: 0,
            peer: Cow::Borrowed(""),
            peer_name: Cow::Borrowed(""),
            forwarded_to: Cow::Borrowed(""),
            backend: Cow::Borrowed(NO_BACKEND),
            attempts: 0,
            mode: Cow::Borrowed(""),
            session_src: Cow::Borrowed(""),
            reject_reason: Cow::Borrowed(""),
            finish_reason: Cow::Borrowed(""),
            complete: None,
            client_gone: false,
            resp_body_truncated: false,
            frt: 0.0,
            first_token_t: None,
            lct: 0.0,
            rt: 0.0,
            upstream_connect_t: None,
            queue_t: None,
            chunk_count: 0,
            req_bytes: 0,
            resp_bytes: 0,
            prompt_tokens: 0,
            completion_tokens: 0,
            cached_tokens: 0,
            total_tokens: 0,
            reasoning_tokens: 0,
            sampled_by: Cow::Borrowed(""),
            shed: Cow::Borrowed(""),
        }
    }
}

impl DetailRow<'_> {
    /// Whether this program can read the row: false for a later major version.
    pub fn is_readable(&self) -> bool {
        self.v <= SCHEMA
    }

    /// Appends the row as JSON, with the same bytes as `serde_json`, in less time.
    ///
    /// # Errors
    /// None: all keys are text and no number is infinite.
    pub fn write_json(&self, out: &mut Vec<u8>) -> serde_json::Result<()> {
        out.push(b'{');
        let mut object = Members::of(out);
        object.json(named!("v"), &self.v)?;
        object.text(named!("ts"), &self.ts);
        object.filled(named!("ts_end"), &self.ts_end);
        object.filled(named!("request_id"), &self.request_id);
        object.filled(named!("pid"), &self.pid);
        if self.epoch != 0 {
            object.json(named!("epoch"), &self.epoch)?;
        }
        if self.seq != 0 {
            object.json(named!("seq"), &self.seq)?;
        }
        object.filled(named!("source_addr"), &self.source_addr);
        object.filled(named!("method"), &self.method);
        object.filled(named!("uri"), &self.uri);
        object.filled(named!("route"), &self.route);
        object.filled(named!("tenant"), &self.tenant);
        object.filled(named!("model_req"), &self.model_req);
        object.filled(named!("model"), &self.model);
        if let Some(stream) = self.stream {
            object.boolean(named!("stream"), stream);
        }
        object.json(named!("status"), &self.status)?;
        object.filled(named!("peer"), &self.peer);
        object.filled(named!("peer_name"), &self.peer_name);
        object.filled(named!("forwarded_to"), &self.forwarded_to);
        object.text(named!("backend"), &self.backend);
        if self.attempts != 0 {
            object.json(named!("attempts"), &self.attempts)?;
        }
        object.filled(named!("mode"), &self.mode);
        object.filled(named!("session_src"), &self.session_src);
        object.filled(named!("reject_reason"), &self.reject_reason);
        object.filled(named!("finish_reason"), &self.finish_reason);
        if let Some(complete) = self.complete {
            object.boolean(named!("complete"), complete);
        }
        object.flag(named!("client_gone"), self.client_gone);
        object.flag(named!("resp_body_truncated"), self.resp_body_truncated);
        object.json(named!("frt"), &self.frt)?;
        if let Some(first_token_t) = self.first_token_t {
            object.json(named!("first_token_t"), &first_token_t)?;
        }
        object.json(named!("lct"), &self.lct)?;
        object.json(named!("rt"), &self.rt)?;
        if let Some(upstream_connect_t) = self.upstream_connect_t {
            object.json(named!("upstream_connect_t"), &upstream_connect_t)?;
        }
        if let Some(queue_t) = self.queue_t {
            object.json(named!("queue_t"), &queue_t)?;
        }
        object.json(named!("chunk_count"), &self.chunk_count)?;
        object.json(named!("req_bytes"), &self.req_bytes)?;
        object.json(named!("resp_bytes"), &self.resp_bytes)?;
        object.json(named!("prompt_tokens"), &self.prompt_tokens)?;
        object.json(named!("completion_tokens"), &self.completion_tokens)?;
        object.json(named!("cached_tokens"), &self.cached_tokens)?;
        object.json(named!("total_tokens"), &self.total_tokens)?;
        object.json(named!("reasoning_tokens"), &self.reasoning_tokens)?;
        object.filled(named!("sampled_by"), &self.sampled_by);
        object.filled(named!("shed"), &self.shed);
        out.push(b'}');
        Ok(())
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
