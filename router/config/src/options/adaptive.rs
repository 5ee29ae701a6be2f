//! The adaptive concurrency limit of a route.

use std::time::Duration;

use super::signals::SHARE;
use super::{Bounds, Kind, OptionDef, within};
use crate::check;

/// A number of slots, or `off`.
const SLOTS_OR_OFF: Kind = Kind::WholeOrOff {
    min: 1,
    max: 1_000_000,
};

/// `adaptive_cc`.
pub(crate) static ADAPTIVE_CC: OptionDef<bool> =
    OptionDef::new("adaptive", "adaptive_cc", Kind::Bool, check::boolean)
        .default("false")
        .doc("A pool's limit follows its TTFT and decode rate, between a floor and the sum of its peers' maxima. Needs a threshold for one of the two.");
/// `adaptive_cc_interval`; unset: `tps_window`.
pub(crate) static ADAPTIVE_CC_INTERVAL: OptionDef<Duration> = OptionDef::new(
    "adaptive",
    "adaptive_cc_interval",
    within(10, 24),
    check::duration,
)
.default("`tps_window`")
.doc("Between two steps of the limit.")
.advanced();
/// `adaptive_cc_dec`.
pub(crate) static ADAPTIVE_CC_DEC: OptionDef<f64> = OptionDef::new(
    "adaptive",
    "adaptive_cc_dec",
    Kind::Number(Bounds::between(0.0, 1.0)),
    check::number,
)
.default("0.97")
.doc("Multiplies the limit in a step of overload or slack.")
.advanced();
/// `adaptive_cc_inc`.
pub(crate) static ADAPTIVE_CC_INC: OptionDef<f64> = OptionDef::new(
    "adaptive",
    "adaptive_cc_inc",
    Kind::Number(Bounds::above(1.0, 10.0)),
    check::number,
)
.default("1.02")
.doc("Multiplies the limit in a step that is healthy and pressed.")
.advanced();
/// `adaptive_cc_min`.
pub(crate) static ADAPTIVE_CC_MIN: OptionDef<Option<u32>> = OptionDef::new(
    "adaptive",
    "adaptive_cc_min",
    SLOTS_OR_OFF,
    check::whole_or_off,
)
.default("off")
.doc("The floor in slots; beats `adaptive_cc_min_frac`.");
/// `adaptive_cc_min_frac`.
pub(crate) static ADAPTIVE_CC_MIN_FRAC: OptionDef<f64> = OptionDef::new(
    "adaptive",
    "adaptive_cc_min_frac",
    Kind::Number(SHARE),
    check::number,
)
.default("0.4")
.doc("The floor as a share of a pool's static maximum.");
/// `adaptive_cc_init`.
pub(crate) static ADAPTIVE_CC_INIT: OptionDef<Option<u32>> = OptionDef::new(
    "adaptive",
    "adaptive_cc_init",
    SLOTS_OR_OFF,
    check::whole_or_off,
)
.default("off")
.doc("Where the limit starts, in slots; beats `adaptive_cc_init_frac`.");
/// `adaptive_cc_init_frac`.
pub(crate) static ADAPTIVE_CC_INIT_FRAC: OptionDef<Option<f64>> = OptionDef::new(
    "adaptive",
    "adaptive_cc_init_frac",
    Kind::NumberOrOff(SHARE),
    check::number_or_off,
)
.default("off")
.doc("Where the limit starts, as a share of a pool's static maximum; `off`: at the floor.");
/// `adaptive_cc_pressure_frac`.
pub(crate) static ADAPTIVE_CC_PRESSURE_FRAC: OptionDef<f64> = OptionDef::new(
    "adaptive",
    "adaptive_cc_pressure_frac",
    Kind::Number(SHARE),
    check::number,
)
.default("0.9")
.doc("The limit grows only while this share of it is in use.")
.advanced();
/// `adaptive_cc_slack_frac`.
pub(crate) static ADAPTIVE_CC_SLACK_FRAC: OptionDef<f64> = OptionDef::new(
    "adaptive",
    "adaptive_cc_slack_frac",
    Kind::Number(Bounds::between(0.0, 1.0)),
    check::number,
)
.default("0.7")
.doc("Below this share in use the limit follows load down. Less than `adaptive_cc_pressure_frac`.")
.advanced();
/// `adaptive_cc_abs`.
pub(crate) static ADAPTIVE_CC_ABS: OptionDef<f64> = OptionDef::new(
    "adaptive",
    "adaptive_cc_abs",
    Kind::Number(Bounds::within(0.0, 1_000_000.0)),
    check::number,
)
.default("5")
.doc("Slots kept above what is in use.")
.advanced();
/// `adaptive_cc_ttl`.
pub(crate) static ADAPTIVE_CC_TTL: OptionDef<Duration> = OptionDef::new(
    "adaptive",
    "adaptive_cc_ttl",
    within(10, 24),
    check::duration,
)
.default("300s")
.doc("Life of a limit that no step renews, with `adaptive_cc_hold_when_idle: false`.")
.advanced();
/// `adaptive_cc_use_ttft`.
pub(crate) static ADAPTIVE_CC_USE_TTFT: OptionDef<bool> = OptionDef::new(
    "adaptive",
    "adaptive_cc_use_ttft",
    Kind::Bool,
    check::boolean,
)
.default("true")
.doc("TTFT moves the limit too; false: the decode rate alone.");
/// `adaptive_cc_hold_when_idle`.
pub(crate) static ADAPTIVE_CC_HOLD_WHEN_IDLE: OptionDef<bool> = OptionDef::new(
    "adaptive",
    "adaptive_cc_hold_when_idle",
    Kind::Bool,
    check::boolean,
)
.default("true")
.doc("Low traffic neither shrinks nor expires the limit.");
