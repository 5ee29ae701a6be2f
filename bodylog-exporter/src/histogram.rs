//! A histogram whose state we own: it goes into the checkpoint and comes back from it, which the
//! metrics library's histograms cannot do.
//!
//! Every observation is counted twice: in the fixed classic buckets that the text formats show, and
//! in the sparse exponential buckets of Prometheus native histograms (schema `s` has `2^s` buckets
//! per factor of two; Prometheus `model/histogram`). When the sparse side outgrows its bound, its
//! resolution is halved, never its counts.

mod dense;
mod edges;
mod exponent;

use serde::{Deserialize, Serialize};

use dense::Dense;
pub use edges::Edges;

/// Schema a histogram starts with: buckets grow by 2^(1/8), about 9 %.
pub const SCHEMA_START: i8 = 3;

/// The coarsest schema: buckets grow by 2^16.
const SCHEMA_MIN: i8 = -4;

/// Most sparse buckets of one histogram; one more halves its resolution.
pub const BUCKETS_MAX: usize = 160;

/// Room for the classic buckets of every set of edges; those a set does not have stay zero.
const CLASSIC_MAX: usize = 20;

/// Counts of values that are not negative.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Histogram {
    schema: i8,
    sparse: Dense,
    /// Values that are zero: no sparse bucket holds them.
    zero: u64,
    /// Counts per classic bucket, not cumulative, in the order of the edges; the last holds what is
    /// above every edge. Inline: a pointer less to follow for each value.
    classic: [u64; CLASSIC_MAX],
    count: u64,
    /// As bits: decimal text would lose the last one, and a sum must never step back.
    #[serde(with = "bits")]
    sum: f64,
    /// When it was created, milliseconds since the Unix epoch.
    created_ms: i64,
}

impl Histogram {
    /// An empty one.
    pub fn new(created_ms: i64) -> Self {
        Self {
            schema: SCHEMA_START,
            sparse: Dense::default(),
            zero: 0,
            classic: [0; CLASSIC_MAX],
            count: 0,
            sum: 0.0,
            created_ms,
        }
    }

    /// Counts a value. A negative number, or what is none, is no measurement and is not counted.
    pub fn observe(&mut self, edges: Edges, value: f64) {
        if !(value >= 0.0 && value.is_finite()) {
            return;
        }
        self.count += 1;
        self.sum += value;
        let above = edges.bounds().partition_point(|edge| *edge < value);
        if let Some(bucket) = self.classic.get_mut(above) {
            *bucket += 1;
        }
        if value == 0.0 {
            self.zero += 1;
        } else {
            self.add_sparse(exponent::index(self.schema, value));
        }
    }

    fn add_sparse(&mut self, mut index: i32) {
        while !self.sparse.has_room_for(index) && self.schema > SCHEMA_MIN {
            self.schema -= 1;
            self.sparse.halve();
            index = dense::halved(index);
        }
        self.sparse.add(index);
    }

    /// Values counted.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their sum.
    pub fn sum(&self) -> f64 {
        self.sum
    }

    /// When it was created, milliseconds since the Unix epoch.
    pub fn created_ms(&self) -> i64 {
        self.created_ms
    }

    /// The exponential schema now in use, from 3 down to -4.
    pub fn schema(&self) -> i8 {
        self.schema
    }

    /// The sparse buckets: index and count, ascending, counts above zero. Bucket `i` holds values in
    /// `(2^((i-1)/2^schema), 2^(i/2^schema)]`.
    pub fn sparse(&self) -> Vec<(i32, u64)> {
        self.sparse.buckets().collect()
    }

    /// Values that are zero.
    pub fn zero(&self) -> u64 {
        self.zero
    }

    /// The classic buckets: upper edge and count, not cumulative, ascending; the last edge is
    /// infinity.
    pub fn classic(&self, edges: Edges) -> Vec<(f64, u64)> {
        let bounds = edges.bounds().iter().copied().chain([f64::INFINITY]);
        bounds.zip(self.classic.iter().copied()).collect()
    }

    /// Whether the parts agree with each other and with `edges`: what a checkpoint from outside
    /// must prove before it is believed.
    pub fn is_sound(&self, edges: Edges) -> bool {
        let beyond = &self.classic[edges.bounds().len() + 1..];
        beyond.iter().all(|count| *count == 0)
            && (SCHEMA_MIN..=SCHEMA_START).contains(&self.schema)
            && self.sum.is_finite()
            && total(self.classic.iter().copied()) == Some(self.count)
            && total(
                self.sparse
                    .buckets()
                    .map(|bucket| bucket.1)
                    .chain([self.zero]),
            ) == Some(self.count)
    }
}

/// A sum, if there is one.
fn total(mut counts: impl Iterator<Item = u64>) -> Option<u64> {
    counts.try_fold(0_u64, |sum, count| sum.checked_add(count))
}

/// A number as the 64 bits it is made of.
pub(crate) mod bits {
    use serde::{Deserialize, Deserializer, Serializer};

    // `with` modules are called with a reference.
    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "the signature serde asks for"
    )]
    pub(crate) fn serialize<S: Serializer>(value: &f64, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(value.to_bits())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
        u64::deserialize(from).map(f64::from_bits)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(values: &[f64]) -> Histogram {
        let mut histogram = Histogram::new(0);
        for value in values {
            histogram.observe(Edges::Seconds, *value);
        }
        histogram
    }

    #[test]
    fn native_bucket_indexes_at_schema_3() {
        for (value, index) in [
            (10.0, 27),
            (20.0, 35),
            (1.0, 0),
            (0.5, -8),
            (10.374_7, 27),
            (9.513_6, 26),
        ] {
            assert_eq!(of(&[value]).sparse(), [(index, 1)], "{value}");
        }
    }

    #[test]
    fn a_value_on_a_classic_edge_belongs_to_the_bucket_it_ends() {
        let histogram = of(&[0.1, 0.100_001, 1800.0, 1801.0]);
        let counted: Vec<_> = histogram
            .classic(Edges::Seconds)
            .into_iter()
            .filter(|bucket| bucket.1 > 0)
            .collect();
        assert_eq!(
            counted,
            [(0.1, 1), (0.25, 1), (1800.0, 1), (f64::INFINITY, 1)]
        );
    }

    #[test]
    fn zero_is_counted_apart() {
        let histogram = of(&[0.0, 1.0]);
        assert_eq!((histogram.zero(), histogram.count()), (1, 2));
        assert_eq!(histogram.sparse(), [(0, 1)]);
        assert_eq!(histogram.classic(Edges::Seconds)[0], (0.1, 1));
        assert!(histogram.is_sound(Edges::Seconds));
    }

    #[test]
    fn what_is_no_measurement_is_not_counted() {
        let histogram = of(&[-1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY]);
        assert_eq!(histogram.count(), 0);
        assert!(histogram.is_sound(Edges::Seconds));
    }

    #[test]
    fn too_many_buckets_halve_the_resolution_and_lose_no_count() {
        // Forty octaves at eight buckets each.
        let values: Vec<f64> = (-159..=160)
            .map(|i| 2_f64.powf(f64::from(i) / 8.0))
            .collect();
        let histogram = of(&values);
        assert_eq!(histogram.schema(), 2);
        assert!(histogram.sparse().len() <= BUCKETS_MAX);
        assert_eq!(histogram.count(), 320);
        assert!(histogram.is_sound(Edges::Seconds));
        // A halved histogram counts like one that was coarse from the start.
        let coarse = values.iter().map(|v| exponent::index(2, *v));
        let mut expected = std::collections::BTreeMap::<i32, u64>::new();
        for index in coarse {
            *expected.entry(index).or_default() += 1;
        }
        assert_eq!(histogram.sparse(), expected.into_iter().collect::<Vec<_>>());
    }

    #[test]
    fn values_far_apart_cost_resolution_and_no_memory() {
        let histogram = of(&[f64::MIN_POSITIVE, 1.0, f64::MAX]);
        assert!(histogram.schema() < SCHEMA_START);
        assert_eq!(histogram.sparse().len(), 3);
        assert!(histogram.is_sound(Edges::Seconds));
    }

    #[test]
    fn a_tampered_histogram_is_not_sound() {
        let sound = of(&[1.0, 2.0]);
        assert!(sound.is_sound(Edges::Seconds));
        assert!(
            !of(&[9000.0]).is_sound(Edges::Rate),
            "a bucket that is not there"
        );
        let mut wrong = sound.clone();
        wrong.count += 1;
        assert!(!wrong.is_sound(Edges::Seconds));
        let text = serde_json::to_string(&sound).unwrap();
        let reversed = text.replace("[[0,1],[8,1]]", "[[8,1],[0,1]]");
        assert_ne!(reversed, text);
        assert!(serde_json::from_str::<Histogram>(&reversed).is_err());
        let mut wrong = sound;
        wrong.sum = f64::NAN;
        assert!(!wrong.is_sound(Edges::Seconds));
    }

    proptest! {
        #[test]
        fn it_comes_back_from_text_bit_for_bit(values in prop::collection::vec(1e-9..1e9_f64, 0..400)) {
            let histogram = of(&values);
            let text = serde_json::to_string(&histogram).unwrap();
            prop_assert_eq!(&serde_json::from_str::<Histogram>(&text).unwrap(), &histogram);
            prop_assert!(histogram.is_sound(Edges::Seconds));
        }
    }
}
