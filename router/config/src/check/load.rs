//! `load_signal` and what goes with it.

use router_core::balance::Balance;

use super::reader::Reader;
use super::section::Layers;
use crate::options::{
    HOLD_MAX, LOAD_MODEL, LOAD_SIGNAL, NORMALIZE, PIN_FALLBACK, PIN_MODEL, POLL_INTERVAL,
    POLL_TIMEOUT, STALE_AFTER, STALE_POLICY, UNKNOWN_MODEL,
};
use crate::units::show_duration;
use crate::valid::{LoadOptions, LoadSignal};

/// Reads the group. A `balance` that orders by the engines' load has it polled.
pub(super) fn options(reader: &mut Reader, layers: &Layers<'_>, balance: Balance) -> LoadOptions {
    let mut signal = layers.setting(reader, &LOAD_SIGNAL);
    if balance.needs_engine_load() {
        if signal.value == LoadSignal::InFlight
            && let Some(node) = layers.own.get(LOAD_SIGNAL.meta.key)
        {
            reader.at(LOAD_SIGNAL.meta.key, |reader| {
                reader.warning(
"polled-anyway",
                    node.span.clone(),
                    "the route's `balance` orders by the engines' load: they are polled all the same",
                );
            });
        }
        signal.value = LoadSignal::Engine;
    }
    let options = LoadOptions {
        poll_interval: layers.setting(reader, &POLL_INTERVAL),
        poll_timeout: layers.setting(reader, &POLL_TIMEOUT),
        stale_after: layers.setting(reader, &STALE_AFTER),
        stale_policy: layers.setting(reader, &STALE_POLICY),
        hold_max: layers.setting(reader, &HOLD_MAX),
        model: layers.setting(reader, &LOAD_MODEL),
        normalize: layers.setting(reader, &NORMALIZE),
        pin_model: layers.over(reader, &PIN_MODEL, signal.value == LoadSignal::Engine),
        pin_fallback: layers.setting(reader, &PIN_FALLBACK),
        unknown_model: layers.setting(reader, &UNKNOWN_MODEL),
        signal,
    };
    budget(reader, layers, &options);
    options
}

/// One poll that times out must not make a peer stale.
fn budget(reader: &mut Reader, layers: &Layers<'_>, options: &LoadOptions) {
    let one_lost = options.poll_interval.value + options.poll_timeout.value;
    let after = options.stale_after.value;
    // Where nothing is polled, only a `stale_after` that somebody wrote is worth a word.
    let polled = options.signal.value == LoadSignal::Engine;
    let set = [
        (STALE_AFTER.meta.key, true),
        (POLL_INTERVAL.meta.key, polled),
        (POLL_TIMEOUT.meta.key, polled),
    ];
    let set = set
        .into_iter()
        .filter(|(_, counts)| *counts)
        .find_map(|(key, _)| Some((key, layers.own.get(key)?)));
    if after < one_lost
        && let Some((key, node)) = set
    {
        reader.at(key, |reader| {
            reader.warning(
                "stale-budget",
                node.span.clone(),
                format!(
                    "`stale_after` = {} is below `poll_interval` + `poll_timeout` = {}: one poll that times out makes a peer stale",
                    show_duration(after),
                    show_duration(one_lost)
                ),
            );
        });
    }
}
