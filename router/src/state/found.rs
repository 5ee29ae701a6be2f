//! The peers that a route's source (`peers_from`) gave, and how the source is doing.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use router_config::valid::{Peer, PeersFrom, Pool};

/// The peers of one route's source. Outlives the route's snapshots: what a failing source gave last
/// stays.
#[derive(Debug, Default)]
pub struct FoundPeers {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    source: Option<PeersFrom>,
    peers: Vec<Peer>,
    /// When the source was last asked with success.
    at: Option<Instant>,
    /// When it was last asked.
    asked: Option<Instant>,
    error: Option<Trouble>,
    errors: u64,
    generation: u64,
}

/// Why a source gives nothing, and since when.
#[derive(Clone, Debug)]
pub struct Trouble {
    /// For people.
    pub text: Arc<str>,
    /// The first failure in a row.
    pub since: Instant,
}

/// A source as it is now.
#[derive(Clone, Debug)]
pub struct SourceState {
    /// The source.
    pub source: PeersFrom,
    /// Peers that it gave last.
    pub peers: usize,
    /// When it gave them; `None` before it first did.
    pub at: Option<Instant>,
    /// What is wrong; `None` while it answers.
    pub error: Option<Trouble>,
    /// Failures since the start.
    pub errors: u64,
}

impl FoundPeers {
    /// Takes what `source` answered. Returns whether the peers changed. An answer of another source
    /// than the last replaces everything, whatever it says.
    pub fn take(
        &self,
        source: &PeersFrom,
        answer: Result<Vec<Peer>, String>,
        now: Instant,
    ) -> bool {
        let mut inner = self.inner.lock();
        let is_other = inner.source.as_ref() != Some(source);
        if is_other {
            let (generation, errors) = (inner.generation, inner.errors);
            *inner = Inner {
                source: Some(source.clone()),
                generation,
                errors,
                ..Inner::default()
            };
        }
        inner.asked = Some(now);
        let changed = match answer {
            Ok(mut peers) => {
                // Every router has the same order, whatever order the source has today.
                peers.sort_by(|a, b| a.key.as_str().cmp(b.key.as_str()));
                inner.at = Some(now);
                inner.error = None;
                let changed = !same(&inner.peers, &peers);
                inner.peers = peers;
                changed
            }
            Err(text) => {
                inner.errors += 1;
                let since = inner.error.as_ref().map_or(now, |error| error.since);
                let text = text.into();
                inner.error = Some(Trouble { text, since });
                false
            }
        };
        if changed || is_other {
            inner.generation += 1;
        }
        changed || is_other
    }

    /// Whether `source` is to be asked again, `every` after it was asked last.
    pub fn is_due(&self, source: &PeersFrom, every: Duration, now: Instant) -> bool {
        let inner = self.inner.lock();
        inner.source.as_ref() != Some(source)
            || inner
                .asked
                .is_none_or(|asked| now.saturating_duration_since(asked) >= every)
    }

    /// Adds the peers to the flat pool. One that the file names itself stays as it is there.
    pub fn add_to(&self, pools: &mut [Pool]) {
        let [pool] = pools else { return };
        for peer in &self.inner.lock().peers {
            let is_there = |other: &Peer| other.key == peer.key || other.name == peer.name;
            if !pool.peers.iter().any(is_there) {
                pool.peers.push(peer.clone());
            }
        }
    }

    /// Grows whenever the peers change.
    pub fn generation(&self) -> u64 {
        self.inner.lock().generation
    }

    /// The state of the source; `None` before it was asked.
    pub fn state(&self) -> Option<SourceState> {
        let inner = self.inner.lock();
        Some(SourceState {
            source: inner.source.clone()?,
            peers: inner.peers.len(),
            at: inner.at,
            error: inner.error.clone(),
            errors: inner.errors,
        })
    }
}

fn same(before: &[Peer], after: &[Peer]) -> bool {
    before.len() == after.len() && before.iter().zip(after).all(|(a, b)| is_same(a, b))
}

fn is_same(a: &Peer, b: &Peer) -> bool {
    (&a.key, &a.name, a.tls, &a.base_path) == (&b.key, &b.name, b.tls, &b.base_path)
        && (a.priority, a.max_concurrency, a.learns_slots, a.weight)
            == (b.priority, b.max_concurrency, b.learns_slots, b.weight)
        && (a.draining, a.role, a.engine, a.enabled) == (b.draining, b.role, b.engine, b.enabled)
        && (&a.metrics_url, &a.api_key, &a.probe, &a.gpu)
            == (&b.metrics_url, &b.api_key, &b.probe, &b.gpu)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use router_config::peers_at;

    use super::*;
    use crate::clock::now;

    fn peers(addresses: &[&str]) -> Vec<Peer> {
        let addresses: Vec<String> = addresses.iter().map(|&a| a.to_owned()).collect();
        peers_at(&addresses, 8)
    }

    fn names(found: &FoundPeers, own: &[&str]) -> Vec<String> {
        let mut pools = [Pool {
            model: None,
            peers: peers(own),
        }];
        found.add_to(&mut pools);
        pools[0]
            .peers
            .iter()
            .map(|peer| peer.name.to_string())
            .collect()
    }

    fn file(name: &str) -> PeersFrom {
        PeersFrom::File(PathBuf::from(name))
    }

    #[test]
    fn the_order_of_the_source_does_not_matter_and_own_peers_stand_first() {
        let found = FoundPeers::default();
        let now = now();
        assert!(found.take(&file("a"), Ok(peers(&["b:1", "a:1", "c:1"])), now));
        assert!(!found.take(&file("a"), Ok(peers(&["c:1", "b:1", "a:1"])), now));
        assert_eq!(names(&found, &["z:1", "b:1"]), ["z:1", "b:1", "a:1", "c:1"]);
        assert_eq!(found.generation(), 1);
    }

    #[test]
    fn a_source_that_fails_keeps_its_peers_and_says_since_when() {
        let found = FoundPeers::default();
        let begin = now();
        let later = |seconds| begin + Duration::from_secs(seconds);
        found.take(&file("a"), Ok(peers(&["a:1"])), begin);
        assert!(!found.take(&file("a"), Err("no such name".into()), later(1)));
        assert!(!found.take(&file("a"), Err("time-out".into()), later(2)));
        assert_eq!(names(&found, &[]), ["a:1"]);
        let state = found.state().unwrap();
        let error = state.error.unwrap();
        assert_eq!(
            (&*error.text, error.since, state.errors),
            ("time-out", later(1), 2)
        );
        assert_eq!(state.at, Some(begin));
        found.take(&file("a"), Ok(peers(&["a:1"])), later(3));
        assert!(found.state().unwrap().error.is_none());
    }

    #[test]
    fn another_source_starts_anew_and_is_due_at_once() {
        let found = FoundPeers::default();
        let now = now();
        found.take(&file("a"), Ok(peers(&["a:1"])), now);
        let second = Duration::from_secs(1);
        assert!(!found.is_due(&file("a"), second, now));
        assert!(found.is_due(&file("a"), second, now + second));
        assert!(found.is_due(&file("b"), second, now));
        assert!(found.take(&file("b"), Err("gone".into()), now));
        assert_eq!(names(&found, &[]), [""; 0]);
    }
}
