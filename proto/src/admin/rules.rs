//! Content rules: `_reject_rules_status`.

use serde::{Deserialize, Serialize};

/// `GET /<route>/_reject_rules_status`.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RejectRulesStatus {
    /// The route.
    pub route: String,
    /// Always true.
    pub ok: bool,
    /// Whether the rules are switched on.
    pub enabled: bool,
    /// The layer that sets the switch: `runtime`, `route`, `global`, `default` or `default
    /// (invalid)`.
    pub source: String,
    /// The status of rules without their own status.
    pub default_status: u16,
    /// Number of rules.
    pub rule_count: usize,
    /// The layer that sets the rules; `default (invalid)` when some were dropped.
    pub rules_source: String,
    /// Rules in evaluation order.
    pub rules: Vec<RejectRule>,
}

/// One rule of [`RejectRulesStatus`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RejectRule {
    /// Name of the rule; need not be unique.
    pub name: String,
    /// The status of its refusals.
    pub status: u16,
    /// The condition for a refusal.
    pub cond: String,
    /// Refusals by rules of this name since the start or the last `?reset_counters=1`.
    pub hits: u64,
}
