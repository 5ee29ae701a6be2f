//! The life of one request on the public port.
//!
//! `handle` strings the steps together; each step decides one thing. Nothing here touches an
//! in-flight count: the [`Reservation`](crate::state::Reservation) inside the
//! [`exchange::Exchange`] is released by being dropped.

mod backends;
mod body;
mod decide;
mod dispatch;
mod edits;
pub mod error;
pub mod exchange;
mod finish;
mod first_byte_timeout;
mod forward;
mod guard;
mod handle;
mod head;
mod limits;
mod lingering_close;
mod local;
mod lookup;
pub mod measure;
mod recorded;
mod relay;
mod respond;
mod rewrite;
pub mod serve;
mod shutdown_notice;
mod status;
mod unparsed;
mod write_timeout;

pub use decide::{PlacementLookups, RequestContext, is_probe, rule_against};
pub use handle::Proxy;
pub use head::HeadWatch;
pub use relay::Body;
pub use rewrite::transforms_for;
