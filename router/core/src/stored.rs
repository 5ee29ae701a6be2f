//! Where the objects live that engines store: responses, conversations, chat completions, batches and
//! files.
//!
//! Bounded by two generations: when the younger one is full, it becomes the older one, and the ids of
//! the older one that nobody asked for since are forgotten. An id also ends after its time to live.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Longest id, bytes. Engines use 64 at most.
pub const ID_MAX: usize = 256;

/// A bounded table from ids to places.
#[derive(Debug)]
pub struct StoredIds<P> {
    young: BTreeMap<Box<str>, Entry<P>>,
    old: BTreeMap<Box<str>, Entry<P>>,
    /// Size of a generation.
    half: usize,
    ttl: Duration,
}

#[derive(Clone, Debug)]
struct Entry<P> {
    place: P,
    /// When an engine last showed that it has the object.
    seen: Instant,
}

impl<P: Clone> StoredIds<P> {
    /// An empty table of at most `max` ids, at least two.
    pub fn new(max: usize, ttl: Duration) -> Self {
        Self {
            young: BTreeMap::new(),
            old: BTreeMap::new(),
            half: (max / 2).max(1),
            ttl,
        }
    }

    /// Remembers where an object lives. Ids that are empty or too long are ignored.
    pub fn put(&mut self, id: &str, place: P, now: Instant) {
        if id.is_empty() || id.len() > ID_MAX {
            return;
        }
        self.old.remove(id);
        if self.young.len() >= self.half && !self.young.contains_key(id) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(id.into(), Entry { place, seen: now });
    }

    /// Where an object lives.
    pub fn get(&mut self, id: &str, now: Instant) -> Option<P> {
        let entry = self.young.get(id).or_else(|| self.old.get(id))?;
        if now.saturating_duration_since(entry.seen) >= self.ttl {
            self.remove(id);
            return None;
        }
        Some(entry.place.clone())
    }

    /// Forgets an object.
    pub fn remove(&mut self, id: &str) {
        self.young.remove(id);
        self.old.remove(id);
    }

    /// The number of ids.
    pub fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }

    /// Whether there is no id.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(60);

    #[test]
    fn the_table_is_bounded_and_forgets_the_oldest() {
        let now = crate::testing::start();
        let mut ids = StoredIds::new(4, TTL);
        for n in 0..100 {
            ids.put(&format!("resp_{n}"), n, now);
            assert!(ids.len() <= 4);
            assert_eq!(ids.get(&format!("resp_{n}"), now), Some(n));
        }
        assert_eq!(ids.get("resp_0", now), None);
        assert_eq!(ids.get("resp_98", now), Some(98));
    }

    #[test]
    fn an_id_ends_after_its_time_unless_it_is_seen_again() {
        let start = crate::testing::start();
        let mut ids = StoredIds::new(10, TTL);
        ids.put("a", 1, start);
        ids.put("b", 2, start);
        ids.put("a", 1, start + TTL / 2);
        assert_eq!(ids.get("a", start + TTL), Some(1));
        assert_eq!(ids.get("b", start + TTL), None);
        assert_eq!(ids.len(), 1);
        ids.remove("a");
        assert!(ids.is_empty());
    }

    #[test]
    fn ids_that_no_engine_makes_are_not_kept() {
        let now = crate::testing::start();
        let mut ids = StoredIds::new(10, TTL);
        ids.put("", 1, now);
        ids.put(&"x".repeat(ID_MAX + 1), 1, now);
        assert!(ids.is_empty());
    }
}
