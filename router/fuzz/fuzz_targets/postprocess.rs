//! Arbitrary answers and streams, cut arbitrarily, through the handlers of answers.

#![no_main]

#[path = "../check.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check::postprocess(bytes));
