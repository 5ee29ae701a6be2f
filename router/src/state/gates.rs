//! A route's load gates: what time moves, what an operator sets, and what they show. Every function
//! takes the route's lock once, for O(its pools) work.

use std::time::Instant;

use router_core::book::Switches;

use super::Route;
use super::route::now;

impl Route {
    /// The switches of the load gates as they are in force.
    pub fn switches(&self) -> Switches {
        Switches::DEFAULT
    }

    /// Does what time alone makes due; answers when to call again.
    pub fn tick(&self) -> Instant {
        let switches = self.switches();
        let mut inner = self.state.inner.lock();
        // Read after the lock is taken, so that a waiter does not carry an old time.
        inner.book.tick(&self.roster, switches, now())
    }
}
