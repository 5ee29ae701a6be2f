//! What each tenant of a route used.

use proto::row::DetailRow;
use serde::{Deserialize, Serialize};

use super::key_with;

/// The labels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantLabels {
    /// The route.
    pub route: Box<str>,
    /// The service from the cluster; without one, the route.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<Box<str>>,
    /// The owner of the key.
    pub tenant: Box<str>,
}

impl TenantLabels {
    pub(super) fn key(&self) -> Box<str> {
        key_with(&[&self.route, &self.tenant], self.service.as_deref())
    }
}

/// Kinds of tokens, in the order of [`TenantSeries::tokens`].
pub const TENANT_TOKEN_KINDS: [&str; 4] = ["prompt", "completion", "cached", "reasoning"];

/// One tenant on one route.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TenantSeries {
    /// Its labels.
    pub labels: TenantLabels,
    /// First row, milliseconds since the Unix epoch.
    pub created_ms: i64,
    /// Last row, likewise.
    pub used_ms: i64,
    /// Requests, refused ones included.
    pub requests: u64,
    /// By [`TENANT_TOKEN_KINDS`].
    pub tokens: [u64; 4],
}

impl TenantSeries {
    pub(super) fn new(labels: TenantLabels, now_ms: i64) -> Self {
        Self {
            labels,
            created_ms: now_ms,
            used_ms: now_ms,
            requests: 0,
            tokens: [0; 4],
        }
    }

    pub(super) fn observe(&mut self, row: &DetailRow<'_>, now_ms: i64) {
        self.used_ms = now_ms;
        self.requests += 1;
        let tokens = [
            row.prompt_tokens,
            row.completion_tokens,
            row.cached_tokens,
            row.reasoning_tokens,
        ];
        for (sum, tokens) in self.tokens.iter_mut().zip(tokens) {
            *sum = sum.saturating_add(tokens);
        }
    }
}
