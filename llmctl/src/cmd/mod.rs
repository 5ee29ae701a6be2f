//! The commands, one module a noun.

pub mod replay;
