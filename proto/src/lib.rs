//! What crosses a process boundary. No IO, no clock.

pub mod admin;
