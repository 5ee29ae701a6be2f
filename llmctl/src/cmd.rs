//! The commands, one module per noun.

pub mod bench;
pub mod completions;
pub mod drain;
pub mod engine;
mod fleet;
pub mod keys;
pub mod limit;
pub mod logs;
pub mod man;
mod problem;
pub mod reload;
pub mod replay;
pub mod route;
pub mod session;
mod since;
pub mod status;
pub mod toggle;
pub mod top;
pub mod up;
pub mod usage;
