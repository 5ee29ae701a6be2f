//! Helpers shared by the tests of several modules.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::HeaderMap;
use proto::frame::{Flags, HEADER_LEN, Header, Kind};

use super::exchange::{Begun, End, Facts, RecordedRoute, Settled, Wanted};

/// A settled exchange.
#[derive(Debug)]
pub(super) struct Ending {
    pub rid: String,
    pub source: String,
    pub status: u16,
    pub arrived: Instant,
    pub took: Duration,
    pub end: End,
}

impl Default for Ending {
    fn default() -> Self {
        Self {
            rid: "r1".into(),
            source: "none".into(),
            status: 200,
            arrived: Instant::now(),
            took: Duration::from_micros(1_234_567),
            end: End::Whole,
        }
    }
}

impl Settled for Ending {
    fn facts(&self) -> Facts<'_> {
        Facts {
            rid: &self.rid,
            method: "POST",
            target: "/v1/chat/completions?key=hidden",
            owner: None,
            model: None,
            source: &self.source,
            choice: None,
            peer: None,
            attempts: 0,
            status: self.status,
            unix_ms: 1_767_369_600_100,
            arrived: self.arrived,
            queued: None,
            first_token: None,
            took: self.took,
            end: self.end,
            meter: None,
        }
    }
}

/// A route whose records redact the values at these paths.
pub(super) fn route(redact_paths: &[&str]) -> Arc<RecordedRoute> {
    let path = |path: &&str| path.split('.').map(Box::from).collect();
    Arc::new(RecordedRoute {
        name: "chat".into(),
        redact_paths: redact_paths.iter().map(path).collect(),
        counters: Arc::default(),
    })
}

/// Recording settings for all exchanges.
pub(super) const ALL: Wanted = Wanted {
    pct: 100.0,
    slow: None,
    body_bytes_max: u64::MAX,
};

/// A request of `route`.
pub(super) fn begun<'a>(
    route: &'a Arc<RecordedRoute>,
    wanted: Wanted,
    headers: &'a HeaderMap,
) -> Begun<'a> {
    Begun {
        route,
        wanted,
        headers,
        client: [127, 0, 0, 1].into(),
    }
}

/// A DATA frame with a payload of `len` bytes that depend on the parity of its sequence.
pub(super) fn frame(seq: u64, len: usize) -> Bytes {
    let payload = vec![0xa5; len];
    let header = Header {
        kind: Kind::Data.code(),
        flags: Flags::default(),
        seq,
        payload_len: len as u32,
        raw_len: len as u32,
        payload_crc: crc32fast::hash(&payload),
    };
    let mut bytes = Vec::with_capacity(HEADER_LEN + len);
    bytes.extend_from_slice(&header.to_bytes());
    bytes.extend_from_slice(&payload);
    bytes.into()
}
