//! Decides which peer a session belongs to.

pub(crate) mod consistent_hash;
pub mod hash;
pub mod prefix;
pub(crate) mod sid;
pub mod sticky;
mod tenants;
pub(crate) mod warm;
mod xxh3;

pub use sid::Hashed;

/// How a session is mapped to its peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Affinity {
    /// Sessions are ignored: every request is balanced.
    None,
    /// Placement is a pure function of session and peer list, so replicas agree without
    /// communication.
    Hash {
        /// The placement function.
        hash: Hash,
        /// What happens when the home peer is at its own maximum.
        saturated: Saturated,
    },
    /// A new session goes to the peer with the fewest sessions and stays there.
    Sticky,
}

words! {
    /// The placement functions. All three are contracts: they never change for a given input.
    #[derive(Default)]
    pub enum Hash {
        /// `crc32(sid) % n` over the active tier's enabled peers in file order, banned ones included.
        #[default]
        Crc32 = "crc32",
        /// Highest `xxh3_64(sid ‖ 0x00 ‖ host:port)` over the unbanned peers of the active tier.
        Rendezvous = "rendezvous",
        /// Highest first 32 bits of `MD5(sid ‖ '|' ‖ host:port)` over the same peers.
        RendezvousMd5 = "rendezvous_md5",
    }
}

words! {
    /// What a session does when its home peer is at its own maximum.
    #[derive(Default)]
    pub enum Saturated {
        /// Fall back to `balance` for this request.
        #[default]
        Fallback = "fallback",
        /// Stay, above the peer's own maximum, while the pool is under its limit.
        Keep = "keep",
    }
}
