//! Units that an operator holds back: `_active_conns_set` makes a peer look as busy as it is told to.
//!
//! A count cannot be wrong here, because each request holds its own unit, so there is nothing to
//! repair; what is set is held beside the requests, and never below them.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use router_core::book::{Book, Ticket};
use router_core::pool::PeerKey;

use super::Route;

/// Most units in flight on a peer that may be asked for.
pub const IN_FLIGHT_MAX: u32 = 10_000;

/// What is held back on a route's peers, for the life of the process.
#[derive(Debug, Default)]
pub(super) struct HeldBack(Mutex<BTreeMap<PeerKey, Vec<Ticket>>>);

/// In flight on a peer, before and after a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InFlight {
    /// Before.
    pub before: u32,
    /// After.
    pub after: u32,
}

/// Why in-flight cannot be what is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotHeld {
    /// The route has no such peer.
    NoPeer,
    /// So many requests run on it, which end by themselves.
    Running(u32),
}

impl Route {
    /// Holds back so much of a peer, or gives so much back, that `wanted` units are in flight on it.
    ///
    /// # Errors
    /// When the route has no such peer, or more requests run on it; nothing is changed then.
    pub fn set_in_flight(&self, peer: &PeerKey, wanted: u32) -> Result<InFlight, NotHeld> {
        if !self
            .distinct_peers()
            .iter()
            .any(|one| one.spec.key == *peer)
        {
            return Err(NotHeld::NoPeer);
        }
        let mut held = self.state.held.0.lock();
        let tickets = held.entry(peer.clone()).or_default();
        let changed = self.state.change(|book, _, now| {
            let on_it = |book: &Book| book.reading(peer).map(|known| known.in_flight);
            let before = on_it(book).ok_or(NotHeld::NoPeer)?;
            let running = before.saturating_sub(count(tickets));
            if wanted < running {
                return Err(NotHeld::Running(running));
            }
            for _ in before..wanted {
                tickets.extend(book.hold_back(&self.roster, peer, now));
            }
            let kept = tickets.len().min((wanted - running) as usize);
            for ticket in tickets.drain(kept..) {
                book.release(ticket, now);
            }
            Ok(InFlight {
                before,
                after: on_it(book).unwrap_or(wanted),
            })
        });
        held.retain(|_, tickets| !tickets.is_empty());
        changed
    }

    /// Gives back what is held of one peer, or of all; answers how many units that were.
    pub fn give_back(&self, peer: Option<&PeerKey>) -> u32 {
        let mut held = self.state.held.0.lock();
        let given = match peer {
            Some(peer) => held.remove(peer).unwrap_or_default(),
            None => std::mem::take(&mut *held).into_values().flatten().collect(),
        };
        let count = count(&given);
        self.state.change(|book, _, now| {
            for ticket in given {
                book.release(ticket, now);
            }
        });
        count
    }

    /// How many units are held back on a peer.
    pub fn held_back(&self, peer: &PeerKey) -> u32 {
        self.state
            .held
            .0
            .lock()
            .get(peer)
            .map_or(0, |tickets| count(tickets))
    }

    /// Whether anything is held back on the route.
    pub fn holds_back(&self) -> bool {
        !self.state.held.0.lock().is_empty()
    }
}

fn count(tickets: &[Ticket]) -> u32 {
    u32::try_from(tickets.len()).unwrap_or(u32::MAX)
}
