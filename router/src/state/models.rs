//! What each peer said it serves: the cached `/v1/models` lists.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use parking_lot::RwLock;
use router_core::pool::PeerKey;
use serde_json::value::RawValue;

/// One peer's list. Entries are kept as the engine wrote them.
#[derive(Debug, Default, Clone)]
pub struct ModelList {
    /// `(id, the whole entry as text)`, in the engine's order.
    pub entries: Vec<(Box<str>, Box<RawValue>)>,
    /// Every id and alias, for dispatch by model.
    pub ids: BTreeSet<Box<str>>,
}

/// The lists of one route's peers; written by the probes, read by dispatch and by
/// `GET …/v1/models`.
#[derive(Debug, Default)]
pub struct ModelLists {
    by_peer: RwLock<HashMap<PeerKey, Arc<ModelList>>>,
}

impl ModelLists {
    /// Replaces a peer's list.
    pub fn put(&self, peer: &PeerKey, list: ModelList) {
        self.by_peer.write().insert(peer.clone(), Arc::new(list));
    }

    /// A peer's list, if it ever answered.
    pub fn get(&self, peer: &PeerKey) -> Option<Arc<ModelList>> {
        self.by_peer.read().get(peer).cloned()
    }

    /// Forgets peers that are no longer configured.
    pub fn retain(&self, keep: impl Fn(&PeerKey) -> bool) {
        self.by_peer.write().retain(|peer, _| keep(peer));
    }

    /// Whether any peer lists `model`, as an id or an alias.
    pub fn serves(&self, model: &str) -> bool {
        self.by_peer
            .read()
            .values()
            .any(|list| list.ids.contains(model))
    }
}
