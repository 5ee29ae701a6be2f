//! Summarizes the last requests per peer, and the refusals. A slow or failing engine shows up here
//! long before a health probe notices it.

use std::collections::BTreeMap;

use router_core::decision::{Choice, Receipt};
use serde::Serialize;

use crate::cmd::route::explain::refusal_line;

/// The last requests of one route; its JSON form is stable.
#[derive(Debug, Default, Serialize)]
pub(super) struct Recent {
    /// Number of requests in the summary.
    pub(super) requests: usize,
    /// Number of requests that were refused by a load gate or for lack of a peer.
    pub(super) refused: usize,
    /// Number of requests that a content rule refused.
    pub(super) refused_by_rule: usize,
    /// The ID of the last refused request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) last_refused: Option<String>,
    /// The numbers of that refusal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) last_refusal: Option<String>,
    /// The peers by `host:port`.
    pub(super) peers: BTreeMap<String, PeerRecent>,
}

/// The summary of one peer.
#[derive(Debug, Default, Serialize)]
pub(super) struct PeerRecent {
    /// Number of requests that were sent to this peer.
    pub(super) attempts: usize,
    /// Number of those that failed.
    pub(super) failed: usize,
    /// The reason of the last failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) last_error: Option<String>,
    /// Number of streams with a measured time to the first byte.
    pub(super) timed: usize,
    /// The median time to the first token of those streams; absent without any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ttft_p50_ms: Option<u64>,
}

/// Summarizes receipts (newest first) by route.
pub(super) fn digest(receipts: &[Receipt]) -> BTreeMap<String, Recent> {
    let mut routes: BTreeMap<String, Recent> = BTreeMap::new();
    let mut times: BTreeMap<(&str, &str), Vec<u64>> = BTreeMap::new();
    for receipt in receipts {
        let recent = routes.entry(receipt.route.to_string()).or_default();
        recent.requests += 1;
        match &receipt.decision {
            Choice::Send { .. } | Choice::Wait { .. } => {}
            Choice::Refuse(refusal) => {
                recent.refused += 1;
                if recent.last_refusal.is_none() {
                    recent.last_refused = Some(receipt.request_id.to_string());
                    recent.last_refusal = Some(refusal_line(refusal));
                }
            }
            Choice::Rule { .. } => recent.refused_by_rule += 1,
        }
        for attempt in &receipt.attempts {
            let peer = recent.peers.entry(attempt.peer.to_string()).or_default();
            peer.attempts += 1;
            if let Some(error) = &attempt.error {
                peer.failed += 1;
                peer.last_error.get_or_insert_with(|| error.to_string());
            } else if let Some(failure) = attempt.failure {
                peer.failed += 1;
                let failure = failure.as_str().to_owned();
                peer.last_error.get_or_insert(failure);
            } else if let Some(ttft) = receipt.ttft_ms {
                let key = (&*receipt.route, attempt.peer.as_str());
                times.entry(key).or_default().push(ttft);
            }
        }
    }
    for ((route, peer), mut times) in times {
        times.sort_unstable();
        let peer = routes
            .get_mut(route)
            .and_then(|recent| recent.peers.get_mut(peer));
        if let Some(peer) = peer {
            peer.timed = times.len();
            peer.ttft_p50_ms = times.get(times.len() / 2).copied();
        }
    }
    routes
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn receipt(attempts: &serde_json::Value, ttft_ms: Option<u64>) -> Receipt {
        serde_json::from_value(json!({
            "request_id": "r", "at_unix_ms": 1, "route": "chat", "method": "POST", "path": "/v1/chat/completions",
            "session": "-", "source": "none", "decision": {"rule": {"name": "big", "condition": "x gt 5"}},
            "attempts": attempts, "status": 200, "duration_ms": 5, "ttft_ms": ttft_ms, "client_gone": false,
        }))
        .unwrap()
    }

    #[test]
    fn attempts_failures_and_first_tokens_are_counted_by_peer() {
        let served = |peer: &str, ms| receipt(&json!([{"peer": peer}]), Some(ms));
        let receipts = [
            served("a:1", 30),
            served("a:1", 10),
            served("a:1", 20),
            receipt(
                &json!([{"peer": "b:1", "error": "connection refused"}, {"peer": "a:1"}]),
                None,
            ),
        ];
        let routes = digest(&receipts);
        let recent = &routes["chat"];
        assert_eq!((recent.requests, recent.refused_by_rule), (4, 4));
        let a = &recent.peers["a:1"];
        assert_eq!(
            (a.attempts, a.failed, a.timed, a.ttft_p50_ms),
            (4, 0, 3, Some(20))
        );
        let b = &recent.peers["b:1"];
        assert_eq!(
            (b.failed, b.last_error.as_deref()),
            (1, Some("connection refused"))
        );
    }
}
