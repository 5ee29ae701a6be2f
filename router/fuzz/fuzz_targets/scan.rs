//! Arbitrary bytes into the JSON scanner and the transforms over it.

#![no_main]

#[path = "../check.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check::scan(bytes));
