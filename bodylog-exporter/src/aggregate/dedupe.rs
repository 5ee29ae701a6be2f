//! Decides whether a row was counted before.
//!
//! Rows of an acknowledged frame carry their producer, its epoch and a sequence number that rises
//! by one. Such a row is new unless its number was seen; skipped numbers are remembered as gaps, so
//! that a late row still counts. Rows without a number are identified by request id and start time
//! for ten minutes.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use proto::row::DetailRow;
use serde::{Deserialize, Serialize};

/// A row without a number is remembered at least this long, and at most twice as long.
pub const WINDOW: Duration = Duration::from_secs(600);

/// Rows remembered in one window; when it is full, the window ends early. Two windows are kept, so
/// this bounds their share of a checkpoint at about 3 MB.
const WINDOW_ROWS_MAX: usize = 150_000;

/// Producers remembered, each epoch counted apart; the one that was quiet longest goes first.
const PRODUCERS_MAX: usize = 1024;

/// A producer that was quiet for this long is forgotten.
const PRODUCER_IDLE: Duration = Duration::from_secs(7 * 24 * 3600);

/// Skipped numbers remembered for each producer, the highest ones; a row below the lowest counts as
/// seen.
const GAPS_MAX: u64 = 1024;

/// What was counted before. Times are milliseconds since the Unix epoch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Dedupe {
    producers: HashMap<Box<str>, BTreeMap<u64, Sequence>>,
    /// Hashes of rows without a number: since `turned_ms`, and in the window before.
    current: HashSet<u64>,
    previous: HashSet<u64>,
    turned_ms: i64,
}

/// The numbers of one epoch of one producer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Sequence {
    /// The highest number seen.
    last: u64,
    /// Numbers below `last` that were not seen; at most [`GAPS_MAX`].
    gaps: std::collections::BTreeSet<u64>,
    used_ms: i64,
}

/// What distinguishes a row from every other.
#[derive(Clone, Copy, Debug)]
pub enum RowKey<'a> {
    /// The number its producer gave it.
    Numbered {
        /// The producer.
        producer: &'a str,
        /// Its epoch.
        epoch: u64,
        /// The number.
        seq: u64,
    },
    /// Its request, if it has no number. The start time belongs to it, because a client may use one
    /// id for many requests.
    Request {
        /// The id.
        id: &'a str,
        /// Start time as written in the row.
        ts: &'a str,
    },
}

impl<'r> RowKey<'r> {
    /// The key of a row; `None` for a row without number and id, which always counts.
    pub fn of(row: &'r DetailRow<'_>) -> Option<Self> {
        if !row.pid.is_empty() && row.seq > 0 {
            return Some(Self::Numbered {
                producer: &row.pid,
                epoch: row.epoch,
                seq: row.seq,
            });
        }
        (!row.request_id.is_empty()).then_some(Self::Request {
            id: &row.request_id,
            ts: &row.ts,
        })
    }
}

impl Dedupe {
    /// Remembers a row; true if it is new.
    pub fn is_new(&mut self, key: RowKey<'_>, now_ms: i64) -> bool {
        match key {
            RowKey::Numbered {
                producer,
                epoch,
                seq,
            } => self.is_new_number(producer, epoch, seq, now_ms),
            RowKey::Request { id, ts } => {
                self.turn(now_ms);
                let mut hasher = DefaultHasher::new();
                (id, ts).hash(&mut hasher);
                let hash = hasher.finish();
                !self.previous.contains(&hash) && self.current.insert(hash)
            }
        }
    }

    fn is_new_number(&mut self, producer: &str, epoch: u64, seq: u64, now_ms: i64) -> bool {
        let known = self.producers.get_mut(producer);
        if let Some(sequence) = known.and_then(|epochs| epochs.get_mut(&epoch)) {
            sequence.used_ms = now_ms;
            return sequence.is_new(seq);
        }
        self.make_room(now_ms);
        let epochs = self.producers.entry(producer.into()).or_default();
        epochs.insert(epoch, Sequence::starting_at(seq, now_ms));
        true
    }

    /// Ends the window when its time is over or it is full.
    fn turn(&mut self, now_ms: i64) {
        let age = now_ms.saturating_sub(self.turned_ms);
        // A clock that stepped back must not keep a window open forever.
        let is_over = age >= WINDOW.as_millis() as i64 || age < 0;
        if is_over || self.current.len() >= WINDOW_ROWS_MAX {
            self.previous = std::mem::take(&mut self.current);
            if age >= 2 * WINDOW.as_millis() as i64 {
                self.previous.clear();
            }
            self.turned_ms = now_ms;
        }
    }

    fn make_room(&mut self, now_ms: i64) {
        let oldest_kept = now_ms.saturating_sub(PRODUCER_IDLE.as_millis() as i64);
        let held = |producers: &HashMap<Box<str>, BTreeMap<u64, Sequence>>| {
            producers.values().map(BTreeMap::len).sum::<usize>()
        };
        if held(&self.producers) < PRODUCERS_MAX {
            return;
        }
        self.forget(|sequence| sequence.used_ms < oldest_kept);
        if held(&self.producers) >= PRODUCERS_MAX {
            let epochs = self.producers.values().flat_map(BTreeMap::values);
            let quietest = epochs.map(|sequence| sequence.used_ms).min();
            self.forget(|sequence| Some(sequence.used_ms) == quietest);
        }
    }

    fn forget(&mut self, is_done: impl Fn(&Sequence) -> bool) {
        self.producers.retain(|_, epochs| {
            epochs.retain(|_, sequence| !is_done(sequence));
            !epochs.is_empty()
        });
    }

    /// Producers remembered, and rows without a number.
    pub fn len(&self) -> (usize, usize) {
        (
            self.producers.values().map(BTreeMap::len).sum(),
            self.current.len() + self.previous.len(),
        )
    }
}

impl Sequence {
    fn starting_at(seq: u64, now_ms: i64) -> Self {
        Self {
            last: seq,
            gaps: (seq.saturating_sub(GAPS_MAX).max(1)..seq).collect(),
            used_ms: now_ms,
        }
    }

    fn is_new(&mut self, seq: u64) -> bool {
        if seq <= self.last {
            return self.gaps.remove(&seq);
        }
        let first_gap = seq.saturating_sub(GAPS_MAX).max(self.last + 1);
        self.gaps.extend(first_gap..seq);
        while self.gaps.len() as u64 > GAPS_MAX {
            self.gaps.pop_first();
        }
        self.last = seq;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered(seq: u64) -> RowKey<'static> {
        RowKey::Numbered {
            producer: "p",
            epoch: 1,
            seq,
        }
    }

    #[test]
    fn a_number_counts_once_in_whatever_order_it_comes() {
        let mut dedupe = Dedupe::default();
        for (seq, is_new) in [
            (1, true),
            (2, true),
            (2, false),
            (5, true),
            (4, true),
            (4, false),
            (3, true),
            (1, false),
            (6, true),
        ] {
            assert_eq!(dedupe.is_new(numbered(seq), 0), is_new, "{seq}");
        }
    }

    #[test]
    fn rows_before_the_first_one_seen_still_count_once() {
        let mut dedupe = Dedupe::default();
        assert!(dedupe.is_new(numbered(100), 0));
        assert!(dedupe.is_new(numbered(1), 0));
        assert!(!dedupe.is_new(numbered(1), 0));
    }

    #[test]
    fn epochs_and_producers_have_numbers_of_their_own() {
        let mut dedupe = Dedupe::default();
        for (producer, epoch) in [("a", 1), ("a", 2), ("b", 1)] {
            let key = RowKey::Numbered {
                producer,
                epoch,
                seq: 1,
            };
            assert!(dedupe.is_new(key, 0));
            assert!(!dedupe.is_new(key, 0));
        }
    }

    #[test]
    fn a_jump_costs_no_more_than_its_bound() {
        let mut dedupe = Dedupe::default();
        for seq in [1, 1 << 40, u64::MAX] {
            assert!(dedupe.is_new(numbered(seq), 0));
        }
        let sequence = &dedupe.producers["p"][&1];
        assert_eq!(sequence.gaps.len() as u64, GAPS_MAX);
        assert!(!dedupe.is_new(numbered(2), 0), "long forgotten: seen");
    }

    #[test]
    fn a_request_is_remembered_for_ten_minutes() {
        let request = |id, ts| RowKey::Request { id, ts };
        let mut dedupe = Dedupe::default();
        let minute = 60_000;
        assert!(dedupe.is_new(request("r", "t"), 0));
        assert!(dedupe.is_new(request("r", "another start"), 0));
        assert!(!dedupe.is_new(request("r", "t"), 9 * minute));
        assert!(!dedupe.is_new(request("r", "t"), 11 * minute));
        assert!(dedupe.is_new(request("r", "t"), 40 * minute));
    }

    #[test]
    fn a_full_window_turns_early_and_stays_bounded() {
        let mut dedupe = Dedupe::default();
        for i in 0..(WINDOW_ROWS_MAX * 3) {
            let id = i.to_string();
            assert!(dedupe.is_new(RowKey::Request { id: &id, ts: "" }, 0));
        }
        assert!(dedupe.len().1 <= 2 * WINDOW_ROWS_MAX);
    }

    #[test]
    fn the_quietest_producer_makes_room() {
        let mut dedupe = Dedupe::default();
        for i in 0..(PRODUCERS_MAX as i64 + 10) {
            let producer = i.to_string();
            let key = RowKey::Numbered {
                producer: &producer,
                epoch: 1,
                seq: 1,
            };
            assert!(dedupe.is_new(key, i));
        }
        assert_eq!(dedupe.len().0, PRODUCERS_MAX);
        assert!(!dedupe.producers.contains_key("0"));
        assert!(dedupe.producers.contains_key("1000"));
    }

    #[test]
    fn it_comes_back_from_text() {
        let mut dedupe = Dedupe::default();
        dedupe.is_new(numbered(7), 3);
        dedupe.is_new(RowKey::Request { id: "r", ts: "t" }, 3);
        let text = serde_json::to_string(&dedupe).unwrap();
        assert_eq!(serde_json::from_str::<Dedupe>(&text).unwrap(), dedupe);
    }
}
