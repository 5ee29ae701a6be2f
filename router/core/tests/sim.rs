//! A simulator: sessions arrive, engines compute, and the real book makes every decision, on a
//! virtual clock. It shows properties that no single decision shows: the control loops settle and
//! recover, and it is known which requests suffer in an overload.
//!
//! Each seed gives one history, the same on every machine. The bounds leave room for other
//! histories than the ones used here; each assertion's message has the numbers of these.

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
