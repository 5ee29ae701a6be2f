//! Access to sessions from outside: find, finish, count.

use std::time::{Duration, Instant};

use super::pool::PoolState;
use super::{Book, PoolId, ResolvedRoute};
use crate::pool::Role;

/// The peer on which a session lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionBinding {
    /// Index of the peer in its pool.
    pub peer: usize,
    /// Time since the session was placed there.
    pub age: Duration,
    /// Time since the session was last used.
    pub idle: Duration,
}

/// The sizes of a pool's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryState {
    /// Number of sessions, including expired ones that no sweep has visited.
    pub sessions: u64,
    /// Sessions evicted by the cap, since the start.
    pub evicted: u64,
    /// Sessions that expired, since the start.
    pub expired: u64,
    /// Number of known prefixes.
    pub prefixes: u64,
}

impl Book {
    /// Releases a session in every table of every pool. Returns the number of tables that had it.
    pub fn finish_session(&mut self, key: &[u8]) -> u32 {
        let tables = |pool: &mut PoolState| -> u32 {
            let tables = pool.sessions.iter_mut();
            tables.map(|table| u32::from(table.finish(key))).sum()
        };
        self.pools.iter_mut().map(tables).sum()
    }

    /// Finds a session among the peers of a role.
    pub fn find_session(
        &self,
        resolved: &ResolvedRoute,
        pool: PoolId,
        role: Role,
        key: &[u8],
        now: Instant,
    ) -> Option<SessionBinding> {
        let members = &resolved.members[pool.0];
        let sessions = &self.pools.get(members.pool).sessions[role];
        let entry = sessions.find(key, resolved.spec.memory.session_ttl, now)?;
        let peer = members.peers.iter().position(|slot| *slot == entry.peer)?;
        Some(SessionBinding {
            peer,
            age: now.saturating_duration_since(entry.since),
            idle: now.saturating_duration_since(entry.used),
        })
    }

    /// The sizes of a pool's memory: sessions, evicted sessions, expired sessions, prefixes.
    pub fn memory(&self, resolved: &ResolvedRoute, pool: PoolId) -> MemoryState {
        let state = self.pools.get(resolved.members[pool.0].pool);
        let mut memory = MemoryState {
            prefixes: state.prefixes.len() as u64,
            ..MemoryState::default()
        };
        for (_, table) in state.sessions.iter() {
            let (evicted, expired) = table.losses();
            memory.sessions += table.len() as u64;
            memory.evicted += evicted;
            memory.expired += expired;
        }
        memory
    }
}
