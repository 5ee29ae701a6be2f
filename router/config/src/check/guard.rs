//! The load gates of a route: their options by group, and combinations that cannot work.

use router_core::layered::{Setting, Source};

use super::reader::{Reader, short};
use super::scalar::nearest;
use super::section::Layers;
use crate::options::{ADAPTIVE, PRIORITY_OPTIONS, TPS, TTFT};
use crate::tree::{Span, Value};
use crate::units::show_duration;
use crate::valid::{AdaptiveOptions, Pool, PriorityOptions, RouteOptions, largest_tier};

/// Reports the combinations in a file that cannot work. Combinations that come from `defaults:`
/// alone are reported in the main file.
pub(super) fn combinations(reader: &mut Reader, layers: &Layers<'_>, options: &mut RouteOptions) {
    for (knobs, signal) in [(&TTFT, &mut options.ttft), (&TPS, &mut options.tps)] {
        if signal.ttl.value < signal.window.value {
            let (ttl, window) = (knobs.ttl.meta.key, knobs.window.meta.key);
            let message = format!(
                "`{ttl}` is {}, shorter than `{window}`: the average would end before the next window does",
                show_duration(signal.ttl.value)
            );
            at(reader, layers, &[ttl, window], message);
            signal.ttl = instead(signal.window.value);
        }
    }
    let before = reader.errors();
    let adaptive = &options.adaptive;
    if adaptive.slack_frac.value >= adaptive.pressure_frac.value {
        let message = format!(
            "`adaptive_cc_slack_frac` is {}, not below `adaptive_cc_pressure_frac`, {}: the limit would grow and shrink at once",
            adaptive.slack_frac.value, adaptive.pressure_frac.value
        );
        let keys = [
            ADAPTIVE.slack_frac.meta.key,
            ADAPTIVE.pressure_frac.meta.key,
        ];
        at(reader, layers, &keys, message);
    }
    floor(reader, layers, adaptive);
    if reader.errors() > before {
        options.adaptive.enabled = instead(false);
    }
    tolerances(reader, layers, &mut options.priority);
}

/// The safe reading in place of a value that does not fit another one.
fn instead<T>(value: T) -> Setting<T> {
    Setting {
        value,
        source: Source::DefaultInvalid,
    }
}

/// The floor must not exceed the start, where both have the same unit.
fn floor(reader: &mut Reader, layers: &Layers<'_>, adaptive: &AdaptiveOptions) {
    if let (Some(min), Some(init)) = (adaptive.min.value, adaptive.init.value)
        && min > init
    {
        let message = format!("`adaptive_cc_min` is {min}, above `adaptive_cc_init`, {init}");
        let keys = [ADAPTIVE.min.meta.key, ADAPTIVE.init.meta.key];
        at(reader, layers, &keys, message);
    }
    let absolute = adaptive.min.value.is_some() || adaptive.init.value.is_some();
    if let Some(init) = adaptive.init_frac.value
        && !absolute
        && adaptive.min_frac.value > init
    {
        let message = format!(
            "`adaptive_cc_min_frac` is {}, above `adaptive_cc_init_frac`, {init}",
            adaptive.min_frac.value
        );
        let keys = [ADAPTIVE.init_frac.meta.key, ADAPTIVE.min_frac.meta.key];
        at(reader, layers, &keys, message);
    }
}

/// No bucket may tolerate more than the value that refuses every bucket, and the first bucket must
/// start at turn 1.
fn tolerances(reader: &mut Reader, layers: &Layers<'_>, priority: &mut PriorityOptions) {
    let severe = priority.severe.value;
    let table = priority.table.value.as_deref().unwrap_or_default();
    let most = table.iter().map(|bucket| bucket.tol).fold(severe, f64::max);
    if let Some(bucket) = table.iter().find(|bucket| bucket.tol > severe) {
        let message = format!(
            "the bucket of turn {} has the tolerance {}, above `session_prio_severe`, {severe}, where every bucket is refused",
            bucket.min_turn, bucket.tol
        );
        let keys = [
            PRIORITY_OPTIONS.table.meta.key,
            PRIORITY_OPTIONS.severe.meta.key,
        ];
        at(reader, layers, &keys, message);
        priority.severe = instead(most);
    }
}

/// Checks that need a whole route: a limit that no signal moves, and numbers that do not fit its
/// peers.
pub(super) fn whole_route(
    reader: &mut Reader,
    layers: &Layers<'_>,
    options: &mut RouteOptions,
    pools: &[Pool],
) {
    unmoved(reader, layers, options);
    reader.tolerating(|reader| {
        bounds(reader, layers, &options.adaptive, pools);
        models(reader, layers, pools);
    });
}

/// An adaptive limit that no signal moves would stay at its floor, so the static limit applies
/// instead.
fn unmoved(reader: &mut Reader, layers: &Layers<'_>, options: &mut RouteOptions) {
    let by_ttft = options.ttft.has_threshold() && options.adaptive.use_ttft.value;
    if !options.adaptive.enabled.value || by_ttft || options.tps.has_threshold() {
        return;
    }
    options.adaptive.enabled = instead(false);
    let keys = [ADAPTIVE.enabled.meta.key, ADAPTIVE.use_ttft.meta.key];
    let (key, span) = place(layers, &keys).unwrap_or((keys[0], 0..0));
    let why = if options.ttft.has_threshold() {
        "`adaptive_cc_use_ttft` is off, and no decode rate has a threshold"
    } else {
        "neither TTFT nor the decode rate has a threshold"
    };
    reader.key(key, |reader| {
        let message = format!("nothing moves the limit: {why}; the static limit holds");
        reader
            .warning("adaptive-unmoved", span, message)
            .help("set `ttft_limit_ms` or `tps_limit_tps`, or `adaptive_cc: false`");
    });
}

/// Reports absolute bounds that no pool of the route can reach.
fn bounds(reader: &mut Reader, layers: &Layers<'_>, adaptive: &AdaptiveOptions, pools: &[Pool]) {
    let largest = pools
        .iter()
        .map(|pool| largest_tier(&pool.peers))
        .max()
        .unwrap_or(0);
    let given = [
        (&ADAPTIVE.min, adaptive.min.value),
        (&ADAPTIVE.init, adaptive.init.value),
    ];
    for (knob, slots) in given {
        let Some(node) = layers.own.get(knob.meta.key) else {
            continue;
        };
        if largest > 0 && slots.is_some_and(|slots| u64::from(slots) > largest) {
            reader.key(knob.meta.key, |reader| {
                reader.warning(
"bound-above-peers",
                    node.span.clone(),
                    format!("above what the peers have: {largest} is in force, and the limit never moves"),
                );
            });
        }
    }
}

/// Reports thresholds of models that the route does not have.
fn models(reader: &mut Reader, layers: &Layers<'_>, pools: &[Pool]) {
    for knobs in [&TTFT, &TPS] {
        let key = knobs.limit_by_model.meta.key;
        let Some(node) = layers.own.get(key) else {
            continue;
        };
        let Value::Map(pairs) = &node.value else {
            continue;
        };
        let known = || pools.iter().filter_map(|pool| pool.model.as_deref());
        for (model, _) in pairs {
            if known().any(|known| known == model.text) {
                continue;
            }
            let mut message = format!("no model of this route is named `{}`", short(&model.text));
            if let Some(near) = nearest(&model.text, known()) {
                message.push_str(&format!("; did you mean `{near}`?"));
            }
            reader.key(key, |reader| {
                reader.warning("limit-of-no-model", model.span.clone(), message);
            });
        }
    }
}

/// Reports an error at the first of these keys that this file sets. No error if it sets none of
/// them.
fn at(reader: &mut Reader, layers: &Layers<'_>, keys: &[&'static str], message: String) {
    if let Some((key, span)) = place(layers, keys) {
        reader.key(key, |reader| {
            reader.error(span, message);
        });
    }
}

fn place(layers: &Layers<'_>, keys: &[&'static str]) -> Option<(&'static str, Span)> {
    keys.iter()
        .find_map(|key| layers.own.get(key).map(|node| (*key, node.span.clone())))
}
