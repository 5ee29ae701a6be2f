//! Every decision of the router, as pure code.
//!
//! The types here know no socket, file, runtime or clock: `now` and randomness are arguments, and a
//! decision is a value. The edge (package `router`) gathers facts, calls this crate, and carries
//! out the answer. To find out *why* a request was refused or placed, read only this crate.
//!
//! - [`session`]: the session of a request, and the source of its id.
//! - [`affinity`]: the peer of a session.
//! - [`balance`]: the peer of a request without a home peer.
//! - [`load`]: the load of a peer, and how far it can be trusted.
//! - [`health`]: whether a peer may get requests, from the outcomes of earlier ones.
//! - [`pool`]: peers, tiers, bans: which peers may be chosen now, and the room.
//! - [`admission`]: whether a request may come in at all.
//! - [`rules`]: content rules, which refuse requests because of their body.
//! - [`signal`]: a route's options for time to first token and decode rate.
//! - [`histogram`], [`window`]: from samples to averages.
//! - [`aimd`]: the limit that adapts to the capacity of the engines.
//! - [`layered`]: runtime override, else route option, else global default, with the layer.
//! - [`stored`]: where the objects live that engines store.
//! - [`decision`]: every fact that a decision used.
//! - [`book`]: the single aggregate of a route: reserve, retry, release, observe.

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
pub mod stored;
pub mod window;

#[cfg(test)]
mod testing;
