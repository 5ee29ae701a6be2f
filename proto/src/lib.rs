//! What crosses a process boundary. No IO, no clock.
//!
//! The body log: [`frame`] is the wire, [`codec`] reads and writes it, [`meta`], [`record`] and
//! [`row`] are what the frames and the stored lines say, [`layout`] is where the lines are stored.

#[cfg(test)]
extern crate self as proto;

pub mod admin;
pub mod codec;
pub mod control;
pub mod frame;
pub mod layout;
mod members;
pub mod meta;
pub mod record;
pub mod row;

#[cfg(test)]
mod losses;
