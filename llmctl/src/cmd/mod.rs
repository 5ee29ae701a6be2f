//! The commands, one module a noun.

pub mod engine;
pub mod replay;
pub mod route;
pub mod status;
pub mod up;
