//! The log of received requests, for tests: the last [`ENTRIES_MAX`] requests with their unchanged
//! headers and bodies, and how each ended.
//!
//! This is the only place that keeps prompts and credentials, because its purpose is to show the
//! requests that a router forwarded. It stays in memory, and only `/sim/requests` returns it.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// Maximum number of entries; the oldest is dropped first.
pub(crate) const ENTRIES_MAX: usize = 1024;

/// Maximum size of a body that is kept as text, bytes. Of longer bodies only length and hash
/// remain. With [`ENTRIES_MAX`], this limits the bodies to 64 MiB in total.
pub(crate) const BODY_MAX: usize = 64 * 1024;

/// How an exchange ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It has not ended yet.
    #[default]
    Open,
    /// The whole answer was passed to the connection.
    Completed,
    /// The client disconnected before the end.
    Cancelled,
    /// A fault cut the connection.
    Cut,
}

/// One request as the engine received it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// Requests are numbered from 0 in the order of arrival.
    pub id: u64,
    /// Number of the connection, from 0 in the order of acceptance.
    pub connection: u64,
    /// Position of the request on its connection, from 0.
    pub on_connection: u64,
    /// Address of the client.
    pub peer: String,
    /// The method, for example `POST`.
    pub method: String,
    /// Path and query as received.
    pub target: String,
    /// The version, for example `HTTP/1.1`.
    pub version: String,
    /// Names and values in order; invalid UTF-8 in a value is replaced.
    pub headers: Vec<(String, String)>,
    /// Size of the body, bytes; 0 until all of it has arrived.
    pub body_len: u64,
    /// SHA-256 of the body in lower-case hex; empty until all of it has arrived.
    pub body_sha256: String,
    /// The body, when it is UTF-8 and at most 64 KiB long.
    pub body: Option<String>,
    /// Status of the answer.
    pub status: Option<u16>,
    /// Tokens of the prompt, after the prefill.
    pub prompt_tokens: u64,
    /// Number of those that were in the prefix cache.
    pub cached_tokens: u64,
    /// Tokens generated.
    pub generated_tokens: u64,
    /// How the exchange ended.
    pub outcome: Outcome,
}

impl Seen {
    /// The values of a header, in order; the name is case-insensitive.
    pub fn header<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let named = self
            .headers
            .iter()
            .filter(move |(n, _)| n.eq_ignore_ascii_case(name));
        named.map(|(_, value)| value.as_str())
    }
}

/// The log.
#[derive(Debug, Default)]
pub(crate) struct Log {
    entries: Mutex<VecDeque<Arc<Mutex<Seen>>>>,
    next: std::sync::atomic::AtomicU64,
}

/// The open entry of one exchange. Dropping the last owner before the end means that the client has
/// disconnected.
#[derive(Debug)]
pub(crate) struct Exchange {
    seen: Arc<Mutex<Seen>>,
}

/// The connection of a request, and the position on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    pub(crate) peer: SocketAddr,
    pub(crate) connection: u64,
    pub(crate) on_connection: u64,
}

impl Log {
    /// Opens an entry when the headers of a request have arrived.
    pub(crate) fn open(&self, head: &Parts, origin: Origin) -> Arc<Exchange> {
        let header = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
            (
                name.to_string(),
                String::from_utf8_lossy(value.as_bytes()).into_owned(),
            )
        };
        let seen = Arc::new(Mutex::new(Seen {
            id: self.next.fetch_add(1, std::sync::atomic::Ordering::Relaxed),
            connection: origin.connection,
            on_connection: origin.on_connection,
            peer: origin.peer.to_string(),
            method: head.method.to_string(),
            target: head
                .uri
                .path_and_query()
                .map_or_else(|| head.uri.to_string(), ToString::to_string),
            version: format!("{:?}", head.version),
            headers: head.headers.iter().map(header).collect(),
            ..Seen::default()
        }));
        let mut entries = self.entries.lock();
        if entries.len() == ENTRIES_MAX {
            entries.pop_front();
        }
        entries.push_back(Arc::clone(&seen));
        Arc::new(Exchange { seen })
    }

    /// The entries, oldest first.
    pub(crate) fn read(&self) -> Vec<Seen> {
        self.entries
            .lock()
            .iter()
            .map(|seen| seen.lock().clone())
            .collect()
    }

    pub(crate) fn clear(&self) {
        self.entries.lock().clear();
    }
}

impl Exchange {
    pub(crate) fn body(&self, body: &Bytes) {
        let hash = hex(&Sha256::digest(body));
        let text = (body.len() <= BODY_MAX)
            .then(|| std::str::from_utf8(body).ok())
            .flatten();
        let mut seen = self.seen.lock();
        seen.body_len = body.len() as u64;
        seen.body_sha256 = hash;
        seen.body = text.map(str::to_owned);
    }

    pub(crate) fn status(&self, status: http::StatusCode) {
        self.seen.lock().status = Some(status.as_u16());
    }

    pub(crate) fn prefilled(&self, prompt: usize, cached: usize) {
        let mut seen = self.seen.lock();
        seen.prompt_tokens = prompt as u64;
        seen.cached_tokens = cached as u64;
    }

    pub(crate) fn generated(&self, tokens: u64) {
        self.seen.lock().generated_tokens += tokens;
    }

    /// Records the end; only the first call counts.
    pub(crate) fn end(&self, outcome: Outcome) {
        let mut seen = self.seen.lock();
        if seen.outcome == Outcome::Open {
            seen.outcome = outcome;
        }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.end(Outcome::Cancelled);
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
