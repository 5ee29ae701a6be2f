//! Thresholds set on the running router: `_ttft_limit` and `_tps_limit`.
//!
//! `GET` shows the limit, `POST ?ms=` (or `?tps=`) sets it, `?reset=1` removes it. `model=` selects
//! one pool. `ttl=` is the lifetime in seconds; 0 means for ever, the default is 7200. All three
//! answer in the same shape, with the state afterwards. A `POST` adds the previous state, under the
//! names that switches use.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::gates::plain_option;

/// `/<route>/_ttft_limit`.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TtftLimit {
    /// The fields that both limits have.
    #[serde(flatten)]
    pub scope: LimitScope,
    /// The threshold in force in this scope, milliseconds; absent without a threshold and with a
    /// declared table. A model with its own threshold may differ from its route.
    #[serde(
        skip_serializing_if = "Option::is_none",
        default,
        serialize_with = "plain_option"
    )]
    pub limit_ms: Option<f64>,
    /// The override of exactly this scope; absent without one.
    #[serde(
        skip_serializing_if = "Option::is_none",
        default,
        serialize_with = "plain_option"
    )]
    pub limit_override_ms: Option<f64>,
    /// `ttft_limit_ms` of the files.
    #[serde(
        skip_serializing_if = "Option::is_none",
        default,
        serialize_with = "plain_option"
    )]
    pub static_limit_ms: Option<f64>,
    /// The threshold that would apply without the override.
    #[serde(
        skip_serializing_if = "Option::is_none",
        default,
        serialize_with = "plain_option"
    )]
    pub shadowed_limit_ms: Option<f64>,
}

/// `/<route>/_tps_limit`.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TpsLimit {
    /// The fields that both limits have.
    #[serde(flatten)]
    pub scope: LimitScope,
    /// Same as in [`TtftLimit`], in tokens per second.
    #[serde(
        skip_serializing_if = "Option::is_none",
        default,
        serialize_with = "plain_option"
    )]
    pub limit_tps: Option<f64>,
    /// Same as in [`TtftLimit`].
    #[serde(
        skip_serializing_if = "Option::is_none",
        default,
        serialize_with = "plain_option"
    )]
    pub limit_override_tps: Option<f64>,
    /// `tps_limit_tps` of the files.
    #[serde(
        skip_serializing_if = "Option::is_none",
        default,
        serialize_with = "plain_option"
    )]
    pub static_limit_tps: Option<f64>,
    /// Same as in [`TtftLimit`].
    #[serde(
        skip_serializing_if = "Option::is_none",
        default,
        serialize_with = "plain_option"
    )]
    pub shadowed_limit_tps: Option<f64>,
}

/// The common fields of [`TtftLimit`] and [`TpsLimit`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LimitScope {
    /// The route.
    pub route: String,
    /// Always true.
    pub ok: bool,
    /// The model of the query; absent for the whole route.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub model: Option<String>,
    /// The previous threshold in the signal's unit; only on a `POST`, and absent if there was none.
    #[serde(
        skip_serializing_if = "Option::is_none",
        default,
        serialize_with = "plain_option"
    )]
    pub before: Option<f64>,
    /// The threshold in force now, in the same form as `before`.
    #[serde(
        skip_serializing_if = "Option::is_none",
        default,
        serialize_with = "plain_option"
    )]
    pub after: Option<f64>,
    /// The layer that sets the threshold in force: `runtime`, `route`, `global`, `default` or
    /// `default (invalid)`. Without a threshold, the layer that switches it off.
    pub source: String,
    /// The previous layer; only on a `POST`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub source_before: Option<String>,
    /// The layer in full: `declared`, `model_override`, `override`, `model`, `route`, `global` or
    /// `none`.
    #[serde(default)]
    pub layer: String,
    /// Limits set for single models of the route, which override a limit of the whole route. Absent
    /// without any, and if the query names a model.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub override_by_model: BTreeMap<String, f64>,
    /// Whether the signal's switch is on and a threshold is in force.
    pub enforcing: bool,
    /// `*_limit_by_model` of the files.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub static_by_model: BTreeMap<String, f64>,
    /// Seconds until the override expires, 0 for never; absent without one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub override_ttl_s: Option<u64>,
    /// Whether the override is effective; absent without one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub override_effective: Option<bool>,
    /// Why it is not effective.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub override_ignored_reason: Option<String>,
    /// Whether the files declare a table of metrics, which overrides every other threshold.
    pub declares_metrics: bool,
    /// Which threshold wins, in words.
    pub priority: String,
    /// A warning for the operator, for example that nothing is measured.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub warning: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_numbers_are_left_out_and_whole_ones_written_whole() {
        let limit = TtftLimit {
            scope: LimitScope {
                route: "chat".to_owned(),
                ok: true,
                after: Some(12000.0),
                source: "runtime".to_owned(),
                source_before: Some("default".to_owned()),
                layer: "override".to_owned(),
                enforcing: true,
                override_ttl_s: Some(3600),
                override_effective: Some(true),
                ..LimitScope::default()
            },
            limit_ms: Some(12000.0),
            limit_override_ms: Some(12000.0),
            shadowed_limit_ms: Some(30000.5),
            ..TtftLimit::default()
        };
        let text = r#"{"route":"chat","ok":true,"after":12000,"source":"runtime","source_before":"default","layer":"override","enforcing":true,"override_ttl_s":3600,"override_effective":true,"declares_metrics":false,"priority":"","limit_ms":12000,"limit_override_ms":12000,"shadowed_limit_ms":30000.5}"#;
        assert_eq!(serde_json::to_string(&limit).unwrap(), text);
        assert_eq!(serde_json::from_str::<TtftLimit>(text).unwrap(), limit);
    }
}
