//! The adaptive concurrency limit of a route.

use std::time::Duration;

use super::define::options;
use super::signals::SHARE;
use super::{Bounds, Kind, option, switch, within};

/// A number of slots, or `off`.
const SLOTS_OR_OFF: Kind = Kind::WholeOrOff {
    min: 1,
    max: 1_000_000,
};

options! {
    /// `adaptive_cc` and `adaptive_cc_*`: coefficients of the route; a pool's bounds follow from its
    /// peers.
    pub struct AdaptiveOptions, declared in ADAPTIVE: AdaptiveTable;

    "adaptive" {
        /// Whether a pool's limit follows its TTFT and decode rate, between a floor and the sum of
        /// its peers' maxima. Without a threshold for one of the two, the static limit holds.
        enabled: bool = switch("adaptive_cc").default("false");

        /// Time between two steps of the limit.
        interval: Duration = option("adaptive_cc_interval", within(10, 24)).inherits("`tps_window`").advanced();

        /// Factor of the limit in a step of overload or slack.
        dec: f64 = option("adaptive_cc_dec", Kind::Number(Bounds::between(0.0, 1.0))).default("0.97").advanced();

        /// Factor of the limit in a step that is healthy and under pressure.
        inc: f64 = option("adaptive_cc_inc", Kind::Number(Bounds::above(1.0, 10.0))).default("1.02").advanced();

        /// The floor in slots. It takes precedence over `adaptive_cc_min_frac`.
        min: Option<u32> = option("adaptive_cc_min", SLOTS_OR_OFF).default("off");

        /// The floor as a share of a pool's static maximum.
        min_frac: f64 = option("adaptive_cc_min_frac", Kind::Number(SHARE)).default("0.4");

        /// Where the limit starts, in slots. It takes precedence over `adaptive_cc_init_frac`.
        init: Option<u32> = option("adaptive_cc_init", SLOTS_OR_OFF).default("off");

        /// Where the limit starts, as a share of a pool's static maximum. `off`: at the floor.
        init_frac: Option<f64> = option("adaptive_cc_init_frac", Kind::NumberOrOff(SHARE)).default("off");

        /// The limit grows only while this share of it is in use.
        pressure_frac: f64 = option("adaptive_cc_pressure_frac", Kind::Number(SHARE)).default("0.9").advanced();

        /// Below this share in use, the limit follows the load down. It must be less than
        /// `adaptive_cc_pressure_frac`.
        slack_frac: f64 = option("adaptive_cc_slack_frac", Kind::Number(Bounds::between(0.0, 1.0)))
            .default("0.7")
            .advanced();

        /// How many slots the limit stays above what is in use.
        headroom: f64 = option("adaptive_cc_abs", Kind::Number(Bounds::within(0.0, 1_000_000.0)))
            .default("5")
            .advanced();

        /// How long a limit holds that no step renews, with `adaptive_cc_hold_when_idle: false`.
        ttl: Duration = option("adaptive_cc_ttl", within(10, 24)).default("300s").advanced();

        /// Whether TTFT moves the limit too. When false, only the decode rate does.
        use_ttft: bool = switch("adaptive_cc_use_ttft").default("true");

        /// When true, low traffic neither shrinks the limit nor lets it expire.
        hold_when_idle: bool = switch("adaptive_cc_hold_when_idle").default("true");
    }
}
