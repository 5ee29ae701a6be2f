//! What is wrong with a fleet right now.
//!
//! Requests report how they ended to a [`RouteTraffic`], which counts over the last five minutes.
//! [`judge`](judge::judge) reads those counts beside the router's state and names causes, and a
//! [`Board`] turns causes into findings that have an age and outlive their cause for a while, so
//! that a page which is looked at once a minute still shows what happened.
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

/// Events of one kind that make a finding.
pub const EVENTS_MIN: u64 = 5;

/// Samples behind a median or a hit rate that make a finding.
pub const SAMPLES_MIN: usize = 20;
