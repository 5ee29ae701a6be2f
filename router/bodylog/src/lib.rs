//! The body log: records every exchange and delays none.
//!
//! ```text
//! request path                                    │ beside it
//!                                                 │
//! begin ─ request body ─ chunks ─ settle ─ offer ─┼─► queue ─► encode ─► outbox ─┬─ memory ─┬─► listener
//!  (capture)   by reference, (tap)        (record)│                 (writer)     └─ spool ──┘ (delivery)
//!              never waits                        │
//! ```
//!
//! The request path takes room from one byte budget with `try_` calls only, and offers one record
//! to a bounded queue. It does no encoding and no IO, and takes no lock that the sender holds.
//! Without a configured listener, it reads one pointer.
//!
//! The sender keeps every frame until the listener has acknowledged it: in memory while the backlog
//! is short and the listener is reachable, otherwise in the `spool`. When room is short, detail
//! is dropped in steps (`detail_level`), and losses are counted by reason (`counters`).
//!
//! The router passes plain values when an exchange begins ([`Begun`]) and lends the settled
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
pub use counters::{Counts, ListenerTrouble, Reason, RouteCounters};
pub use exchange::{Begun, BodyPath, End, Facts, PeerNames, RecordedRoute, Settled, Wanted};
pub use pipe::{BodyLog, Status};
pub use service::{Follower, Service};
pub use settings::{Settings, SpoolSettings, Target, Tls};

#[cfg(test)]
mod testing;
