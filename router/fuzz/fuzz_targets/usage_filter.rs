//! Arbitrary streams, cut arbitrarily, through the filter of usage chunks.

#![no_main]

#[path = "../check.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check::usage_filter(bytes));
