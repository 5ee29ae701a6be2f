//! The body log's families of the metrics page. Every series exists, at zero, from the start.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::counter::ConstCounter;
use router_bodylog::Reason;
use router_bodylog::Status;

use super::catalogue::router;

/// Writes the families.
pub(super) fn families(encoder: &mut DescriptorEncoder<'_>, status: &Status) -> fmt::Result {
    let counts = &status.counts;
    let dropped: u64 = counts.dropped.iter().sum();
    let results = [
        ("queued", counts.queued),
        ("acked", counts.acked),
        ("dropped", dropped),
    ];
    router::BODYLOG_CAPTURE_FRAMES.write(
        encoder,
        results.map(|(result, count)| ([result.into()], ConstCounter::new(count))),
    )?;
    let reasons = Reason::ALL.into_iter().zip(counts.dropped);
    router::BODYLOG_CAPTURE_DROPPED.write(
        encoder,
        reasons.map(|(reason, count)| ([reason.as_str().into()], ConstCounter::new(count))),
    )?;
    router::BODYLOG_CAPTURE_SHED.counter(encoder, counts.shed)?;
    router::BODYLOG_CAPTURE_RECONNECTS.counter(encoder, counts.reconnects)?;
    router::BODYLOG_CAPTURE_CONNECTED.gauge(encoder, f64::from(u8::from(counts.is_connected)))?;
    if let Some(is_up) = status.is_spool_up {
        router::BODYLOG_SPOOL_UP.gauge(encoder, f64::from(u8::from(is_up)))?;
    }
    router::BODYLOG_SPOOL_DAMAGED_BYTES.counter(encoder, counts.damaged_bytes)?;
    router::BODYLOG_CAPTURE_SPOOL_BYTES.gauge(encoder, status.spool_bytes as f64)?;
    router::BODYLOG_CAPTURE_SPOOL_LIMIT_BYTES.gauge(encoder, status.spool_limit_bytes as f64)?;
    router::BODYLOG_CAPTURE_MEMORY_BYTES.gauge(encoder, status.inflight_bytes as f64)?;
    router::BODYLOG_CAPTURE_MEMORY_LIMIT_BYTES.gauge(encoder, status.memory_limit_bytes as f64)?;
    router::BODYLOG_CAPTURE_UNACKED_AGE_SECONDS.gauge(encoder, status.unacked_age.as_secs_f64())?;
    router::BODYLOG_CAPTURE_ACK_SECONDS.write(encoder, [([], counts.ack_seconds.clone())])
}
