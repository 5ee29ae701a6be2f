//! The recording settings of a route: the runtime layer, the values in force, and their form for
//! the body log.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use router_bodylog::{BodyPath, Settings, SpoolSettings, Target, Tls, Wanted};
use router_core::layered::Setting;
use tokio::time::Instant;

use router_config::valid::{Bodies, Bodylog, BodylogOptions};

const UNSET: u64 = u64::MAX;
const FULL: u64 = u64::MAX - 1;
const NONE: u64 = 0;

/// The runtime layer of the sampled share and of the bodies. The on/off switch is one of
/// [`Overrides`](crate::state::Overrides).
#[derive(Debug)]
pub struct CaptureOverrides {
    /// The bits of the number; no valid number has the bits of [`UNSET`].
    pct: AtomicU64,
    /// [`FULL`], [`NONE`], or a limit in bytes.
    bodies: AtomicU64,
    /// When the settings were last changed; `None` if neither is set. For display only, never for
    /// decisions.
    since: Mutex<Option<Instant>>,
}

impl Default for CaptureOverrides {
    fn default() -> Self {
        Self {
            pct: AtomicU64::new(UNSET),
            bodies: AtomicU64::new(UNSET),
            since: Mutex::new(None),
        }
    }
}

impl CaptureOverrides {
    /// The share in percent, if it is set.
    pub fn pct(&self) -> Option<f64> {
        match self.pct.load(Ordering::Relaxed) {
            UNSET => None,
            bits => Some(f64::from_bits(bits)),
        }
    }

    /// Sets the share, or removes it with `None`.
    pub fn set_pct(&self, pct: Option<f64>) {
        self.store(&self.pct, pct.map_or(UNSET, f64::to_bits));
    }

    /// How much of bodies is recorded, if it is set.
    pub fn bodies(&self) -> Option<Bodies> {
        match self.bodies.load(Ordering::Relaxed) {
            UNSET => None,
            FULL => Some(Bodies::Full),
            NONE => Some(Bodies::None),
            limit => Some(Bodies::Truncate(limit)),
        }
    }

    /// Sets how much of bodies is recorded, or removes the setting with `None`.
    pub fn set_bodies(&self, bodies: Option<Bodies>) {
        let code = match bodies {
            None => UNSET,
            Some(Bodies::Full) => FULL,
            Some(Bodies::None) => NONE,
            Some(Bodies::Truncate(limit)) => limit.clamp(1, FULL - 1),
        };
        self.store(&self.bodies, code);
    }

    /// Whether either setting is set.
    pub fn is_set(&self) -> bool {
        self.pct().is_some() || self.bodies().is_some()
    }

    /// Time since the settings were last changed.
    pub fn age(&self) -> Option<Duration> {
        let since = (*self.since.lock())?;
        Some(Instant::now().saturating_duration_since(since))
    }

    fn store(&self, value: &AtomicU64, bits: u64) {
        let mut since = self.since.lock();
        if value.swap(bits, Ordering::Relaxed) != bits {
            *since = self.is_set().then(Instant::now);
        }
    }
}

/// The recording settings of a route, with every layer applied.
#[derive(Clone, Copy, Debug)]
pub struct CaptureSettings {
    /// The switch.
    pub enabled: Setting<bool>,
    /// Share of requests in percent.
    pub pct: Setting<f64>,
    /// How much of bodies is recorded.
    pub bodies: Setting<Bodies>,
    /// Requests slower than this are recorded regardless of the share.
    pub slow: Option<Duration>,
}

impl CaptureSettings {
    /// The settings of a route. `enabled` already includes its runtime layer.
    pub fn of(enabled: Setting<bool>, options: &BodylogOptions, set: &CaptureOverrides) -> Self {
        Self {
            enabled,
            pct: options.pct.under(set.pct()),
            bodies: options.bodies.under(set.bodies()),
            slow: options.slow.value,
        }
    }

    /// The settings for the body log; `None` while the switch is off.
    pub fn wanted(&self) -> Option<Wanted> {
        self.enabled.value.then_some(Wanted {
            pct: self.pct.value,
            slow: self.slow,
            body_bytes_max: match self.bodies.value {
                Bodies::Full => u64::MAX,
                Bodies::Truncate(limit) => limit,
                Bodies::None => 0,
            },
        })
    }
}

/// The paths whose values are never recorded.
pub(super) fn redact_paths(options: &BodylogOptions) -> Vec<BodyPath> {
    let paths = options.redact_paths.value.iter();
    paths.map(|path| Arc::clone(&path.segments)).collect()
}

/// The body log's settings, as configured.
pub fn settings(bodylog: &Bodylog) -> Settings {
    Settings {
        target: bodylog.listener.as_ref().map(|address| Target {
            address: Arc::clone(address),
            token_file: bodylog.token_file.clone(),
            tls: bodylog.tls.as_ref().map(|tls| Tls {
                ca_file: tls.ca_file.clone(),
                identity: tls.identity.clone(),
            }),
        }),
        memory: bodylog.memory,
        spool: bodylog.spool.as_ref().map(|spool| SpoolSettings {
            dir: spool.dir.clone(),
            max_bytes: spool.max_bytes,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_is_what_is_read_until_it_is_reset() {
        let set = CaptureOverrides::default();
        assert_eq!((set.pct(), set.bodies()), (None, None));
        for pct in [0.0, 0.001, 100.0] {
            set.set_pct(Some(pct));
            assert_eq!(set.pct(), Some(pct));
        }
        for bodies in [Bodies::Full, Bodies::None, Bodies::Truncate(1)] {
            set.set_bodies(Some(bodies));
            assert_eq!(set.bodies(), Some(bodies));
        }
        set.set_pct(None);
        set.set_bodies(None);
        assert_eq!((set.pct(), set.bodies()), (None, None));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_set_ages_from_its_last_change() {
        let set = CaptureOverrides::default();
        let second = Duration::from_secs(1);
        assert_eq!((set.is_set(), set.age()), (false, None));
        set.set_pct(Some(5.0));
        tokio::time::advance(second).await;
        set.set_pct(Some(5.0));
        assert_eq!((set.is_set(), set.age()), (true, Some(second)));
        set.set_bodies(Some(Bodies::None));
        assert_eq!(set.age(), Some(Duration::ZERO));
        set.set_pct(None);
        assert!(set.is_set());
        set.set_bodies(None);
        assert_eq!((set.is_set(), set.age()), (false, None));
    }
}
