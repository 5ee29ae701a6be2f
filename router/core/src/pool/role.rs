//! The part of a request that a peer serves.

use std::ops::{Index, IndexMut};

/// The role of a peer. A pool keeps the roles apart: a request is placed among the peers of its own
/// role, and each role has its own session table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Whole requests.
    #[default]
    Regular,
    /// The prefill half of a split request.
    Prefill,
    /// The decode half of a split request.
    Decode,
}

impl Role {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Regular, Self::Prefill, Self::Decode];
}

/// One value for each role.
#[derive(Clone, Debug, Default)]
pub(crate) struct ByRole<T>([T; 3]);

impl<T> ByRole<T> {
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Role, &T)> {
        Role::ALL.into_iter().zip(&self.0)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.iter_mut()
    }
}

impl<T> Index<Role> for ByRole<T> {
    type Output = T;

    #[inline]
    fn index(&self, role: Role) -> &T {
        &self.0[role as usize]
    }
}

impl<T> IndexMut<Role> for ByRole<T> {
    #[inline]
    fn index_mut(&mut self, role: Role) -> &mut T {
        &mut self.0[role as usize]
    }
}
