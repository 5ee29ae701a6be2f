//! `bodylog_exporter_*`: metrics about the exporter itself.

use std::fmt;

use super::encode::{Labels, Writer};
use crate::aggregate::{BadLine, Reset};
use crate::shared::{Committed, Troubles};

pub(super) fn write(
    writer: &mut Writer<'_, '_>,
    committed: &Committed,
    troubles: Troubles,
) -> fmt::Result {
    let own = &committed.view.own;
    writer.counter(
        "bodylog_exporter_lines",
        "Lines read, bad ones included.",
        own.lines,
    )?;
    let bad = BadLine::ALL.into_iter().map(|kind| {
        let labels: Labels<'_> = vec![("kind", kind.as_str().into())];
        (labels, own.bad_lines.get(&kind).copied().unwrap_or(0))
    });
    writer.counters(
        "bodylog_exporter_bad_lines",
        "Lines that were not counted as rows.",
        bad,
    )?;
    writer.counter(
        "bodylog_exporter_duplicates",
        "Rows that had been counted before.",
        own.duplicates,
    )?;
    let resets = Reset::ALL.into_iter().map(|cause| {
        let labels: Labels<'_> = vec![("cause", cause.as_str().into())];
        (labels, own.file_resets.get(&cause).copied().unwrap_or(0))
    });
    writer.counters(
        "bodylog_exporter_file_resets",
        "Files that had to be taken up anew.",
        resets,
    )?;
    writer.counter(
        "bodylog_exporter_recovery",
        "Hours that were closed and compressed before they were read to their end.",
        own.recoveries,
    )?;
    writer.counter(
        "bodylog_exporter_cold_starts",
        "Starts without a checkpoint.",
        own.cold_starts,
    )?;
    writer.counter(
        "bodylog_exporter_checkpoint_fallbacks",
        "Starts from the older checkpoint.",
        own.fallbacks,
    )?;
    let capped = committed.view.capped.iter().map(|(label, count)| {
        let labels: Labels<'_> = vec![("label", label.as_str().into())];
        (labels, *count)
    });
    writer.counters(
        "bodylog_exporter_capped",
        "Rows whose label value had no place and became other.",
        capped,
    )?;
    let offset = committed
        .positions
        .newest()
        .map_or(0, |(_, position)| position.offset());
    writer.gauge(
        "bodylog_exporter_offset_bytes",
        "Bytes read of the newest hour.",
        offset as f64,
    )?;
    writer.gauge(
        "bodylog_exporter_last_ts_seconds",
        "End of the newest row, Unix time.",
        seconds(own.last_end_ms),
    )?;
    writer.gauge(
        "bodylog_exporter_lag_bytes",
        "Bytes not read yet, about.",
        committed.lag_bytes as f64,
    )?;
    writer.gauge(
        "bodylog_exporter_last_commit_seconds",
        "When counts were last safe on disk, Unix time.",
        seconds(committed.at.wall_ms),
    )?;
    writer.gauge(
        "bodylog_exporter_checkpoint_bytes",
        "Size of the checkpoint.",
        troubles.checkpoint_bytes as f64,
    )?;
    writer.counter(
        "bodylog_exporter_checkpoint_errors",
        "Checkpoints that could not be written, since the start.",
        troubles.checkpoint_errors,
    )?;
    writer.counter(
        "bodylog_exporter_read_errors",
        "Hours or directories that could not be read, since the start.",
        troubles.read_errors,
    )
}

/// Families that do not depend on what was counted.
pub(super) fn always(writer: &mut Writer<'_, '_>) -> fmt::Result {
    writer.counter(
        "bodylog_exporter_log_lines_dropped",
        "Log lines lost because their reader was too slow or gone.",
        service::log::dropped(),
    )
}

/// How many series each family has; written last, when all are known.
pub(super) fn series(writer: &mut Writer<'_, '_>) -> fmt::Result {
    let counted = std::mem::take(&mut writer.counted);
    let series = counted.into_iter().map(|(metric, count)| {
        let labels: Labels<'_> = vec![("metric", metric.into())];
        (labels, count as f64)
    });
    writer.gauges(
        "bodylog_exporter_series",
        "Series on this page, by metric; a histogram is one.",
        series,
    )
}

pub(super) fn seconds(ms: i64) -> f64 {
    ms as f64 / 1000.0
}
