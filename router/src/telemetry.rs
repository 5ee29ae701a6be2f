//! What the router says about itself: counters and the `/metrics` page, events, logs, access lines.
//!
//! The request path holds an `Arc<RouteMetrics>` and hands finished numbers over; everything that
//! describes the present (in-flight, limits, bans) is read when the page is asked for.

pub mod access;
pub mod events;
pub mod metrics;
