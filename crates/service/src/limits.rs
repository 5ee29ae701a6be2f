//! The process's limit on open files.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Descriptors that connections of clients leave free: for ports, files, administration and silent
/// connections.
const RESERVE: u64 = 96;

/// How many connections of clients the process has descriptors for. Each may need a second one, to
/// an engine.
pub fn connections_max() -> usize {
    let files = getrlimit(Resource::Nofile).current;
    files.map_or(usize::MAX, of_descriptors)
}

fn of_descriptors(files: u64) -> usize {
    let spare = (files - RESERVE.min(files / 2)) / 2;
    usize::try_from(spare).unwrap_or(usize::MAX).max(1)
}

/// Raises the soft limit on open files to the hard limit, because each stream takes two files.
pub fn raise_descriptor_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::debug!(%error, "the limit on open files stays as it is");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_descriptors_for_everything_else() {
        assert_eq!(of_descriptors(256), 80);
        assert_eq!(of_descriptors(1_048_576), 524_240);
        assert_eq!(of_descriptors(64), 16);
        assert_eq!(of_descriptors(1), 1);
    }
}
