//! Finds current problems of a fleet.
//!
//! Requests report their end to a [`RouteTraffic`], which counts over the last five minutes.
//! [`judge`] combines those counts with the router's state into causes. A [`Board`]
//! turns causes into findings, which have an age and outlive their cause for a while, so that a
//! person who looks once a minute still sees what happened.
//!
//! Pure: time is an argument, and nothing here does IO.

mod board;
pub mod judge;
mod sessions;
mod traffic;
mod window;

pub use board::{Board, Wall};
pub use judge::Cause;
pub use traffic::{Ended, PeerTraffic, Refused, RouteTraffic, Trouble};
pub use window::SPAN;

/// Minimum number of events of one kind for a finding.
pub const EVENTS_MIN: u64 = 5;

/// Minimum number of samples behind a median or a hit rate for a finding.
pub const SAMPLES_MIN: usize = 20;
