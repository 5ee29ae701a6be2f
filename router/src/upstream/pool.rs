//! Idle connections to peers, last in, first out.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use parking_lot::{Mutex, RwLock};

use super::address::Address;
use super::connect::{History, Observed};
use super::driven::Driven;
use super::request_body::RequestBody;

/// Interval of [`Pools::sweep`].
pub(super) const SWEEP: Duration = Duration::from_secs(1);

/// Sweeps that an idle connection survives: it is closed after three to four seconds. llama.cpp and
/// uvicorn (vLLM, SGLang) close their side after five seconds, and a request should seldom meet a
/// connection that is closing.
const SWEEPS_IDLE_MAX: u32 = 4;

/// Idle connections kept per peer. A peer runs at most a few hundred requests at once; the surplus
/// of a larger burst is closed.
const IDLE_MAX: usize = 256;

/// A connection to a peer.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) driven: Driven<TokioIo<Observed>, RequestBody>,
    pub(super) history: Arc<History>,
    /// Whether it has served a request before.
    pub(super) is_reused: bool,
}

impl Link {
    /// Whether another request may be sent on it. The link must not have an answer under way.
    fn is_reusable(&mut self) -> bool {
        self.driven.rest() && !self.history.is_write_broken()
    }
}

/// The connections of all peers.
#[derive(Debug, Default)]
pub(super) struct Pools {
    http: RwLock<HashMap<Box<str>, Arc<Pool>>>,
    https: RwLock<HashMap<Box<str>, Arc<Pool>>>,
}

/// The idle connections to one peer.
#[derive(Debug, Default)]
pub(super) struct Pool {
    idle: Mutex<Vec<Idle>>,
    /// Sweeps so far. They serve as a clock that is free to read.
    sweeps: AtomicU32,
}

#[derive(Debug)]
struct Idle {
    link: Box<Link>,
    /// The pool's sweep count when the link came back.
    since: u32,
}

impl Pools {
    /// The pool of one address.
    pub(super) fn of(&self, address: &Address) -> Arc<Pool> {
        let pools = match address.is_tls() {
            true => &self.https,
            false => &self.http,
        };
        let authority = address.authority.as_str();
        if let Some(pool) = pools.read().get(authority) {
            return Arc::clone(pool);
        }
        let mut pools = pools.write();
        Arc::clone(pools.entry(authority.into()).or_default())
    }

    /// Closes connections that were idle for too long or that their peer has closed, and forgets
    /// peers without a connection.
    pub(super) fn sweep(&self) {
        for pools in [&self.http, &self.https] {
            let all: Vec<_> = pools.read().values().cloned().collect();
            for pool in all {
                pool.sweep();
            }
            // The table holds the only reference, so nobody else can put a connection into such a
            // pool.
            pools
                .write()
                .retain(|_, pool| Arc::strong_count(pool) > 1 || !pool.idle.lock().is_empty());
        }
    }
}

impl Pool {
    /// An idle connection that can take a request.
    pub(super) fn take(&self) -> Option<Box<Link>> {
        loop {
            let mut link = self.idle.lock().pop()?.link;
            // Nothing happened to most connections. A closed connection was woken, and so was one
            // whose peer renewed a TLS ticket.
            if !link.driven.is_woken() || link.is_reusable() {
                link.is_reused = true;
                return Some(link);
            }
        }
    }

    /// Takes back a connection after the end of its answer, if it can serve another request.
    pub(super) fn put(&self, mut link: Box<Link>) {
        if link.is_reusable() {
            self.keep(Idle {
                link,
                since: self.sweeps.load(Ordering::Relaxed),
            });
        }
    }

    fn keep(&self, idle: Idle) {
        let mut all = self.idle.lock();
        if all.len() < IDLE_MAX {
            all.push(idle);
        } else {
            drop(all);
        }
    }

    fn sweep(&self) {
        let now = self.sweeps.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let is_old = |idle: &Idle| now.wrapping_sub(idle.since) >= SWEEPS_IDLE_MAX;
        // Sockets are closed, and connections polled, outside the lock.
        let suspects: Vec<Idle> = {
            let mut all = self.idle.lock();
            let suspects = all.extract_if(.., |idle| is_old(idle) || idle.link.driven.is_woken());
            suspects.collect()
        };
        for mut idle in suspects {
            if !is_old(&idle) && idle.link.is_reusable() {
                self.keep(idle);
            }
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.idle.lock().len()
    }
}
