//! A route's options for failing and hanging peers.

use std::time::Duration;

/// `eject`, `hang_after` and `slow_start` of a route.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HealthSpec {
    /// When failed answers eject a peer; `None`: never.
    pub eject: Option<EjectSpec>,
    /// How long a peer may give no first byte while requests wait for one. `None`: the built-in
    /// bounds, [`HANG_AFTER_STUCK`] and [`HANG_AFTER`].
    pub hang_after: Option<Duration>,
    /// How long a returning peer takes to reach its full number of slots.
    pub slow_start: Duration,
}

/// Bound if the engine's own metrics show load without any progress.
pub const HANG_AFTER_STUCK: Duration = Duration::from_secs(60);

/// Bound if the waiting time is the only evidence against the peer.
pub const HANG_AFTER: Duration = Duration::from_secs(300);

impl Default for HealthSpec {
    fn default() -> Self {
        Self {
            eject: Some(EjectSpec::default()),
            hang_after: None,
            slow_start: Duration::from_secs(30),
        }
    }
}

/// The parts of `eject`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EjectSpec {
    /// Number of consecutive failures, at least 1.
    pub consecutive: u32,
    /// Share of failures among the attempts that ended within `window`, above 0 and at most 1.
    pub share: f64,
    /// Minimum number of attempts within `window` before the share counts.
    pub minimum: u32,
    /// Length of the window for the share.
    pub window: Duration,
    /// Length of the first ejection; each repetition doubles it.
    pub time: Duration,
    /// The longest ejection.
    pub time_max: Duration,
    /// Share of a tier's enabled peers that may be suspect or ejected at once, rounded down. One
    /// may always be out if the tier has at least two.
    pub max_share: f64,
}

impl Default for EjectSpec {
    fn default() -> Self {
        Self {
            consecutive: 5,
            share: 0.5,
            minimum: 10,
            window: Duration::from_secs(30),
            time: Duration::from_secs(30),
            time_max: Duration::from_secs(300),
            max_share: 0.5,
        }
    }
}

impl HealthSpec {
    /// The parts of `eject` that also bound suspicion, which no option can switch off.
    pub(crate) fn bounds(&self) -> EjectSpec {
        self.eject.unwrap_or_default()
    }
}

impl EjectSpec {
    /// How many of a tier's `peers` may be out at once.
    pub(crate) fn most_out(&self, peers: usize) -> usize {
        if peers < 2 {
            return 0;
        }
        let share = (peers as f64 * self.max_share) as usize;
        share.clamp(1, peers - 1)
    }

    /// Length of the `nth` consecutive ejection, counted from 1.
    pub(crate) fn length(&self, nth: u32) -> Duration {
        let factor = 1_u32.checked_shl(nth.saturating_sub(1)).unwrap_or(u32::MAX);
        self.time
            .saturating_mul(factor)
            .min(self.time_max.max(self.time))
    }
}
