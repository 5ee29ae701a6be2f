//! The counters of one route.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use prometheus_client::metrics::histogram::Histogram;
use router_bodylog::End;
use router_core::decision::Mode;
use router_core::pool::PeerKey;
use service::families::histogram;

use super::RouteLabels;
use super::placement::PeerPlacements;
use super::refusals::{Gate, Refusals, Unplaced};
use super::tokens::TokenTally;
use crate::content::postprocess::Outcome;
use crate::settled::Settled;

/// Maximum number of separate model names per route that neither the configuration nor an engine
/// names. Clients can invent names, so further ones are counted as [`OTHER`]. Real fleets serve a
/// handful per route; 64 leaves room for names that engines accept without listing them, while a
/// route of 32 peers stays near ten thousand series at worst.
const MODELS_MAX: usize = 64;

/// Maximum number of separate names per route that engines list.
const LISTED_MAX: usize = 512;

/// A learned name that was not asked for this long gives up its place, and its series, to a new one.
const MODEL_AGE: Duration = Duration::from_secs(600);

/// Maximum length of a model name that becomes a label, bytes. Longer names are counted as
/// [`OTHER`].
const MODEL_BYTES_MAX: usize = 128;

/// Label value for an absent value.
pub(super) const NONE: &str = "-";

/// Label value for everything beyond a cap, and for peers that are no longer configured.
pub(super) const OTHER: &str = "other";

// Bounds in seconds. No bound lies below 1e-4: there the encoders format `le` differently, and
// strict OpenMetrics readers refuse the page. Finer detail is in the native buckets.
const REQUEST_BOUNDS: [f64; 14] = [
    0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0,
];
const TTFT_BOUNDS: [f64; 14] = [
    0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0,
];
const INTER_CHUNK_BOUNDS: [f64; 14] = [
    0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0,
];
const WAIT_BOUNDS: [f64; 11] = [0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];
const OVERHEAD_BOUNDS: [f64; 11] = [
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
];

/// The counters of one route. Shared by every snapshot of it.
#[derive(Debug)]
pub struct RouteMetrics {
    pub(super) route: Arc<str>,
    pub(super) tally: Mutex<Counters>,
    /// Requests whose client went away before the end of the answer.
    pub(super) clients_gone: AtomicU64,
    pub(super) refusals: Refusals,
    /// Index = outcome.
    postprocessed: [AtomicU64; Outcome::ALL.len()],
    pub(super) request_seconds: Histogram,
    pub(super) ttft_seconds: Histogram,
    pub(super) inter_chunk_seconds: Histogram,
    pub(super) overhead_seconds: Histogram,
    pub(super) wait_seconds: Histogram,
    pub(super) ttfb_seconds: Histogram,
}

/// Counters by peer label.
type ByPeer<T> = BTreeMap<Arc<str>, T>;

#[derive(Debug, Default)]
pub(super) struct Counters {
    /// Requests by model, peer and code; at most [`MODELS_MAX`] models, plus [`NONE`] and
    /// [`OTHER`].
    pub(super) requests: BTreeMap<Arc<str>, ByPeer<BTreeMap<u16, u64>>>,
    /// Configured peers.
    pub(super) peers: ByPeer<PeerTally>,
    /// Tokens, for the same models as `requests`.
    pub(super) tokens: TokenTally,
    /// Placed requests, by the text of their mode.
    pub(super) placements: BTreeMap<&'static str, u64>,
    /// Configured models: they do not count against the cap.
    models: Vec<Arc<str>>,
    /// Requests handed to other routes, by route.
    pub(super) fallbacks: BTreeMap<Arc<str>, u64>,
    /// Requests by alias and served model; at most [`MODELS_MAX`] pairs, plus [`OTHER`].
    pub(super) aliased: BTreeMap<(Arc<str>, Arc<str>), u64>,
    /// Names that an engine listed when they first came.
    listed: BTreeSet<Arc<str>>,
    /// All other names, at most [`MODELS_MAX`], and when each was last asked for.
    learned: BTreeMap<Arc<str>, Instant>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct PeerTally {
    pub(super) retries: u64,
    pub(super) bans: u64,
    pub(super) ejections: u64,
    /// Prompt tokens of the answers, as their usage reports them, cached ones included.
    pub(super) prompt_tokens: u64,
    /// Number of those that came from the prefix cache.
    pub(super) cached_tokens: u64,
    pub(super) placements: PeerPlacements,
}

impl RouteMetrics {
    pub(super) fn new(route: Arc<str>) -> Self {
        Self {
            route,
            tally: Mutex::default(),
            clients_gone: AtomicU64::new(0),
            refusals: Default::default(),
            postprocessed: Default::default(),
            request_seconds: histogram(REQUEST_BOUNDS),
            ttft_seconds: histogram(TTFT_BOUNDS),
            inter_chunk_seconds: histogram(INTER_CHUNK_BOUNDS),
            overhead_seconds: histogram(OVERHEAD_BOUNDS),
            wait_seconds: histogram(WAIT_BOUNDS),
            ttfb_seconds: histogram(TTFT_BOUNDS),
        }
    }

    /// Counts a finished request. `is_listed` says whether an engine lists a model; it is asked for
    /// names that have no series yet.
    pub fn request_done(&self, settled: &Settled, is_listed: impl FnOnce(&str) -> bool) {
        self.tally.lock().count(settled, is_listed);
        if settled.end == End::Left {
            self.clients_gone.fetch_add(1, Ordering::Relaxed);
        }
        let observed = [
            (&self.request_seconds, Some(settled.took())),
            (&self.ttft_seconds, settled.ttft()),
            (&self.ttfb_seconds, settled.ttfb()),
            (&self.overhead_seconds, settled.times.overhead()),
        ];
        for (histogram, time) in observed {
            if let Some(time) = time {
                histogram.observe(time.as_secs_f64());
            }
        }
    }

    /// Counts a batch of times between two chunks of one stream, in seconds.
    pub fn chunk_gaps(&self, gaps: &[f32]) {
        for gap in gaps {
            self.inter_chunk_seconds.observe(f64::from(*gap));
        }
    }

    /// Counts a refusal; `bucket` is the first turn of the bucket that graded it.
    pub fn refused(&self, gate: Gate, bucket: Option<u32>) {
        self.refusals.count(gate, bucket);
    }

    /// Counts a request for which no peer could be chosen, whatever the load.
    pub fn unplaced(&self, why: Unplaced) {
        self.refusals.unplaced(why);
    }

    /// Counts a request that goes on to another route.
    pub fn fell_back(&self, to: &Arc<str>) {
        let mut tally = self.tally.lock();
        *tally.fallbacks.entry(Arc::clone(to)).or_default() += 1;
    }

    /// Counts an answer that a handler was selected for.
    pub fn postprocessed(&self, outcome: Outcome) {
        self.postprocessed[outcome as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Number of answers with a selected handler and this outcome.
    pub(super) fn postprocessed_so_far(&self, outcome: Outcome) -> u64 {
        self.postprocessed[outcome as usize].load(Ordering::Relaxed)
    }

    /// Refusals since the last reset, in the order of [`Gate::ALL`].
    pub fn refusals(&self) -> [u64; Gate::ALL.len()] {
        self.refusals.since_reset()
    }

    /// Resets the counts of [`refusals`](Self::refusals), but not those of the metrics page.
    /// Returns the counts before the reset.
    pub fn reset_refusals(&self) -> [u64; Gate::ALL.len()] {
        self.refusals.reset()
    }

    /// Counts an attempt that failed on `peer`, when the request goes on to another peer.
    pub(in crate::telemetry) fn retried(&self, peer: &str) {
        if let Some(tally) = self.tally.lock().peers.get_mut(peer) {
            tally.retries += 1;
        }
    }

    /// Counts a peer's change from usable to banned.
    pub(in crate::telemetry) fn banned(&self, peer: &str) {
        if let Some(tally) = self.tally.lock().peers.get_mut(peer) {
            tally.bans += 1;
        }
    }

    /// Counts an ejection of a peer.
    pub(in crate::telemetry) fn ejected(&self, peer: &str) {
        if let Some(tally) = self.tally.lock().peers.get_mut(peer) {
            tally.ejections += 1;
        }
    }

    pub(super) fn sync(&self, labels: &RouteLabels) {
        let mut tally = self.tally.lock();
        tally.sync(&labels.pools);
        for to in &labels.fallbacks {
            tally.fallbacks.entry(Arc::clone(to)).or_default();
        }
        for pair in labels.aliases.iter().take(MODELS_MAX) {
            tally.aliased.entry(pair.clone()).or_default();
        }
        drop(tally);
        self.refusals.sync(&labels.buckets);
    }
}

impl Counters {
    fn count(&mut self, settled: &Settled, is_listed: impl FnOnce(&str) -> bool) {
        let code = settled.status;
        let model = settled.served_model.as_ref().or(settled.model.as_ref());
        let model = self.model_label(model.map(|model| &**model), settled, is_listed);
        if let (Some(asked), Some(_)) = (&settled.model, &settled.served_model) {
            self.count_alias(asked, model);
        }
        let usage = settled.usage();
        if let Some(usage) = &usage {
            self.tokens.add(model, settled.owner.as_deref(), usage);
        }
        if let Some(mode) = settled.mode() {
            *self.placements.entry(mode.as_str()).or_default() += 1;
        }
        let peer = match settled.peer().map(PeerKey::as_str) {
            None => NONE,
            Some(peer) if self.peers.contains_key(peer) => peer,
            Some(_) => OTHER,
        };
        if let (Some(usage), Some(tally)) = (usage, self.peers.get_mut(peer)) {
            tally.prompt_tokens = tally.prompt_tokens.saturating_add(usage.prompt);
            tally.cached_tokens = tally.cached_tokens.saturating_add(usage.cached);
        }
        let count = self
            .requests
            .get_mut(model)
            .and_then(|by_peer| by_peer.get_mut(peer)?.get_mut(&code));
        match count {
            Some(count) => *count += 1,
            None => self.begin_series(model, peer, code),
        }
    }

    /// Counts a request by alias. Patterns let clients invent names, so the pairs are capped.
    fn count_alias(&mut self, asked: &Arc<str>, model: &str) {
        let other = || (Arc::from(OTHER), Arc::from(OTHER));
        let pair = (Arc::clone(asked), Arc::from(model));
        let is_full = self.aliased.len() >= MODELS_MAX && !self.aliased.contains_key(&pair);
        let pair = match is_full || asked.len() > MODEL_BYTES_MAX || model == OTHER {
            true => other(),
            false => pair,
        };
        *self.aliased.entry(pair).or_default() += 1;
    }

    /// Counts the first request with these labels.
    fn begin_series(&mut self, model: &str, peer: &str, code: u16) {
        // The placeholder series, which stands in until the first model is known, is no longer
        // needed.
        if model != NONE
            && let Some(placeholder) = self
                .requests
                .get_mut(NONE)
                .and_then(|by_peer| by_peer.get_mut(peer))
            && placeholder.get(&200) == Some(&0)
        {
            placeholder.remove(&200);
        }
        let by_peer = self.requests.entry(model.into()).or_default();
        *by_peer
            .entry(peer.into())
            .or_default()
            .entry(code)
            .or_default() += 1;
    }

    /// The label of a model name. A refused request does not use up a place for its model name:
    /// otherwise one client could push all later models into [`OTHER`].
    fn model_label<'a>(
        &mut self,
        model: Option<&'a str>,
        settled: &Settled,
        is_listed: impl FnOnce(&str) -> bool,
    ) -> &'a str {
        let Some(model) = model else { return NONE };
        let now = settled.times.ended;
        if let Some(last) = self.learned.get_mut(model) {
            *last = now;
            return model;
        }
        if self.requests.contains_key(model) {
            return model;
        }
        if model.len() > MODEL_BYTES_MAX {
            return OTHER;
        }
        if self.listed.len() < LISTED_MAX && is_listed(model) {
            self.listed.insert(model.into());
            return model;
        }
        let refused = (400..500).contains(&settled.status) && settled.status != 429;
        if refused || !self.has_place(now) {
            return OTHER;
        }
        self.learned.insert(model.into(), now);
        model
    }

    /// Makes a place for one more learned name, if there is none and the oldest has aged out.
    fn has_place(&mut self, now: Instant) -> bool {
        if self.learned.len() < MODELS_MAX {
            return true;
        }
        let oldest = self.learned.iter().min_by_key(|(_, last)| **last);
        let Some((oldest, last)) = oldest.map(|(model, last)| (Arc::clone(model), *last)) else {
            return false;
        };
        if now.saturating_duration_since(last) < MODEL_AGE {
            return false;
        }
        self.learned.remove(&oldest);
        // Its counts go on in `other`, so that sums over models never fall.
        for (peer, codes) in self.requests.remove(&oldest).unwrap_or_default() {
            let others = self.requests.entry(OTHER.into()).or_default();
            let others = others.entry(peer).or_default();
            for (code, count) in codes {
                *others.entry(code).or_default() += count;
            }
        }
        self.tokens.merge(&oldest, OTHER);
        true
    }

    fn sync(&mut self, pools: &[(Option<Arc<str>>, Vec<PeerKey>)]) {
        for mode in Mode::all() {
            self.placements.entry(mode.as_str()).or_default();
        }
        let is_configured = |peer: &str| {
            pools
                .iter()
                .flat_map(|(_, peers)| peers)
                .any(|p| p.as_str() == peer)
        };
        let models: Vec<Arc<str>> = pools
            .iter()
            .filter_map(|(model, _)| model.clone())
            .collect();
        self.requests
            .retain(|label, _| models.contains(label) || !self.models.contains(label));
        for by_peer in self.requests.values_mut() {
            by_peer.retain(|peer, _| **peer == *NONE || **peer == *OTHER || is_configured(peer));
        }
        self.peers.retain(|peer, _| is_configured(peer));
        self.tokens
            .retain(|label| models.contains(label) || !self.models.contains(label));
        self.learned.retain(|label, _| !models.contains(label));
        self.models = models;
        for (model, peers) in pools {
            let model = model.clone().unwrap_or_else(|| NONE.into());
            self.tokens.register(&model);
            for peer in peers {
                let peer: Arc<str> = peer.as_str().into();
                let is_seen = self
                    .requests
                    .values()
                    .any(|by_peer| by_peer.get(&peer).is_some_and(|codes| !codes.is_empty()));
                if *model != *NONE || !is_seen {
                    let by_peer = self.requests.entry(Arc::clone(&model)).or_default();
                    by_peer
                        .entry(Arc::clone(&peer))
                        .or_default()
                        .entry(200)
                        .or_default();
                }
                self.peers.entry(peer).or_default();
            }
        }
    }
}
