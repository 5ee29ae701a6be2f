//! Captures the beginning and the end of a response body as its chunks pass.
//!
//! The end of a long stream contains its finish reason and usage, so bytes are dropped from the
//! middle. Large chunks are kept by reference. A small chunk is copied, because a slice of a few
//! bytes would keep a whole read buffer alive. The budget is charged for the memory retained, not
//! for the bytes shown.

use std::collections::VecDeque;

use bytes::Bytes;

use super::budget::{Charge, Share};

/// Chunks of at least this size are kept by reference.
const SHARED_MIN: usize = 16 << 10;

/// Sizes of the segments into which smaller chunks are copied. A new segment is as large as the
/// data before it, within these bounds, so a short reply costs little and a long one needs few
/// allocations.
const SEGMENT_MIN: usize = 1 << 10;
const SEGMENT_MAX: usize = 64 << 10;

/// How much of a response is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Caps {
    /// Bytes from the beginning. Chunks are not split: the first chunk that does not fit goes to
    /// the end part, and so do all later chunks.
    pub head: usize,
    /// Bytes of the end, exactly.
    pub tail: usize,
}

impl Caps {
    /// The most that a record can hold.
    pub(crate) const FULL: Self = Self {
        head: 1536 << 10,
        tail: 512 << 10,
    };

    /// The part kept of a response that is unlikely to be recorded.
    pub(crate) const GLANCE: Self = Self {
        head: 48 << 10,
        tail: 16 << 10,
    };

    /// `limit` bytes in all, divided in the proportion of [`Caps::FULL`], which is also the
    /// maximum.
    pub(crate) fn within(limit: u64) -> Self {
        let full = Self::FULL.head + Self::FULL.tail;
        let limit = usize::try_from(limit).unwrap_or(full).min(full);
        let tail = limit / 4;
        Self {
            head: limit - tail,
            tail,
        }
    }
}

/// Captures one response. Counts all of it, and keeps the part that [`Caps`] allow while the budget
/// has room.
#[derive(Debug)]
pub(crate) struct Tap {
    caps: Caps,
    kept: Option<Kept>,
    /// Non-empty chunks seen.
    pub chunks: u64,
    /// Bytes seen.
    pub bytes: u64,
    is_shed: bool,
}

#[derive(Debug)]
struct Kept {
    head: Store,
    tail: Store,
    /// The head is full.
    full: bool,
    charge: Charge,
}

impl Tap {
    /// A tap that keeps the part that `caps` allow.
    pub(crate) fn new(caps: Caps, charge: Charge) -> Self {
        Self {
            caps,
            kept: Some(Kept {
                head: Store::default(),
                tail: Store::default(),
                full: false,
                charge,
            }),
            chunks: 0,
            bytes: 0,
            is_shed: false,
        }
    }

    /// A tap that only counts.
    pub(crate) fn counting() -> Self {
        Self {
            caps: Caps { head: 0, tail: 0 },
            kept: None,
            chunks: 0,
            bytes: 0,
            is_shed: false,
        }
    }

    /// Changes the caps for later chunks.
    pub(crate) fn recap(&mut self, caps: Caps) {
        if self.bytes == 0 {
            self.caps = caps;
        }
    }

    /// Takes one chunk.
    pub(crate) fn chunk(&mut self, data: &Bytes) {
        if data.is_empty() {
            return;
        }
        self.chunks += 1;
        self.bytes += data.len() as u64;
        if let Some(kept) = &mut self.kept
            && kept.push(data, self.caps).is_err()
        {
            self.shed();
        }
    }

    /// Drops everything kept and keeps nothing more: half a body that looks complete is worse than
    /// none.
    pub(crate) fn shed(&mut self) {
        self.is_shed |= self.kept.take().is_some();
    }

    /// Whether the body was dropped, because the budget was too small or for another reason.
    pub(crate) fn is_shed(&self) -> bool {
        self.is_shed
    }

    /// Number of bytes missing between the kept beginning and the kept end. If nothing is kept, all
    /// bytes.
    pub(crate) fn missing(&self) -> u64 {
        let kept = self
            .kept
            .as_ref()
            .map_or(0, |kept| kept.head.bytes + kept.tail.bytes);
        self.bytes - kept as u64
    }

    /// Whether bytes were left out of the middle.
    pub(crate) fn is_truncated(&self) -> bool {
        self.kept.is_some() && self.missing() > 0
    }

    /// Appends the kept bytes: the beginning, a line with the number of missing bytes if any are
    /// missing, and the end. Returns the offset of that end in `body` if bytes are missing before
    /// it.
    pub(crate) fn write_to(&self, body: &mut Vec<u8>) -> Option<usize> {
        let kept = self.kept.as_ref()?;
        kept.head.write_to(body);
        let missing = self.missing();
        let mut cut_at = None;
        if missing > 0 {
            let marker = format!("\n[BODYLOG_TRUNCATED {missing} BYTES MISSING IN MIDDLE]\n");
            body.extend_from_slice(marker.as_bytes());
            cut_at = Some(body.len());
        }
        kept.tail.write_to(body);
        cut_at
    }
}

/// The budget has no room.
struct NoRoom;

impl Kept {
    fn push(&mut self, data: &Bytes, caps: Caps) -> Result<(), NoRoom> {
        let Self {
            head,
            tail,
            full,
            charge,
        } = self;
        if !*full && head.bytes + data.len() <= caps.head {
            return head.push(data, charge);
        }
        let mut rest = data.clone();
        if !*full && head.bytes == 0 {
            // Without this exception, a first chunk above the cap would leave no beginning at all.
            head.push(&rest.split_to(caps.head), charge)?;
        }
        *full = true;
        tail.push(&rest, charge)?;
        tail.keep_last(caps.tail, charge);
        Ok(())
    }
}

/// Bytes in order of arrival.
#[derive(Debug, Default)]
struct Store {
    segments: VecDeque<Segment>,
    bytes: usize,
}

#[derive(Debug)]
struct Segment {
    held: Held,
    /// Bytes before this offset were evicted.
    from: usize,
    /// The memory it retains, bytes.
    cost: usize,
}

#[derive(Debug)]
enum Held {
    /// Filled up to its capacity and never reallocated.
    Own(Vec<u8>),
    Shared(Bytes),
}

impl Segment {
    fn bytes(&self) -> &[u8] {
        let all = match &self.held {
            Held::Own(bytes) => &bytes[..],
            Held::Shared(bytes) => &bytes[..],
        };
        &all[self.from..]
    }
}

impl Store {
    fn push(&mut self, data: &Bytes, charge: &mut Charge) -> Result<(), NoRoom> {
        if data.len() < SHARED_MIN {
            return self.copy(data, charge);
        }
        self.add(Held::Shared(data.clone()), data.len(), charge)?;
        self.bytes += data.len();
        Ok(())
    }

    fn copy(&mut self, mut rest: &[u8], charge: &mut Charge) -> Result<(), NoRoom> {
        loop {
            if let Some(Segment {
                held: Held::Own(open),
                ..
            }) = self.segments.back_mut()
            {
                let (now, later) = rest.split_at(rest.len().min(open.capacity() - open.len()));
                open.extend_from_slice(now);
                self.bytes += now.len();
                rest = later;
            }
            if rest.is_empty() {
                return Ok(());
            }
            let capacity = rest.len().max(self.bytes).clamp(SEGMENT_MIN, SEGMENT_MAX);
            let open = Vec::with_capacity(capacity);
            let cost = open.capacity();
            self.add(Held::Own(open), cost, charge)?;
        }
    }

    fn add(&mut self, held: Held, cost: usize, charge: &mut Charge) -> Result<(), NoRoom> {
        if !charge.try_take(cost, Share::Bodies) {
            return Err(NoRoom);
        }
        self.segments.push_back(Segment {
            held,
            from: 0,
            cost,
        });
        Ok(())
    }

    fn keep_last(&mut self, cap: usize, charge: &mut Charge) {
        while self.bytes > cap {
            let is_last = self.segments.len() == 1;
            let Some(front) = self.segments.front_mut() else {
                return;
            };
            let (excess, len) = (self.bytes - cap, front.bytes().len());
            if len > excess {
                front.from += excess;
                self.bytes = cap;
                return;
            }
            self.bytes -= len;
            // The last segment is kept even if it is empty, for its spare capacity.
            if is_last {
                front.from += len;
                return;
            }
            if let Some(gone) = self.segments.pop_front() {
                charge.give(gone.cost);
            }
        }
    }

    fn write_to(&self, body: &mut Vec<u8>) {
        for segment in &self.segments {
            body.extend_from_slice(segment.bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::MemoryBudget;

    fn tap(caps: Caps) -> (Tap, MemoryBudget) {
        let budget = MemoryBudget::new(256 << 20);
        (Tap::new(caps, budget.charge()), budget)
    }

    /// A chunk in which every byte identifies its position.
    fn chunk(at: usize, len: usize) -> Bytes {
        (at..at + len).map(|i| (i % 251) as u8).collect()
    }

    fn body(tap: &Tap) -> Vec<u8> {
        let mut body = Vec::new();
        tap.write_to(&mut body);
        body
    }

    #[test]
    fn a_long_stream_keeps_its_beginning_and_exactly_the_end() {
        let (mut tap, _budget) = tap(Caps::FULL);
        for n in 0..3000 {
            tap.chunk(&chunk(n * 1000, 1000));
        }
        assert_eq!((tap.bytes, tap.chunks), (3_000_000, 3000));
        assert!(tap.is_truncated());
        assert_eq!(tap.missing(), 903_712);
        assert_eq!(tap.write_to(&mut Vec::new()), Some(1_572_052));
        let body = body(&tap);
        let marker = b"\n[BODYLOG_TRUNCATED 903712 BYTES MISSING IN MIDDLE]\n";
        assert_eq!(body.len(), 2_096_340);
        assert_eq!(body[..1_572_000], chunk(0, 1_572_000)[..]);
        assert_eq!(body[1_572_000..1_572_052], marker[..]);
        assert_eq!(body[1_572_052..], chunk(2_475_712, 524_288)[..]);
    }

    #[test]
    fn what_follows_a_chunk_that_did_not_fit_stays_behind_it() {
        let (mut tap, _budget) = tap(Caps::FULL);
        let mut at = 0;
        for len in [1_572_800, 200, 50] {
            tap.chunk(&chunk(at, len));
            at += len;
        }
        assert_eq!(body(&tap), chunk(0, 1_573_050));
        assert!(!tap.is_truncated() && tap.write_to(&mut Vec::new()).is_none());
    }

    #[test]
    fn any_split_into_chunks_keeps_the_end_exact() {
        for len in [1, 7, 999, 16 << 10, 40_000, 700_000] {
            let caps = Caps {
                head: 10_000,
                tail: 30_000,
            };
            let (mut tap, _budget) = tap(caps);
            let mut at = 0;
            while at < 200_000 {
                tap.chunk(&chunk(at, len));
                at += len;
            }
            let body = body(&tap);
            assert_eq!(body[body.len() - 30_000..], chunk(at - 30_000, 30_000)[..]);
            assert!(tap.is_truncated(), "chunks of {len}");
        }
    }

    #[test]
    fn a_first_chunk_beyond_the_cap_is_cut() {
        let (mut tap, _budget) = tap(Caps::within(1000));
        tap.chunk(&chunk(0, 5000));
        let body = body(&tap);
        assert_eq!(body[..750], chunk(0, 750)[..]);
        assert_eq!(body[body.len() - 250..], chunk(4750, 250)[..]);
        assert_eq!(tap.missing(), 4000);
    }

    #[test]
    fn small_chunks_do_not_hold_on_to_the_buffer_they_came_in() {
        let (mut tap, budget) = tap(Caps::FULL);
        let buffer = chunk(0, 400_000);
        tap.chunk(&buffer.slice(..100));
        assert!(buffer.is_unique());
        assert_eq!(budget.used(), SEGMENT_MIN as u64);
        tap.chunk(&buffer.slice(100..100 + SHARED_MIN));
        assert!(!buffer.is_unique());
        assert_eq!(budget.used(), (SEGMENT_MIN + SHARED_MIN) as u64);
        drop(tap);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn an_endless_stream_is_charged_for_what_its_caps_retain() {
        let (mut tap, budget) = tap(Caps::GLANCE);
        for n in 0..100_000 {
            tap.chunk(&chunk(n, 100));
        }
        let caps = (Caps::GLANCE.head + Caps::GLANCE.tail) as u64;
        assert!(
            budget.used() <= caps + 3 * SEGMENT_MAX as u64,
            "{}",
            budget.used()
        );
    }

    #[test]
    fn without_room_nothing_is_kept_and_everything_counted() {
        let budget = MemoryBudget::new(8 << 10);
        let mut tap = Tap::new(Caps::FULL, budget.charge());
        for n in 0..100 {
            tap.chunk(&chunk(n, 1000));
        }
        assert!(tap.is_shed() && !tap.is_truncated());
        assert_eq!((tap.bytes, tap.chunks, budget.used()), (100_000, 100, 0));
        assert!(body(&tap).is_empty());
    }

    #[test]
    fn the_caps_of_a_limit_are_divided_like_the_full_ones() {
        assert_eq!(Caps::within(u64::MAX), Caps::FULL);
        assert_eq!(
            Caps::within(4096),
            Caps {
                head: 3072,
                tail: 1024
            }
        );
        assert_eq!(Caps::within(0), Caps { head: 0, tail: 0 });
    }
}
