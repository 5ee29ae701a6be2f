//! The current problems: counts and state around [`router_findings`].
//!
//! Every finished request is counted, by route. A task evaluates the counts and the router's own
//! state every few seconds, so that a finding has an age even when nobody asks. A request for the
//! page triggers a fresh evaluation.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{DateTime, SecondsFormat, Utc};
use parking_lot::Mutex;
use proto::admin::{FindingCode, Findings, Routes, Severity};
use router_bodylog::{BodyLog, End, ListenerTrouble};
use router_config::keys::{InForce, KeyState};
use router_core::admission::Refusal;
use router_core::decision::Choice;
use router_core::pool::FullPolicy;
use router_findings::judge::{self, BodylogFacts, Process, Undelivered, Window};
use router_findings::{Board, Ended, Refused, RouteTraffic, Trouble};

use crate::settled::Settled;
use crate::state::{Entry, Route, RouteKeys, RouteTable};

/// Time window for counting lost records.
const LOSSES_SPAN: Duration = Duration::from_secs(300);

/// Counts of finished requests, and the resulting findings.
#[derive(Debug)]
pub struct Watch {
    board: Mutex<Board>,
    /// Requests without a route.
    unrouted: Mutex<RouteTraffic>,
    losses: Mutex<Losses>,
    keys: Mutex<KeysSeen>,
    /// Sessions are stored as hashes, with a seed of this process.
    hasher: RandomState,
}

/// Numbers and times of lost records, so that old losses stop being a finding.
#[derive(Debug)]
struct Losses {
    before: u64,
    since: Instant,
    now: u64,
    last: Option<Instant>,
}

/// The shared keys at the last evaluation, and when the set last changed.
#[derive(Debug, Default)]
struct KeysSeen {
    state: Option<Arc<KeyState>>,
    fingerprint: Option<String>,
    changed: Option<Instant>,
}

impl Watch {
    /// A watch without any counts.
    pub fn new(now: Instant) -> Self {
        Self {
            board: Mutex::new(Board::new(Duration::ZERO)),
            unrouted: Mutex::new(RouteTraffic::new(now)),
            losses: Mutex::new(Losses {
                before: 0,
                since: now,
                now: 0,
                last: None,
            }),
            keys: Mutex::default(),
            hasher: RandomState::new(),
        }
    }

    /// Counts a finished request. Requests for the router's own pages are not counted.
    pub fn observe(&self, settled: &Settled, route: Option<&Route>) {
        let refused = refused(settled, route);
        if route.is_none() && refused.is_none() {
            return;
        }
        let has_session = &*settled.session != "-";
        let ended = Ended {
            refused,
            waited: settled.ttfb().is_none().then(|| settled.took()),
            ttft: settled.ttft(),
            prompt: settled.usage().map(|usage| (usage.prompt, usage.cached)),
            session: has_session.then(|| self.hasher.hash_one(&*settled.session)),
            model: settled.model.as_deref(),
        };
        let last = settled.attempts.len().saturating_sub(1);
        let attempts = settled.attempts.iter().enumerate().map(|(at, attempt)| {
            let failed = attempt.failure.map(Trouble::Failed);
            let trouble = failed.or_else(|| blameless(settled).filter(|_| at == last));
            (attempt.peer.as_str(), trouble)
        });
        let traffic = route.map_or(&self.unrouted, |route| &route.state.traffic);
        traffic
            .lock()
            .observe(&ended, attempts, settled.times.ended);
    }

    /// Evaluates the findings at `now`, from the page of all routes and the counts. `drain_left` is
    /// the time until requests in flight are cut, while the router drains.
    pub fn judge(
        &self,
        table: &RouteTable,
        status: &Routes,
        bodylog: &BodyLog,
        drain_left: Option<Duration>,
        now: Instant,
    ) {
        let span = table.server.findings_window;
        let window = Window { now, span };
        let facts = self.bodylog_facts(bodylog, now);
        let keys_age = self.keys.lock().age(&table.keys, now);
        let mut causes = {
            let process = Process {
                status,
                unrouted: &self.unrouted.lock(),
                bodylog: facts.as_ref(),
                drain_left,
                keys_age,
                uses_shared_keys: table
                    .routes()
                    .any(|route| matches!(route.keys, RouteKeys::Shared)),
            };
            judge::router(&process, window)
        };
        // The page lists the routes in the order of the table's entries.
        for (shown, entry) in status.routes.iter().zip(&table.entries) {
            if let Entry::Ready { route, .. } = entry {
                let mut traffic = route.state.traffic.lock();
                causes.extend(judge::route(shown, &mut traffic, keys_age, window));
            }
        }
        let mut board = self.board.lock();
        board.set_linger(span);
        board.update(causes, now);
    }

    /// The page with the results of the last evaluation.
    pub fn page(&self, now: Instant) -> Findings {
        let wall = Utc::now();
        let at = |moment: Instant| -> String {
            let ago = now.saturating_duration_since(moment);
            let moment: DateTime<Utc> = wall - ago;
            moment.to_rfc3339_opts(SecondsFormat::Secs, true)
        };
        self.board.lock().page(now, &at)
    }

    /// Number of findings that are not over, by code and severity.
    pub fn in_force(&self) -> BTreeMap<(FindingCode, Severity), u64> {
        self.board.lock().in_force()
    }

    fn bodylog_facts(&self, bodylog: &BodyLog, now: Instant) -> Option<BodylogFacts> {
        let status = bodylog.status();
        if !status.is_on {
            return None;
        }
        let mut losses = self.losses.lock();
        losses.see(status.counts.dropped.iter().sum(), now);
        let limit = status.spool_limit_bytes;
        Some(BodylogFacts {
            is_connected: status.counts.is_connected,
            trouble: status.counts.trouble.as_deref().map(undelivered),
            oldest: status.unacked_age,
            spool: (limit > 0).then_some((status.spool_bytes, limit)),
            memory: (status.inflight_bytes, status.memory_limit_bytes),
            spool_error: status.spool_error,
            dropped: losses.now - losses.before,
            dropped_last: losses.last,
        })
    }
}

impl KeysSeen {
    /// Time since the set changed; `None` if it has not changed since the first call.
    fn age(&mut self, state: &Arc<KeyState>, now: Instant) -> Option<Duration> {
        let is_known = self
            .state
            .as_ref()
            .is_some_and(|known| Arc::ptr_eq(known, state));
        if !is_known {
            let fingerprint = match &state.in_force {
                InForce::Keys(set) => Some(set.short_fingerprint()),
                InForce::Open | InForce::Closed => None,
            };
            if self.state.is_some() && fingerprint != self.fingerprint {
                self.changed = Some(now);
            }
            self.fingerprint = fingerprint;
            self.state = Some(Arc::clone(state));
        }
        self.changed
            .map(|changed| now.saturating_duration_since(changed))
    }
}

fn undelivered(trouble: &ListenerTrouble) -> Undelivered {
    match trouble {
        ListenerTrouble::Away(why) => Undelivered::Away(why.clone()),
        ListenerTrouble::Unauthorized => Undelivered::Unauthorized,
        ListenerTrouble::DiskFull => Undelivered::DiskFull,
    }
}

impl Losses {
    fn see(&mut self, total: u64, now: Instant) {
        if total > self.now {
            self.now = total;
            self.last = Some(now);
        }
        if now.saturating_duration_since(self.since) >= LOSSES_SPAN {
            self.before = self.now;
            self.since = now;
        }
    }
}

/// Why the router itself refused a request, if it did.
fn refused<'s>(settled: &'s Settled, route: Option<&Route>) -> Option<Refused<'s>> {
    let waits = route.is_some_and(|route| route.spec().full_policy == FullPolicy::Wait);
    match &settled.choice {
        Some(Choice::Refuse(refusal)) => Some(match refusal {
            Refusal::NoHealthyPeer { .. } => Refused::NoPeer,
            // Where requests wait for a slot, the queue was full.
            Refusal::ConcurrencyLimit(_) if waits => Refused::Waiting,
            Refusal::ConcurrencyLimit(_) => Refused::Concurrency,
            Refusal::TtftLimit(_) => Refused::Ttft,
            Refusal::TpsLimit(_) => Refused::Tps,
        }),
        Some(Choice::Rule { name, .. }) => Some(Refused::Rule(name)),
        // The wait was too long. A client that left gets no status of the router.
        Some(Choice::Wait { .. }) => (settled.status != 499).then_some(Refused::Waiting),
        Some(Choice::Send { .. }) => None,
        None if settled.attempts.is_empty() => match settled.status {
            401 => Some(Refused::Unauthorized),
            404 => settled.model.as_deref().map(Refused::Model),
            503 => Some(Refused::Overloaded),
            _ => None,
        },
        None => None,
    }
}

/// The problem at the last peer, in cases where the peer did not fail.
fn blameless(settled: &Settled) -> Option<Trouble> {
    match (settled.end, settled.status) {
        (End::Left, _) if settled.times.first_chunk.is_none() => Some(Trouble::WaitedInVain),
        (End::Whole, 404) => Some(Trouble::NotFound),
        _ => None,
    }
}
