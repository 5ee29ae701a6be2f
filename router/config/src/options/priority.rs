//! Warm sessions first.

use std::sync::Arc;

use router_core::admission::priority::Bucket;

use super::signals::SHARE;
use super::{Bounds, Kind, Meta, OptionDef};
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

/// `session_prio`.
pub(crate) static SESSION_PRIO: OptionDef<bool> =
    OptionDef::new("priority", "session_prio", Kind::Bool, check::boolean)
        .default("false")
        .doc("The switch behind `/_session_prio_toggle`: under load the turn in `x-phanrouter-session: {\"session_id\":…,\"turn\":N}` decides; warm sessions keep their place while new ones are refused first.");
/// `session_prio_r_new`.
pub(crate) static SESSION_PRIO_R_NEW: OptionDef<f64> = OptionDef::new(
    "priority",
    "session_prio_r_new",
    Kind::Number(SHARE),
    check::number,
)
.default("0.85")
.doc("The share of the concurrency limit that turn 1 may fill; it rises to 1 over the buckets.");
/// `session_prio_full_turn`.
pub(crate) static SESSION_PRIO_FULL_TURN: OptionDef<u32> = OptionDef::new(
    "priority",
    "session_prio_full_turn",
    Kind::Whole {
        min: 2,
        max: 1_000_000,
    },
    check::whole,
)
.default("32")
.doc("Where the last bucket starts: turn 1, 2–3, 4–7, … doubling up to this one.");
/// `session_prio_severe`.
pub(crate) static SESSION_PRIO_SEVERE: OptionDef<f64> = OptionDef::new(
    "priority",
    "session_prio_severe",
    Kind::Number(Bounds::within(1.0, 1000.0)),
    check::number,
)
.default("1.5")
.doc("At this multiple of a TTFT threshold (or below a decode rate divided by it) every bucket is refused; the last bucket's tolerance.")
.advanced();
/// `session_prio_release`.
pub(crate) static SESSION_PRIO_RELEASE: OptionDef<f64> = OptionDef::new(
    "priority",
    "session_prio_release",
    Kind::Number(SHARE),
    check::number,
)
.default("0.9")
.doc("Once refused for TTFT, turn 1 is let in again below the threshold times this.")
.advanced();
/// `session_prio_t1_probes`.
pub(crate) static SESSION_PRIO_T1_PROBES: OptionDef<u32> = OptionDef::new(
    "priority",
    "session_prio_t1_probes",
    Kind::Whole {
        min: 0,
        max: 1_000_000,
    },
    check::whole,
)
.default("1")
.doc("Probe slots of turn 1 in each window, while no warm request has probed in it.")
.advanced();
/// `session_prio_warn_frac`.
pub(crate) static SESSION_PRIO_WARN_FRAC: OptionDef<f64> = OptionDef::new(
    "priority",
    "session_prio_warn_frac",
    Kind::Number(Bounds::within(0.0, 1.0)),
    check::number,
)
.default("0.2")
.doc("The share of a minute's requests without a usable header above which the log warns.")
.advanced();
/// `session_prio_table`.
pub(crate) static SESSION_PRIO_TABLE: OptionDef<Option<Arc<[Bucket]>>> = OptionDef::new(
    "priority",
    "session_prio_table",
    Kind::Buckets,
    check::buckets,
)
.default("off")
.doc("The buckets themselves, in place of what `session_prio_r_new`, `session_prio_full_turn` and `session_prio_severe` make: mappings `{min_turn, share, tol}` or triples `[min_turn, share, tol]`, from turn 1, ascending.");
