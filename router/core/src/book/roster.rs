//! A configuration resolved to the state it acts on.

use crate::pool::{PeerSpec, RouteSpec};

/// A [`RouteSpec`] whose peers are resolved to their state. Made by
/// [`Book::attach`](super::Book::attach); belongs to that book alone, and must not be used with it
/// once detached.
#[derive(Debug)]
pub struct Roster {
    pub(super) id: u64,
    pub(super) spec: RouteSpec,
    /// Index = pool, file order.
    pub(super) members: Vec<Members>,
}

/// The slots of one pool.
#[derive(Debug)]
pub(super) struct Members {
    /// Slot of the pool's own state.
    pub(super) pool: u32,
    /// Index = peer, file order.
    pub(super) peers: Vec<u32>,
}

/// Index of a pool in [`RouteSpec::pools`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolId(pub usize);

impl Roster {
    /// The configuration behind this roster.
    pub fn spec(&self) -> &RouteSpec {
        &self.spec
    }

    /// The pool of a `peers_by_model` key, or the flat pool.
    pub fn pool(&self, model: Option<&str>) -> Option<PoolId> {
        self.spec
            .pools
            .iter()
            .position(|p| p.model.is_none() || p.model.as_deref() == model)
            .map(PoolId)
    }

    /// A peer of a pool.
    ///
    /// # Panics
    ///
    /// When the pool or the index is not one of this roster's.
    pub fn peer(&self, pool: PoolId, index: usize) -> &PeerSpec {
        &self.spec.pools[pool.0].peers[index]
    }
}
