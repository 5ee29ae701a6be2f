//! Metric families: each is declared once, with [`families!`](crate::families!).
//!
//! The page, the labels of its series and the tables of `docs/metrics.md` come from the declaration.

pub mod reference;

use std::borrow::Cow;
use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::{Histogram, NativeHistogramConfig};
use prometheus_client::metrics::info::Info;

/// Sparse buckets of one native histogram, as client_golang's documentation suggests; beyond this
/// number the resolution halves.
const NATIVE_BUCKETS_MAX: usize = 160;

/// A histogram with classic buckets at `bounds`, and native buckets.
pub fn histogram(bounds: impl IntoIterator<Item = f64>) -> Histogram {
    let native = NativeHistogramConfig::default().max_buckets(NATIVE_BUCKETS_MAX);
    Histogram::new_classic_and_native(bounds, native)
}

/// The type of a family. The encoders append `_total` to a counter's name and `_info` to an info's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the types of Prometheus")]
pub enum Kind {
    Counter,
    Gauge,
    Histogram,
    Info,
}

impl Kind {
    fn matches(self, metric: MetricType) -> bool {
        match metric {
            MetricType::Counter => self == Self::Counter,
            MetricType::Gauge => self == Self::Gauge,
            MetricType::Histogram => self == Self::Histogram,
            MetricType::Info => self == Self::Info,
            MetricType::Unknown => false,
        }
    }
}

/// The unit of a family's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the words of `as_str`")]
pub enum Unit {
    Count,
    Seconds,
    UnixSeconds,
    Milliseconds,
    Bytes,
    Tokens,
    TokensPerSecond,
    Flag,
}

impl Unit {
    /// As the documentation shows it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Seconds => "s",
            Self::UnixSeconds => "Unix time, s",
            Self::Milliseconds => "ms",
            Self::Bytes => "bytes",
            Self::Tokens => "tokens",
            Self::TokensPerSecond => "tokens/s",
            Self::Flag => "0 or 1",
        }
    }
}

/// The declaration of one family with `N` labels.
#[derive(Clone, Copy, Debug)]
pub struct Family<const N: usize> {
    /// The name, without the suffix that its kind adds.
    pub name: &'static str,
    /// The help text.
    pub help: &'static str,
    /// The type.
    pub kind: Kind,
    /// The unit of its values.
    pub unit: Unit,
    /// The names of its labels, in the order of the page.
    pub labels: [&'static str; N],
}

/// The values of one series' labels, in the order of the declaration.
pub type Values<'a, const N: usize> = [Cow<'a, str>; N];

impl<const N: usize> Family<N> {
    /// The declaration as a row of a table.
    pub const fn entry(&'static self) -> Entry {
        Entry {
            name: self.name,
            help: self.help,
            kind: self.kind,
            unit: self.unit,
            labels: &self.labels,
        }
    }

    /// The label set of one series.
    pub fn labelled<'a>(&self, values: Values<'a, N>) -> [(&'static str, Cow<'a, str>); N] {
        let mut names = self.labels.into_iter();
        values.map(|value| (names.next().unwrap_or_default(), value))
    }

    /// Writes the family; skips a family without series.
    ///
    /// # Errors
    /// When a metric breaks the rules of the format.
    pub fn write<'a, M: EncodeMetric>(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        series: impl IntoIterator<Item = (Values<'a, N>, M)>,
    ) -> fmt::Result {
        let mut series = series.into_iter().peekable();
        let Some((_, first)) = series.peek() else {
            return Ok(());
        };
        let kind = first.metric_type();
        debug_assert!(self.kind.matches(kind), "{} is no {kind:?}", self.name);
        let mut descriptor = encoder.encode_descriptor(self.name, self.help, None, kind)?;
        series.try_for_each(|(values, metric)| {
            metric.encode(descriptor.encode_family(&self.labelled(values))?)
        })
    }
}

impl Family<0> {
    /// Writes a gauge without labels.
    ///
    /// # Errors
    /// When the metric breaks the rules of the format.
    pub fn gauge(&self, encoder: &mut DescriptorEncoder<'_>, value: f64) -> fmt::Result {
        self.write(encoder, [([], ConstGauge::new(value))])
    }

    /// Writes a counter without labels.
    ///
    /// # Errors
    /// When the metric breaks the rules of the format.
    pub fn counter(&self, encoder: &mut DescriptorEncoder<'_>, value: u64) -> fmt::Result {
        self.write(encoder, [([], ConstCounter::new(value))])
    }
}

impl Family<1> {
    /// Writes an info with one label.
    ///
    /// # Errors
    /// When the metric breaks the rules of the format.
    pub fn info(&self, encoder: &mut DescriptorEncoder<'_>, value: &'static str) -> fmt::Result {
        let info = Info::new([(self.labels[0], value)]);
        let descriptor =
            encoder.encode_descriptor(self.name, self.help, None, info.metric_type())?;
        info.encode(descriptor)
    }
}

/// One row of a table of families.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the fields of `Family`")]
pub struct Entry {
    pub name: &'static str,
    pub help: &'static str,
    pub kind: Kind,
    pub unit: Unit,
    pub labels: &'static [&'static str],
}

/// Declares families: a module with one constant for each, and `ALL`, its table.
///
/// The comment of an entry is the family's help text.
#[macro_export]
macro_rules! families {
    (
        $(#[$about:meta])*
        $vis:vis mod $table:ident {
            $(
                $(#[doc = $help:literal])+
                $NAME:ident = $kind:ident $name:literal [$($label:ident),*] $unit:ident;
            )*
        }
    ) => {
        $(#[$about])*
        $vis mod $table {
            use $crate::families::{Family, Kind, Unit};

            $(
                $(#[doc = $help])+
                pub(crate) static $NAME: Family<{ <[&str]>::len(&[$(stringify!($label)),*]) }> = Family {
                    name: $name,
                    help: concat!($($help),+).trim_ascii(),
                    kind: $crate::families!(@kind $kind),
                    unit: Unit::$unit,
                    labels: [$(stringify!($label)),*],
                };
            )*

            /// Every family, for the test that pins its table in the docs. In other builds a family
            /// that nobody writes is an unused constant.
            #[cfg(test)]
            pub(crate) static ALL: &[$crate::families::Entry] = &[$($NAME.entry()),*];
        }
    };
    (@kind counter) => { Kind::Counter };
    (@kind gauge) => { Kind::Gauge };
    (@kind histogram) => { Kind::Histogram };
    (@kind info) => { Kind::Info };
}
