//! The three placement hashes.

use super::Hash;

/// The home of a session among `peers` (`host:port` texts, in file order): the index of the winner
/// and its score (`crc32` value, or the winning weight). `None` when there are no peers.
pub fn home<'a>(
    _hash: Hash,
    _session: &[u8],
    _peers: impl IntoIterator<Item = &'a str>,
) -> Option<(usize, u64)> {
    None
}
