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
//! ([`detail_level`]) and counted by reason ([`counters`]).
//!
//! The router hands over plain values when an exchange begins ([`Begun`]) and lends the settled
//! exchange at its end ([`Settled`]). Its metrics page reads [`BodyLog::status`].

mod budget;
mod capture;
mod clock;
mod counters;
mod detail_level;
mod exchange;
mod headers;
mod outbox;
mod pipe;
mod record;
mod sampling;
mod sender;
mod service;
mod settings;
mod spool;
mod tap;

pub use capture::Capture;
pub use counters::{Counts, Reason, RouteCounters};
pub use exchange::{Begun, BodyPath, End, Facts, PeerNames, RecordedRoute, Settled, Wanted};
pub use pipe::{BodyLog, Status};
pub use service::{Follower, Service};
pub use settings::{Settings, SpoolSettings, Target, Tls};

#[cfg(test)]
mod testing;
