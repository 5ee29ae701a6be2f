//! A route's live load, remembered sessions and models: the poller writes them, placement reads
//! them.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use router_core::affinity::Hashed;
use router_core::book::{Known, MemoryState, Polled, PoolId};
use router_core::load::{LoadSpec, Report};
use router_core::pool::{MemorySpec, PeerKey, Role};
use router_core::session::SessionId;

use super::Route;
use super::pins::Listed;
use crate::clock::now;
use router_config::valid::{
    self, AffinityFallback, LoadSignal, PinFallback, RouteOptions, UnknownModel,
};

/// Where a session lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionHome {
    /// The pool.
    pub pool: PoolId,
    /// Index of the peer in the pool.
    pub peer: usize,
    /// Time since the session was placed there.
    pub age: Duration,
    /// Time since the session was last used.
    pub idle: Duration,
}

/// Which peers of a pool may serve a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pin {
    /// Any peer.
    Free,
    /// The peers at these indices, ascending.
    To(Arc<[usize]>),
    /// No peer lists the model, and the route is configured to answer 404.
    Unknown,
}

impl Pin {
    /// The core's form of it.
    pub fn indices(&self) -> Option<&[usize]> {
        match self {
            Self::To(indices) => Some(indices),
            Self::Free | Self::Unknown => None,
        }
    }
}

impl Route {
    /// Whether the route's engines are polled.
    pub fn polls(&self) -> bool {
        self.options.load.signal.value == LoadSignal::Engine
    }

    /// Takes the result of a poll, which may end a ban for a failed connection.
    pub fn report_load(&self, peer: &PeerKey, report: Report) -> Option<Polled> {
        self.state
            .change(|book, _, now| book.report_load(&self.roster, peer, report, now))
    }

    /// Stores an engine's own number of slots. Returns the previous one.
    pub fn learn_slots(&self, peer: &PeerKey, slots: u32) -> Option<u32> {
        self.state
            .change(|book, _, _| book.learn_slots(peer, slots))
    }

    /// Number of requests a peer runs at once: from its file or, with `auto`, from its engine.
    pub fn slots(&self, peer: &valid::Peer) -> u32 {
        let learned = || self.known_load(&peer.key)?.learned;
        let learned = peer.learns_slots.then(learned).flatten();
        learned.unwrap_or(peer.max_concurrency)
    }

    /// The known load of a peer.
    pub fn known_load(&self, peer: &PeerKey) -> Option<Known> {
        self.state.inner.lock().book.reading(peer)
    }

    /// The sessions and prefixes that a pool remembers.
    pub fn memory(&self, pool: PoolId) -> MemoryState {
        self.state.inner.lock().book.memory(&self.roster, pool)
    }

    /// Whether requests without a session are placed by their prefix.
    pub fn places_by_prefix(&self) -> bool {
        self.options.affinity_fallback.value == AffinityFallback::Prefix
    }

    /// Releases the session of an id in every pool. Returns the number of pools that had it.
    pub fn finish_session(&self, id: &str) -> u32 {
        let key = session_key(id);
        self.state.inner.lock().book.finish_session(&key)
    }

    /// Where the session of an id lives, per pool. Reading does not renew a session.
    pub fn find_session(&self, id: &str) -> Vec<SessionHome> {
        let key = session_key(id);
        let inner = self.state.inner.lock();
        let now = now();
        let among = |(pool, role)| {
            let book = &inner.book;
            let home = book.find_session(&self.roster, pool, role, &key, now)?;
            Some(SessionHome {
                pool,
                peer: home.peer,
                age: home.age,
                idle: home.idle,
            })
        };
        let tables = self.pool_ids();
        let tables = tables.flat_map(|pool| Role::ALL.map(|role| (pool, role)));
        tables.filter_map(among).collect()
    }

    /// The peers that list `model`, if models pin requests.
    pub fn pin(&self, model: Option<&str>) -> Pin {
        let (Some(model), true) = (model, self.options.load.pin_model.value) else {
            return Pin::Free;
        };
        // On a by-model route the pool already pins the request, and its engines may use another
        // name for the model.
        if self.is_by_model() {
            return Pin::Free;
        }
        match (self.listed(model), self.options.load.unknown_model.value) {
            (Some(listed), _) => Pin::To(listed),
            (None, UnknownModel::Route) => Pin::Free,
            (None, UnknownModel::NotFound) => Pin::Unknown,
        }
    }

    /// Whether the model in a body decides which peers may serve it.
    pub fn reads_the_model(&self) -> bool {
        self.is_by_model() || self.options.load.pin_model.value
    }

    /// Whether a peer of a flat route lists `model`, as an id or an alias.
    pub fn serves(&self, model: &str) -> bool {
        !self.is_by_model() && self.listed(model).is_some()
    }

    /// The peers of a flat route's only pool that list `model`.
    fn listed(&self, model: &str) -> Listed {
        let lists = &self.state.models;
        self.pins.of(lists.edition(), model, || {
            let keys = self.peers.first().into_iter().flatten();
            let listing = lists.listing(keys.map(|peer| &peer.spec.key), model);
            (!listing.is_empty()).then(|| Arc::from(listing))
        })
    }

    /// Hashes a long session id for placement, without a lock.
    pub fn hashed(&self, pool: PoolId, session: &[u8]) -> Option<Hashed> {
        self.roster.hashed(pool, session)
    }

    /// Whether a pinned request may go to any peer if none of its own is usable.
    pub fn pin_falls_back(&self) -> bool {
        self.options.load.pin_fallback.value == PinFallback::Any
    }

    /// The models that the route's peers list, for the answer to a request for an unknown model.
    pub fn listed_models(&self) -> Vec<Arc<str>> {
        let mut all: Vec<Arc<str>> = Vec::new();
        for peer in self.distinct_peers() {
            let Some(list) = self.state.models.get(&peer.spec.key) else {
                continue;
            };
            for (id, _) in &list.entries {
                if !all.iter().any(|known| **known == **id) {
                    all.push(Arc::from(&**id));
                }
            }
        }
        all
    }
}

/// The key of a session id in the table.
fn session_key(id: &str) -> Vec<u8> {
    let id = SessionId {
        raw: Cow::Borrowed(id.as_bytes()),
        source: Arc::from("query.session_id"),
    };
    id.table_key().into_owned()
}

/// Converts a route's load options into the core's type.
pub(super) fn load_spec(options: &RouteOptions) -> Option<LoadSpec> {
    let load = &options.load;
    (load.signal.value == LoadSignal::Engine).then_some(LoadSpec {
        stale_after: load.stale_after.value,
        stale_policy: load.stale_policy.value,
        hold_max: load.hold_max.value,
        model: load.model.value,
    })
}

/// Converts a route's session options into the core's type.
pub(super) fn memory_spec(options: &RouteOptions) -> MemorySpec {
    MemorySpec {
        session_ttl: options.session_ttl.value,
        sessions_max: options.max_sessions.value,
        prefixes: options.affinity_fallback.value == AffinityFallback::Prefix,
        load_factor_max: options.affinity_max_load_factor.value,
    }
}
