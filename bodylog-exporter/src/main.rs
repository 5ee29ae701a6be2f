//! Body-log rows in, Prometheus metrics out.

fn main() {}
