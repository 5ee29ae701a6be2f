//! Histograms by prompt bucket: found in one step, stored as a list of the existing ones.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::aggregate::labels::{PROMPT_BUCKETS, PromptBucket};
use crate::histogram::{Edges, Histogram};

/// One histogram per prompt bucket that had a value.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ByBucket(
    /// Empty, or [`PROMPT_BUCKETS`] long.
    Vec<Option<Box<Histogram>>>,
);

impl ByBucket {
    /// Counts a value.
    pub(super) fn observe(&mut self, bucket: PromptBucket, edges: Edges, value: f64, now_ms: i64) {
        if let Some(slot) = self.slot(bucket) {
            super::count(slot, edges, value, now_ms);
        }
    }

    /// `None` for an index that is no bucket.
    fn slot(&mut self, bucket: PromptBucket) -> Option<&mut Option<Box<Histogram>>> {
        if self.0.is_empty() {
            self.0.resize_with(usize::from(PROMPT_BUCKETS), || None);
        }
        self.0.get_mut(usize::from(bucket))
    }

    /// The existing histograms, by ascending bucket.
    pub fn iter(&self) -> impl Iterator<Item = (PromptBucket, &Histogram)> {
        let slots = (0..PROMPT_BUCKETS).zip(&self.0);
        slots.filter_map(|(bucket, slot)| Some((bucket, slot.as_deref()?)))
    }
}

impl Serialize for ByBucket {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self.iter())
    }
}

impl<'de> Deserialize<'de> for ByBucket {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let list = Vec::<(PromptBucket, Box<Histogram>)>::deserialize(from)?;
        let mut histograms = Self::default();
        for (bucket, histogram) in list {
            let slot = histograms
                .slot(bucket)
                .ok_or_else(|| serde::de::Error::custom("no such prompt bucket"))?;
            *slot = Some(histogram);
        }
        Ok(histograms)
    }
}
