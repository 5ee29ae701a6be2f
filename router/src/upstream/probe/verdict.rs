//! Maps the outcome of a probe to a verdict.

use router_core::pool::Evidence;

/// How a probe ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The peer answered with this status.
    Status(u16),
    /// No answer within `health_timeout`, connecting included.
    TimedOut,
    /// The peer refused, is unreachable, does not resolve, fails TLS, closed the connection, or
    /// does not speak HTTP.
    Failed,
}

/// 2xx is healthy. 429 means busy and a late answer silent: neither changes a ban, so that a loaded
/// engine is not taken for a dead one. Anything else, redirects included, is a failure.
pub fn verdict(outcome: Outcome) -> Evidence {
    match outcome {
        Outcome::Status(200..=299) => Evidence::Healthy,
        Outcome::Status(429) => Evidence::Busy,
        Outcome::TimedOut => Evidence::Silent,
        Outcome::Status(_) => Evidence::Failed,
        Outcome::Failed => Evidence::Unreachable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_has_one_verdict() {
        for status in [200, 204, 299] {
            assert_eq!(
                verdict(Outcome::Status(status)),
                Evidence::Healthy,
                "{status}"
            );
        }
        assert_eq!(verdict(Outcome::Status(429)), Evidence::Busy);
        assert_eq!(verdict(Outcome::TimedOut), Evidence::Silent);
        for status in [
            100, 199, 300, 301, 401, 403, 404, 408, 428, 430, 500, 503, 599,
        ] {
            assert_eq!(
                verdict(Outcome::Status(status)),
                Evidence::Failed,
                "{status}"
            );
        }
        assert_eq!(verdict(Outcome::Failed), Evidence::Unreachable);
    }
}
