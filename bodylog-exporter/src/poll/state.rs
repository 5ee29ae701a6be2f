//! What the routers said, and how old each answer is.

use std::collections::BTreeMap;
use std::time::Duration;

use super::client::RouterUrl;
use super::decode::{Limiter, RouteState};

/// Endpoints polled for each route, as label values of `poll_up`.
pub const ENDPOINTS: [&str; 3] = ["_route_state", "_tps_status", "_ttft_status"];

/// The last answers of the routers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Polled {
    /// In the order of the command line.
    pub routers: Vec<RouterPoll>,
    /// Number of rounds with a failed call, since the start.
    pub errors: u64,
    /// Whether every call of the last round was answered; `None` before the first round.
    pub is_up: Option<bool>,
    /// When all calls of a round were last answered, milliseconds since the Unix epoch.
    pub last_success_ms: Option<i64>,
}

impl Polled {
    /// The state before the first round.
    pub fn nothing_from(routers: &[RouterUrl]) -> Self {
        let routers = routers.iter().map(|url| RouterPoll {
            router: url.label().into(),
            ..RouterPoll::default()
        });
        Self {
            routers: routers.collect(),
            ..Self::default()
        }
    }
}

/// One router.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RouterPoll {
    /// `host:port`.
    pub router: Box<str>,
    /// Whether it has ever listed its routes itself.
    pub tells_routes: bool,
    /// By name.
    pub routes: BTreeMap<Box<str>, RoutePoll>,
}

/// One route of a router.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RoutePoll {
    /// `_route_state`.
    pub state: Reading<RouteState>,
    /// `_tps_status`.
    pub tps: Reading<Limiter>,
    /// `_ttft_status`.
    pub ttft: Reading<Limiter>,
}

impl RoutePoll {
    /// Which of [`ENDPOINTS`] answered in the last round.
    pub fn up(&self) -> [bool; 3] {
        [self.state.is_fresh, self.tps.is_fresh, self.ttft.is_fresh]
    }

    /// When the route last answered every call, if known.
    pub fn answered_ms(&self) -> Option<i64> {
        let Self { state, tps, ttft } = self;
        Some(state.at_ms?.min(tps.at_ms?).min(ttft.at_ms?))
    }
}

/// An answer with its age.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading<T> {
    /// The last answer, unless it is too old.
    pub value: Option<T>,
    /// Whether it is from the last round.
    pub is_fresh: bool,
    /// When it arrived, milliseconds since the Unix epoch.
    pub at_ms: Option<i64>,
}

impl<T> Default for Reading<T> {
    fn default() -> Self {
        Self {
            value: None,
            is_fresh: false,
            at_ms: None,
        }
    }
}

impl<T> Reading<T> {
    /// Takes the result of a round. Without an answer the old value is kept for `kept`.
    pub(super) fn update(self, answer: Option<T>, now_ms: i64, kept: Duration) -> Self {
        if answer.is_some() {
            return Self {
                value: answer,
                is_fresh: true,
                at_ms: Some(now_ms),
            };
        }
        // Never overflows: the value is at most days.
        let kept_ms = kept.as_millis() as i64;
        let is_old = self
            .at_ms
            .is_none_or(|at| now_ms.saturating_sub(at) > kept_ms);
        Self {
            value: self.value.filter(|_| !is_old),
            is_fresh: false,
            at_ms: self.at_ms,
        }
    }
}
