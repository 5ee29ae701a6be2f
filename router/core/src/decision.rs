//! The receipt: every fact that a decision used. Plain data, made here and shown elsewhere.
//!
//! [`Facts`] travels with every request and becomes part of its [`Receipt`]; [`Explanation`] is the
//! output of `explain`. In serialized form, names are in snake case, absent facts are left out, and
//! an [`Outcome`] is an object with one key:
//!
//! ```json
//! {"peers": [{"peer": "10.0.0.11:8000", "name": "a", "priority": 0, "in_flight": 3, "slots": 64,
//!             "enabled": true, "banned": false, "candidate": true}],
//!  "outcome": {"send": {"peer": "10.0.0.11:8000", "name": "a", "mode": "hash",
//!    "facts": {"tier": 0, "limit": 64, "pool_limit": 64, "factor": 1, "in_flight": 3,
//!              "healthy_peers": 1,
//!              "home": {"hash": "crc32", "index": 0, "score": 862954847, "state": "usable"},
//!              "peer_in_flight": 3, "peer_slots": 64}}},
//!  "gates": [{"gate": "concurrency", "acts": true, "trips": false, "value": 3, "limit": 64}]}
//! ```
//!
//! A refusal is `{"refuse": {"reason": "no_healthy_peer", "peers": 2, "banned": 2}}`. A receipt's
//! `decision` has the same two forms, with only `mode` and `facts` inside `send`.

use std::borrow::Cow;
use std::sync::Arc;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::admission::{Gate, Gates, Refusal};
use crate::affinity::Hash;
use crate::balance::Balance;
use crate::health::Failure;
use crate::health::HealthFacts;
use crate::load::Freshness;
use crate::pool::{PeerKey, ProbeFacts};

/// Declares the modes. The route's balance policy provides its own word.
macro_rules! modes {
    ($($(#[$meta:meta])* $mode:ident = $word:literal,)+) => {
        /// How the peer was found; the text of `X-Routed-Mode`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Mode {
            $($(#[$meta])* $mode,)+
            /// No session: the route's policy.
            Balance(Balance),
        }

        impl Mode {
            /// Every mode.
            pub fn all() -> impl Iterator<Item = Self> {
                let policies = Balance::ALL.iter().copied().map(Self::Balance);
                [$(Self::$mode),+].into_iter().chain(policies)
            }

            /// The header's text.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$mode => $word,)+
                    Self::Balance(balance) => balance.as_str(),
                }
            }
        }
    };
}

modes! {
    /// The session's home.
    Hash = "hash",
    /// The session's home is banned or saturated: `balance` among the healthy.
    HashFallback = "hash_fallback",
    /// The session lives there.
    Sticky = "sticky",
    /// The session is new, or its peer is gone: the peer with the fewest sessions.
    StickyNew = "sticky_new",
    /// No session: the peer that computed the longest known prefix.
    Prefix = "prefix",
    /// No session: among the peers that list the model.
    Pin = "pin",
}

impl Serialize for Mode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Mode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = Cow::<str>::deserialize(deserializer)?;
        let mode = Self::all().find(|mode| mode.as_str() == word);
        mode.ok_or_else(|| D::Error::custom(format_args!("unknown mode `{word}`")))
    }
}

/// Whether the home peer of a session could take the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HomeState {
    /// The peer has room.
    Usable,
    /// The peer is banned, unreadable or disabled.
    Banned,
    /// The peer is ejected, or its single probe request is under way.
    Ejected,
    /// The peer gives no first byte, and the session is new there.
    Suspect,
    /// The peer is at its own maximum. With `hash_saturated: keep` it takes the request anyway.
    Saturated,
}

/// The home peer of a session, computed by the hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Home {
    /// The function used.
    pub hash: Hash,
    /// Index in the pool, file order.
    pub index: u32,
    /// The `crc32` value, or the winning weight.
    pub score: u64,
    /// Whether the peer has room, before this request.
    pub state: HomeState,
}

/// The facts of one decision, collected under the route's lock. Small and `Copy`, because every
/// request gets one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Facts {
    /// Priority of the active tier.
    pub tier: i64,
    /// The limit in force: whichever of `pool_limit` and `adaptive` leaves less room.
    #[serde(serialize_with = "crate::number::whole")]
    pub limit: f64,
    /// Sum of `max_concurrency` over the active tier's unbanned peers.
    #[serde(default)]
    pub pool_limit: u64,
    /// The adaptive limit, stored or start point; absent while no adaptive limit acts.
    #[serde(serialize_with = "crate::number::whole_opt")]
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub adaptive: Option<f64>,
    /// `rt_limit_factor` in force.
    #[serde(serialize_with = "crate::number::whole")]
    pub factor: f64,
    /// In-flight of the same peers, before this request; of the whole tier if the adaptive limit is
    /// in force. Where engines are polled, requests of others count too, up to the slots of each
    /// peer.
    pub in_flight: u64,
    /// Number of unbanned peers of the active tier.
    pub healthy_peers: u32,
    /// The priority class from `session_prio`; absent while it is off.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub grade: Option<PriorityClass>,
    /// Time to first token; absent without a threshold to compare with.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ttft: Option<Reading>,
    /// Decode rate; absent without a threshold to compare with.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tps: Option<Reading>,
    /// Gates that the request passed on a probe slot.
    #[serde(skip_serializing_if = "Gates::is_empty", default)]
    pub probes: Gates,
    /// Gates that the request tripped while the master switch was off.
    #[serde(skip_serializing_if = "Gates::is_empty", default)]
    pub tripped: Gates,
    /// How long the request waited for a slot, in milliseconds; absent if it did not wait.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub waited_ms: Option<u64>,
    /// The home peer of the session; absent without a session.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub home: Option<Home>,
    /// Number of peers that list the request's model, if that restricted the choice.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub pinned: Option<u32>,
    /// Number of sessions on the chosen peer, where sessions are remembered.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub peer_sessions: Option<u32>,
    /// Bytes of the longest known prefix, if a prefix placed the request.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub prefix_bytes: Option<u64>,
    /// The chosen peer's own load before this request.
    pub peer_in_flight: u32,
    /// The chosen peer's `max_concurrency`.
    pub peer_slots: u32,
}

/// The priority class that `session_prio` gives a request.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PriorityClass {
    /// First turn of the bucket. The last bucket's without a usable header.
    pub bucket: u32,
    /// The turn of the request; absent without a usable header.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub turn: Option<u32>,
    /// Share of the limit that the bucket may fill.
    #[serde(serialize_with = "crate::number::whole")]
    pub share: f64,
    /// Tolerance: multiplies the TTFT threshold and divides the TPS threshold.
    #[serde(serialize_with = "crate::number::whole")]
    pub tolerance: f64,
}

/// A signal and its threshold. Of several metrics the one nearest to refusing.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    /// Index in the pool's table of metrics.
    pub metric: u32,
    /// Average of the metric: milliseconds, or tokens per second; absent while cold.
    #[serde(serialize_with = "crate::number::whole_opt")]
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ewma: Option<f64>,
    /// Threshold of the metric, before the bucket's tolerance.
    #[serde(serialize_with = "crate::number::whole")]
    pub threshold: f64,
}

/// One peer in an explanation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeerFacts {
    /// `host:port`.
    pub peer: PeerKey,
    /// The operator's name for the peer.
    pub name: String,
    /// Priority of the peer's tier.
    pub priority: i64,
    /// Requests reserved on the peer and not released.
    pub in_flight: u32,
    /// `max_concurrency`.
    pub slots: u32,
    /// When false, the peer is never chosen.
    pub enabled: bool,
    /// The peer keeps the sessions that live there and gets nothing else.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub draining: bool,
    /// Whether the peer is banned now.
    pub banned: bool,
    /// Seconds until the ban expires, rounded up.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ban_left_s: Option<u64>,
    /// Requests on the peer, including those of others; absent where its engine is not polled.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub load: Option<u32>,
    /// Freshness of the engine's last sample; absent where it is not polled.
    #[serde(rename = "standing", skip_serializing_if = "Option::is_none", default)]
    pub freshness: Option<Freshness>,
    /// Seconds since the last successful poll of a held peer.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub held_s: Option<u64>,
    /// Seconds since the last successful poll of a stale peer.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub stale_s: Option<u64>,
    /// The last probe; absent before the first one has ended.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub probe: Option<ProbeFacts>,
    /// Health of the peer, from the outcomes of its requests; absent while there is nothing to
    /// show.
    #[serde(skip_serializing_if = "HealthFacts::is_plain", default)]
    pub health: HealthFacts,
    /// Sessions that live on the peer, where sessions are remembered.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub sessions: Option<u32>,
    /// Whether the choice may pick it now (enabled, unbanned, in the active tier).
    pub candidate: bool,
    /// The peer's weight for this session, with the rendezvous hashes.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub score: Option<u64>,
}

/// The decision that a request would get, with every fact behind it. Nothing is counted or
/// reserved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// Every peer of the pool, file order.
    pub peers: Vec<PeerFacts>,
    /// The placement, or the refusal.
    pub outcome: Outcome,
    /// Every load gate, in evaluation order, including the gates after a refusal; empty without a
    /// usable peer.
    #[serde(default)]
    pub gates: Vec<GateFacts>,
}

/// One load gate in an explanation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GateFacts {
    /// The gate.
    pub gate: Gate,
    /// False when the gate cannot refuse this request (switched off, without a threshold, exempt).
    pub acts: bool,
    /// Whether the gate would refuse this request now, apart from probe slots.
    pub trips: bool,
    /// The metric behind `value`; absent for concurrency.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub metric: Option<Arc<str>>,
    /// In-flight, or an average; absent while cold.
    #[serde(serialize_with = "crate::number::whole_opt")]
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub value: Option<f64>,
    /// The limit that `value` is compared with, after factor, share and tolerance; absent without a
    /// threshold.
    #[serde(serialize_with = "crate::number::whole_opt")]
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub limit: Option<f64>,
    /// Probe slots left for this request in the current window; absent for concurrency.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub probes_left: Option<u32>,
    /// Whether turn 1 is held out of the pool (TTFT only).
    #[serde(default)]
    pub held: bool,
}

/// The result in an explanation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(
    clippy::large_enum_variant,
    reason = "one value per explanation; a placement is the common end"
)]
pub enum Outcome {
    /// The request would be sent.
    Send {
        /// `host:port`.
        peer: PeerKey,
        /// The operator's name for the peer.
        name: String,
        /// How the peer was found.
        mode: Mode,
        /// The numbers behind the decision.
        facts: Facts,
    },
    /// The request would wait for a slot.
    Wait {
        /// Number of requests that already wait.
        ahead: u32,
        /// The maximum number of waiting requests.
        wait_max: u32,
        /// The longest wait in seconds, after which the request is sent although the pool is full.
        #[serde(serialize_with = "crate::number::whole")]
        timeout_s: f64,
    },
    /// The request would be refused.
    Refuse(Refusal),
}

/// Token counts of one answer, from its usage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// The whole prompt, including tokens read from a cache or written into it.
    pub prompt: u64,
    /// Generated tokens.
    pub completion: u64,
    /// Prompt tokens that were read from a cache.
    pub cached: u64,
    /// Tokens generated as reasoning; a part of `completion`.
    pub reasoning: u64,
    /// The peer's own total, or else the sum of prompt and completion.
    pub total: u64,
}

/// A route that could not take a request, which then went to another route.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hop {
    /// The route.
    pub route: Arc<str>,
    /// The code of the error that its client would have got.
    pub why: Arc<str>,
    /// The peers that were tried.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub attempts: Vec<Attempt>,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// The record of one request: the facts of its decision and how it ended. The entry of the ring
/// behind `/_decisions` and `llmctl route explain --last`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Receipt {
    /// The `x-request-id`.
    pub request_id: Arc<str>,
    /// Arrival time, milliseconds since the Unix epoch.
    pub at_unix_ms: u64,
    /// The route.
    pub route: Arc<str>,
    /// The body's `model`, when it had one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub model: Option<Arc<str>>,
    /// The model's name at the engine, when the client asked for it by an alias.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub served_model: Option<Arc<str>>,
    /// Request method.
    pub method: Arc<str>,
    /// Path without the route prefix and without the query.
    pub path: Arc<str>,
    /// The session as `X-Routed-Session` shows it, `-` without one.
    pub session: Arc<str>,
    /// The source of the session id, as `X-Routed-Source` shows it.
    pub source: Arc<str>,
    /// How the peer was found, or why no peer was.
    pub decision: Choice,
    /// Peers that were tried, in order, with their errors. If the last one has no error, it served
    /// the request. At most `max_more_tries + 2` entries.
    pub attempts: Vec<Attempt>,
    /// The routes that could not take the request before this one (`fallback`), in order.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub hops: Vec<Hop>,
    /// Pings that the client got because the engine was silent (`sse_keepalive`).
    #[serde(skip_serializing_if = "is_zero", default)]
    pub pings: u32,
    /// Status sent to the client; 499 when the client left before a status was sent.
    pub status: u16,
    /// Time from arrival to the last byte, milliseconds.
    pub duration_ms: u64,
    /// Time from arrival to the first body byte of a stream, milliseconds.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ttft_ms: Option<u64>,
    /// Token counts; absent if the answer has none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub usage: Option<Usage>,
    /// Why the answer ended, in the chat API's words; absent if the answer does not say.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub finish_reason: Option<Arc<str>>,
    /// True when the client left before the end.
    pub client_gone: bool,
}

/// The decision of a [`Receipt`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(
    clippy::large_enum_variant,
    reason = "the common one is kept with the request and must not allocate"
)]
pub enum Choice {
    /// The request was placed.
    Send {
        /// How.
        mode: Mode,
        /// The numbers.
        facts: Facts,
    },
    /// The request ended while it waited for a slot: its client left, the wait timed out, or the
    /// router was drained.
    Wait {
        /// Number of requests that already waited when it came.
        ahead: u32,
    },
    /// Refused because of load, or because no peer was usable.
    Refuse(Refusal),
    /// Refused by a content rule.
    Rule {
        /// Name of the rule.
        name: Arc<str>,
        /// The condition that held, in readable form.
        condition: Arc<str>,
    },
}

/// One attempt at one peer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Attempt {
    /// `host:port`.
    pub peer: PeerKey,
    /// Why the peer did not serve the request; absent when it did.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<Arc<str>>,
    /// How the peer failed; absent where it served, or was not to blame.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub failure: Option<Failure>,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde::de::value::{Error, StrDeserializer};

    use super::*;

    #[test]
    fn every_mode_has_a_word_of_its_own_that_reads_back() {
        let words: BTreeSet<_> = Mode::all().map(Mode::as_str).collect();
        assert_eq!(words.len(), Mode::all().count());
        for mode in Mode::all() {
            let text = StrDeserializer::<Error>::new(mode.as_str());
            assert_eq!(Mode::deserialize(text), Ok(mode));
        }
        let unknown = Mode::deserialize(StrDeserializer::<Error>::new("hashh"));
        assert_eq!(unknown.unwrap_err().to_string(), "unknown mode `hashh`");
    }
}
