//! The life of one request on the public port.
//!
//! `handle` runs the steps in order; each step makes one decision. No code here changes an
//! in-flight count: the [`Reservation`](crate::state::Reservation) inside the current `phase` of
//! a request releases its slot when it is dropped.

mod answer;
mod backends;
mod body;
mod cors;
mod destination;
mod dispatch;
mod early;
mod edits;
pub mod error;
mod exchange;
mod fallback;
mod finish;
mod first_byte_timeout;
mod forward;
mod guard;
mod handle;
mod head;
mod inspect;
mod limits;
mod lingering_close;
mod local;
mod lookup;
mod measure;
mod phase;
mod place;
mod query_model;
mod relay;
mod respond;
mod rewrite;
pub mod serve;
mod shutdown_notice;
mod status;
mod stored;
mod timer;
mod tunnel;
mod unparsed;
mod unwritten;
mod upload;
mod write_timeout;

pub use handle::Proxy;
pub use head::HeadWatch;
pub use phase::Sinks;
pub use relay::Body;
