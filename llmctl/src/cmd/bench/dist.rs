//! Distributions of lengths and pauses, read from one word of the command line.

use std::fmt;
use std::str::FromStr;

use rand::{Rng, RngExt as _};

/// Largest value a distribution may have: no prompt is a million tokens longer than another.
const VALUE_MAX: f64 = 1e7;

/// A distribution of non-negative numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distribution {
    /// Always the same.
    Fixed(f64),
    /// Every value between the two alike.
    Uniform(f64, f64),
    /// Mean and standard deviation; values below zero count as zero.
    Normal(f64, f64),
    /// Median and sigma of the logarithm: many short ones and a few very long ones, as people's
    /// prompts are.
    LogNormal(f64, f64),
    /// The mean; the pauses of a Poisson process.
    Exponential(f64),
}

impl Distribution {
    /// A value.
    pub fn sample(self, random: &mut impl Rng) -> f64 {
        let value = match self {
            Self::Fixed(value) => value,
            Self::Uniform(low, high) => low + (high - low) * random.random::<f64>(),
            Self::Normal(mean, deviation) => mean + deviation * standard_normal(random),
            Self::LogNormal(median, sigma) => median * (sigma * standard_normal(random)).exp(),
            // 1 - u is never 0.
            Self::Exponential(mean) => -mean * (1.0 - random.random::<f64>()).ln(),
        };
        value.clamp(0.0, VALUE_MAX)
    }

    /// A whole value of at least `min`.
    pub fn count(self, random: &mut impl Rng, min: usize) -> usize {
        (self.sample(random).round() as usize).max(min)
    }
}

/// Box and Muller's transform.
fn standard_normal(random: &mut impl Rng) -> f64 {
    let (u, v) = (1.0 - random.random::<f64>(), random.random::<f64>());
    (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(value) => write!(f, "{value}"),
            Self::Uniform(low, high) => write!(f, "uniform:{low},{high}"),
            Self::Normal(mean, deviation) => write!(f, "normal:{mean},{deviation}"),
            Self::LogNormal(median, sigma) => write!(f, "lognormal:{median},{sigma}"),
            Self::Exponential(mean) => write!(f, "exponential:{mean}"),
        }
    }
}

impl FromStr for Distribution {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "expected a number, uniform:LOW,HIGH, normal:MEAN,DEVIATION, lognormal:MEDIAN,SIGMA or \
                 exponential:MEAN, each number from 0 to {VALUE_MAX}, found `{text}`"
            )
        };
        let number = |part: &str| {
            let value: f64 = part.trim().parse().map_err(|_| wrong())?;
            match (0.0..=VALUE_MAX).contains(&value) {
                true => Ok(value),
                false => Err(wrong()),
            }
        };
        let Some((kind, numbers)) = text.split_once(':') else {
            return number(text).map(Self::Fixed);
        };
        let numbers: Vec<f64> = numbers.split(',').map(number).collect::<Result<_, _>>()?;
        match (kind, numbers.as_slice()) {
            ("uniform", &[low, high]) if low <= high => Ok(Self::Uniform(low, high)),
            ("normal", &[mean, deviation]) => Ok(Self::Normal(mean, deviation)),
            ("lognormal", &[median, sigma]) if sigma <= 10.0 => Ok(Self::LogNormal(median, sigma)),
            ("exponential", &[mean]) => Ok(Self::Exponential(mean)),
            _ => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;
    use rand::rngs::SmallRng;

    use super::*;

    #[test]
    fn each_form_is_read_and_written_alike() {
        for text in [
            "512",
            "uniform:100,900",
            "normal:512,128",
            "lognormal:400,0.8",
            "exponential:2.5",
        ] {
            let read: Distribution = text.parse().unwrap();
            assert_eq!(read.to_string(), text);
        }
        for text in [
            "",
            "-1",
            "1e9",
            "nan",
            "uniform:9,1",
            "uniform:1",
            "normal:1",
            "gamma:1,2",
            "lognormal:1,99",
        ] {
            let error = text.parse::<Distribution>().unwrap_err();
            assert!(error.contains(&format!("found `{text}`")), "{error}");
        }
    }

    #[test]
    fn samples_have_the_centre_that_was_asked_for_and_depend_on_the_seed_alone() {
        let draw = |text: &str, seed| {
            let mut random = SmallRng::seed_from_u64(seed);
            let from: Distribution = text.parse().unwrap();
            let mut values: Vec<f64> = (0..20_000).map(|_| from.sample(&mut random)).collect();
            values.sort_by(f64::total_cmp);
            values
        };
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        for (text, centre) in [
            ("512", 512.0),
            ("uniform:100,900", 500.0),
            ("normal:500,50", 500.0),
            ("exponential:20", 20.0),
        ] {
            let found = mean(&draw(text, 1));
            assert!((found / centre - 1.0).abs() < 0.05, "{text}: {found}");
        }
        let median = draw("lognormal:400,0.8", 1)[10_000];
        assert!((median / 400.0 - 1.0).abs() < 0.05, "{median}");
        assert_eq!(draw("normal:500,50", 7), draw("normal:500,50", 7));
        assert_ne!(draw("normal:500,50", 7), draw("normal:500,50", 8));
        assert!(draw("normal:1,50", 1)[0] >= 0.0);
    }
}
