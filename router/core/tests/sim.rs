//! A simulator: sessions arrive, engines compute, and every decision is the real book's, on a virtual
//! clock. It shows what no single decision can: that the control loops settle, that they recover, and
//! who pays in an overload.
//!
//! Each seed gives one history, the same on every machine. Bounds leave room for other histories than
//! the ones played here; the numbers of these are in each assertion's message.

#[path = "sim/adaptive.rs"]
mod adaptive;
#[path = "sim/affinity.rs"]
mod affinity;
#[path = "sim/engine.rs"]
mod engine;
#[path = "sim/gates.rs"]
mod gates;
#[path = "sim/ill.rs"]
mod ill;
#[path = "sim/policies.rs"]
mod policies;
#[path = "sim/report.rs"]
mod report;
#[path = "sim/warm_first.rs"]
mod warm_first;
#[path = "sim/world.rs"]
mod world;
