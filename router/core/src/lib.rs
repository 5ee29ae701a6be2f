//! Every decision of the router, as pure code.
//!
//! The types here know no socket, file, runtime or clock: `now` and randomness are arguments, and a
//! decision is a value. The edge (package `router`) gathers facts, calls this crate, and carries
//! out the answer. To find out *why* a request was refused or placed, read only this crate.
//!
//! - [`session`]: who is asking, and where the id came from.
//! - [`affinity`]: which peer a session belongs to.
//! - [`balance`]: which peer a request without a home gets.
//! - [`load`]: how busy a peer is, and how far that is known.
//! - [`health`]: whether a peer deserves requests, by what became of the ones it got.
//! - [`pool`]: peers, tiers, bans: who may be chosen now, and how much room there is.
//! - [`admission`]: whether a request may come in at all.
//! - [`rules`]: which requests a route refuses for what they say.
//! - [`signal`]: time to first token and decode rate: what a route says about them.
//! - [`histogram`], [`window`]: samples to averages.
//! - [`aimd`]: the limit that follows what the engines can bear.
//! - [`layered`]: runtime override, else route option, else global default; and which it was.
//! - [`decision`]: every fact a decision used.
//! - [`book`]: the one aggregate of a route: reserve, retry, release, observe.

#[macro_use]
mod words;

pub mod admission;
pub mod affinity;
pub mod aimd;
pub mod balance;
pub mod book;
pub mod decision;
pub mod health;
pub mod histogram;
pub mod layered;
pub mod load;
mod number;
pub mod pool;
pub mod rules;
pub mod session;
pub mod signal;
pub mod window;

#[cfg(test)]
mod testing;
