//! When the conversations of an open load begin. Pure.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use rand::Rng;

use super::dist::Distribution;

/// How an open load begins its conversations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrivals {
    /// Independent of each other, as those of many people.
    Poisson,
    /// At equal distances.
    Even,
    /// This many at once, at equal distances.
    Burst(u32),
}

impl Arrivals {
    /// The pause before arrival `index`, from 0, at `rate` a second.
    pub(super) fn pause(self, index: u64, rate: f64, random: &mut impl Rng) -> Duration {
        let seconds = match self {
            Self::Poisson => Distribution::Exponential(1.0 / rate).sample(random),
            Self::Even => 1.0 / rate,
            Self::Burst(size) if index.is_multiple_of(u64::from(size)) => f64::from(size) / rate,
            Self::Burst(_) => 0.0,
        };
        Duration::from_secs_f64(seconds)
    }
}

impl fmt::Display for Arrivals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Poisson => f.write_str("poisson"),
            Self::Even => f.write_str("even"),
            Self::Burst(size) => write!(f, "burst:{size}"),
        }
    }
}

impl FromStr for Arrivals {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let burst = |size: &str| {
            size.parse()
                .ok()
                .filter(|size| (1..=100_000).contains(size))
        };
        match (text, text.strip_prefix("burst:").and_then(burst)) {
            ("poisson", _) => Ok(Self::Poisson),
            ("even", _) => Ok(Self::Even),
            (_, Some(size)) => Ok(Self::Burst(size)),
            _ => Err(format!(
                "expected poisson, even, or burst:N with N from 1 to 100000, found `{text}`"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;
    use rand::rngs::SmallRng;

    use super::*;

    #[test]
    fn every_kind_keeps_the_rate() {
        for text in ["poisson", "even", "burst:50"] {
            let arrivals: Arrivals = text.parse().unwrap();
            assert_eq!(arrivals.to_string(), text);
            let mut random = SmallRng::seed_from_u64(1);
            let all: Duration = (0..10_000)
                .map(|at| arrivals.pause(at, 20.0, &mut random))
                .sum();
            assert!(
                (all.as_secs_f64() / 500.0 - 1.0).abs() < 0.03,
                "{text}: {all:?}"
            );
        }
        for text in ["burst:0", "burst:x", "never", ""] {
            assert!(
                text.parse::<Arrivals>()
                    .unwrap_err()
                    .contains(&format!("found `{text}`"))
            );
        }
    }
}
