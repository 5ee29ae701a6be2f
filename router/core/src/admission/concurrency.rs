//! The concurrency gate compares in-flight with the pool's limit before it counts the request.
//!
//! The same comparison over the slots of one peer says whether that peer has room.

/// Absorbs the rounding error of `limit × factor`, so that it never admits an extra request.
const TOLERANCE: f64 = 1e-9;

/// Whether a pool with `in_flight` requests may take one more under `limit × factor`.
///
/// At most `ceil(limit × factor − 1e-9)` requests run: with a limit of 2.4 the third is admitted
/// and the fourth refused.
#[inline]
pub fn admits(in_flight: u64, limit: f64, factor: f64) -> bool {
    // For a whole number k, `k < ceil(x)` and `k < x` are equivalent.
    (in_flight as f64) < limit * factor - TOLERANCE
}

/// The most requests that may run under `limit × factor`.
pub fn ceiling(limit: f64, factor: f64) -> u64 {
    // A cast of a float saturates: a negative product is 0.
    (limit * factor - TOLERANCE).ceil() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn most(limit: f64, factor: f64) -> u64 {
        let most = (0..).find(|n| !admits(*n, limit, factor)).unwrap();
        assert_eq!(most, ceiling(limit, factor));
        most
    }

    #[test]
    fn as_many_run_as_the_rounded_up_product() {
        assert_eq!(most(2.0, 1.0), 2);
        assert_eq!(most(2.4, 1.0), 3);
        assert_eq!(most(2.0, 1.5), 3);
        assert_eq!(most(1.0, 0.5), 1);
        assert_eq!(most(64.0, 0.85), 55);
    }

    #[test]
    fn rounding_of_the_product_buys_no_request() {
        // 100 × 1.1 is 110.00000000000001.
        assert_eq!(most(100.0, 1.1), 110);
        assert_eq!(most(3.0, 7.0 / 3.0), 7);
        assert_eq!(most(0.0, 1.0), 0);
    }
}
