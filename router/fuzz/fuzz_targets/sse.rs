//! Arbitrary streams, cut arbitrarily, into the line splitter and the event reader.

#![no_main]

#[path = "../check.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check::sse(bytes));
