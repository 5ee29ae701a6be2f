//! The models that each peer serves: the cached `/v1/models` lists.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

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
    /// Changes whenever the names on the lists change.
    edition: AtomicU64,
}

impl ModelLists {
    /// Replaces a peer's list.
    pub fn put(&self, peer: &PeerKey, list: ModelList) {
        let list = Arc::new(list);
        let mut by_peer = self.by_peer.write();
        let before = by_peer.insert(peer.clone(), Arc::clone(&list));
        // Compares names only: engines write the current time into the entries of every answer.
        if before.is_none_or(|before| before.ids != list.ids) {
            self.edition.fetch_add(1, Ordering::Release);
        }
    }

    /// A peer's list, if the peer ever answered.
    pub fn get(&self, peer: &PeerKey) -> Option<Arc<ModelList>> {
        self.by_peer.read().get(peer).cloned()
    }

    /// Whether any peer lists `model`, as an id or an alias.
    pub fn has(&self, model: &str) -> bool {
        let by_peer = self.by_peer.read();
        by_peer.values().any(|list| list.ids.contains(model))
    }

    /// Forgets peers that are no longer configured.
    pub fn retain(&self, keep: impl Fn(&PeerKey) -> bool) {
        let mut by_peer = self.by_peer.write();
        by_peer.retain(|peer, _| keep(peer));
        self.edition.fetch_add(1, Ordering::Release);
    }

    /// The edition of the lists. Read it before the lists: a result from newer lists is then merely
    /// looked up again.
    pub(super) fn edition(&self) -> u64 {
        self.edition.load(Ordering::Acquire)
    }

    /// The indices of those of these peers that list `model`, as an id or an alias.
    pub(super) fn listing<'p>(
        &self,
        peers: impl IntoIterator<Item = &'p PeerKey>,
        model: &str,
    ) -> Vec<usize> {
        let by_peer = self.by_peer.read();
        let lists = |peer| {
            by_peer
                .get(peer)
                .is_some_and(|list| list.ids.contains(model))
        };
        let peers = peers.into_iter().enumerate();
        peers
            .filter_map(|(index, peer)| lists(peer).then_some(index))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(id: &str, created: u32) -> ModelList {
        let entry = format!("{{\"id\":\"{id}\",\"created\":{created}}}");
        let entry = RawValue::from_string(entry).expect("it is JSON");
        ModelList {
            entries: vec![(Box::from(id), entry)],
            ids: BTreeSet::from([Box::from(id)]),
        }
    }

    #[test]
    fn only_other_names_make_another_edition() {
        let (lists, peer) = (ModelLists::default(), PeerKey::new("10.0.0.1:80"));
        let mut editions = vec![lists.edition()];
        for (id, created) in [("a", 1), ("a", 2), ("b", 2)] {
            lists.put(&peer, list(id, created));
            editions.push(lists.edition());
        }
        lists.retain(|_| false);
        editions.push(lists.edition());
        editions.dedup();
        assert_eq!(editions, [0, 1, 2, 3]);
    }
}
