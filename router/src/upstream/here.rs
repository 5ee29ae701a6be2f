//! Failures of this host. They say nothing about a peer.

use std::error::Error;
use std::io;

use rustix::io::Errno;

/// The errors of the system when it has no descriptor or no memory left for a connection.
const EXHAUSTED: [Errno; 4] = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];

/// Whether a connection failed because this host ran out of descriptors or memory.
pub(super) fn is_exhausted(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        let code = error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::raw_os_error);
        if code.is_some_and(|code| EXHAUSTED.map(Errno::raw_os_error).contains(&code)) {
            return true;
        }
        next = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("connect")]
    struct Outer(#[source] io::Error);

    #[test]
    fn a_want_of_descriptors_is_told_from_a_dead_peer_however_deep_it_is() {
        let of = |errno: Errno| Outer(io::Error::from_raw_os_error(errno.raw_os_error()));
        assert!(is_exhausted(&of(Errno::MFILE)) && is_exhausted(&of(Errno::NOMEM).0));
        for dead in [Errno::CONNREFUSED, Errno::HOSTUNREACH, Errno::TIMEDOUT] {
            assert!(!is_exhausted(&of(dead)), "{dead}");
        }
        assert!(!is_exhausted(&Outer(io::Error::other("no such name"))));
    }
}
