//! When peers that fail or hang lose their requests, and how they get them back.

use std::sync::Arc;
use std::time::Duration;

use router_core::health::EjectSpec;

use super::define::options;
use super::signals::SHARE;
use super::{Kind, Meta, OptionDef, option, within};
use crate::check::{self, Choice};
use crate::valid::{CheckKind, GenerateApi, GenerateCheck, HangAfter};

options! {
    /// `eject` and what goes with it.
    pub struct HealthOptions, declared in HEALTH: HealthTable;

    "health" {
        /// When failed answers take a peer out of service. 5xx, broken connections and streams, and
        /// a missing first byte count. 4xx, 429 and clients that leave do not count. `off`: never.
        eject: Option<EjectSpec> = option("eject", Kind::Eject)
            .default("{consecutive: 5, share: 0.5, minimum: 10, window: 30s, time: 30s, time_max: 5m, max_share: 0.5}");

        /// A peer is suspect when it sends no first byte for this long while requests wait, and for
        /// more than twice its longest recent wait. A suspect peer keeps its sessions and gets
        /// nothing else.
        hang_after: HangAfter = option("hang_after", within(1_000, 24))
            .inherits("60s while the engine's metrics show load and no progress, else 5m");

        /// How long an attempt may receive nothing: no byte of an answer's body, however early its
        /// headers come. The request then goes to another peer, and on the last one it ends with
        /// 504. An answer that is not streamed begins after its last token: leave time for all of
        /// it.
        first_byte_timeout: Option<Duration> = option("first_byte_timeout", FIRST_BYTE).default("off");

        /// Asks each peer for one token when no request has succeeded there for a while, and while
        /// it is suspect or has served its ejection, so that no client's request has to try it.
        /// `off`: only `health_probe_path` is asked.
        health_check: Option<GenerateCheck> = option("health_check", Kind::HealthCheck).default("off");

        /// How long a peer that comes back takes to reach its full number of slots.
        slow_start: Duration = option("slow_start", Kind::Duration { min: Duration::ZERO, max: Duration::from_secs(3_600), off: false })
            .default("30s");
    }
}

/// Bounds of the time for the first byte of an answer.
const FIRST_BYTE: Kind = Kind::Duration {
    min: Duration::from_millis(10),
    max: Duration::from_secs(24 * 3600),
    off: true,
};

/// A number of attempts.
const ATTEMPTS: Kind = Kind::Whole {
    min: 1,
    max: 10_000,
};

/// The keys of `eject`.
pub(crate) static EJECT: &[&Meta] = &[
    &EJECT_CONSECUTIVE.meta,
    &EJECT_SHARE.meta,
    &EJECT_MINIMUM.meta,
    &EJECT_WINDOW.meta,
    &EJECT_TIME.meta,
    &EJECT_TIME_MAX.meta,
    &EJECT_MAX_SHARE.meta,
];

/// `eject.consecutive`.
pub(crate) static EJECT_CONSECUTIVE: OptionDef<u32> =
    OptionDef::new("health", "consecutive", ATTEMPTS, check::whole)
        .default("5")
        .doc("Failures in a row.");
/// `eject.share`.
pub(crate) static EJECT_SHARE: OptionDef<f64> =
    OptionDef::new("health", "share", Kind::Number(SHARE), check::number)
        .default("0.5")
        .doc("Share of failures among the attempts that ended within `window`.");
/// `eject.minimum`.
pub(crate) static EJECT_MINIMUM: OptionDef<u32> =
    OptionDef::new("health", "minimum", ATTEMPTS, check::whole)
        .default("10")
        .doc("Attempts that must have ended within `window` before their share counts.");
/// `eject.window`.
pub(crate) static EJECT_WINDOW: OptionDef<Duration> =
    OptionDef::new("health", "window", within(1_000, 1), check::duration)
        .default("30s")
        .doc("How far back `share` looks.");
/// `eject.time`.
pub(crate) static EJECT_TIME: OptionDef<Duration> =
    OptionDef::new("health", "time", within(1_000, 24), check::duration)
        .default("30s")
        .doc("How long the first ejection lasts; each repetition doubles it.");
/// `eject.time_max`.
pub(crate) static EJECT_TIME_MAX: OptionDef<Duration> =
    OptionDef::new("health", "time_max", within(1_000, 24), check::duration)
        .default("5m")
        .doc("The longest ejection. A peer that was healthy for so long begins at `time` again.");
/// `eject.max_share`.
pub(crate) static EJECT_MAX_SHARE: OptionDef<f64> =
    OptionDef::new("health", "max_share", Kind::Number(SHARE), check::number)
        .default("0.5")
        .doc("Share of a tier's enabled peers that may be suspect or ejected at once, rounded down. One may go wherever two are left, and never the last one.");

/// The keys of `health_check`.
pub(crate) static HEALTH_CHECK: &[&Meta] = &[
    &HEALTH_CHECK_KIND.meta,
    &HEALTH_CHECK_IDLE.meta,
    &HEALTH_CHECK_TIMEOUT.meta,
    &HEALTH_CHECK_API.meta,
    &HEALTH_CHECK_MODEL.meta,
];

/// `health_check.kind`.
pub(crate) static HEALTH_CHECK_KIND: OptionDef<CheckKind> = OptionDef::new(
    "health",
    "kind",
    Kind::Choice(CheckKind::words),
    check::choice,
)
.default("generate")
.doc("`generate`: a request for one token.");
/// `health_check.idle`.
pub(crate) static HEALTH_CHECK_IDLE: OptionDef<Duration> =
    OptionDef::new("health", "idle", within(10, 24), check::duration)
        .default("60s")
        .doc("A peer on which nothing runs is asked when it has begun no answer for so long, at the pace of `health_check_interval`.");
/// `health_check.timeout`.
pub(crate) static HEALTH_CHECK_TIMEOUT: OptionDef<Duration> =
    OptionDef::new("health", "timeout", within(10, 1), check::duration)
        .default("30s")
        .doc("How long the whole answer may take; then it counts as no first byte.");
/// `health_check.api`.
pub(crate) static HEALTH_CHECK_API: OptionDef<GenerateApi> = OptionDef::new(
    "health",
    "api",
    Kind::Choice(GenerateApi::words),
    check::choice,
)
.default("chat")
.doc("The API that is asked: `chat`: `/v1/chat/completions`; `completions`, `responses`, `messages` and `embeddings`: the path of that name.");
/// `health_check.model`.
pub(crate) static HEALTH_CHECK_MODEL: OptionDef<Arc<str>> =
    OptionDef::new("health", "model", Kind::Text, check::text)
        .inherits("the pool's, else the first one that the peer lists")
        .doc("The model that is asked for.");

impl Choice for CheckKind {
    const WORDS: &'static [(&'static str, Self)] = &[("generate", Self::Generate)];
}

impl Choice for GenerateApi {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("chat", Self::Chat),
        ("completions", Self::Completions),
        ("responses", Self::Responses),
        ("messages", Self::Messages),
        ("embeddings", Self::Embeddings),
    ];
}
