//! Arbitrary bytes into the walk over a request, against `serde_json`.

#![no_main]

#[path = "../check.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check::inspect(bytes));
