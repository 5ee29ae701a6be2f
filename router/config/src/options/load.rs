//! How a route learns what its engines are doing, and what it makes of models.

use std::time::Duration;

use router_core::balance::Normalize;
use router_core::load::{LoadModel, StalePolicy};

use super::define::options;
use super::{choice, option, switch, within};
use crate::check::Choice;
use crate::valid::{AffinityFallback, LoadSignal, PinFallback, UnknownModel};

options! {
    /// `load_signal` and what goes with it.
    pub struct LoadOptions, declared in LOAD: LoadTable;

    "load" {
        /// What a peer's load is: `in_flight`: the router's own requests; `engine`: its engine's
        /// metrics are polled, so that others' requests count too. `balance: least_busy` and
        /// `idle_aware` imply `engine`.
        signal: LoadSignal = choice("load_signal").default("in_flight");

        /// Between two polls of an engine; it is never polled for a request.
        poll_interval: Duration = option("poll_interval", within(10, 1)).default("1s");

        /// The longest that a poll may take.
        poll_timeout: Duration = option("poll_timeout", within(10, 1)).default("2s");

        /// A peer whose last sample is older is not fresh.
        stale_after: Duration = option("stale_after", within(10, 24)).default("3s");

        /// What becomes of a peer whose metrics do not answer while it lives: `hold`: it stays a
        /// candidate, taken for full, for at most `hold_max`; `exclude`: it is out. A prefilling
        /// llama.cpp may not answer for as long as the prefill lasts.
        stale_policy: StalePolicy = choice("stale_policy").default("hold");

        /// The longest, from its last sample, that a peer is held.
        hold_max: Duration = option("hold_max", within(10, 24)).default("60s");

        /// `corrected`: own requests that a sample has seen are counted once; `additive`: the
        /// sample and own requests are added.
        model: LoadModel = choice("load_model").default("corrected");

        /// How `least_busy` and `idle_aware` compare loads: `off`: as counts; `slots`: as load ÷
        /// slots, for peers with unequal slots.
        normalize: Normalize = choice("normalize").default("off");

        /// A request whose `model` some peers list, as an id or an alias, goes to one of these; a
        /// session's home among the others counts as banned.
        pin_model: bool = switch("pin_model").inherits("true with `load_signal: engine`, else false");

        /// When every peer that lists the model is out: `any` peer serves it; `same_model` and
        /// `none`: 503.
        pin_fallback: PinFallback = choice("pin_fallback").default("any");

        /// A model that no peer lists, where models pin: `route` the request as if it named none,
        /// or `not_found`: 404.
        unknown_model: UnknownModel = choice("unknown_model").default("route");
    }
}

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
