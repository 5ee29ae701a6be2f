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
        /// What counts as a peer's load. `in_flight`: the requests of this router. `engine`: the
        /// router polls the engine's metrics, so that requests of others count too. `balance:
        /// least_busy` and `idle_aware` imply `engine`.
        signal: LoadSignal = choice("load_signal").default("in_flight");

        /// Time between two polls of an engine. A request never causes a poll.
        poll_interval: Duration = option("poll_interval", within(10, 1)).default("1s");

        /// The longest time for one poll.
        poll_timeout: Duration = option("poll_timeout", within(10, 1)).default("2s");

        /// Age at which a peer's last sample is no longer fresh.
        stale_after: Duration = option("stale_after", within(10, 24)).default("3s");

        /// What happens to a peer whose metrics do not answer although it is alive. `hold`: it
        /// stays a candidate that counts as full, for at most `hold_max`. `exclude`: it is no
        /// candidate. A llama.cpp may not answer for as long as a prefill lasts.
        stale_policy: StalePolicy = choice("stale_policy").default("hold");

        /// How long a peer may be held, counted from its last sample.
        hold_max: Duration = option("hold_max", within(10, 24)).default("60s");

        /// How a sample and the router's own requests become a load. `corrected`: own requests that
        /// the sample already contains are counted once. `additive`: both are added.
        model: LoadModel = choice("load_model").default("corrected");

        /// How `least_busy` and `idle_aware` compare loads. `off`: as counts. `slots`: as load ÷
        /// slots, for peers with unequal slots.
        normalize: Normalize = choice("normalize").default("off");

        /// Whether the model pins. A request whose `model` is listed by some peers, as an id or an
        /// alias, goes to one of those. A session whose home does not list the model is placed as
        /// if its home were banned.
        pin_model: bool = switch("pin_model").inherits("true with `load_signal: engine`, else false");

        /// What happens when every peer that lists the model is out. `any`: any peer serves it.
        /// `same_model` and `none`: 503.
        pin_fallback: PinFallback = choice("pin_fallback").default("any");

        /// What happens, where models pin, to a model that no peer lists. `route`: the request is
        /// placed as if it named none. `not_found`: 404.
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
