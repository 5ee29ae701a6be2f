//! The life of one request on the public port.
//!
//! `handle` strings the steps together; each step decides one thing. Nothing here touches an
//! in-flight count: the [`Reservation`](crate::state::Reservation) inside the
//! [`phase`] a request is in is released by being dropped.

mod answer;
mod backends;
mod body;
mod destination;
mod dispatch;
mod edits;
pub mod error;
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
mod relay;
mod respond;
mod rewrite;
pub mod serve;
mod shutdown_notice;
mod status;
mod unparsed;
mod write_timeout;

pub use handle::Proxy;
pub use head::HeadWatch;
pub use phase::Sinks;
pub use relay::Body;
