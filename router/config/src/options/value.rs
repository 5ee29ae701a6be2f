//! How each option type is read from a file and shown to people.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use router_core::admission::priority::Bucket;
use router_core::health::EjectSpec;
use router_core::rules::{Rule, Rules};
use router_core::session::{Place, SessionSource};
use router_core::signal::{Metric, Statistic};
use serde_json::{Value, json};

use super::Meta;
use crate::aliases::Aliases;
use crate::check::{self, Choice, Reader};
use crate::tree::Node;
use crate::units::{show_duration, show_size};
use crate::valid::{Bodies, BodyPath, CheckKind, Fallback, GenerateCheck, HangAfter};

/// The type of an option's value.
pub(crate) trait OptionValue: Sized {
    /// Reads a value and reports its problems.
    fn read(reader: &mut Reader, node: &Node, meta: &Meta) -> Option<Self>;

    /// The value in the spelling of the file.
    fn show(&self) -> Value;
}

/// Implements `OptionValue` from a reader of `check` and a closure that shows the value.
macro_rules! values {
    ($( $T:ty: $read:path, $show:expr; )*) => {$(
        impl OptionValue for $T {
            fn read(reader: &mut Reader, node: &Node, meta: &Meta) -> Option<Self> {
                $read(reader, node, meta)
            }

            fn show(&self) -> Value {
                let show: fn(&Self) -> Value = $show;
                show(self)
            }
        }
    )*};
}

values! {
    bool: check::boolean, |on| json!(on);
    u16: check::status, |status| json!(status);
    u32: check::whole, |number| json!(number);
    u64: check::size, |bytes| json!(show_size(*bytes));
    f64: check::number, number;
    Duration: check::duration, duration;
    Option<u32>: check::whole_or_off, |whole| or_off(whole, |whole| json!(whole));
    Option<f64>: check::number_or_off, |value| or_off(value, number);
    Option<Duration>: check::duration_or_off, |value| or_off(value, duration);
    Arc<str>: check::text, |text| json!(text);
    Arc<[Box<str>]>: check::prefixes, |paths| json!(paths);
    Arc<[SessionSource]>: check::session_sources, |sources| sources.iter().map(source).collect();
    BTreeMap<Arc<str>, f64>: check::thresholds, thresholds;
    Fallback: check::fallback, |Fallback(names)| names.iter().map(|name| json!(name)).collect();
    Arc<Aliases>: check::aliases, |aliases| aliases.written().map(|(asked, served)| (asked.to_owned(), json!(served))).collect();
    Option<Arc<[Metric]>>: check::metrics, |rows| or_off(rows, |rows| rows.iter().map(metric).collect());
    Option<Arc<[Bucket]>>: check::buckets, |rows| or_off(rows, |rows| rows.iter().map(bucket).collect());
    Option<EjectSpec>: check::eject, |eject| or_off(eject, eject_parts);
    Option<GenerateCheck>: check::health_check, |check| or_off(check, health_check_parts);
    HangAfter: hang_after, |HangAfter(after)| after.as_ref().map_or(json!("built-in"), duration);
    Bodies: check::bodies, |bodies| json!(bodies.to_string());
    Arc<[BodyPath]>: check::body_paths, |paths| paths.iter().map(|path| json!(path.to_string())).collect();
    Arc<Rules>: check::reject_rules, |rules| rules.iter().map(rule).collect();
    Option<Arc<BTreeMap<String, String>>>: check::api_keys, api_keys;
}

impl<T: Choice + PartialEq> OptionValue for T {
    fn read(reader: &mut Reader, node: &Node, meta: &Meta) -> Option<Self> {
        check::choice(reader, node, meta)
    }

    fn show(&self) -> Value {
        let found = T::WORDS.iter().find(|(_, known)| known == self);
        json!(found.map(|(word, _)| word))
    }
}

/// A number. Whole numbers have no fraction.
pub fn number(value: &f64) -> Value {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if value.fract() == 0.0 && value.abs() < EXACT {
        json!(*value as i64)
    } else {
        json!(value)
    }
}

fn or_off<T>(value: &Option<T>, show: impl FnOnce(&T) -> Value) -> Value {
    value.as_ref().map_or(json!("off"), show)
}

fn duration(duration: &Duration) -> Value {
    json!(show_duration(*duration))
}

fn thresholds(limits: &BTreeMap<Arc<str>, f64>) -> Value {
    limits
        .iter()
        .map(|(model, limit)| (model.to_string(), number(limit)))
        .collect()
}

/// Keys are only counted, never shown.
fn api_keys(keys: &Option<Arc<BTreeMap<String, String>>>) -> Value {
    match keys {
        None => json!("the shared key file"),
        Some(keys) if keys.is_empty() => json!("open"),
        Some(keys) => json!(format!("{} of its own", keys.len())),
    }
}

/// A row of a metric table.
fn metric(metric: &Metric) -> Value {
    let (name, threshold) = (&metric.name, number(&metric.threshold));
    match metric.statistic {
        Statistic::Mean => json!({ "metric": name, "threshold": threshold }),
        Statistic::Quantile(q) => json!({ "metric": name, "q": q, "threshold": threshold }),
    }
}

fn hang_after(reader: &mut Reader, node: &Node, meta: &Meta) -> Option<HangAfter> {
    check::duration(reader, node, meta).map(|after| HangAfter(Some(after)))
}

fn eject_parts(eject: &EjectSpec) -> Value {
    json!({
        "consecutive": eject.consecutive,
        "share": number(&eject.share),
        "minimum": eject.minimum,
        "window": duration(&eject.window),
        "time": duration(&eject.time),
        "time_max": duration(&eject.time_max),
        "max_share": number(&eject.max_share),
    })
}

fn health_check_parts(check: &GenerateCheck) -> Value {
    let mut shown = json!({
        "kind": CheckKind::Generate.show(),
        "idle": duration(&check.idle),
        "timeout": duration(&check.timeout),
        "api": check.api.show(),
    });
    if let Some(model) = &check.model {
        shown["model"] = json!(model);
    }
    shown
}

/// A row of `session_prio_table`.
fn bucket(bucket: &Bucket) -> Value {
    json!({
        "min_turn": bucket.min_turn,
        "share": number(&bucket.share),
        "tol": number(&bucket.tol),
    })
}

/// A rule's name and condition, with its own status and message if it has them.
fn rule(rule: &Rule) -> Value {
    let mut shown = json!({ "name": rule.name, "cond": rule.condition });
    if let Some(status) = rule.status {
        shown["status"] = json!(status);
    }
    if let Some(message) = &rule.message {
        shown["message"] = json!(message);
    }
    shown
}

fn source(source: &SessionSource) -> Value {
    match &source.place {
        Place::Header(name) => json!(format!("header:{name}")),
        Place::Body(path) => json!(format!("body:{}", path.join("."))),
    }
}
