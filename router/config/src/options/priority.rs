//! Warm sessions first.

use std::sync::Arc;

use router_core::admission::priority::Bucket;

use super::define::options;
use super::signals::SHARE;
use super::{Bounds, Kind, Meta, OptionDef, option, switch};
use crate::check;

/// The keys of one row of `session_prio_table`.
pub(crate) static BUCKET: &[&Meta] = &[&BUCKET_MIN_TURN.meta, &BUCKET_SHARE.meta, &BUCKET_TOL.meta];

/// `session_prio_table[].min_turn`.
pub(crate) static BUCKET_MIN_TURN: OptionDef<u32> = OptionDef::new(
    "bucket",
    "min_turn",
    Kind::Whole {
        min: 1,
        max: 1_000_000_000,
    },
    check::whole,
)
.default("required")
.doc("The bucket's first turn: 1 in the first row, then ascending.");
/// `session_prio_table[].share`.
pub(crate) static BUCKET_SHARE: OptionDef<f64> =
    OptionDef::new("bucket", "share", Kind::Number(SHARE), check::number)
        .default("required")
        .doc("The share of the concurrency limit that it may fill.");
/// `session_prio_table[].tol`.
pub(crate) static BUCKET_TOL: OptionDef<f64> = OptionDef::new(
    "bucket",
    "tol",
    Kind::Number(Bounds::within(1.0, 1000.0)),
    check::number,
)
.default("required")
.doc("Multiplies the TTFT threshold and divides the TPS threshold. At most `session_prio_severe`.");

options! {
    /// `session_prio` and `session_prio_*`.
    pub struct PriorityOptions, declared in PRIORITY_OPTIONS: PriorityTable;

    "priority" {
        /// The switch behind `/_session_prio_toggle`. When it is on, the turn in
        /// `x-phanrouter-session: {"session_id":…,"turn":N}` decides under load: warm sessions keep
        /// their place, and new ones are refused first.
        enabled: bool = switch("session_prio").default("false");

        /// The share of the concurrency limit that turn 1 may fill; it rises to 1 over the buckets.
        r_new: f64 = option("session_prio_r_new", Kind::Number(SHARE)).default("0.85");

        /// Where the last bucket starts: turn 1, 2–3, 4–7, … doubling up to this one.
        full_turn: u32 = option("session_prio_full_turn", Kind::Whole { min: 2, max: 1_000_000 }).default("32");

        /// At this multiple of a TTFT threshold, or below a decode rate divided by it, every bucket
        /// is refused. It is the last bucket's tolerance.
        severe: f64 = option("session_prio_severe", Kind::Number(Bounds::within(1.0, 1000.0)))
            .default("1.5")
            .advanced();

        /// After a refusal for TTFT, turn 1 is let in again below the threshold times this.
        release: f64 = option("session_prio_release", Kind::Number(SHARE)).default("0.9").advanced();

        /// How many probes turn 1 may use in each window while no warm request has probed in it.
        t1_probes: u32 = option("session_prio_t1_probes", Kind::Whole { min: 0, max: 1_000_000 })
            .default("1")
            .advanced();

        /// The log warns when more than this share of a minute's requests has no usable header.
        warn_frac: f64 = option("session_prio_warn_frac", Kind::Number(Bounds::within(0.0, 1.0)))
            .default("0.2")
            .advanced();

        /// The buckets themselves, instead of those that follow from `session_prio_r_new`,
        /// `session_prio_full_turn` and `session_prio_severe`: mappings `{min_turn, share, tol}` or
        /// triples `[min_turn, share, tol]`, from turn 1, ascending.
        table: Option<Arc<[Bucket]>> = option("session_prio_table", Kind::Buckets).default("off");
    }
}
