//! The body log's families of the metrics page. Every series exists, at zero, from the start.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::counter::ConstCounter;
use router_bodylog::Reason;
use router_bodylog::Status;

use super::{Labels, family, gauge};

/// Writes the families.
pub(super) fn families(encoder: &mut DescriptorEncoder<'_>, status: &Status) -> fmt::Result {
    let counts = &status.counts;
    let dropped: u64 = counts.dropped.iter().sum();
    let results = [
        ("queued", counts.queued),
        ("acked", counts.acked),
        ("dropped", dropped),
    ];
    family(
        encoder,
        "llm_router_bodylog_capture_frames",
        "Records of exchanges: queued for delivery, stored by the listener, lost before or after they were queued.",
        results.map(|(result, count)| (vec![("result", result.into())], ConstCounter::new(count))),
    )?;
    let reasons = Reason::ALL.into_iter().zip(counts.dropped);
    family(
        encoder,
        "llm_router_bodylog_capture_dropped",
        "Records lost, by reason.",
        reasons.map(|(reason, count)| {
            let labels: Labels<'_> = vec![("reason", reason.as_str().into())];
            (labels, ConstCounter::new(count))
        }),
    )?;
    counter(
        encoder,
        "llm_router_bodylog_capture_shed",
        "Records queued without bodies or headers for want of room.",
        counts.shed,
    )?;
    counter(
        encoder,
        "llm_router_bodylog_capture_reconnects",
        "Connections to the listener that were tried after the first.",
        counts.reconnects,
    )?;
    gauge(
        encoder,
        "llm_router_bodylog_capture_connected",
        "1 while the listener is connected.",
        f64::from(u8::from(counts.is_connected)),
    )?;
    if let Some(is_up) = status.is_spool_up {
        gauge(
            encoder,
            "llm_router_bodylog_spool_up",
            "1 while the configured spool is open, 0 while records wait in memory only; absent without a spool.",
            f64::from(u8::from(is_up)),
        )?;
    }
    counter(
        encoder,
        "llm_router_bodylog_spool_damaged_bytes",
        "Bytes of spool segments that could not be read as frames.",
        counts.damaged_bytes,
    )?;
    gauge(
        encoder,
        "llm_router_bodylog_capture_spool_bytes",
        "Bytes on disk that wait for the listener.",
        status.spool_bytes as f64,
    )?;
    gauge(
        encoder,
        "llm_router_bodylog_capture_spool_limit_bytes",
        "Most bytes that may wait on disk; 0 without a spool.",
        status.spool_limit_bytes as f64,
    )?;
    gauge(
        encoder,
        "llm_router_bodylog_capture_memory_bytes",
        "Bytes that records hold in memory.",
        status.inflight_bytes as f64,
    )?;
    gauge(
        encoder,
        "llm_router_bodylog_capture_memory_limit_bytes",
        "Most bytes that records may hold in memory.",
        status.memory_limit_bytes as f64,
    )?;
    gauge(
        encoder,
        "llm_router_bodylog_capture_unacked_age_seconds",
        "How long the oldest record that is not acknowledged has waited.",
        status.unacked_age.as_secs_f64(),
    )?;
    family(
        encoder,
        "llm_router_bodylog_capture_ack_seconds",
        "From sending a record to its acknowledgement, the longest wait of each acknowledgement.",
        [(Labels::new(), counts.ack_seconds.clone())],
    )
}

fn counter(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: u64) -> fmt::Result {
    family(
        encoder,
        name,
        help,
        [(Labels::new(), ConstCounter::new(value))],
    )
}
