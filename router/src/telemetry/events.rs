//! Events of the router. Each event has one function, which writes the log line *and* moves the
//! counter.
//!
//! Warnings that a broken peer would repeat are written once a minute per peer; the counters count
//! all of them.

use std::collections::HashMap;
use std::fmt::Display;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::StatusCode;
use parking_lot::Mutex;
use router_core::book::status::NoHeader;
use router_core::health::{HealthChange, HealthState};
use router_core::load::{Freshness, Report};
use router_core::pool::{Change, PeerKey};

use super::metrics::{Metrics, RouteMetrics};
use crate::state::recording::CaptureSettings;

/// Minimum time between two equal warnings about one peer.
const QUIET: Duration = Duration::from_secs(60);

/// Maximum number of peers whose warnings are remembered. At the bound, expired entries are
/// dropped; if none has expired, the new warning is written.
const QUIET_PEERS_MAX: usize = 1024;

/// The identity of a peer in the log.
#[derive(Clone, Copy, Debug)]
pub struct PeerRef<'a> {
    /// The peer's route.
    pub route: &'a str,
    /// `host:port`.
    pub peer: &'a PeerKey,
    /// The configured name of the peer.
    pub name: &'a str,
}

/// A change that a caller of the admin port asked for.
#[derive(Debug)]
pub struct AdminChange {
    /// `admin token` or `loopback`.
    pub by: &'static str,
    /// Address of the caller.
    pub address: Option<IpAddr>,
    /// `console` or `api`.
    pub through: &'static str,
    /// The path, without the query.
    pub path: String,
}

/// The limit before and after an operator's change, and the lifetime of the new one.
#[derive(Clone, Copy, Debug)]
pub struct LimitChange {
    /// Milliseconds or tokens per second.
    pub before: Option<f64>,
    /// The same unit.
    pub after: Option<f64>,
    /// `None`: until reset.
    pub ttl: Option<Duration>,
}

/// The process's event log.
#[derive(Debug)]
pub struct Events {
    metrics: Arc<Metrics>,
    quiet: Mutex<Quiet>,
}

impl Events {
    /// An event log that counts into `metrics`.
    pub fn new(metrics: Arc<Metrics>) -> Self {
        Self {
            metrics,
            quiet: Mutex::default(),
        }
    }

    /// A peer was banned or returned; `why` is the evidence in a few words.
    pub fn peer_changed(&self, at: PeerRef<'_>, change: Change, why: &dyn Display) {
        let PeerRef { route, peer, name } = at;
        match change {
            Change::Banned => {
                self.metrics.banned(route, peer.as_str());
                tracing::warn!(route, %peer, name, why = %why, "peer banned");
            }
            Change::Recovered => tracing::info!(route, %peer, name, why = %why, "peer recovered"),
        }
    }

    /// A peer's answers, or their absence, changed its state.
    pub fn peer_health(&self, at: PeerRef<'_>, change: &HealthChange) {
        let PeerRef { route, peer, name } = at;
        let (from, to, cause) = (change.from.as_str(), change.to.as_str(), change.cause);
        let for_s = change.lasts.map(|lasts| lasts.as_secs());
        match change.to {
            HealthState::Ejected => {
                self.metrics.ejected(route, peer.as_str());
                tracing::warn!(route, %peer, name, from, %cause, for_s, "peer ejected: it gets no requests");
            }
            HealthState::Suspect => {
                tracing::warn!(route, %peer, name, from, %cause, "peer suspect: it keeps its sessions and gets no new ones");
            }
            HealthState::Probing | HealthState::Returning | HealthState::Healthy => {
                tracing::info!(route, %peer, name, from, to, %cause, "peer is coming back");
            }
        }
    }

    /// This host could not send a probe. That says nothing about the peer.
    pub fn probe_not_sent(&self, at: PeerRef<'_>, why: &dyn Display, now: Instant) {
        let PeerRef { route, peer, name } = at;
        if self.speaks(Warning::ProbeNotSent, at, now) {
            tracing::warn!(route, %peer, name, why = %why, "the router could not probe a peer: its health stays as it was");
        }
    }

    /// A peer refused the request that its route's `health_check` generates: its health stays as it
    /// was.
    pub fn generated_refused(&self, at: PeerRef<'_>, status: u16, now: Instant) {
        let PeerRef { route, peer, name } = at;
        if self.speaks(Warning::GeneratedRefused, at, now) {
            tracing::warn!(route, %peer, name, status, "the engine refuses the generated health check: it tells nothing");
        }
    }

    /// The result of polling a peer's engine. Results that exclude the peer cause a warning, at a
    /// limited rate.
    pub fn peer_polled(
        &self,
        at: PeerRef<'_>,
        report: Report,
        freshness: Option<Freshness>,
        now: Instant,
    ) {
        let PeerRef { route, peer, name } = at;
        let freshness = freshness.map_or("gone", Freshness::as_str);
        self.metrics.polled(route, peer.as_str(), report);
        match report {
            Report::Misconfigured if self.speaks(Warning::PollRefused, at, now) => {
                tracing::error!(route, %peer, name, "the engine refuses the router's credential on its load page: the peer is out");
            }
            Report::Blind if self.speaks(Warning::PollBlind, at, now) => {
                tracing::warn!(route, %peer, name, "the engine has no load page that can be read: its load is the router's own requests");
            }
            Report::Hung { .. } if self.speaks(Warning::PollHung, at, now) => {
                tracing::warn!(route, %peer, name, freshness, "the engine's load page does not answer");
            }
            _ => tracing::trace!(route, %peer, name, ?report, freshness, "peer polled"),
        }
    }

    /// An engine reports a number of slots that differs from its peer's configuration.
    pub fn slots_differ(&self, at: PeerRef<'_>, configured: u32, reported: u32) {
        let PeerRef { route, peer, name } = at;
        tracing::warn!(route, %peer, name, configured, reported, "the engine reports another number of slots; the configured one holds");
    }

    /// An attempt failed and the request goes on to another candidate.
    pub fn attempt_retried(
        &self,
        metrics: &RouteMetrics,
        at: PeerRef<'_>,
        rid: &str,
        cause: &dyn Display,
    ) {
        metrics.retried(at.peer.as_str());
        let PeerRef { route, peer, name } = at;
        tracing::debug!(rid, route, %peer, name, cause = %cause, "attempt failed, trying the next candidate");
    }

    /// The last attempt of a request failed; `attempts` counts all of them.
    pub fn request_failed(
        &self,
        at: PeerRef<'_>,
        rid: &str,
        attempts: usize,
        cause: &dyn Display,
        now: Instant,
    ) {
        let PeerRef { route, peer, name } = at;
        if self.speaks(Warning::RequestFailed, at, now) {
            tracing::warn!(rid, route, %peer, name, attempts, cause = %cause, "request failed upstream");
        } else {
            tracing::debug!(rid, route, %peer, name, attempts, cause = %cause, "request failed upstream");
        }
    }

    /// A stream broke after its headers had reached the client.
    pub fn stream_broken(&self, at: PeerRef<'_>, rid: &str, cause: &dyn Display, now: Instant) {
        let PeerRef { route, peer, name } = at;
        if self.speaks(Warning::StreamBroken, at, now) {
            tracing::warn!(rid, route, %peer, name, cause = %cause, "stream broken by the peer");
        } else {
            tracing::debug!(rid, route, %peer, name, cause = %cause, "stream broken by the peer");
        }
    }

    /// All files were valid and are in force. `wall_unix_ms` is the current time.
    pub fn reload_applied(&self, routes: usize, wall_unix_ms: u64) {
        self.metrics.reload().applied(wall_unix_ms);
        tracing::info!(routes, "configuration loaded");
    }

    /// Some file was invalid: its old version stays in force, or its route answers 503. `problems`
    /// give file, line and column.
    pub fn reload_refused<P: Display>(&self, routes: usize, problems: impl IntoIterator<Item = P>) {
        self.metrics.reload().refused();
        for problem in problems {
            tracing::error!(problem = %problem, "configuration problem");
        }
        tracing::error!(
            routes,
            "configuration loaded in part: files with problems are not in force"
        );
    }

    /// The shared key set was loaded again.
    pub fn keys_changed(&self, file: &Path, keys: usize) {
        tracing::info!(file = %file.display(), keys, "keys loaded");
    }

    /// The key file is unusable, and the last good set stays in force. `status` is the file's
    /// status.
    pub fn keys_kept(&self, file: &Path, status: &str, keys: usize) {
        tracing::error!(
            file = %file.display(),
            status,
            keys,
            "key file unusable: the last good keys stay in force"
        );
    }

    /// The key file is unusable, and there never was a good set: either every caller gets access,
    /// or none.
    pub fn keys_absent(&self, file: &Path, status: &str, open: bool) {
        let file = file.display();
        if open {
            tracing::error!(%file, status, "key file unusable: requests pass without a key");
        } else {
            tracing::error!(%file, status, "key file unusable: requests are refused");
        }
    }

    /// An operator set or reset a switch.
    pub fn switch_set(&self, route: &str, switch: &str, before: bool, after: bool, source: &str) {
        tracing::info!(route, switch, before, after, source, "switch set");
    }

    /// A caller of the admin port asked for a change: who, and whether it was made.
    pub fn admin_change(&self, change: &AdminChange, status: StatusCode) {
        let AdminChange {
            by,
            address,
            through,
            path,
        } = change;
        let status = status.as_u16();
        let address = address.map(tracing::field::display);
        tracing::info!(by, address, through, path, status, "admin change");
    }

    /// An operator set or removed a limit on the running router; `None` means no limit.
    pub fn limit_set(&self, route: &str, signal: &str, model: Option<&str>, limit: LimitChange) {
        let LimitChange { before, after, ttl } = limit;
        tracing::info!(route, signal, model, before, after, ttl = ?ttl, "limit set");
    }

    /// Too many requests of one minute had no usable `x-phanrouter-session` header while
    /// `session_prio` was on. The core reports this at most once a minute.
    pub fn no_session_header(&self, route: &str, seen: NoHeader) {
        let NoHeader {
            no_header,
            requests,
            warn_frac,
        } = seen;
        tracing::warn!(
            route,
            no_header,
            requests,
            warn_frac,
            "requests without a usable session header: session_prio takes them for warm"
        );
    }

    /// An operator set or reset the recording of a route.
    pub fn capture_set(&self, route: &str, before: &CaptureSettings, after: &CaptureSettings) {
        let (bodies_before, bodies) = (before.bodies.value, after.bodies.value);
        tracing::info!(
            route,
            before = before.enabled.value,
            after = after.enabled.value,
            pct_before = before.pct.value,
            pct = after.pct.value,
            %bodies_before,
            %bodies,
            "recording set"
        );
    }

    fn speaks(&self, warning: Warning, at: PeerRef<'_>, now: Instant) -> bool {
        self.quiet
            .lock()
            .speaks((warning, at.route.into(), at.peer.clone()), now)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Warning {
    ProbeNotSent,
    GeneratedRefused,
    RequestFailed,
    StreamBroken,
    PollRefused,
    PollBlind,
    PollHung,
}

type Subject = (Warning, Box<str>, PeerKey);

/// The times from which each repeated warning may be written again.
#[derive(Debug, Default)]
struct Quiet {
    until: HashMap<Subject, Instant>,
}

impl Quiet {
    /// Whether the warning may be written now; if so, it is suppressed for [`QUIET`] from now on.
    fn speaks(&mut self, subject: Subject, now: Instant) -> bool {
        if self.until.get(&subject).is_some_and(|until| now < *until) {
            return false;
        }
        if self.until.len() >= QUIET_PEERS_MAX {
            self.until.retain(|_, until| now < *until);
        }
        if self.until.len() < QUIET_PEERS_MAX {
            self.until.insert(subject, now + QUIET);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(n: usize) -> Subject {
        (
            Warning::ProbeNotSent,
            "chat".into(),
            PeerKey::new(format!("peer-{n}:1")),
        )
    }

    #[test]
    fn a_warning_is_quiet_for_a_minute_per_peer() {
        let mut quiet = Quiet::default();
        let start = Instant::now();
        assert!(quiet.speaks(subject(1), start));
        assert!(!quiet.speaks(subject(1), start + Duration::from_secs(59)));
        assert!(quiet.speaks(subject(2), start));
        assert!(quiet.speaks(subject(1), start + QUIET));
    }

    #[test]
    fn the_memory_of_warnings_is_bounded() {
        let mut quiet = Quiet::default();
        let start = Instant::now();
        for n in 0..3 * QUIET_PEERS_MAX {
            quiet.speaks(subject(n), start);
        }
        assert_eq!(quiet.until.len(), QUIET_PEERS_MAX);
        assert!(quiet.speaks(subject(usize::MAX), start + QUIET));
        assert_eq!(quiet.until.len(), 1);
    }

    #[test]
    fn bans_and_retries_are_counted_per_peer() {
        let metrics = Arc::new(Metrics::default());
        let peer = PeerKey::new("a:1");
        let pools = vec![(None, vec![peer.clone()])];
        metrics.sync(&[super::super::metrics::RouteLabels {
            route: "chat".into(),
            pools,
            buckets: vec![],
            fallbacks: Vec::new(),
            aliases: Vec::new(),
        }]);
        let events = Events::new(Arc::clone(&metrics));
        let at = PeerRef {
            route: "chat",
            peer: &peer,
            name: "gpu-a",
        };
        events.peer_changed(at, Change::Banned, &"connection refused");
        events.peer_changed(at, Change::Recovered, &"200");
        events.attempt_retried(
            &metrics.route(&"chat".into()),
            at,
            "rid",
            &"connection refused",
        );
        let page = metrics.text();
        assert!(
            page.contains(r#"llm_router_peer_bans_total{route="chat",peer="a:1"} 1"#),
            "{page}"
        );
        assert!(
            page.contains(r#"llm_router_retries_total{route="chat",peer="a:1"} 1"#),
            "{page}"
        );
    }
}
