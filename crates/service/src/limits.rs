//! The process's limit on open files.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Raises the soft limit on open files to the hard limit, because each stream takes two files.
pub fn raise_descriptor_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::debug!(%error, "the limit on open files stays as it is");
    }
}
