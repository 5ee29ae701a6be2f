//! Decides whether a peer may get requests, from the outcomes of its earlier requests.
//!
//! One state machine for each peer:
//!
//! ```text
//!             no first byte for long                    first byte
//!  healthy ───────────────────────────► suspect ───────────────────────► healthy
//!     │  ▲                                 │ nobody waits, `time` is over
//!     │  └─────────────┐                   ▼
//!     │ failures       │ ramp over      probing ── first byte ──► returning
//!     ▼                │                   ▲                          │
//!  ejected ────────────┼── time is over ───┘                          │
//!     ▲                └──────────────────────────────────────────────┤
//!     └────────────── the probe, or the first answer after it, fails ─┘
//! ```
//!
//! - *Suspect*: requests wait far longer for a first byte than recently. New sessions and
//!   requests without one go elsewhere; sessions that live on the peer stay.
//! - *Ejected*: enough answers failed, or a suspect peer stays silent towards enough requests while
//!   its siblings answer. No request goes there for a time that doubles with each repetition. The
//!   first byte of a request that still waits there ends an ejection for silence.
//! - *Probing*: one request at a time goes there, and its outcome decides.
//! - *Returning*: the number of slots grows to the full number over `slow_start`.
//!
//! A refused connection is not judged here. It [bans](crate::pool::Ban) the peer at once, and the
//! ban ends with the first good probe or poll. The model follows Envoy's outlier detection
//! (consecutive failures, growing ejection time, largest ejected share) and linkerd's breaker (one
//! probe request at a time).

mod silence;
mod spec;
mod window;

use std::fmt;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use silence::{Silence, VAIN_WAIT};
use window::FailureWindow;

pub use silence::AnswerKind;
pub use spec::{EjectSpec, HANG_AFTER, HANG_AFTER_STUCK, HealthSpec};

words! {
    /// The state of a peer in the state machine.
    #[derive(Default)]
    pub enum HealthState {
        /// It takes every request.
        #[default]
        Healthy = "healthy",
        /// It gives no first byte; sessions that live there stay, nothing else goes there.
        Suspect = "suspect",
        /// Nothing goes there.
        Ejected = "ejected",
        /// One request at a time goes there.
        Probing = "probing",
        /// Its slots ramp up.
        Returning = "returning",
    }
}

words! {
    /// How an attempt failed, if the peer and not the client caused the failure.
    pub enum Failure {
        /// No connection. The peer is banned for it, not ejected.
        NoConnection = "no_connection",
        /// The connection ended before the first byte of the answer.
        Reset = "reset",
        /// No first byte within `first_byte_timeout` or the request's own time limit.
        NoFirstByte = "no_first_byte",
        /// A status of 500 to 599.
        ServerError = "server_error",
        /// The answer broke off, or a stream ended without its terminator.
        Cut = "cut",
        /// Nothing arrived for `idle_timeout` in the middle of an answer.
        Stall = "stall",
    }
}

/// The outcome of one attempt, as far as it says something about the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptEnd {
    /// The answer was complete.
    Served,
    /// The peer failed.
    Failed(Failure),
    /// The client left before the first byte. This is counted, but does not eject the peer by
    /// itself.
    Abandoned,
    /// No evidence about the peer: 4xx and 429, a client that left after the first byte, a router
    /// that shuts down.
    Neutral,
}

/// A suspect peer is not ejected for silence earlier. Requests that were about to be answered show
/// themselves in this time.
const SUSPECT_MIN: Duration = VAIN_WAIT;

/// A wait is far too long if it is this many times the longest recent wait.
const FAR_LONGER: u32 = 2;

/// Transitions kept if the edge does not take them.
const CHANGES_MAX: usize = 16;

/// Steps in the ramp of a returning peer.
const RAMP_STEPS: u32 = 10;

/// One attempt under way, from the view of its peer's health. It travels in the ticket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempt {
    kind: AnswerKind,
    since: Instant,
    /// Generation of the peer when the attempt began. An attempt from before an ejection does not
    /// count after it.
    generation: u32,
    is_probe: bool,
    /// The first byte has not come yet.
    waits: bool,
}

impl Attempt {
    /// Whether the outcome of this attempt decides on a peer that is being probed.
    pub(crate) fn is_probe(&self) -> bool {
        self.is_probe
    }
}

/// A transition, for the edge to log and count once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HealthChange {
    /// The state before the transition.
    pub from: HealthState,
    /// The state after the transition.
    pub to: HealthState,
    /// The cause.
    pub cause: Cause,
    /// Minimum duration of the new state; absent where only an answer ends it.
    pub lasts: Option<Duration>,
}

/// Why a peer changed its state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cause {
    /// Consecutive failures.
    InARow {
        /// Number of failures.
        failures: u32,
        /// How the last one failed.
        last: Failure,
    },
    /// Too large a share of failures among the attempts that ended within the window.
    Share {
        /// Number of failed attempts.
        failed: u32,
        /// Number of all attempts.
        of: u32,
        /// The window.
        window: Duration,
    },
    /// No first byte while requests waited.
    Silent {
        /// Length of the silence.
        lasted: Duration,
    },
    /// Enough requests got no first byte from a suspect peer, while other peers answered.
    Hung {
        /// Length of the silence.
        lasted: Duration,
        /// Requests that wait, or waited in vain.
        requests: u32,
    },
    /// The probe, or the first answer after it, failed.
    FailedProbe {
        /// How it failed. `None`: its client left after a long wait.
        how: Option<Failure>,
    },
    /// The time of the previous state was over.
    TimeOver,
    /// An answer began.
    Answered,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InARow { failures, last } => {
                write!(
                    f,
                    "{failures} failures in a row, the last one {}",
                    last.as_str()
                )
            }
            Self::Share { failed, of, window } => {
                let window = window.as_secs_f64();
                write!(f, "{failed} of {of} answers failed within {window} s")
            }
            Self::Silent { lasted } => {
                let lasted = lasted.as_secs();
                write!(f, "no first byte for {lasted} s while requests waited")
            }
            Self::Hung { lasted, requests } => {
                let lasted = lasted.as_secs();
                write!(
                    f,
                    "no first byte for {lasted} s: {requests} requests waited while other peers answered"
                )
            }
            Self::FailedProbe { how: Some(how) } => {
                write!(f, "the probe request failed: {}", how.as_str())
            }
            Self::FailedProbe { how: None } => f.write_str("the probe request got no first byte"),
            Self::TimeOver => f.write_str("its time was over"),
            Self::Answered => f.write_str("an answer began"),
        }
    }
}

/// Outcomes of a peer's attempts since the start, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttemptCounts {
    /// Attempts answered completely.
    pub served: u64,
    /// Failed attempts, in the order of [`Failure::ALL`].
    pub failed: [u64; Failure::ALL.len()],
    /// Clients that left before the first byte.
    pub abandoned: u64,
    /// Number of ejections.
    pub ejections: u64,
    /// Number of times that the peer became suspect.
    pub suspicions: u64,
}

impl AttemptCounts {
    /// Every outcome with its word and its number.
    pub fn by_outcome(self) -> impl Iterator<Item = (&'static str, u64)> {
        let failed = Failure::ALL.iter().map(|kind| kind.as_str());
        let others = [("served", self.served), ("abandoned", self.abandoned)];
        failed.zip(self.failed).chain(others)
    }
}

/// The health of a peer for status pages.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HealthFacts {
    /// State of the peer.
    pub state: HealthState,
    /// Seconds since the peer entered the state; absent for a peer that was always healthy.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub since_s: Option<u64>,
    /// Seconds until the state changes by time alone, rounded up.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub left_s: Option<u64>,
    /// Cause of the state; absent for a peer that was always healthy.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cause: Option<String>,
    /// Consecutive failures.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub failures_in_a_row: u32,
    /// Failed attempts among those that ended within the window.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub failed: u32,
    /// Attempts that ended within the window.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub ended: u32,
    /// Requests that wait for their first byte.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub waiting: u32,
    /// Seconds that requests have waited without a first byte.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub silent_s: Option<u64>,
}

impl HealthFacts {
    /// Whether there is nothing to show.
    pub fn is_plain(&self) -> bool {
        *self == Self::default()
    }
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// The requests that a peer may get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// All requests.
    Open,
    /// Requests of sessions that live on the peer.
    Warm,
    /// One request.
    One,
    /// All requests, up to this many tenths of its slots.
    Ramp(u32),
    /// No request.
    Closed,
}

impl Access {
    /// Whether the peer may get a request that belongs to no session on it.
    #[inline]
    pub(crate) fn takes_new(self) -> bool {
        match self {
            Self::Open | Self::One | Self::Ramp(_) => true,
            Self::Warm | Self::Closed => false,
        }
    }
}

/// What the other peers of a tier say about one that gives no first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Siblings {
    /// The tier cannot do without the peer.
    Needed,
    /// They take requests.
    Serve,
    /// They take requests, and one of them gave a first byte during the peer's silence.
    Answer,
}

/// The verdict about a peer from the waiting time of its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SilenceVerdict {
    /// Nothing is wrong. The value is when to check again while requests wait.
    Fine(Option<Instant>),
    /// Requests have waited too long: for this time.
    TooLong(Duration),
}

/// The health of a peer. Lives as long as its in-flight count.
#[derive(Clone, Debug, Default)]
pub(crate) struct Health {
    phase: Phase,
    /// Cause of the current phase.
    cause: Option<Cause>,
    /// Time of the last recovery.
    recovered: Option<Instant>,
    /// Failures since the last served attempt.
    in_a_row: u32,
    window: FailureWindow,
    silence: Silence,
    /// Number of ejections and suspicions without a long healthy time between them.
    repetition: u32,
    /// Number of ejections and probes so far.
    generation: u32,
    /// A probe request is under way.
    probe_out: bool,
    counts: AttemptCounts,
    changes: Vec<HealthChange>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Phase {
    #[default]
    Healthy,
    Suspect {
        since: Instant,
        /// When the peer is probed if no request waits there any more.
        retry: Instant,
    },
    Ejected {
        since: Instant,
        until: Instant,
        fault: Fault,
    },
    Probing {
        since: Instant,
        after: Before,
    },
    Returning {
        since: Instant,
        until: Instant,
        /// An answer has ended well since the peer began to return.
        is_proven: bool,
    },
}

/// The state of a peer before it was probed. A failed probe restores it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Before {
    Suspect,
    Ejected(Fault),
}

/// What a peer was ejected for.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    /// Its answers failed.
    Answers,
    /// It gave no first byte. Any first byte refutes that.
    Silence,
}

impl Phase {
    fn state(self) -> HealthState {
        match self {
            Self::Healthy => HealthState::Healthy,
            Self::Suspect { .. } => HealthState::Suspect,
            Self::Ejected { .. } => HealthState::Ejected,
            Self::Probing { .. } => HealthState::Probing,
            Self::Returning { .. } => HealthState::Returning,
        }
    }

    /// The phase at `now`, after transitions that need only time.
    fn at(self, now: Instant) -> Self {
        match self {
            // Ejected becomes probing.
            Self::Ejected { until, fault, .. } if until <= now => Self::Probing {
                since: until,
                after: Before::Ejected(fault),
            },
            // Returning becomes healthy.
            Self::Returning { until, .. } if until <= now => Self::Healthy,
            other => other,
        }
    }
}

impl Health {
    /// State of the peer at `now`.
    pub(crate) fn state(&self, now: Instant) -> HealthState {
        self.phase.at(now).state()
    }

    /// Whether the peer is out because of bad answers, and counts towards `max_share`.
    pub(crate) fn is_out(&self, now: Instant) -> bool {
        match self.state(now) {
            HealthState::Healthy | HealthState::Returning => false,
            HealthState::Suspect | HealthState::Ejected | HealthState::Probing => true,
        }
    }

    /// The requests that the peer may get.
    #[inline]
    pub(crate) fn access(&self, now: Instant) -> Access {
        match self.phase.at(now) {
            Phase::Healthy => Access::Open,
            Phase::Suspect { .. } => Access::Warm,
            Phase::Ejected { .. } => Access::Closed,
            Phase::Probing { .. } if self.probe_out => Access::Closed,
            Phase::Probing { .. } => Access::One,
            Phase::Returning { since, until, .. } => Access::Ramp(ramp_step(since, until, now)),
        }
    }

    /// When the access next changes with time alone.
    #[inline]
    pub(crate) fn due(&self, now: Instant) -> Option<Instant> {
        match self.phase.at(now) {
            Phase::Healthy | Phase::Suspect { .. } | Phase::Probing { .. } => None,
            Phase::Ejected { until, .. } => Some(until),
            Phase::Returning { since, until, .. } => {
                let step = ramp_step(since, until, now);
                Some(since + (until - since) * step / RAMP_STEPS)
            }
        }
    }

    /// Records that an attempt begins.
    pub(crate) fn begin(&mut self, kind: AnswerKind, now: Instant) -> Attempt {
        self.pass(now);
        self.silence.begin(kind, now);
        let is_probe = matches!(self.phase, Phase::Probing { .. })
            && !self.probe_out
            && kind != AnswerKind::Other;
        self.probe_out |= is_probe;
        Attempt {
            kind,
            since: now,
            generation: self.generation,
            is_probe,
            waits: true,
        }
    }

    /// Records that the first byte of a successful answer has come.
    pub(crate) fn first_byte(
        &mut self,
        attempt: &mut Attempt,
        spec: &HealthSpec,
        epoch: Instant,
        now: Instant,
    ) {
        if !std::mem::take(&mut attempt.waits) {
            return;
        }
        self.pass(now);
        let waited = now.saturating_duration_since(attempt.since);
        self.silence.answer(attempt.kind, waited, epoch, now);
        if attempt.kind == AnswerKind::Other {
            return;
        }
        if attempt.generation != self.generation {
            if self.is_out_for_silence() {
                // The engine generates after all: what waited there was only slow.
                self.come_back(spec, false, now);
            }
            return;
        }
        match self.phase {
            // Suspect becomes healthy: the peer generates.
            Phase::Suspect { .. } => self.recover(Cause::Answered, now),
            // Probing becomes returning; the end of the answer must confirm it.
            Phase::Probing { .. } if attempt.is_probe => self.come_back(spec, false, now),
            Phase::Healthy
            | Phase::Probing { .. }
            | Phase::Ejected { .. }
            | Phase::Returning { .. } => {}
        }
    }

    fn is_out_for_silence(&self) -> bool {
        match self.phase {
            Phase::Ejected { fault, .. } => fault == Fault::Silence,
            Phase::Probing { after, .. } => after != Before::Ejected(Fault::Answers),
            Phase::Healthy | Phase::Suspect { .. } | Phase::Returning { .. } => false,
        }
    }

    /// Records that an attempt has ended. `may_leave`: whether the tier can do without this peer.
    pub(crate) fn end(
        &mut self,
        attempt: &mut Attempt,
        end: AttemptEnd,
        spec: &HealthSpec,
        may_leave: impl FnOnce() -> bool,
        now: Instant,
    ) {
        self.pass(now);
        let waited = now.saturating_duration_since(attempt.since);
        if std::mem::take(&mut attempt.waits) {
            self.silence.leave(attempt.kind, waited, now);
        }
        if attempt.kind == AnswerKind::Other {
            return;
        }
        self.count(end);
        if attempt.generation != self.generation {
            return;
        }
        if attempt.is_probe {
            self.probe_out = false;
        }
        match end {
            AttemptEnd::Served => self.succeed(attempt.is_probe, spec, now),
            AttemptEnd::Failed(Failure::NoConnection) | AttemptEnd::Neutral => {}
            AttemptEnd::Failed(failure) => {
                self.fail(failure, attempt.is_probe, spec, may_leave, now);
            }
            AttemptEnd::Abandoned => {
                // An older request may have brought the peer back meanwhile.
                let is_probed = matches!(self.phase, Phase::Probing { .. });
                if attempt.is_probe && is_probed && waited >= VAIN_WAIT {
                    self.fail_probe(None, spec, now);
                }
            }
        }
    }

    /// Ends an attempt whose outcome was never reported.
    pub(crate) fn abort(&mut self, attempt: &mut Attempt, now: Instant) {
        let spec = HealthSpec::default();
        self.end(attempt, AttemptEnd::Neutral, &spec, || false, now);
    }

    fn count(&mut self, end: AttemptEnd) {
        match end {
            AttemptEnd::Served => self.counts.served += 1,
            AttemptEnd::Failed(failure) => self.counts.failed[failure as usize] += 1,
            AttemptEnd::Abandoned => self.counts.abandoned += 1,
            AttemptEnd::Neutral => {}
        }
    }

    fn succeed(&mut self, is_probe: bool, spec: &HealthSpec, now: Instant) {
        self.in_a_row = 0;
        self.window.add(false, spec.bounds().window, now);
        match &mut self.phase {
            // Suspect becomes healthy.
            Phase::Suspect { .. } => self.recover(Cause::Answered, now),
            // Probing becomes returning.
            Phase::Probing { .. } if is_probe => self.come_back(spec, true, now),
            // Returning stays, now confirmed by a complete answer.
            Phase::Returning { is_proven, .. } => *is_proven = true,
            Phase::Healthy | Phase::Probing { .. } | Phase::Ejected { .. } => {}
        }
    }

    fn fail(
        &mut self,
        failure: Failure,
        is_probe: bool,
        spec: &HealthSpec,
        may_leave: impl FnOnce() -> bool,
        now: Instant,
    ) {
        self.in_a_row = self.in_a_row.saturating_add(1);
        self.window.add(true, spec.bounds().window, now);
        match self.phase {
            // Probing returns to the state before.
            Phase::Probing { .. } if is_probe => self.fail_probe(Some(failure), spec, now),
            // Returning becomes ejected on the first failed answer.
            Phase::Returning {
                is_proven: false, ..
            } if spec.eject.is_some() => {
                if may_leave() {
                    let how = Some(failure);
                    let cause = Cause::FailedProbe { how };
                    self.eject(cause, Fault::Answers, &spec.bounds(), now);
                }
            }
            // Healthy, suspect and returning become ejected.
            Phase::Healthy | Phase::Suspect { .. } | Phase::Returning { .. } => {
                if let Some(eject) = &spec.eject
                    && let Some(cause) = self.reason_to_eject(failure, eject)
                    && may_leave()
                {
                    self.eject(cause, Fault::Answers, eject, now);
                }
            }
            Phase::Probing { .. } | Phase::Ejected { .. } => {}
        }
    }

    fn reason_to_eject(&self, last: Failure, eject: &EjectSpec) -> Option<Cause> {
        let failures = self.in_a_row;
        if failures >= eject.consecutive {
            return Some(Cause::InARow { failures, last });
        }
        let (failed, of) = self.window.counts();
        let share = f64::from(of) * eject.share;
        (of >= eject.minimum.max(1) && f64::from(failed) >= share).then_some(Cause::Share {
            failed,
            of,
            window: eject.window,
        })
    }

    /// Compares the time that requests have waited without a first byte with the bound. `is_stuck`:
    /// the engine's metrics show load and no progress. `longest`: the longest recent wait of a kind
    /// on the peer and the other peers of its tier.
    pub(crate) fn silence(
        &self,
        spec: &HealthSpec,
        is_stuck: bool,
        longest: impl Fn(AnswerKind) -> Duration,
        now: Instant,
    ) -> SilenceVerdict {
        if !self.silence.lasts_at_all() {
            return SilenceVerdict::Fine(None);
        }
        let least = spec.hang_after.unwrap_or(match is_stuck {
            true => HANG_AFTER_STUCK,
            false => HANG_AFTER,
        });
        let left = |kind: &AnswerKind| {
            let bound = least.max(longest(*kind).saturating_mul(FAR_LONGER));
            let lasted = self.silence.lasts(*kind, now);
            (bound.saturating_sub(lasted), lasted)
        };
        let (left, lasted) = Silence::KINDS.iter().map(left).min().unwrap_or_default();
        match left.is_zero() {
            true => SilenceVerdict::TooLong(lasted),
            false => SilenceVerdict::Fine(Some(now + left)),
        }
    }

    /// Handles requests that have waited too long, on a peer that its tier can do without only if
    /// `siblings` say so.
    pub(crate) fn hang(
        &mut self,
        lasted: Duration,
        spec: &HealthSpec,
        siblings: Siblings,
        now: Instant,
    ) {
        self.pass(now);
        let may_leave = siblings != Siblings::Needed;
        match self.phase {
            // Suspect becomes ejected on strong evidence.
            Phase::Suspect { since, .. } => {
                let requests = self.silence.affected();
                if let Some(eject) = &spec.eject
                    && siblings == Siblings::Answer
                    && requests >= eject.consecutive
                    && now.saturating_duration_since(since) >= SUSPECT_MIN
                {
                    let cause = Cause::Hung { lasted, requests };
                    self.eject(cause, Fault::Silence, eject, now);
                }
            }
            // Healthy and returning become suspect.
            Phase::Healthy | Phase::Returning { .. } if may_leave => {
                self.suspect(Cause::Silent { lasted }, spec, now);
            }
            // Probing returns to the state before.
            Phase::Probing { .. } if self.probe_out => self.fail_probe(None, spec, now),
            Phase::Healthy
            | Phase::Returning { .. }
            | Phase::Probing { .. }
            | Phase::Ejected { .. } => {}
        }
    }

    /// Performs the transitions that are due with time alone.
    pub(crate) fn pass(&mut self, now: Instant) {
        match self.phase {
            // Suspect becomes probing when its last client has left, because no answer could clear
            // the suspicion any more.
            Phase::Suspect { retry, .. } if retry <= now && self.silence.waiting() == 0 => {
                self.silence.forget(now);
                let after = Before::Suspect;
                self.go(Phase::Probing { since: now, after }, Cause::TimeOver, None);
            }
            // Returning becomes healthy.
            Phase::Returning { until, .. } if until <= now => self.recover(Cause::TimeOver, until),
            // Ejected becomes probing.
            phase if phase.at(now) != phase => {
                self.silence.forget(now);
                self.go(phase.at(now), Cause::TimeOver, None);
            }
            _ => {}
        }
    }

    /// When [`pass`](Self::pass) is due.
    pub(crate) fn pass_due(&self) -> Option<Instant> {
        match self.phase {
            Phase::Healthy | Phase::Probing { .. } => None,
            Phase::Suspect { retry, .. } => Some(retry).filter(|_| self.silence.waiting() == 0),
            Phase::Ejected { until, .. } | Phase::Returning { until, .. } => Some(until),
        }
    }

    /// The transitions since the last call.
    pub(crate) fn take_changes(&mut self) -> Vec<HealthChange> {
        std::mem::take(&mut self.changes)
    }

    /// The longest recent wait for a first byte, by kind.
    pub(crate) fn longest_wait(&self, kind: AnswerKind, epoch: Instant, now: Instant) -> Duration {
        self.silence.longest(kind, epoch, now)
    }

    /// Whether only a request of the router's own tells how the peer is now. `is_idle`: nothing
    /// runs on it.
    pub(crate) fn needs_generated(&self, is_idle: bool, idle: Duration, now: Instant) -> bool {
        match self.phase {
            Phase::Suspect { .. } => true,
            Phase::Probing { .. } => !self.probe_out,
            Phase::Healthy | Phase::Returning { .. } => {
                let last = self.silence.last_answer();
                let passed = last.map(|last| now.saturating_duration_since(last));
                is_idle && passed.is_none_or(|passed| passed >= idle)
            }
            Phase::Ejected { .. } => false,
        }
    }

    /// Time of the last first byte.
    pub(crate) fn last_answer(&self) -> Option<Instant> {
        self.silence.last_answer()
    }

    /// Whether there are transitions to collect.
    pub(crate) fn has_changes(&self) -> bool {
        !self.changes.is_empty()
    }

    /// Outcomes of the peer's attempts.
    pub(crate) fn counts(&self) -> AttemptCounts {
        self.counts
    }

    /// The health of the peer for status pages.
    pub(crate) fn facts(&self, now: Instant) -> HealthFacts {
        let (since, until) = match self.phase.at(now) {
            Phase::Healthy => (self.recovered, None),
            Phase::Suspect { since, .. } | Phase::Probing { since, .. } => (Some(since), None),
            Phase::Ejected { since, until, .. } | Phase::Returning { since, until, .. } => {
                (Some(since), Some(until))
            }
        };
        let (failed, ended) = self.window.counts();
        let silent = Silence::KINDS.map(|kind| self.silence.lasts(kind, now));
        let silent = silent.into_iter().max().unwrap_or_default().as_secs();
        HealthFacts {
            state: self.state(now),
            since_s: since.map(|since| now.saturating_duration_since(since).as_secs()),
            left_s: until.map(|until| {
                let left = until.saturating_duration_since(now);
                left.as_secs_f64().ceil() as u64
            }),
            cause: self.cause.map(|cause| cause.to_string()),
            failures_in_a_row: self.in_a_row,
            failed,
            ended,
            waiting: self.silence.waiting(),
            silent_s: (silent > 0).then_some(silent),
        }
    }

    /// Debug-asserts the invariants.
    pub(crate) fn check(&self) {
        debug_assert!(
            !self.probe_out || matches!(self.phase, Phase::Probing { .. }),
            "only a probing peer has a probe under way"
        );
    }

    fn eject(&mut self, cause: Cause, fault: Fault, eject: &EjectSpec, now: Instant) {
        let lasts = self.next_time_out(eject, now);
        self.in_a_row = 0;
        self.window = FailureWindow::default();
        self.counts.ejections += 1;
        let until = now + lasts;
        let phase = Phase::Ejected {
            since: now,
            until,
            fault,
        };
        self.go(phase, cause, Some(lasts));
    }

    fn suspect(&mut self, cause: Cause, spec: &HealthSpec, now: Instant) {
        let lasts = self.next_time_out(&spec.bounds(), now);
        self.counts.suspicions += 1;
        let retry = now + lasts;
        self.go(Phase::Suspect { since: now, retry }, cause, None);
    }

    fn fail_probe(&mut self, how: Option<Failure>, spec: &HealthSpec, now: Instant) {
        let cause = Cause::FailedProbe { how };
        match (self.phase, &spec.eject) {
            (
                Phase::Probing {
                    after: Before::Suspect,
                    ..
                },
                _,
            ) => self.suspect(cause, spec, now),
            (_, Some(eject)) => {
                let fault = match how {
                    None | Some(Failure::NoFirstByte) => Fault::Silence,
                    Some(_) => Fault::Answers,
                };
                self.eject(cause, fault, eject, now);
            }
            // A reload has switched ejection off.
            (_, None) => self.recover(Cause::TimeOver, now),
        }
    }

    fn come_back(&mut self, spec: &HealthSpec, is_proven: bool, now: Instant) {
        if spec.slow_start.is_zero() {
            return self.recover(Cause::Answered, now);
        }
        let phase = Phase::Returning {
            since: now,
            until: now + spec.slow_start,
            is_proven,
        };
        self.go(phase, Cause::Answered, Some(spec.slow_start));
    }

    fn recover(&mut self, cause: Cause, now: Instant) {
        self.recovered = Some(now);
        self.go(Phase::Healthy, cause, None);
    }

    /// Length of the coming ejection. A long healthy time makes it short again.
    fn next_time_out(&mut self, eject: &EjectSpec, now: Instant) -> Duration {
        let healthy = self
            .recovered
            .map(|since| now.saturating_duration_since(since));
        let was_healthy_long = healthy.is_some_and(|healthy| healthy >= eject.time_max);
        if was_healthy_long && matches!(self.phase, Phase::Healthy) {
            self.repetition = 0;
        }
        self.repetition = self.repetition.saturating_add(1);
        eject.length(self.repetition)
    }

    fn go(&mut self, phase: Phase, cause: Cause, lasts: Option<Duration>) {
        let change = HealthChange {
            from: self.phase.state(),
            to: phase.state(),
            cause,
            lasts,
        };
        if matches!(phase, Phase::Ejected { .. } | Phase::Probing { .. }) {
            // The attempts under way do not count after the ejection.
            self.generation = self.generation.wrapping_add(1);
        }
        self.phase = phase;
        self.cause = Some(cause);
        self.probe_out = false;
        if self.changes.len() < CHANGES_MAX {
            self.changes.push(change);
        }
    }
}

/// The step of the ramp that a returning peer has reached, from 1.
fn ramp_step(since: Instant, until: Instant, now: Instant) -> u32 {
    let (length, passed) = (until - since, now.saturating_duration_since(since));
    let steps = passed.as_nanos() * u128::from(RAMP_STEPS) / length.as_nanos().max(1);
    let step = u32::try_from(steps).unwrap_or(RAMP_STEPS) + 1;
    step.min(RAMP_STEPS)
}

#[cfg(test)]
mod tests;
