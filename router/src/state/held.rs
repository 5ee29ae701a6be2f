//! Slots that an operator holds back: `_active_conns_set` makes a peer look as busy as requested.
//!
//! Each request holds its own slot, so a count cannot be wrong and needs no repair. The operator's
//! slots are held in addition to the requests, so in-flight never drops below the real number.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use router_core::book::{Book, Ticket};
use router_core::pool::PeerKey;

use super::Route;

/// Largest in-flight number that an operator may set for a peer.
pub const IN_FLIGHT_MAX: u32 = 10_000;

/// The slots held back on a route's peers, for the life of the process.
#[derive(Debug, Default)]
pub(super) struct HeldBack(Mutex<BTreeMap<PeerKey, Vec<Ticket>>>);

/// A peer's in-flight number before and after a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InFlight {
    /// Before.
    pub before: u32,
    /// After.
    pub after: u32,
}

/// Why in-flight cannot be set to the requested number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotHeld {
    /// The route has no such peer.
    NoPeer,
    /// This number of requests runs on the peer. They end by themselves.
    Running(u32),
}

impl Route {
    /// Holds back or gives back slots of a peer until `wanted` are in flight on it.
    ///
    /// # Errors
    /// The route has no such peer, or more requests run on it. Nothing is changed then.
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

    /// Gives back the slots held of one peer or of all peers. Returns their number.
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

    /// Number of slots held back on a peer.
    pub fn held_back(&self, peer: &PeerKey) -> u32 {
        self.state
            .held
            .0
            .lock()
            .get(peer)
            .map_or(0, |tickets| count(tickets))
    }

    /// Whether any slot of the route is held back.
    pub fn holds_back(&self) -> bool {
        !self.state.held.0.lock().is_empty()
    }
}

fn count(tickets: &[Ticket]) -> u32 {
    u32::try_from(tickets.len()).unwrap_or(u32::MAX)
}
