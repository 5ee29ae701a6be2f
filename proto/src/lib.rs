//! Data that crosses a process boundary. No IO, no clock.
//!
//! The body log: [`frame`] is the wire format and [`codec`] reads and writes it. [`meta`],
//! [`record`] and [`row`] are the content of the frames and of the stored lines, and [`layout`] is
//! the place of the lines.

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

#[cfg(test)]
mod reference;
