//! Turns a frame of arbitrary parts into its two lines.

#![no_main]

#[path = "../check.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check::record(bytes));
