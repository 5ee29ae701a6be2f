//! The parts that every family is made of.

use std::fmt;
use std::time::{Duration, UNIX_EPOCH};

use prometheus_client::encoding::{
    DescriptorEncoder, EncodeLabelSet, EncodeMetric, MetricEncoder, NativeHistogram,
    NativeHistogramBuckets, NoLabelSet,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use service::families::{Family, Values};

use crate::histogram::{Edges, Histogram};

/// Values below this lie in the zero bucket of a native histogram: client_golang's default, 2^-128.
const ZERO_THRESHOLD: f64 = 2.938_735_877_055_719e-39;

/// Writes families, and remembers how many series each has.
#[derive(Debug)]
pub(super) struct Writer<'e, 'd> {
    encoder: &'e mut DescriptorEncoder<'d>,
    /// Stored names with their number of series.
    pub(super) counted: Vec<(String, usize)>,
    /// The format is OpenMetrics.
    is_open_metrics: bool,
}

impl<'e, 'd> Writer<'e, 'd> {
    pub(super) fn new(encoder: &'e mut DescriptorEncoder<'d>, is_open_metrics: bool) -> Self {
        Self {
            encoder,
            counted: Vec::new(),
            is_open_metrics,
        }
    }

    /// A family of counters.
    pub(super) fn counters<'a, const N: usize>(
        &mut self,
        family: &Family<N>,
        series: impl IntoIterator<Item = (Values<'a, N>, u64)>,
    ) -> fmt::Result {
        let series = series
            .into_iter()
            .map(|(values, count)| (family.labelled(values), ConstCounter::new(count)));
        self.family(family.name, "_total", family.help, series)
    }

    /// A family of counters whose name, without `_total`, is also a histogram's. OpenMetrics names
    /// families without the suffix and allows a name once; there these are of unknown type, under
    /// the name that their samples have everywhere.
    pub(super) fn counters_beside_a_histogram<'a, const N: usize>(
        &mut self,
        family: &Family<N>,
        series: impl IntoIterator<Item = (Values<'a, N>, u64)>,
    ) -> fmt::Result {
        if !self.is_open_metrics {
            return self.counters(family, series);
        }
        let series = series
            .into_iter()
            .map(|(values, count)| (family.labelled(values), Untyped(count)));
        self.family(&format!("{}_total", family.name), "", family.help, series)
    }

    /// A family of gauges.
    pub(super) fn gauges<'a, const N: usize>(
        &mut self,
        family: &Family<N>,
        series: impl IntoIterator<Item = (Values<'a, N>, f64)>,
    ) -> fmt::Result {
        let series = series
            .into_iter()
            .map(|(values, value)| (family.labelled(values), ConstGauge::new(value)));
        self.family(family.name, "", family.help, series)
    }

    /// One unlabelled counter.
    pub(super) fn counter(&mut self, family: &Family<0>, value: u64) -> fmt::Result {
        self.counters(family, [([], value)])
    }

    /// One unlabelled gauge.
    pub(super) fn gauge(&mut self, family: &Family<0>, value: f64) -> fmt::Result {
        self.gauges(family, [([], value)])
    }

    /// A family of histograms.
    pub(super) fn histograms<'a, const N: usize>(
        &mut self,
        family: &Family<N>,
        edges: Edges,
        series: impl IntoIterator<Item = (Values<'a, N>, &'a Histogram)>,
    ) -> fmt::Result {
        let series = series
            .into_iter()
            .map(|(values, histogram)| (family.labelled(values), Shown { histogram, edges }));
        self.family(family.name, "", family.help, series)
    }

    /// Writes one family; nothing if it has no series.
    pub(super) fn family<L: EncodeLabelSet, M: EncodeMetric>(
        &mut self,
        name: &str,
        suffix: &str,
        help: &str,
        series: impl IntoIterator<Item = (L, M)>,
    ) -> fmt::Result {
        let mut series = series.into_iter().peekable();
        let Some((_, first)) = series.peek() else {
            return Ok(());
        };
        let mut descriptor =
            self.encoder
                .encode_descriptor(name, help, None, first.metric_type())?;
        let mut count = 0;
        for (labels, metric) in series {
            metric.encode(descriptor.encode_family(&labels)?)?;
            count += 1;
        }
        self.counted.push((format!("{name}{suffix}"), count));
        Ok(())
    }
}

/// A number without a type.
#[derive(Debug)]
struct Untyped(u64);

impl EncodeMetric for Untyped {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        // The encoders write a gauge as the bare name and value, which is what an untyped sample is.
        encoder.encode_gauge(&self.0)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Unknown
    }
}

/// A histogram for the encoders: protobuf shows its native and its classic buckets, the text
/// formats the classic ones.
#[derive(Debug)]
struct Shown<'h> {
    histogram: &'h Histogram,
    edges: Edges,
}

impl EncodeMetric for Shown<'_> {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let Self { histogram, edges } = self;
        let (spans, deltas) = spans(&histogram.sparse());
        let none = NativeHistogramBuckets {
            spans: &[],
            deltas: &[],
        };
        let created = u64::try_from(histogram.created_ms())
            .ok()
            .map(|ms| UNIX_EPOCH + Duration::from_millis(ms));
        encoder.encode_histogram_with_native::<NoLabelSet>(
            histogram.sum(),
            histogram.count(),
            &histogram.classic(*edges),
            None,
            NativeHistogram {
                schema: i32::from(histogram.schema()),
                zero_threshold: ZERO_THRESHOLD,
                zero_count: histogram.zero(),
                negative: none,
                positive: NativeHistogramBuckets {
                    spans: &spans,
                    deltas: &deltas,
                },
                created,
            },
        )
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

/// Sparse buckets as runs: each run's offset from the end of the previous run, its length, and each
/// count as a difference to the previous one. One or two empty buckets are cheaper written out than
/// as another run (client_golang's rule).
fn spans(sparse: &[(i32, u64)]) -> (Vec<(i32, u32)>, Vec<i64>) {
    const GAP_WRITTEN_OUT: i32 = 2;
    let mut spans: Vec<(i32, u32)> = Vec::new();
    let mut deltas = Vec::with_capacity(sparse.len());
    let mut before = 0_i64;
    let mut next = 0;
    for &(index, count) in sparse {
        let gap = index.saturating_sub(next);
        match spans.last_mut() {
            Some(last) if gap <= GAP_WRITTEN_OUT => {
                for _ in 0..gap {
                    deltas.push(-before);
                    before = 0;
                    last.1 += 1;
                }
                last.1 += 1;
            }
            // The first run's offset is its absolute index.
            _ => spans.push((gap, 1)),
        }
        // Counts stay far below 2^63.
        let count = count as i64;
        deltas.push(count - before);
        before = count;
        next = index + 1;
    }
    (spans, deltas)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decodes runs and differences as a reader does.
    fn read(spans: &[(i32, u32)], deltas: &[i64]) -> Vec<(i32, u64)> {
        let mut found = Vec::new();
        let (mut index, mut count) = (0, 0);
        let mut deltas = deltas.iter();
        for (offset, length) in spans {
            index += offset;
            for _ in 0..*length {
                count += deltas.next().unwrap();
                if count > 0 {
                    found.push((index, u64::try_from(count).unwrap()));
                }
                index += 1;
            }
        }
        assert_eq!(deltas.next(), None);
        found
    }

    #[test]
    fn runs_and_differences_say_the_same_as_the_buckets() {
        for sparse in [
            vec![],
            vec![(-8, 3)],
            vec![
                (-9, 1),
                (-8, 5),
                (-6, 2),
                (-3, 7),
                (27, 1),
                (28, 1),
                (35, 9),
            ],
            vec![(0, 1), (3, 1), (7, 1)],
        ] {
            let (spans, deltas) = spans(&sparse);
            assert_eq!(read(&spans, &deltas), sparse);
        }
        assert_eq!(spans(&[(1, 4), (3, 4), (9, 2)]).0, [(1, 3), (5, 1)]);
    }
}
