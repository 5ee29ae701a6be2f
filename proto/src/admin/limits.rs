//! Thresholds set on the running router: `_ttft_limit` and `_tps_limit`.
//!
//! `GET` shows, `POST ?ms=` (or `?tps=`) sets, `?reset=1` removes; `model=` means one pool, `ttl=` is a
//! life in seconds, 0 for ever, 7200 where it is left out. All three answer with the same shape, as
//! things stand afterwards; a `POST` adds what stood before, under the names that switches use.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::gates::plain_option;

/// `/<route>/_ttft_limit`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TtftLimit {
    /// What both limits show.
    #[serde(flatten)]
    pub scope: LimitScope,
    /// The threshold in force in this scope, milliseconds; absent without one and with a declared
    /// table. A model with a threshold of its own has another one than its route.
    #[serde(
        skip_serializing_if = "Option::is_none",
        default,
        serialize_with = "plain_option"
    )]
    pub limit_ms: Option<f64>,
    /// The override of this very scope; absent without one.
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
    /// What would hold without the override.
    #[serde(
        skip_serializing_if = "Option::is_none",
        default,
        serialize_with = "plain_option"
    )]
    pub shadowed_limit_ms: Option<f64>,
}

/// `/<route>/_tps_limit`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TpsLimit {
    /// What both limits show.
    #[serde(flatten)]
    pub scope: LimitScope,
    /// As in [`TtftLimit`], tokens per second.
    #[serde(
        skip_serializing_if = "Option::is_none",
        default,
        serialize_with = "plain_option"
    )]
    pub limit_tps: Option<f64>,
    /// As in [`TtftLimit`].
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
    /// As in [`TtftLimit`].
    #[serde(
        skip_serializing_if = "Option::is_none",
        default,
        serialize_with = "plain_option"
    )]
    pub shadowed_limit_tps: Option<f64>,
}

/// What [`TtftLimit`] and [`TpsLimit`] have in common.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LimitScope {
    /// The route.
    pub route: String,
    /// Always true.
    pub ok: bool,
    /// The model asked about; absent for the whole route.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub model: Option<String>,
    /// What was in force before, in the signal's unit; on a `POST` alone, and absent where there was
    /// no threshold.
    #[serde(
        skip_serializing_if = "Option::is_none",
        default,
        serialize_with = "plain_option"
    )]
    pub before: Option<f64>,
    /// What is in force now; as `before`.
    #[serde(
        skip_serializing_if = "Option::is_none",
        default,
        serialize_with = "plain_option"
    )]
    pub after: Option<f64>,
    /// Where what is in force comes from: `runtime`, `route`, `global`, `default` or
    /// `default (invalid)`. Without a threshold, the layer that says so.
    pub source: String,
    /// The same before; on a `POST` alone.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub source_before: Option<String>,
    /// The same in full: `declared`, `model_override`, `override`, `model`, `route`, `global` or
    /// `none`.
    #[serde(default)]
    pub layer: String,
    /// Limits set for single models of the route, which beat one of the whole route; absent without
    /// any, and where a model was asked about.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub override_by_model: BTreeMap<String, f64>,
    /// Whether the signal's switch is on and a threshold is in force.
    pub enforcing: bool,
    /// `*_limit_by_model` of the files.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub static_by_model: BTreeMap<String, f64>,
    /// Seconds the override still lives, 0 for ever; absent without one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub override_ttl_s: Option<u64>,
    /// Whether the override decides; absent without one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub override_effective: Option<bool>,
    /// Why it does not.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub override_ignored_reason: Option<String>,
    /// Whether the files declare a table of metrics, which beats every other threshold.
    pub declares_metrics: bool,
    /// Which threshold wins, in words.
    pub priority: String,
    /// What the operator should know: nothing is measured, say.
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
