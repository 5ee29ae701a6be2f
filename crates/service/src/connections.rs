//! How many connections a port may have: in all, from one address, and silent ones.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// Bounds on the connections of one port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Connections that have sent something.
    pub total: usize,
    /// Of those, from one address; `None`: no bound of its own.
    pub per_source: Option<usize>,
}

impl ConnectionLimits {
    /// Connections that may wait for their first byte. They are no part of `total`, so that silent
    /// strangers take nobody's place; when there are more, the one that has waited longest goes.
    fn silent_max(self) -> usize {
        (self.total / 4).clamp(16, 1024)
    }
}

/// Why a connection was not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejected {
    /// The port has as many as it may.
    Limit,
    /// Its address has as many as it may.
    Source,
    /// It was silent for too long, or the longest of too many.
    Silent,
    /// The process is out of file descriptors.
    Descriptors,
}

impl Rejected {
    /// Every reason, in the order of the metrics page.
    pub const ALL: [Self; 4] = [Self::Limit, Self::Source, Self::Silent, Self::Descriptors];

    /// The value of the label `reason`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Limit => "max_connections",
            Self::Source => "max_connections_per_source",
            Self::Silent => "silent",
            Self::Descriptors => "descriptors",
        }
    }
}

/// The connections of one port. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Connections(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    table: Mutex<Table>,
    rejected: [AtomicU64; Rejected::ALL.len()],
}

#[derive(Debug)]
struct Table {
    limits: ConnectionLimits,
    open: usize,
    by_source: HashMap<IpAddr, usize>,
    /// Oldest first.
    silent: BTreeMap<u64, CancellationToken>,
    next: u64,
}

impl Connections {
    /// No connection yet.
    pub fn new(limits: ConnectionLimits) -> Self {
        Self(Arc::new(Inner {
            table: Mutex::new(Table {
                limits,
                open: 0,
                by_source: HashMap::new(),
                silent: BTreeMap::new(),
                next: 0,
            }),
            rejected: Default::default(),
        }))
    }

    /// The bounds.
    pub fn limits(&self) -> ConnectionLimits {
        self.0.table.lock().limits
    }

    /// Changes the bounds. Connections that are open stay open.
    pub fn set_limits(&self, limits: ConnectionLimits) {
        self.0.table.lock().limits = limits;
    }

    /// Connections that are served now.
    pub fn open(&self) -> usize {
        self.0.table.lock().open
    }

    /// Connections that were not served, for this reason.
    pub fn rejected(&self, reason: Rejected) -> u64 {
        self.0.rejected[reason as usize].load(Ordering::Relaxed)
    }

    /// Counts a connection that was not served.
    pub fn reject(&self, reason: Rejected) {
        self.0.rejected[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Takes a place for a connection that has sent something.
    ///
    /// # Errors
    /// The bound that is reached; it is counted.
    pub fn admit(&self, source: IpAddr) -> Result<OpenConnection, Rejected> {
        let mut table = self.0.table.lock();
        let limits = table.limits;
        if table.open >= limits.total {
            self.reject(Rejected::Limit);
            return Err(Rejected::Limit);
        }
        if let Some(most) = limits.per_source {
            let open = table.by_source.get(&source).copied().unwrap_or_default();
            if open >= most {
                self.reject(Rejected::Source);
                return Err(Rejected::Source);
            }
        }
        // Counted without a bound too: a reload may set one.
        *table.by_source.entry(source).or_default() += 1;
        table.open += 1;
        drop(table);
        Ok(OpenConnection {
            connections: self.clone(),
            source,
        })
    }

    /// Notes a connection that has not sent anything, and asks the oldest of too many to go.
    pub(crate) fn wait_for_first_byte(&self) -> SilentConnection {
        let mut table = self.0.table.lock();
        if table.silent.len() >= table.limits.silent_max()
            && let Some((_, oldest)) = table.silent.pop_first()
        {
            oldest.cancel();
        }
        let id = table.next;
        table.next += 1;
        let evicted = CancellationToken::new();
        table.silent.insert(id, evicted.clone());
        SilentConnection {
            connections: self.clone(),
            id,
            evicted,
        }
    }
}

/// The place of one connection. Dropping it frees the place.
#[derive(Debug)]
pub struct OpenConnection {
    connections: Connections,
    source: IpAddr,
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        let mut table = self.connections.0.table.lock();
        table.open -= 1;
        if let Some(open) = table.by_source.get_mut(&self.source) {
            *open -= 1;
            if *open == 0 {
                table.by_source.remove(&self.source);
            }
        }
    }
}

/// A connection that has not sent anything.
#[derive(Debug)]
pub(crate) struct SilentConnection {
    connections: Connections,
    id: u64,
    /// Cancelled when newer ones need its place.
    pub(crate) evicted: CancellationToken,
}

impl Drop for SilentConnection {
    fn drop(&mut self) {
        self.connections.0.table.lock().silent.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connections(total: usize, per_source: Option<usize>) -> Connections {
        Connections::new(ConnectionLimits { total, per_source })
    }

    #[test]
    fn a_place_is_taken_counted_and_given_back() {
        let connections = connections(2, None);
        let here = IpAddr::from([127, 0, 0, 1]);
        let first = connections.admit(here).unwrap();
        let second = connections.admit(here).unwrap();
        assert_eq!(connections.admit(here).unwrap_err(), Rejected::Limit);
        assert_eq!(connections.rejected(Rejected::Limit), 1);
        drop(first);
        assert_eq!(connections.open(), 1);
        drop((connections.admit(here).unwrap(), second));
        assert_eq!(connections.open(), 0);
    }

    #[test]
    fn one_address_has_its_own_bound_and_leaves_no_trace() {
        let connections = connections(10, Some(1));
        let first = connections.admit([10, 0, 0, 1].into()).unwrap();
        let again = connections.admit([10, 0, 0, 1].into());
        assert_eq!(again.unwrap_err(), Rejected::Source);
        drop(connections.admit([10, 0, 0, 2].into()).unwrap());
        drop(first);
        assert!(connections.0.table.lock().by_source.is_empty());
    }

    #[test]
    fn the_longest_silent_connection_goes_when_there_are_too_many() {
        let connections = connections(4, None);
        let silent: Vec<_> = (0..17).map(|_| connections.wait_for_first_byte()).collect();
        let evicted: Vec<_> = silent
            .iter()
            .map(|one| one.evicted.is_cancelled())
            .collect();
        assert!(evicted[0] && !evicted[1..].contains(&true), "{evicted:?}");
        drop(silent);
        assert!(connections.0.table.lock().silent.is_empty());
    }
}
