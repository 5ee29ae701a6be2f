//! Measurement: one histogram per pool, signal and time window. Each completed window gives one
//! value per metric, and these values form an exponentially weighted average that expires.
//!
//! A window's quantile is within 3 % of its sample (see [`Histogram`]); its mean is exact. A window
//! is evaluated once, by the first sample or tick after its end, and only while it is recent,
//! because an old burst says nothing about now. A window without a sample has no value, which
//! differs from the value 0. Memory: one histogram and one average per metric, at any traffic.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::histogram::Histogram;
use crate::signal::{Metric, SignalSpec};

/// End of the window of `length` that contains `now`; windows are aligned to `epoch`.
pub fn window_end(epoch: Instant, length: Duration, now: Instant) -> Instant {
    let length = length.max(Duration::from_millis(1));
    let number = window_number(epoch, length, now);
    let end = (number + 1).saturating_mul(nanos(length));
    let end = epoch.checked_add(Duration::from_nanos(end));
    end.unwrap_or(now + length)
}

/// Number of windows of `length` that ended between `epoch` and `now`.
pub fn window_number(epoch: Instant, length: Duration, now: Instant) -> u64 {
    let length = length.max(Duration::from_millis(1));
    nanos(now.saturating_duration_since(epoch)) / nanos(length)
}

/// Nanoseconds, saturating at 584 years, which is as good as for ever.
fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// An average of window values, stored under its metric's name.
#[derive(Clone, Debug)]
struct Average {
    name: Arc<str>,
    value: f64,
    /// When the last window was folded in.
    folded: Instant,
}

/// The window that collects samples.
#[derive(Clone, Copy, Debug)]
struct Open {
    /// Time of its first sample.
    since: Instant,
    ends: Instant,
}

/// One signal of one pool. This state outlives a reload, so the configuration is an argument.
#[derive(Clone, Debug, Default)]
pub struct Meter {
    histogram: Histogram,
    open: Option<Open>,
    /// One per metric name that was folded and has not expired.
    averages: Vec<Average>,
}

impl Meter {
    /// Adds one sample; folds a completed window first. Ignores a sample that is not finite or is
    /// below 0.
    pub fn record(
        &mut self,
        sample: f64,
        spec: &SignalSpec,
        metrics: &[Metric],
        epoch: Instant,
        now: Instant,
    ) {
        if !(sample.is_finite() && sample >= 0.0) {
            return;
        }
        self.fold(spec, metrics, now);
        if self.open.is_none() {
            self.open = Some(Open {
                since: now,
                ends: window_end(epoch, spec.window, now),
            });
        }
        self.histogram.add(sample);
    }

    /// Folds the window that has ended, if any, once. A window that ended long ago (`ttl` after its
    /// first sample and one window length after its end) is dropped instead.
    pub fn fold(&mut self, spec: &SignalSpec, metrics: &[Metric], now: Instant) {
        let Some(open) = self.open.filter(|open| now >= open.ends) else {
            return;
        };
        let is_recent = now.saturating_duration_since(open.since) < spec.ttl
            || now.saturating_duration_since(open.ends) < spec.window;
        if is_recent {
            self.averages
                .retain(|average| is_live(average, spec.ttl, now));
            for metric in metrics {
                if let Some(value) = self.histogram.value(metric.statistic) {
                    self.blend(&metric.name, value, spec.alpha.clamp(0.0, 1.0), now);
                }
            }
        }
        self.histogram.clear();
        self.open = None;
    }

    /// The average of a metric; `None` while cold, and once `ttl` has passed since the last fold.
    pub fn ewma(&self, name: &str, ttl: Duration, now: Instant) -> Option<f64> {
        let average = self
            .averages
            .iter()
            .find(|average| *average.name == *name)?;
        is_live(average, ttl, now).then_some(average.value)
    }

    fn blend(&mut self, name: &Arc<str>, value: f64, alpha: f64, now: Instant) {
        match self
            .averages
            .iter_mut()
            .find(|average| average.name == *name)
        {
            Some(average) => {
                average.value = alpha * value + (1.0 - alpha) * average.value;
                average.folded = now;
            }
            None => self.averages.push(Average {
                name: Arc::clone(name),
                value,
                folded: now,
            }),
        }
    }
}

fn is_live(average: &Average, ttl: Duration, now: Instant) -> bool {
    now.saturating_duration_since(average.folded) < ttl
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signal::Statistic;
    use crate::testing::start;

    const SECOND: Duration = Duration::from_secs(1);

    fn metric(name: &str, statistic: Statistic) -> Metric {
        Metric {
            name: name.into(),
            statistic,
            threshold: 0.0,
        }
    }

    fn p80() -> Metric {
        metric("p80", Statistic::Quantile(0.8))
    }

    #[test]
    fn windows_are_aligned_to_the_epoch_and_not_to_traffic() {
        let epoch = start();
        let end = |s| window_end(epoch, SECOND * 20, epoch + SECOND * s) - epoch;
        assert_eq!(
            (end(0), end(19), end(20)),
            (SECOND * 20, SECOND * 20, SECOND * 40)
        );
        assert_eq!(
            window_end(epoch, Duration::ZERO, epoch),
            epoch + Duration::from_millis(1)
        );
    }

    #[test]
    fn a_window_is_judged_once_by_whoever_comes_first_after_it() {
        let (epoch, spec, metrics) = (start(), SignalSpec::default(), [p80()]);
        let mut meter = Meter::default();
        let ewma = |meter: &Meter, now| meter.ewma("p80", spec.ttl, now);
        meter.record(200.0, &spec, &metrics, epoch, epoch + SECOND);
        meter.fold(&spec, &metrics, epoch + SECOND * 19);
        assert_eq!(ewma(&meter, epoch + SECOND * 19), None, "it has not ended");
        meter.fold(&spec, &metrics, epoch + SECOND * 20);
        meter.fold(&spec, &metrics, epoch + SECOND * 40);
        assert_eq!(ewma(&meter, epoch + SECOND * 79), Some(200.0));
        assert_eq!(
            ewma(&meter, epoch + SECOND * 80),
            None,
            "60 s after the only fold"
        );
    }

    #[test]
    fn an_average_follows_its_metrics_name_and_not_its_place() {
        let (epoch, spec) = (start(), SignalSpec::default());
        let (avg, p80) = (metric("avg", Statistic::Mean), p80());
        let mut meter = Meter::default();
        meter.record(600.0, &spec, &[avg.clone(), p80.clone()], epoch, epoch);
        meter.fold(&spec, &[p80.clone(), avg.clone()], epoch + SECOND * 20);
        meter.record(
            700.0,
            &spec,
            &[p80.clone(), avg.clone()],
            epoch,
            epoch + SECOND * 21,
        );
        let renamed = metric("p99", Statistic::Quantile(0.99));
        let now = epoch + SECOND * 40;
        meter.fold(&spec, &[p80, renamed], now);
        assert_eq!(
            meter.ewma("avg", spec.ttl, now),
            Some(600.0),
            "kept, not renewed"
        );
        assert_eq!(meter.ewma("p80", spec.ttl, now), Some(630.0));
        assert_eq!(meter.ewma("p99", spec.ttl, now), Some(700.0), "starts cold");
    }

    #[test]
    fn what_is_no_number_is_left_out() {
        let (epoch, spec) = (start(), SignalSpec::default());
        let mut meter = Meter::default();
        for sample in [f64::NAN, f64::INFINITY, -1.0] {
            meter.record(sample, &spec, &[p80()], epoch, epoch);
        }
        meter.fold(&spec, &[p80()], epoch + SECOND * 20);
        assert_eq!(meter.ewma("p80", spec.ttl, epoch + SECOND * 20), None);
    }
}
