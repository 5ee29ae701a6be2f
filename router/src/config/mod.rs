//! Configuration: raw files, checked into valid types, with every problem of every file reported.

pub mod valid;
