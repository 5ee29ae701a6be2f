//! The body log: every exchange recorded, none delayed.
//!
//! ```text
//! request path                                    │ beside it
//!                                                 │
//! begin ─ request body ─ chunks ─ settle ─ offer ─┼─► queue ─► encode ─► outbox ─┬─ memory ─┬─► listener
//!  (capture)   by reference, (tap)        (record)│                 (writer)     └─ spool ──┘ (courier)
//!              never waits                        │
//! ```
//!
//! The request path takes from one byte budget by `try_` alone, offers one record to a bounded
//! queue, and does nothing else: no encoding, no IO, no lock that the sender holds. Without a
//! configured listener it reads one pointer.
//!
//! The sender keeps every frame until the listener has acknowledged it, in memory while that is
//! short and the listener is there, else in the [`spool`]. What cannot be kept is given up in steps
//! ([`grade`]) and counted by reason ([`tally`]).

pub mod budget;
pub mod capture;
pub mod counters;
pub mod detail_level;
mod headers;
pub mod outbox;
mod overrides;
pub mod page;
mod pipe;
pub mod record;
pub mod sampling;
pub mod sender;
mod service;
pub mod spool;
pub mod tap;

pub use capture::Capture;
pub use counters::RouteTally;
pub use overrides::{CaptureOverrides, CaptureSettings};
pub use pipe::{BodyLog, Status};
pub use record::Ending;
pub use service::{Follower, Service};

#[cfg(test)]
mod testing;
