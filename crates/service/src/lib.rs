//! Code that every program of the workspace needs. The programs keep only their own parts.
//!
//! The modules are independent: a program uses those that it needs.

pub mod accept;
pub mod budget;
pub mod buffers;
pub mod cli;
pub mod clock;
pub mod connections;
pub mod exposition;
pub mod families;
pub mod files;
pub mod framing;
pub mod healthcheck;
pub mod http;
pub mod limits;
pub mod listener;
pub mod log;
pub mod renewed;
pub mod signals;
pub mod supervisor;
pub mod tls;
