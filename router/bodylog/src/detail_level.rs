//! Decides how much of a record to keep when room is short. Bodies are dropped first, then headers;
//! whole records are dropped only when nothing fits any more.

/// How much of a record is kept, most detailed first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DetailLevel {
    /// Everything.
    #[default]
    Whole,
    /// No bodies.
    NoBodies,
    /// Neither bodies nor headers.
    Slim,
}

/// Percentage of memory or spool in use at which a level begins.
const NO_BODIES: (u64, u64) = (75, 80);
const SLIM: (u64, u64) = (90, 95);

impl DetailLevel {
    /// The level for the memory and, if there is one, the spool, each as (used bytes, total bytes).
    pub(crate) fn of(memory: (u64, u64), spool: Option<(u64, u64)>) -> Self {
        let is_past = |(used, max): (u64, u64), percent: u64| {
            u128::from(used) * 100 > u128::from(max) * u128::from(percent)
        };
        let short = |limits: (u64, u64)| {
            is_past(memory, limits.0) || spool.is_some_and(|spool| is_past(spool, limits.1))
        };
        match (short(NO_BODIES), short(SLIM)) {
            (_, true) => Self::Slim,
            (true, false) => Self::NoBodies,
            (false, false) => Self::Whole,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_go_first_then_headers() {
        let of = |memory, spool| DetailLevel::of((memory, 100), spool);
        assert_eq!(of(75, None), DetailLevel::Whole);
        assert_eq!(of(76, None), DetailLevel::NoBodies);
        assert_eq!(of(91, None), DetailLevel::Slim);
        assert_eq!(of(0, Some((80, 100))), DetailLevel::Whole);
        assert_eq!(of(0, Some((81, 100))), DetailLevel::NoBodies);
        assert_eq!(of(76, Some((96, 100))), DetailLevel::Slim);
    }
}
