//! Switches set on the running router. They last until reset or restart and beat every file.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use router_core::layered::Setting;
use tokio::time::Instant;

use router_config::valid::{RouteOptions, SystemHoist};

/// A switch with a runtime layer. Each has one row in [`Switch::ALL`], which also gives the names
/// for the admin endpoint and `llmctl toggle`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Switch {
    /// Off: no request is refused for load, but each trip is still counted.
    RateLimit,
    /// Off: TTFT is not measured, and no gate uses it.
    Ttft,
    /// Off: no request is refused for TTFT; measuring and the adaptive limit go on.
    Ttft429,
    /// Off: the decode rate is not measured, and no gate uses it.
    Tps,
    /// On: under load, new sessions are refused first and warm sessions keep their place.
    SessionPrio,
    /// Off: content rules refuse nothing.
    RejectRules,
    /// Off: none of the route's exchanges is recorded.
    Bodylog,
    /// Off: every request is balanced as if it had no session.
    Affinity,
    /// Off: a stream reports its usage only if the client asked for it.
    IncludeUsage,
    /// Off: billing headers stay in prompts.
    CchStrip,
    /// Off: tool-call ids stay as the clients sent them.
    KimiNormalize,
    /// Off: system messages stay where they are.
    SystemHoist,
}

impl Switch {
    /// Every switch, in the order status pages show them.
    pub const ALL: [Self; 12] = [
        Self::RateLimit,
        Self::Ttft,
        Self::Ttft429,
        Self::Tps,
        Self::SessionPrio,
        Self::RejectRules,
        Self::Bodylog,
        Self::Affinity,
        Self::IncludeUsage,
        Self::CchStrip,
        Self::KimiNormalize,
        Self::SystemHoist,
    ];

    /// The name `llmctl toggle` takes; also the `switch` label of `override_active`.
    pub fn name(self) -> &'static str {
        match self {
            Self::RateLimit => "rate-limit",
            Self::Ttft => "ttft",
            Self::Ttft429 => "ttft-429",
            Self::Tps => "tps",
            Self::SessionPrio => "session-prio",
            Self::RejectRules => "reject-rules",
            Self::Bodylog => "bodylog",
            Self::Affinity => "affinity",
            Self::IncludeUsage => "include-usage",
            Self::CchStrip => "cch-strip",
            Self::KimiNormalize => "kimi-normalize",
            Self::SystemHoist => "system-hoist",
        }
    }

    /// The last segment of the endpoint, under `/<route>/`.
    pub fn endpoint(self) -> &'static str {
        match self {
            Self::RateLimit => "_rate_limit_toggle",
            Self::Ttft => "_ttft_toggle",
            Self::Ttft429 => "_ttft_429_toggle",
            Self::Tps => "_tps_toggle",
            Self::SessionPrio => "_session_prio_toggle",
            Self::RejectRules => "_reject_rules_toggle",
            Self::Bodylog => "_bodylog_toggle",
            Self::Affinity => "_affinity_toggle",
            Self::IncludeUsage => "_include_usage_toggle",
            Self::CchStrip => "_cch_strip_toggle",
            Self::KimiNormalize => "_kimi_normalize_toggle",
            Self::SystemHoist => "_system_hoist_toggle",
        }
    }

    /// The route option of the layer below.
    pub fn option(self) -> &'static str {
        match self {
            Self::RateLimit => "load_rate_limit",
            Self::Ttft => "ttft_enabled",
            Self::Ttft429 => "ttft_429",
            Self::Tps => "tps_enabled",
            Self::SessionPrio => "session_prio",
            Self::RejectRules => "reject_rules_enabled",
            Self::Bodylog => "bodylog",
            Self::Affinity => "affinity_enabled",
            Self::IncludeUsage => "include_usage",
            Self::CchStrip => "cch_strip",
            Self::KimiNormalize => "kimi_normalize",
            Self::SystemHoist => "system_hoist",
        }
    }

    /// The value in the files.
    pub fn below(self, options: &RouteOptions) -> Setting<bool> {
        match self {
            Self::RateLimit => options.load_rate_limit,
            Self::Ttft => options.ttft.enabled,
            Self::Ttft429 => options.ttft_429,
            Self::Tps => options.tps.enabled,
            Self::SessionPrio => options.priority.enabled,
            Self::RejectRules => options.reject_rules_enabled,
            Self::Bodylog => options.bodylog.enabled,
            Self::Affinity => options.affinity_enabled,
            Self::IncludeUsage => options.include_usage,
            Self::CchStrip => options.cch_strip,
            Self::KimiNormalize => options.kimi_normalize,
            Self::SystemHoist => {
                let hoist = options.system_hoist;
                Setting {
                    value: hoist.value != SystemHoist::Off,
                    source: hoist.source,
                }
            }
        }
    }
}

const UNSET: u8 = 0;
const OFF: u8 = 1;
const ON: u8 = 2;

/// The runtime layer of one route's switches. A read is one relaxed load: a request sees a change
/// at its next decision, which is all a switch promises.
#[derive(Debug, Default)]
pub struct Overrides {
    switches: [AtomicU8; Switch::ALL.len()],
    /// When each override was last changed; `None` if it is not set. For display only, never for
    /// decisions.
    since: Mutex<[Option<Instant>; Switch::ALL.len()]>,
}

impl Overrides {
    /// The override of a switch, if one is set.
    pub fn get(&self, switch: Switch) -> Option<bool> {
        match self.switches[switch as usize].load(Ordering::Relaxed) {
            ON => Some(true),
            OFF => Some(false),
            _ => None,
        }
    }

    /// Sets an override, or removes it with `None`. Returns the previous one.
    pub fn set(&self, switch: Switch, value: Option<bool>) -> Option<bool> {
        let raw = match value {
            Some(true) => ON,
            Some(false) => OFF,
            None => UNSET,
        };
        let mut since = self.since.lock();
        let before = match self.switches[switch as usize].swap(raw, Ordering::Relaxed) {
            ON => Some(true),
            OFF => Some(false),
            _ => None,
        };
        if before != value {
            since[switch as usize] = value.map(|_| Instant::now());
        }
        before
    }

    /// Time since an override was last changed.
    pub fn age(&self, switch: Switch) -> Option<Duration> {
        let since = self.since.lock()[switch as usize]?;
        Some(Instant::now().saturating_duration_since(since))
    }

    /// The value in force and its layer, given the value of the layers below.
    pub fn effective(&self, switch: Switch, below: Setting<bool>) -> Setting<bool> {
        below.under(self.get(switch))
    }
}

#[cfg(test)]
mod tests {
    use router_core::layered::Source;

    use super::*;

    #[test]
    fn every_switch_is_spelled_by_its_name() {
        for (index, switch) in Switch::ALL.into_iter().enumerate() {
            assert_eq!(switch as usize, index, "ALL is in the order of the enum");
            let name = switch.name().replace('-', "_");
            assert_eq!(switch.endpoint(), format!("_{name}_toggle"));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_override_ages_from_its_last_change() {
        let overrides = Overrides::default();
        let second = Duration::from_secs(1);
        assert_eq!(overrides.age(Switch::Ttft), None);
        overrides.set(Switch::Ttft, Some(false));
        tokio::time::advance(second).await;
        overrides.set(Switch::Ttft, Some(false));
        assert_eq!(overrides.age(Switch::Ttft), Some(second));
        overrides.set(Switch::Ttft, Some(true));
        assert_eq!(overrides.age(Switch::Ttft), Some(Duration::ZERO));
        overrides.set(Switch::Ttft, None);
        assert_eq!(overrides.age(Switch::Ttft), None);
    }

    #[test]
    fn an_override_beats_the_file_until_it_is_reset() {
        let overrides = Overrides::default();
        let file = Setting {
            value: true,
            source: Source::Route,
        };
        assert_eq!(overrides.effective(Switch::Affinity, file), file);
        assert_eq!(overrides.set(Switch::Affinity, Some(false)), None);
        let now = overrides.effective(Switch::Affinity, file);
        assert_eq!((now.value, now.source), (false, Source::Runtime));
        assert_eq!(overrides.set(Switch::Affinity, None), Some(false));
        assert_eq!(overrides.effective(Switch::Affinity, file), file);
    }
}
