//! `bodylog_exporter_*`: metrics about the exporter itself.

use service::connections::{Connections, Rejected};
use std::fmt;

use super::catalogue::own as families;
use super::encode::Writer;
use crate::aggregate::{BadLine, Reset};
use crate::shared::{Committed, Troubles};

pub(super) fn write(
    writer: &mut Writer<'_, '_>,
    committed: &Committed,
    troubles: Troubles,
) -> fmt::Result {
    let own = &committed.view.own;
    writer.counter(&families::LINES, own.lines)?;
    let bad = BadLine::ALL.into_iter().map(|kind| {
        let labels = [kind.as_str().into()];
        (labels, own.bad_lines.get(&kind).copied().unwrap_or(0))
    });
    writer.counters(&families::BAD_LINES, bad)?;
    writer.counter(&families::DUPLICATES, own.duplicates)?;
    let resets = Reset::ALL.into_iter().map(|cause| {
        let labels = [cause.as_str().into()];
        (labels, own.file_resets.get(&cause).copied().unwrap_or(0))
    });
    writer.counters(&families::FILE_RESETS, resets)?;
    writer.counter(&families::RECOVERY, own.recoveries)?;
    writer.counter(&families::COLD_STARTS, own.cold_starts)?;
    writer.counter(&families::CHECKPOINT_FALLBACKS, own.fallbacks)?;
    let capped = committed.view.capped.iter().map(|(label, count)| {
        let labels = [label.as_str().into()];
        (labels, *count)
    });
    writer.counters(&families::CAPPED, capped)?;
    let offset = committed
        .positions
        .newest()
        .map_or(0, |(_, position)| position.offset());
    writer.gauge(&families::OFFSET_BYTES, offset as f64)?;
    writer.gauge(&families::LAST_TS_SECONDS, seconds(own.last_end_ms))?;
    writer.gauge(&families::LAG_BYTES, committed.lag_bytes as f64)?;
    writer.gauge(
        &families::LAST_COMMIT_SECONDS,
        seconds(committed.at.wall_ms),
    )?;
    writer.gauge(
        &families::CHECKPOINT_BYTES,
        troubles.checkpoint_bytes as f64,
    )?;
    writer.counter(&families::CHECKPOINT_ERRORS, troubles.checkpoint_errors)?;
    writer.counter(&families::READ_ERRORS, troubles.read_errors)
}

/// Families that do not depend on what was counted.
pub(super) fn always(writer: &mut Writer<'_, '_>, connections: &Connections) -> fmt::Result {
    writer.gauge(&families::CONNECTIONS, connections.open() as f64)?;
    let rejected = Rejected::ALL.map(|reason| {
        let labels = [reason.as_str().into()];
        (labels, connections.rejected(reason))
    });
    writer.counters(&families::CONNECTIONS_REJECTED, rejected)?;
    writer.counter(&families::LOG_LINES_DROPPED, service::log::dropped())
}

/// How many series each family has; written last, when all are known.
pub(super) fn series(writer: &mut Writer<'_, '_>) -> fmt::Result {
    let counted = std::mem::take(&mut writer.counted);
    let series = counted.into_iter().map(|(metric, count)| {
        let labels = [metric.into()];
        (labels, count as f64)
    });
    writer.gauges(&families::SERIES, series)
}

pub(super) fn seconds(ms: i64) -> f64 {
    ms as f64 / 1000.0
}
