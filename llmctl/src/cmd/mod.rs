//! The commands, one module a noun.

pub mod engine;
mod fleet;
pub mod limit;
pub mod logs;
pub mod replay;
pub mod route;
pub mod status;
pub mod toggle;
pub mod up;
