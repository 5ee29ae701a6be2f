//! Body-log rows in, Prometheus metrics out.
