//! One route: its immutable part in a snapshot, and its live state behind one lock.

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rand::SeedableRng;
use rand::rngs::StdRng;
use router_bodylog::{RecordedRoute, RouteCounters};
#[cfg(test)]
use router_core::admission::Refusal;
use router_core::affinity::Affinity;
use router_core::book::{
    Book, Limits, Pin, Placement, PlacementRequest, PoolId, ResolvedRoute, Ticket,
};
use router_core::decision::{Explanation, Facts, Mode, PeerFacts};
use router_core::health::{AttemptCounts, AttemptEnd, HealthChange, HealthSpec};
use router_core::layered::Setting;
use router_core::pool::{Change, Evidence, PeerKey, PeerSpec, PoolSpec, Role, RouteSpec, Slots};
use router_core::session::Place;
use router_findings::RouteTraffic;
use sha2::{Digest as _, Sha256};

use super::carried::Carried;
use super::found::FoundPeers;
use super::guard::guard_of;
use super::held::HeldBack;
use super::load::{load_spec, memory_spec};
use super::pins::Pins;
use super::recording::{self, CaptureOverrides, CaptureSettings};
use super::target::Target;
use super::waiting::{Listeners, Waiting};
use super::{
    ContentRules, Decisions, History, ModelLists, Overrides, RuleHits, Switch, Transforms,
};
use crate::clock::now;
use crate::content::prefix;
use crate::telemetry::metrics::RouteMetrics;
use router_config::aliases::Aliases;
use router_config::keys::KeySet;
use router_config::options::effective;
use router_config::valid::{self, AffinityKind, PeersFrom, RouteOptions};

/// A short digest of all that a route does by configuration: peers in order, options, own keys.
/// Secrets of peers do not count, because the text of a secret hides its value.
fn fingerprint(route: &valid::Route) -> String {
    let mut all = Sha256::new();
    for pool in &route.pools {
        all.update(format!("{:?}\n{:?}\n", pool.model, pool.peers));
    }
    for option in effective(&route.options).iter() {
        all.update(format!("{}={}\n", option.key, option.value));
    }
    if let Some(own) = &route.options.api_keys.value {
        all.update(KeySet::from_route(own).short_fingerprint());
    }
    let digest = all.finalize();
    digest[..8]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Body fields about objects that an engine stores.
const STORED: [&str; 4] = [
    "store",
    "previous_response_id",
    "conversation",
    "input_file_id",
];

/// Which keys open a route.
#[derive(Clone, Debug)]
pub enum RouteKeys {
    /// The keys of the shared file.
    Shared,
    /// The route's own `api_keys`. Empty means that the route is open.
    Own(Arc<KeySet>),
}

/// One peer of a route, ready to be called.
#[derive(Debug)]
pub struct Peer {
    /// As configured.
    pub spec: valid::Peer,
    /// The address and how to reach it.
    pub target: Target,
}

/// One route in one snapshot. A request keeps its `Arc<Route>` to its end.
#[derive(Debug)]
pub struct Route {
    /// Its name.
    pub name: Arc<str>,
    /// The file it came from.
    pub path: PathBuf,
    /// Every option with its source.
    pub options: RouteOptions,
    /// Peers per pool, in the order of [`RouteSpec::pools`].
    pub peers: Vec<Vec<Arc<Peer>>>,
    /// Where more peers come from.
    pub peers_from: Option<PeersFrom>,
    /// The keys that open the route.
    pub keys: RouteKeys,
    /// The model aliases; `None` without any.
    pub aliases: Option<Arc<Aliases>>,
    /// The route's content rules.
    pub rules: ContentRules,
    /// The route's data for body-log records.
    pub recorded: Arc<RecordedRoute>,
    /// Equal on routers with the same peers in the same order, the same options and own keys.
    pub fingerprint: String,
    /// The state that outlives this snapshot.
    pub state: Arc<RouteState>,
    pub(super) roster: ResolvedRoute,
    pub(super) pins: Pins,
}

impl Route {
    /// Attaches a valid route to the state of its name.
    pub fn attach(mut route: valid::Route, state: Arc<RouteState>) -> Self {
        if route.peers_from.is_some() {
            state.found.add_to(&mut route.pools);
        }
        let fingerprint = fingerprint(&route);
        let roster = state.inner.lock().book.attach(spec_of(&route));
        let peers = route
            .pools
            .into_iter()
            .map(|pool| {
                pool.peers
                    .into_iter()
                    .map(|spec| Arc::new(Peer::new(spec)))
                    .collect()
            })
            .collect();
        let keys = match &route.options.api_keys.value {
            Some(own) => RouteKeys::Own(Arc::new(KeySet::from_route(own))),
            None => RouteKeys::Shared,
        };
        let aliases = Some(&route.options.models.value)
            .filter(|aliases| !aliases.is_empty() && !route.options.transparent.value)
            .cloned();
        let rules = Arc::clone(&route.options.reject_rules.value);
        let recorded = RecordedRoute {
            name: Arc::clone(&route.name),
            redact_paths: recording::redact_paths(&route.options.bodylog),
            counters: Arc::clone(&state.bodylog),
        };
        Self {
            aliases,
            rules: ContentRules::new(rules, &state.rule_hits),
            recorded: Arc::new(recorded),
            name: route.name,
            path: route.path,
            options: route.options,
            peers,
            peers_from: route.peers_from,
            keys,
            fingerprint,
            state,
            roster,
            pins: Pins::default(),
        }
    }

    /// The route as the core sees it.
    pub fn spec(&self) -> &RouteSpec {
        self.roster.spec()
    }

    /// True for a route with `peers_by_model`.
    pub fn is_by_model(&self) -> bool {
        self.spec()
            .pools
            .first()
            .is_some_and(|pool| pool.model.is_some())
    }

    /// The configured models of a by-model route, in file order; empty for a flat one.
    pub fn models(&self) -> impl Iterator<Item = &str> {
        self.spec()
            .pools
            .iter()
            .filter_map(|pool| pool.model.as_deref())
    }

    /// The pool that serves `model`. A flat route has one pool for all models.
    pub fn pool(&self, model: Option<&str>) -> Option<PoolId> {
        self.roster.pool(model)
    }

    /// The model to serve for a name that clients ask for; `None` if the name is no alias.
    pub fn served_for<'a>(&'a self, asked: &'a str) -> Option<Cow<'a, str>> {
        let is_served = |name: &str| self.models().any(|known| known == name) || self.serves(name);
        self.aliases.as_ref()?.served(asked, is_served)
    }

    /// First segments of the body paths that may contain a session id.
    pub fn body_fields(&self) -> impl Iterator<Item = &str> {
        let prefix: &[&str] = match self.places_by_prefix() {
            true => &prefix::FIELDS,
            false => &[],
        };
        let sessions = self.options.session_sources.value.iter();
        sessions
            .filter_map(|source| match &source.place {
                Place::Body(path) => path.first().map(|name| &**name),
                Place::Header(_) => None,
            })
            .chain(prefix.iter().copied())
            .chain(STORED)
    }

    /// Whether any pool has a usable peer now.
    pub fn is_usable(&self) -> bool {
        self.pool_ids()
            .any(|pool| self.limits(pool).healthy_peers > 0)
    }

    /// The numbers of a pool's active tier.
    pub fn limits(&self, pool: PoolId) -> Limits {
        self.state
            .inner
            .lock()
            .book
            .limits(&self.roster, pool, now())
    }

    /// Each distinct peer once, by key, in file order.
    pub fn distinct_peers(&self) -> Vec<&Arc<Peer>> {
        let mut seen: Vec<&Arc<Peer>> = Vec::new();
        for peer in self.peers.iter().flatten() {
            if !seen.iter().any(|s| s.spec.key == peer.spec.key) {
                seen.push(peer);
            }
        }
        seen
    }

    /// The recording settings of the route.
    pub fn capture(&self) -> CaptureSettings {
        let enabled = self.switch(Switch::Bodylog);
        CaptureSettings::of(enabled, &self.options.bodylog, &self.state.capture)
    }

    /// Whether affinity is on, and which layer says so.
    pub fn affinity(&self) -> Setting<bool> {
        self.switch(Switch::Affinity)
    }

    /// Whether sessions place requests now: the option is not `none` and the switch is on.
    pub fn affinity_acts(&self) -> bool {
        self.options.affinity.value != AffinityKind::None && self.affinity().value
    }

    /// Admits and places one request. Panics if the request has to wait.
    #[cfg(test)]
    pub(crate) fn reserve(self: &Arc<Self>, ask: PlacementRequest<'_>) -> Result<Placed, Refusal> {
        match self.admit(ask)? {
            Admitted::Placed(placed) => Ok(placed),
            Admitted::Waiting(waiting) => panic!("{waiting:?}"),
        }
    }

    /// Moves a reservation to the next candidate; `tried` are pool indices. `None`: no candidate is
    /// left, and the reservation stays where it is.
    pub fn retry(&self, reservation: &mut Reservation, tried: &[usize]) -> Option<usize> {
        let ticket = reservation.ticket.as_mut()?;
        let pin = reservation.kept.pin();
        self.state
            .change(|book, _, now| book.retry(&self.roster, ticket, tried, pin, now))
    }

    /// Records the first byte of a successful answer. Returns the resulting health changes of the
    /// peer.
    pub fn first_byte(&self, reservation: &mut Reservation) -> Vec<HealthChange> {
        let Some(ticket) = &mut reservation.ticket else {
            return Vec::new();
        };
        self.state
            .change(|book, _, now| book.first_byte(&self.roster, ticket, now))
    }

    /// Records the end of the attempt on a reservation's peer; call it before a retry and before
    /// dropping the reservation. Returns the resulting health changes of the peer. A second report
    /// of one attempt is ignored.
    pub fn attempt_ended(
        &self,
        reservation: &mut Reservation,
        end: AttemptEnd,
    ) -> Vec<HealthChange> {
        let Some(ticket) = &mut reservation.ticket else {
            return Vec::new();
        };
        self.state
            .change(|book, _, now| book.attempt_ended(&self.roster, ticket, end, now))
    }

    /// Records the end of the last attempt and releases the slot, in one critical section. Returns
    /// the resulting health changes of the peer.
    pub fn finish(&self, reservation: &mut Reservation, end: AttemptEnd) -> Vec<HealthChange> {
        let Some(mut ticket) = reservation.ticket.take() else {
            return Vec::new();
        };
        self.state.change(|book, _, now| {
            let changes = book.attempt_ended(&self.roster, &mut ticket, end, now);
            book.release(ticket, now);
            changes
        })
    }

    /// Records evidence about a peer. Returns the resulting change.
    pub fn observe(&self, peer: &PeerKey, evidence: Evidence) -> Option<Change> {
        self.state
            .change(|book, _, now| book.observe(&self.roster, peer, evidence, now))
    }

    /// Records the result of a probe that was sent at `asked`. Returns the resulting change.
    pub fn probed(&self, peer: &PeerKey, evidence: Evidence, asked: Instant) -> Option<Change> {
        self.state
            .change(|book, _, now| book.probed(&self.roster, peer, evidence, asked, now))
    }

    /// Reserves a slot for a generated request to a peer that needs one; see [`Book::generate`].
    pub fn generate(&self, peer: &PeerKey, idle: Duration) -> Option<Reservation> {
        let ticket = self
            .state
            .change(|book, _, now| book.generate(&self.roster, peer, idle, now))?;
        Some(Reservation {
            state: Arc::clone(&self.state),
            ticket: Some(ticket),
            kept: Kept {
                pin: None,
                pin_falls_back: false,
            },
        })
    }

    /// Explains how a request would be placed. Counts nothing.
    pub fn explain(&self, ask: PlacementRequest<'_>) -> Explanation {
        let mut inner = self.state.inner.lock();
        let Inner { book, rng, .. } = &mut *inner;
        book.explain(&self.roster, ask, now(), rng)
    }

    /// The current state of a pool's peers, in file order.
    pub fn peer_facts(&self, pool: PoolId) -> Vec<PeerFacts> {
        self.state
            .inner
            .lock()
            .book
            .peers(&self.roster, pool, now())
    }

    /// The outcomes of the attempts at a peer since the start.
    pub fn attempts(&self, peer: &PeerKey) -> AttemptCounts {
        let inner = self.state.inner.lock();
        let known = inner.book.health(peer, now());
        known.map(|(_, counts)| counts).unwrap_or_default()
    }

    /// Drops the model lists of peers that are not in this snapshot.
    pub fn forget_removed_peers(&self) {
        self.state.models.retain(|key| {
            self.peers
                .iter()
                .flatten()
                .any(|peer| peer.spec.key == *key)
        });
    }

    /// Every pool's id.
    pub fn pool_ids(&self) -> impl Iterator<Item = PoolId> + use<> {
        (0..self.spec().pools.len()).map(PoolId)
    }
}

impl Drop for Route {
    fn drop(&mut self) {
        self.state.inner.lock().book.detach(&self.roster);
    }
}

impl Peer {
    fn new(spec: valid::Peer) -> Self {
        let target = Target::of(&spec);
        Self { spec, target }
    }
}

fn spec_of(route: &valid::Route) -> RouteSpec {
    let options = &route.options;
    let affinity = match options.affinity.value {
        AffinityKind::Hash => Affinity::Hash {
            hash: options.hash.value,
            saturated: options.hash_saturated.value,
        },
        AffinityKind::StickyLeastLoaded => Affinity::Sticky,
        AffinityKind::None => Affinity::None,
    };
    let pools = route.pools.iter().map(|pool| PoolSpec {
        model: pool.model.clone(),
        peers: pool.peers.iter().map(peer_spec).collect(),
    });
    RouteSpec {
        pools: pools.collect(),
        affinity,
        balance: options.balance.value,
        full_policy: options.full_policy.value,
        rt_limit_factor: options.rt_limit_factor.value,
        cross_tier_fallback: options.cross_tier_fallback.value,
        ban_ttl: options.health_ban_ttl.value,
        guard: guard_of(options),
        health: health_spec(options),
        load: load_spec(options),
        normalize: options.load.normalize.value,
        memory: memory_spec(options),
    }
}

fn health_spec(options: &RouteOptions) -> HealthSpec {
    let health = &options.health;
    HealthSpec {
        eject: health.eject.value,
        hang_after: health.hang_after.value.0,
        slow_start: health.slow_start.value,
    }
}

fn peer_spec(peer: &valid::Peer) -> PeerSpec {
    PeerSpec {
        key: peer.key.clone(),
        name: Arc::clone(&peer.name),
        priority: peer.priority,
        slots: Slots(peer.max_concurrency),
        enabled: peer.enabled,
        weight: peer.weight,
        // Requests are not split into prefill and decode yet, so these peers get none.
        role: match peer.role {
            valid::Role::Regular => Role::Regular,
            valid::Role::Prefill => Role::Prefill,
            valid::Role::Decode => Role::Decode,
        },
        draining: peer.draining,
        learns_slots: peer.learns_slots,
        url: peer_url(peer),
    }
}

/// A peer's URL as hashed for the tie-break of sticky sessions: lower case, without the default
/// port and without a trailing slash, so that a cosmetic edit moves no session.
fn peer_url(peer: &valid::Peer) -> Arc<str> {
    let (scheme, port) = match peer.tls {
        true => ("https", ":443"),
        false => ("http", ":80"),
    };
    let key = peer.key.as_str();
    let host = key.strip_suffix(port).unwrap_or(key);
    format!("{scheme}://{host}{}", peer.base_path).into()
}

/// The state of a route that outlives a reload: one per route name for the life of the process.
pub struct RouteState {
    /// The route's name.
    pub name: Arc<str>,
    /// Runtime switches.
    pub overrides: Overrides,
    /// Refusals by content rules.
    pub rule_hits: RuleHits,
    /// Runtime settings of its recording.
    pub capture: CaptureOverrides,
    /// Counters of its recording.
    pub bodylog: Arc<RouteCounters>,
    /// The last receipts.
    pub decisions: Decisions,
    /// Facts from finished requests, for findings.
    pub traffic: Mutex<RouteTraffic>,
    /// The last quarter of an hour, for the console.
    pub history: Mutex<History>,
    /// The models that the peers serve.
    pub models: ModelLists,
    /// The peers that the route's source gave.
    pub found: FoundPeers,
    /// Counters of the transforms.
    pub transforms: Transforms,
    /// The route's metrics.
    pub metrics: Arc<RouteMetrics>,
    /// Slots that an operator holds back. Locked before `inner`.
    pub(super) held: HeldBack,
    pub(super) inner: Mutex<Inner>,
}

pub(super) struct Inner {
    pub(super) book: Book,
    pub(super) carried: Carried,
    pub(super) rng: StdRng,
    /// The requests that wait for a slot.
    pub(super) listeners: Listeners,
}

impl RouteState {
    /// Fresh state for a new route name.
    pub fn new(name: Arc<str>, metrics: Arc<RouteMetrics>) -> Arc<Self> {
        let mut seed = [0; 32];
        // The seed only spreads ties; a fixed one would still be correct.
        let _ = rand::TryRng::try_fill_bytes(&mut rand::rngs::SysRng, &mut seed);
        Arc::new(Self {
            name,
            overrides: Overrides::default(),
            rule_hits: RuleHits::default(),
            capture: CaptureOverrides::default(),
            bodylog: Arc::default(),
            decisions: Decisions::default(),
            traffic: Mutex::new(RouteTraffic::new(now())),
            history: Mutex::default(),
            models: ModelLists::default(),
            found: FoundPeers::default(),
            transforms: Transforms::default(),
            metrics,
            held: HeldBack::default(),
            inner: Mutex::new(Inner {
                book: Book::default(),
                carried: Carried::default(),
                rng: StdRng::from_seed(seed),
                listeners: Listeners::new(),
            }),
        })
    }
}

impl fmt::Debug for RouteState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RouteState")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// The peer of a request, with the slot reserved on it.
#[derive(Debug)]
pub struct Placed {
    /// The reserved slot.
    pub reservation: Reservation,
    /// Index of the peer in the pool.
    pub peer: usize,
    /// How the peer was found.
    pub mode: Mode,
    /// The numbers behind the decision.
    pub facts: Facts,
}

impl Placed {
    pub(super) fn new(state: &Arc<RouteState>, placement: Placement, kept: Kept) -> Self {
        let Placement {
            ticket,
            peer,
            mode,
            facts,
        } = placement;
        let reservation = Reservation {
            state: Arc::clone(state),
            ticket: Some(ticket),
            kept,
        };
        Self {
            reservation,
            peer,
            mode,
            facts,
        }
    }
}

/// An admitted request.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "a placement is the common end, and not worth an allocation"
)]
pub enum Admitted {
    /// A slot is reserved for it.
    Placed(Placed),
    /// Its pool is full, and it has a place in the queue.
    Waiting(Waiting),
}

/// One reserved slot. The request owns it and moves it into its response body. Dropping it for any
/// reason releases the slot exactly once.
#[must_use = "dropping a reservation releases it"]
pub struct Reservation {
    state: Arc<RouteState>,
    ticket: Option<Ticket>,
    kept: Kept,
}

/// The parts of a request that a retry needs again.
pub(super) struct Kept {
    /// The peers that list the model, if models pin requests.
    pin: Option<Box<[usize]>>,
    pin_falls_back: bool,
}

impl Kept {
    /// Copies them from a request.
    pub(super) fn of(ask: &PlacementRequest<'_>) -> Self {
        Self {
            pin: ask.pin.map(Box::from),
            pin_falls_back: ask.pin_falls_back,
        }
    }

    /// The pin, as a retry needs it.
    fn pin(&self) -> Option<Pin<'_>> {
        self.pin.as_deref().map(|peers| Pin {
            peers,
            falls_back: self.pin_falls_back,
        })
    }
}

impl Reservation {
    /// Releases the slot, unless it was released before.
    pub fn release(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.state.change(|book, _, now| book.release(ticket, now));
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.release();
    }
}

impl fmt::Debug for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation")
            .field("route", &self.state.name)
            .finish_non_exhaustive()
    }
}
