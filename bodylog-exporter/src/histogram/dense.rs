//! Sparse buckets in memory: a run of counts from the lowest used index to the highest, so that
//! counting is one step. The list of non-zero counts is stored and shown.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::BUCKETS_MAX;

/// Longest run. Measured values lie within about fifty octaves; one far away costs resolution, not
/// memory.
const WIDTH_MAX: i64 = 1024;

/// Counts by index.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Dense {
    /// Index of the first count.
    first: i32,
    counts: Vec<u64>,
    /// How many counts are above zero.
    used: usize,
}

/// The new index when two neighbouring buckets become one: bucket 0 ends at 1, so this is the
/// ceiling of half the index.
pub(super) fn halved(index: i32) -> i32 {
    (index + 1).div_euclid(2)
}

impl Dense {
    /// Whether a value in this bucket fits into the bounds.
    pub(super) fn has_room_for(&self, index: i32) -> bool {
        match self.at(index) {
            Some(at) => self.counts[at] > 0 || self.used < BUCKETS_MAX,
            None => self.used < BUCKETS_MAX && self.width_with(index) <= WIDTH_MAX,
        }
    }

    fn at(&self, index: i32) -> Option<usize> {
        let at = usize::try_from(i64::from(index) - i64::from(self.first)).ok()?;
        (at < self.counts.len()).then_some(at)
    }

    fn width_with(&self, index: i32) -> i64 {
        if self.counts.is_empty() {
            return 1;
        }
        let (index, first) = (i64::from(index), i64::from(self.first));
        let end = first + self.counts.len() as i64;
        end.max(index + 1) - first.min(index)
    }

    /// Counts one value.
    pub(super) fn add(&mut self, index: i32) {
        self.add_many(index, 1);
    }

    fn add_many(&mut self, index: i32, more: u64) {
        if self.counts.is_empty() {
            self.first = index;
        }
        if index < self.first {
            // At most the width's bound.
            let missing = self.first.abs_diff(index) as usize;
            self.counts.splice(0..0, std::iter::repeat_n(0, missing));
            self.first = index;
        }
        let at = index.abs_diff(self.first) as usize;
        if at >= self.counts.len() {
            self.counts.resize(at + 1, 0);
        }
        if self.counts[at] == 0 && more > 0 {
            self.used += 1;
        }
        self.counts[at] = self.counts[at].saturating_add(more);
    }

    /// Merges each pair of neighbouring buckets.
    pub(super) fn halve(&mut self) {
        let mut coarser = Self::default();
        for (index, count) in self.buckets() {
            coarser.add_many(halved(index), count);
        }
        *self = coarser;
    }

    /// Index and count of non-zero buckets, ascending.
    pub(super) fn buckets(&self) -> impl Iterator<Item = (i32, u64)> {
        let indexed = (self.first..).zip(self.counts.iter().copied());
        indexed.filter(|(_, count)| *count > 0)
    }
}

impl Serialize for Dense {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self.buckets())
    }
}

impl<'de> Deserialize<'de> for Dense {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let buckets = Vec::<(i32, u64)>::deserialize(from)?;
        let mut dense = Self::default();
        for &(index, count) in &buckets {
            if !dense.has_room_for(index) {
                return Err(serde::de::Error::custom("more buckets than there may be"));
            }
            dense.add_many(index, count);
        }
        if !dense.buckets().eq(buckets) {
            return Err(serde::de::Error::custom("buckets are not in order"));
        }
        Ok(dense)
    }
}
