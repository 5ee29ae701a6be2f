//! Content rules: `_reject_rules_status`.

use serde::{Deserialize, Serialize};

/// `GET /<route>/_reject_rules_status`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RejectRulesStatus {
    /// The route.
    pub route: String,
    /// Always true.
    pub ok: bool,
    /// Whether the rules refuse anything now.
    pub enabled: bool,
    /// Where that comes from: `runtime`, `route`, `global`, `default` or `default (invalid)`.
    pub source: String,
    /// The status of rules that have none of their own.
    pub default_status: u16,
    /// How many rules there are.
    pub rule_count: usize,
    /// Where the rules come from; `default (invalid)` when some were dropped.
    pub rules_source: String,
    /// In the order they are tried.
    pub rules: Vec<RejectRule>,
}

/// One rule of [`RejectRulesStatus`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RejectRule {
    /// What it is called; need not be unique.
    pub name: String,
    /// The status of its refusals.
    pub status: u16,
    /// When it refuses.
    pub cond: String,
    /// Refusals by rules of this name since the start or the last `?reset_counters=1`.
    pub hits: u64,
}
