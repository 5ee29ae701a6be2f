//! How a route learns what its engines are doing, and what it makes of models and prefixes.

use std::time::Duration;

use router_core::balance::Normalize;
use router_core::load::{LoadModel, StalePolicy};

use super::{Bounds, Kind, OptionDef, within};
use crate::check::{self, Choice};
use crate::valid::{AffinityFallback, LoadSignal, PinFallback, UnknownModel};

/// `load_signal`.
pub(crate) static LOAD_SIGNAL: OptionDef<LoadSignal> = OptionDef::new("balance", "load_signal", Kind::Choice(LoadSignal::words), check::choice)
    .default("in_flight")
    .doc("What a peer's load is: `in_flight`: the router's own requests; `engine`: its engine's metrics are polled, so that others' requests count too. `balance: least_busy` and `idle_aware` imply `engine`.");
/// `poll_interval`.
pub(crate) static POLL_INTERVAL: OptionDef<Duration> =
    OptionDef::new("balance", "poll_interval", within(10, 1), check::duration)
        .default("1s")
        .doc("Between two polls of an engine; it is never polled for a request.");
/// `poll_timeout`.
pub(crate) static POLL_TIMEOUT: OptionDef<Duration> =
    OptionDef::new("balance", "poll_timeout", within(10, 1), check::duration)
        .default("2s")
        .doc("The longest that a poll may take.");
/// `stale_after`.
pub(crate) static STALE_AFTER: OptionDef<Duration> =
    OptionDef::new("balance", "stale_after", within(10, 24), check::duration)
        .default("3s")
        .doc("A peer whose last sample is older is not fresh.");
/// `stale_policy`.
pub(crate) static STALE_POLICY: OptionDef<StalePolicy> = OptionDef::new("balance", "stale_policy", Kind::Choice(StalePolicy::words), check::choice)
    .default("hold")
    .doc("What becomes of a peer whose metrics do not answer while it lives: `hold`: it stays a candidate, taken for full, for at most `hold_max`; `exclude`: it is out. A prefilling llama.cpp may not answer for as long as the prefill lasts.");
/// `hold_max`.
pub(crate) static HOLD_MAX: OptionDef<Duration> =
    OptionDef::new("balance", "hold_max", within(10, 24), check::duration)
        .default("60s")
        .doc("The longest, from its last sample, that a peer is held.");
/// `load_model`.
pub(crate) static LOAD_MODEL: OptionDef<LoadModel> = OptionDef::new("balance", "load_model", Kind::Choice(LoadModel::words), check::choice)
    .default("corrected")
    .doc("`corrected`: own requests that a sample has seen are counted once; `additive`: the sample and own requests are added.");
/// `normalize`.
pub(crate) static NORMALIZE: OptionDef<Normalize> = OptionDef::new("balance", "normalize", Kind::Choice(Normalize::words), check::choice)
    .default("off")
    .doc("How `least_busy` and `idle_aware` compare loads: `off`: as counts; `slots`: as load ÷ slots, for peers with unequal slots.");
/// `pin_model`.
pub(crate) static PIN_MODEL: OptionDef<bool> = OptionDef::new("balance", "pin_model", Kind::Bool, check::boolean)
    .default("true with `load_signal: engine`, else false")
    .doc("A request whose `model` some peers list, as an id or an alias, goes to one of these; a session's home among the others counts as banned.");
/// `pin_fallback`.
pub(crate) static PIN_FALLBACK: OptionDef<PinFallback> = OptionDef::new("balance", "pin_fallback", Kind::Choice(PinFallback::words), check::choice)
    .default("any")
    .doc("When every peer that lists the model is out: `any` peer serves it; `same_model` and `none`: 503.");
/// `unknown_model`.
pub(crate) static UNKNOWN_MODEL: OptionDef<UnknownModel> = OptionDef::new("balance", "unknown_model", Kind::Choice(UnknownModel::words), check::choice)
    .default("route")
    .doc("A model that no peer lists, where models pin: `route` the request as if it named none, or `not_found`: 404.");
/// `session_ttl`.
pub(crate) static SESSION_TTL: OptionDef<Duration> = OptionDef::new("affinity", "session_ttl", Kind::Duration {
    min: Duration::ZERO,
    max: Duration::from_secs(31 * 24 * 3600),
    off: false,
}, check::duration)
    .default("7200s")
    .doc("`sticky_least_loaded`: a session that was idle for so long is forgotten. `0s`: each request is placed anew. The variable `VLLM_ROUTER_SLL_SESSION_EXPIRATION_IN_S` sets another default.");
/// `max_sessions`.
pub(crate) static MAX_SESSIONS: OptionDef<u32> = OptionDef::new("affinity", "max_sessions", Kind::Whole {
    min: 1,
    max: 1_000_000,
}, check::whole)
    .default("262144")
    .doc("`sticky_least_loaded`: sessions a pool remembers; beyond it the least recently used one is forgotten.");
/// `affinity_fallback`.
pub(crate) static AFFINITY_FALLBACK: OptionDef<AffinityFallback> = OptionDef::new("affinity", "affinity_fallback", Kind::Choice(AffinityFallback::words), check::choice)
    .default("none")
    .doc("For requests that name no session: `none`: they are balanced; `prefix`: they go where the longest known prefix of their conversation was computed last.");
/// `affinity_max_load_factor`.
pub(crate) static AFFINITY_MAX_LOAD_FACTOR: OptionDef<Option<f64>> = OptionDef::new("affinity", "affinity_max_load_factor", Kind::NumberOrOff(Bounds::within(1.0, 1000.0)), check::number_or_off)
    .default("off")
    .doc("A session is not placed for the first time on a peer whose load is above this many times its pool's mean; one that is at home there moves only when it is full.");

impl Choice for LoadSignal {
    const WORDS: &'static [(&'static str, Self)] =
        &[("in_flight", Self::InFlight), ("engine", Self::Engine)];
}

impl Choice for StalePolicy {
    const WORDS: &'static [(&'static str, Self)] =
        &[("hold", Self::Hold), ("exclude", Self::Exclude)];
}

impl Choice for LoadModel {
    const WORDS: &'static [(&'static str, Self)] =
        &[("corrected", Self::Corrected), ("additive", Self::Additive)];
}

impl Choice for Normalize {
    const WORDS: &'static [(&'static str, Self)] = &[("off", Self::Off), ("slots", Self::Slots)];
}

impl Choice for PinFallback {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("any", Self::Any),
        ("same_model", Self::SameModel),
        ("none", Self::None),
    ];
}

impl Choice for UnknownModel {
    const WORDS: &'static [(&'static str, Self)] =
        &[("route", Self::Route), ("not_found", Self::NotFound)];
}

impl Choice for AffinityFallback {
    const WORDS: &'static [(&'static str, Self)] =
        &[("none", Self::None), ("prefix", Self::Prefix)];
}
