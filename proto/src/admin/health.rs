//! The distinct peers of a route: `_health_status` and `_active_conns`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::ErrorDetail;

/// `GET /<route>/_health_status`: peers by `host:port`, and `_meta`.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthStatus {
    /// Every distinct peer.
    #[serde(flatten)]
    pub peers: BTreeMap<String, PeerHealth>,
    /// The state of the route's keys.
    #[serde(rename = "_meta")]
    pub meta: HealthMeta,
}

/// One peer of [`HealthStatus`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerHealth {
    /// Requests on the peer.
    pub active: u32,
    /// Whether the peer is banned now.
    pub banned: bool,
}

/// The state of a route's keys.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthMeta {
    /// Whether the shared file's keys are in force.
    pub api_keys_configured: bool,
    /// Whether this route requires a key.
    pub route_auth_enabled: bool,
    /// `ok`, `missing`, `unreadable` or `empty`.
    pub key_file_status: String,
}

/// The 503 of a route without peers, on `_health_status`.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoPeers {
    /// `no_healthy_peer`.
    pub error: ErrorDetail,
    /// The state of the route's keys.
    #[serde(rename = "_meta")]
    pub meta: HealthMeta,
}

/// `GET /<route>/_active_conns`: requests in flight by `host:port`.
pub type ActiveConns = BTreeMap<String, u32>;

/// `POST /<route>/_active_conns_set`. `?peer=&value=` holds back units of a peer until this number
/// is in flight on it, `?peer=&delete=1` releases them, and `?flush=1` releases those of every
/// peer.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActiveConnsSet {
    /// Always true.
    pub ok: bool,
    /// The route.
    pub route: String,
    /// `set`, `delete` or `flush_all`.
    pub action: String,
    /// The peer's `host:port`; absent for all peers.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub peer: Option<String>,
    /// In-flight of the peer before; only for `set`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub before: Option<u32>,
    /// In-flight of the peer now; only for `set`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub value: Option<u32>,
    /// Number of held-back units that were released; only for `delete` and `flush_all`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub given_back: Option<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_status_reads_back_with_meta_apart_from_peers() {
        let text = r#"{"10.1.4.21:8000":{"active":7,"banned":false},"_meta":{"api_keys_configured":true,"route_auth_enabled":true,"key_file_status":"ok"}}"#;
        let status: HealthStatus = serde_json::from_str(text).unwrap();
        assert_eq!(status.peers.len(), 1);
        assert_eq!(serde_json::to_string(&status).unwrap(), text);
    }
}
