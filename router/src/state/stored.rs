//! The process's table of stored objects: which route and peer made them.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use router_core::pool::PeerKey;
use router_core::stored;

use crate::clock::now;

/// Ids that the process remembers, about 20 MB of them.
const IDS_MAX: usize = 1 << 17;

/// How long an id is remembered after an engine last showed that it has the object. OpenAI keeps
/// responses for 30 days; engines lose them at a restart.
const TTL: Duration = Duration::from_secs(24 * 3600);

/// Where a stored object lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredAt {
    /// The route.
    pub route: Arc<str>,
    /// The peer.
    pub peer: PeerKey,
}

/// Where stored objects live. Shared by all routes, because a path without a prefix names none.
#[derive(Debug)]
pub struct StoredIds(Mutex<stored::StoredIds<StoredAt>>);

impl Default for StoredIds {
    fn default() -> Self {
        Self(Mutex::new(stored::StoredIds::new(IDS_MAX, TTL)))
    }
}

impl StoredIds {
    /// Remembers where an object lives.
    pub fn put(&self, id: &str, at: StoredAt) {
        self.0.lock().put(id, at, now());
    }

    /// Where an object lives.
    pub fn get(&self, id: &str) -> Option<StoredAt> {
        self.0.lock().get(id, now())
    }

    /// Forgets an object.
    pub fn remove(&self, id: &str) {
        self.0.lock().remove(id);
    }
}
