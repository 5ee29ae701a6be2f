//! A log-linear histogram. Every reported value is within [`ERROR`] of a sample, over a range of
//! nine decades, in a fixed 3.5 KiB.
//!
//! Each power of two is divided into 32 buckets of equal width, as in HdrHistogram (Tene, 2012),
//! and the middle of a bucket represents it. Equal samples are reported exactly, because a value
//! never lies outside the smallest and the largest sample.

use crate::signal::Statistic;

/// Largest relative distance between a reported quantile and its sample, for samples between
/// [`LOW`] and [`HIGH`].
pub const ERROR: f64 = 1.0 / 64.0;

/// Bits of the mantissa that select a bucket: 32 buckets per power of two.
const SUB_BITS: u32 = 5;

/// Exponent of the smallest sample with its own bucket.
const LOW_EXPONENT: i32 = -4;

/// Number of powers of two that have buckets.
const OCTAVES: usize = 28;

/// Samples below this share the first bucket: a 16th of a millisecond, or of a token per second.
pub const LOW: f64 = 0.0625;

/// Samples from this value on share the last bucket: 4.6 hours, in milliseconds.
pub const HIGH: f64 = 16_777_216.0;

const BUCKETS: usize = OCTAVES << SUB_BITS;

/// Absorbs the rounding error of `total × q`, so that it never skips a sample.
const TOLERANCE: f64 = 1e-9;

/// Samples of one window. Counts saturate.
#[derive(Clone, Debug)]
pub struct Histogram {
    /// Index = bucket, ascending. Empty before the first sample, so that an unmeasured pool costs
    /// nothing.
    counts: Vec<u32>,
    total: u32,
    sum: f64,
    smallest: f64,
    largest: f64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            counts: Vec::new(),
            total: 0,
            sum: 0.0,
            smallest: f64::INFINITY,
            largest: 0.0,
        }
    }
}

impl Histogram {
    /// Adds one sample, finite and at least 0. Allocates for the first one only.
    pub fn add(&mut self, sample: f64) {
        if self.counts.is_empty() {
            self.counts.resize(BUCKETS, 0);
        }
        let count = &mut self.counts[bucket(sample)];
        *count = count.saturating_add(1);
        self.total = self.total.saturating_add(1);
        self.sum += sample;
        self.smallest = self.smallest.min(sample);
        self.largest = self.largest.max(sample);
    }

    /// Removes every sample and keeps the memory.
    pub fn clear(&mut self) {
        let mut counts = std::mem::take(&mut self.counts);
        counts.fill(0);
        *self = Self {
            counts,
            ..Self::default()
        };
    }

    /// The value of a statistic over the samples; `None` without any.
    pub fn value(&self, statistic: Statistic) -> Option<f64> {
        if self.total == 0 {
            return None;
        }
        match statistic {
            Statistic::Mean => Some(self.sum / f64::from(self.total)),
            Statistic::Quantile(q) => Some(self.quantile(q)),
        }
    }

    /// The smallest value that at least `total × q` samples do not exceed.
    fn quantile(&self, q: f64) -> f64 {
        let needed = f64::from(self.total) * q - TOLERANCE;
        let mut seen = 0.0;
        let reaches = |count: &u32| {
            seen += f64::from(*count);
            *count > 0 && seen >= needed
        };
        let bucket = self.counts.iter().position(reaches);
        let value = bucket.map_or(self.largest, middle);
        value.clamp(self.smallest, self.largest)
    }
}

/// The bucket of a sample: its exponent and the first bits of its mantissa. Together these are the
/// leading bits of the number.
fn bucket(sample: f64) -> usize {
    let sample = sample.clamp(LOW, HIGH);
    let leading = sample.to_bits() >> (52 - SUB_BITS);
    let lowest = LOW.to_bits() >> (52 - SUB_BITS);
    usize::try_from(leading - lowest).map_or(BUCKETS - 1, |bucket| bucket.min(BUCKETS - 1))
}

/// The middle of a bucket.
fn middle(bucket: usize) -> f64 {
    let octave = (bucket >> SUB_BITS) as i32 + LOW_EXPONENT;
    let within = (bucket & ((1 << SUB_BITS) - 1)) as f64;
    let width = 1.0 / f64::from(1_u32 << SUB_BITS);
    2_f64.powi(octave) * (1.0 + (within + 0.5) * width)
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    fn of(samples: &[f64]) -> Histogram {
        let mut histogram = Histogram::default();
        samples.iter().for_each(|sample| histogram.add(*sample));
        histogram
    }

    #[test]
    fn every_quantile_is_within_three_percent_of_the_sample_it_stands_for() {
        let mut rng = StdRng::seed_from_u64(5);
        for _ in 0..200 {
            let decades = rng.random_range(0.1..7.0);
            let draw = |_| 10_f64.powf(rng.random_range(-1.0..-1.0 + decades));
            let mut samples: Vec<f64> = (0..rng_len(decades)).map(draw).collect();
            let histogram = of(&samples);
            samples.sort_by(f64::total_cmp);
            for percent in 1..=100 {
                let q = f64::from(percent) / 100.0;
                let nth = (samples.len() as f64 * q - TOLERANCE).ceil() as usize;
                let truth = samples[nth.max(1) - 1];
                let found = histogram.value(Statistic::Quantile(q)).unwrap();
                let error = (found - truth).abs() / truth;
                assert!(error <= ERROR, "p{percent}: {found} for {truth}");
            }
        }
        const { assert!(ERROR < 0.03) };
    }

    fn rng_len(decades: f64) -> usize {
        1 + (decades * 40.0) as usize
    }

    #[test]
    fn equal_samples_and_the_mean_read_exact() {
        let histogram = of(&[20.0, 20.0, 20.0]);
        assert_eq!(histogram.value(Statistic::Quantile(0.8)), Some(20.0));
        assert_eq!(of(&[10.0, 20.0, 60.0]).value(Statistic::Mean), Some(30.0));
        assert_eq!(Histogram::default().value(Statistic::Mean), None);
    }

    #[test]
    fn samples_outside_the_range_count_at_its_ends() {
        let histogram = of(&[0.0, 0.0, 1e12]);
        assert!(histogram.value(Statistic::Quantile(0.5)).unwrap() <= 2.0 * LOW);
        assert!(histogram.value(Statistic::Quantile(1.0)).unwrap() >= HIGH / 2.0);
    }

    #[test]
    fn a_cleared_histogram_is_empty_and_keeps_its_memory() {
        let mut histogram = of(&[1.0, 2.0]);
        histogram.clear();
        assert_eq!(histogram.value(Statistic::Quantile(0.5)), None);
        assert_eq!(histogram.counts.len(), BUCKETS);
        histogram.add(7.0);
        assert_eq!(histogram.value(Statistic::Quantile(0.1)), Some(7.0));
    }
}
