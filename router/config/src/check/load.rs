//! `load_signal` and related options.

use super::reader::Reader;
use super::section::Layers;
use crate::options::LOAD;
use crate::units::show_duration;
use crate::valid::{LoadOptions, LoadSignal, RouteOptions};

/// A `balance` that orders by the engines' load implies polling.
pub(super) fn implied(reader: &mut Reader, layers: &Layers<'_>, options: &mut RouteOptions) {
    let load = &mut options.load;
    if options.balance.value.needs_engine_load() {
        let key = LOAD.signal.meta.key;
        if load.signal.value == LoadSignal::InFlight
            && let Some(node) = layers.own.get(key)
        {
            reader.at(key, |reader| {
                reader.warning(
                    "polled-anyway",
                    node.span.clone(),
                    "the route's `balance` orders by the engines' load: they are polled all the same",
                );
            });
        }
        load.signal.value = LoadSignal::Engine;
    }
    budget(reader, layers, load);
}

/// One poll that times out must not make a peer stale.
fn budget(reader: &mut Reader, layers: &Layers<'_>, options: &LoadOptions) {
    let one_lost = options.poll_interval.value + options.poll_timeout.value;
    let after = options.stale_after.value;
    // Without polling, only a `stale_after` that a file sets deserves a warning.
    let polled = options.signal.value == LoadSignal::Engine;
    let set = [
        (LOAD.stale_after.meta.key, true),
        (LOAD.poll_interval.meta.key, polled),
        (LOAD.poll_timeout.meta.key, polled),
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
