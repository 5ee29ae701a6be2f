//! Numbers as people read them.

use std::time::Duration;

use crate::traffic::Events;

/// `80 ms`, `1.2 s`, `35 s`, `12 min`.
pub(super) fn span(span: Duration) -> String {
    let ms = span.as_millis();
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..10_000 => format!("{:.1} s", span.as_secs_f64()),
        10_000..120_000 => format!("{} s", ms / 1_000),
        _ => format!("{} min", ms / 60_000),
    }
}

/// `8 of 40`.
pub(super) fn share(events: Events) -> String {
    format!("{} of {}", events.count, events.of)
}

/// `83 %`, or nothing where there is no whole.
pub(super) fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "-".to_owned();
    }
    format!("{} %", part.saturating_mul(100) / whole)
}

/// At most 80 characters of a name that a client may have invented.
pub(super) fn clipped(name: &str) -> String {
    let mut short: String = name.chars().take(80).collect();
    if short.len() < name.len() {
        short.push('…');
    }
    short
}
