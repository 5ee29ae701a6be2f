//! The simulated engine over real sockets, through its public API.

mod apis;
mod faults;
mod harness;
mod load;
mod status;
mod stored;
