//! The promises of the interface contract, checked against the real programs over real sockets.
//! Each test has its own directory, ports and engines, so order and parallelism do not matter.
#![expect(
    clippy::unwrap_used,
    reason = "the lint spares test functions only; helpers here are tests as well"
)]

mod admin;
mod aliases;
mod bodylog;
mod browsers;
mod check;
mod common;
mod connections;
mod disconnect;
mod discovery;
mod dispatch;
mod drain;
mod ejection;
mod errors;
mod fallback;
mod faults;
mod findings;
mod forms;
mod gates;
mod gpu;
mod headers;
mod health;
mod http;
mod keepalive;
mod keys;
mod limits;
mod live_load;
mod live_rules;
mod live_vectors;
mod metrics;
mod operator;
mod owners;
mod postprocess;
mod reload;
mod retries;
mod rules;
mod semantics;
mod sessions;
mod simulated;
mod smuggling;
mod stored;
mod streaming;
mod supervisor;
mod terminal;
mod transforms;
mod unread_log;
mod upstream_tls;
mod usage;
mod vectors;
mod waiting;
mod websockets;
