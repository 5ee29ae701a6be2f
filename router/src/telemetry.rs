//! Telemetry of the router: counters and the `/metrics` page, events, logs, access lines.
//!
//! The request path holds an `Arc<RouteMetrics>` and passes finished numbers to it. Values of the
//! present (in-flight, limits, bans) are read when the page is requested.

pub mod access;
pub mod events;
pub mod metrics;
