//! Encodes records as frames. Blocks the thread: JSON, checksums and compression of megabytes.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use proto::frame::{Compression, EncodeError, Flags, MAX_META, Outgoing};

use super::Shared;
use crate::clock::now;
use crate::counters::Reason;
use crate::detail_level::DetailLevel;
use crate::outbox::{Origin, Unnumbered};
use crate::record::Record;

/// The share of one core that compression may use, and the seconds of compression that may be saved
/// up. Compression saves network traffic but takes CPU time from requests: with a quarter of a
/// core, it was half of the cost of recording.
const PACK_SHARE: f64 = 0.1;
const PACK_SAVED_MAX: f64 = 0.25;

/// The time budget for compression: a tenth of one core on average.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowance {
    at: Instant,
    /// Seconds. Negative after a large frame; nothing is compressed until it is positive again.
    saved: f64,
}

impl Allowance {
    /// A full allowance.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            at: now,
            saved: PACK_SAVED_MAX,
        }
    }

    fn may(&mut self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.at = now;
        self.saved = (self.saved + passed * PACK_SHARE).min(PACK_SAVED_MAX);
        self.saved > 0.0
    }

    fn took(&mut self, time: Duration) {
        self.saved -= time.as_secs_f64();
    }
}

/// Encodes records in order. Records that do not fit into any frame are counted as lost.
pub(super) fn encode(
    records: Vec<Record>,
    shared: &Shared,
    allowance: &mut Allowance,
) -> Vec<Unnumbered> {
    let mut frames = Vec::with_capacity(records.len());
    for record in records {
        let route = record.counters();
        match one(record, shared, allowance) {
            Ok(frame) => frames.push(frame),
            Err(reason) => {
                shared.counters.dropped(reason, 1);
                route.dropped();
            }
        }
    }
    frames
}

fn one(
    mut record: Record,
    shared: &Shared,
    allowance: &mut Allowance,
) -> Result<Unnumbered, Reason> {
    let grade = shared.grade();
    if grade >= DetailLevel::NoBodies {
        record.shed_bodies();
    }
    if grade >= DetailLevel::Slim {
        record.shed_headers();
    }
    let max_frame = shared.max_frame.load(Ordering::Relaxed) as usize;
    let bytes = match frame(&mut record, shared, allowance, max_frame) {
        Err(EncodeError::TooLarge(_)) => {
            record.shed_bodies();
            frame(&mut record, shared, allowance, max_frame)
        }
        done => done,
    };
    let bytes = bytes.map_err(|error| match error {
        EncodeError::Meta(_) => Reason::Meta,
        EncodeError::TooLarge(_) | EncodeError::Unknown => Reason::Encode,
    })?;
    let origin = Origin {
        route: record.counters(),
        unix_ms: u64::try_from(record.unix_ms()).unwrap_or_default(),
        is_shed: record.is_shed(),
    };
    let (mut charge, request) = record.into_parts();
    if let Some(request) = request {
        shared.buffers.give(request);
    }
    charge.become_bytes(bytes.len());
    Ok(Unnumbered {
        bytes,
        charge,
        origin,
    })
}

fn frame(
    record: &mut Record,
    shared: &Shared,
    allowance: &mut Allowance,
    max_frame: usize,
) -> Result<BytesMut, EncodeError> {
    let bodies = record.bodies();
    let meta = record.meta(&bodies);
    let limit = MAX_META.min(max_frame.saturating_sub(12));
    let meta = meta.to_json_within(limit).ok_or(EncodeError::Meta(limit))?;
    let mut flags = Flags::default();
    if record.is_shed() {
        flags = flags.with_bodies_shed();
    }
    let pieces = |body: Bytes| if body.is_empty() { vec![] } else { vec![body] };
    let outgoing = Outgoing {
        seq: 0,
        flags,
        meta: &meta,
        req: &pieces(bodies.request),
        resp: &pieces(bodies.response),
    };
    let raw_len = outgoing.frame_len();
    if raw_len > max_frame {
        return Err(EncodeError::TooLarge(raw_len));
    }
    let mut bytes = BytesMut::new();
    let begun = now();
    let is_worth_it = raw_len >= Outgoing::PACK_FROM && shared.packs.load(Ordering::Relaxed);
    if is_worth_it && allowance.may(begun) {
        outgoing.encode(Compression::Gzip, &mut bytes)?;
        allowance.took(now().saturating_duration_since(begun));
    } else {
        outgoing.encode(Compression::None, &mut bytes)?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packing_takes_a_tenth_of_a_core_on_average() {
        let mut now = Instant::now();
        let mut allowance = Allowance::new(now);
        let mut packing = Duration::ZERO;
        let begun = now;
        let step = Duration::from_millis(10);
        while now < begun + Duration::from_secs(20) {
            if allowance.may(now) {
                allowance.took(step);
                packing += step;
            }
            now += step;
        }
        let share = packing.as_secs_f64() / 20.0;
        assert!((0.1..0.13).contains(&share), "{share}");
    }
}
