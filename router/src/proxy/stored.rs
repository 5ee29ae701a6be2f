//! Requests about objects that an engine stores: the engine that made an object serves it.

use std::sync::Arc;

use http::Method;
use router_core::book::PoolId;
use serde::Deserialize;

use crate::content::Inspection;
use crate::content::stored::{Collection, IdRead, IdReader, StoredPath};
use crate::state::{Route, StoredAt, StoredIds};

/// Peers that a request for an unknown id visits at most.
pub(super) const SEEK_MAX: usize = 16;

/// What a request has to do with stored objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StoredUse {
    /// Nothing.
    Nothing,
    /// The answer names a new object.
    Makes,
    /// The path names an object.
    Names,
    /// The path names an object, and the request deletes it.
    Deletes,
}

impl StoredUse {
    /// Reads a request.
    pub(super) fn of(path: &str, method: &Method, inspection: &Inspection<'_>) -> Self {
        let flag = |name| inspection.top(name);
        match StoredPath::of(path) {
            Some(StoredPath::Object { is_whole: true, .. }) if *method == Method::DELETE => {
                Self::Deletes
            }
            Some(StoredPath::Object { .. }) => Self::Names,
            Some(StoredPath::Collection(collection)) if *method == Method::POST => {
                let is_stored = match collection {
                    Collection::Responses => flag("store") != Some("false"),
                    Collection::Chats => flag("store") == Some("true"),
                    Collection::Others => true,
                };
                if is_stored {
                    Self::Makes
                } else {
                    Self::Nothing
                }
            }
            _ => Self::Nothing,
        }
    }

    /// Whether the path names an object.
    pub(super) fn is_of_one(self) -> bool {
        matches!(self, Self::Names | Self::Deletes)
    }
}

/// Where the object lives that a request names in its path or continues.
pub(super) fn home(ids: &StoredIds, path: &str, inspection: &Inspection<'_>) -> Option<StoredAt> {
    let named = |name| inspection.top(name).and_then(id_of);
    match StoredPath::of(path)? {
        StoredPath::Object { id, .. } => ids.get(id),
        StoredPath::Collection(Collection::Responses) => {
            let ids_of = ["previous_response_id", "conversation"];
            ids_of
                .into_iter()
                .filter_map(named)
                .find_map(|id| ids.get(&id))
        }
        StoredPath::Collection(Collection::Others) => ids.get(&named("input_file_id")?),
        StoredPath::Collection(Collection::Chats) => None,
    }
}

/// The pool and the index of a peer on a route. `None` if another route made the object, or if the
/// peer is no longer configured.
pub(super) fn peer_of(route: &Route, at: &StoredAt) -> Option<(PoolId, usize)> {
    if at.route != route.name {
        return None;
    }
    let pools = route.peers.iter().enumerate();
    pools
        .filter_map(|(pool, peers)| {
            let index = peers.iter().position(|peer| peer.spec.key == at.peer)?;
            Some((PoolId(pool), index))
        })
        .next()
}

/// The id in a text, or in the `id` of an object.
fn id_of(raw: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Named {
        id: String,
    }
    if raw.starts_with('{') {
        return serde_json::from_str(raw).ok().map(|Named { id }| id);
    }
    serde_json::from_str(raw).ok()
}

/// Remembers the id that an answer names.
#[derive(Debug)]
pub(super) struct IdWatch {
    reader: IdReader,
    at: StoredAt,
}

impl IdWatch {
    /// Watches the answer of a peer.
    pub(super) fn new(at: StoredAt) -> Box<Self> {
        Box::new(Self {
            reader: IdReader::default(),
            at,
        })
    }

    /// Reads on. Returns whether the watch is over.
    pub(super) fn feed(&mut self, data: &[u8], ids: &StoredIds) -> bool {
        match self.reader.feed(data) {
            IdRead::More => false,
            IdRead::Nothing => true,
            IdRead::Found(id) => {
                ids.put(&id, self.at.clone());
                true
            }
        }
    }
}

/// Notes what the head of an answer says about stored objects. Returns the watch of an answer that
/// names a new one.
pub(super) fn answered(
    stored: StoredUse,
    ids: &StoredIds,
    path: &str,
    at: impl FnOnce() -> StoredAt,
) -> Option<Box<IdWatch>> {
    let id = match (stored, StoredPath::of(path)) {
        (StoredUse::Makes, _) => return Some(IdWatch::new(at())),
        (StoredUse::Names | StoredUse::Deletes, Some(StoredPath::Object { id, .. })) => id,
        _ => return None,
    };
    match stored {
        StoredUse::Deletes => ids.remove(id),
        _ => ids.put(id, at()),
    }
    None
}

/// Where an answer comes from.
pub(super) fn at(route: &Route, peer: &crate::state::Peer) -> StoredAt {
    StoredAt {
        route: Arc::clone(&route.name),
        peer: peer.spec.key.clone(),
    }
}
