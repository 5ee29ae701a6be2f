//! Switches: `_<switch>_toggle`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The state of a switch, and the layer that sets it.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchState {
    /// The value in force.
    pub enabled: bool,
    /// `runtime`, `route`, `global`, `default` or `default (invalid)`.
    pub source: String,
    /// Seconds since the switch was set on the running router; absent unless the source is
    /// `runtime`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub age_s: Option<u64>,
}

/// `GET /<route>/_<switch>_toggle`.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Toggle {
    /// The route.
    pub route: String,
    /// The name in `llmctl toggle`.
    pub switch: String,
    /// The value in force.
    pub enabled: bool,
    /// The layer that sets it.
    pub source: String,
    /// The counters of the switch since the start or the last `?reset_counters=1`, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub counters: BTreeMap<String, u64>,
}

/// A value before and after a change.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Changed<T> {
    /// The previous value.
    pub before: T,
    /// The value in force now.
    pub after: T,
    /// The layer that sets it.
    pub source: String,
}

/// `POST /<route>/_<switch>_toggle`.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Toggled {
    /// The route.
    pub route: String,
    /// The name in `llmctl toggle`.
    pub switch: String,
    /// The previous value.
    pub before: bool,
    /// The layer that set the previous value.
    pub source_before: String,
    /// The value in force now.
    pub after: bool,
    /// The value in force now, under the name that `GET` uses.
    pub enabled: bool,
    /// The layer that sets it now.
    pub source: String,
    /// Whether the switch's counters were set to zero.
    #[serde(default)]
    pub counters_reset: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_keys_are_accepted() {
        let text = r#"{"enabled":true,"source":"route","since":"later"}"#;
        assert!(serde_json::from_str::<SwitchState>(text).is_ok());
    }
}
