use super::*;
use crate::budget::MemoryBudget;
use crate::spool::Left;
use crate::testing::frame;

const ROOM: u64 = 10_000;

/// An outbox with a spool, as its writer sees it.
struct Bench {
    outbox: Outbox,
    budget: MemoryBudget,
    now: Instant,
    _dir: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::open(dir.path(), 1 << 20).unwrap().spool;
        let now = Instant::now();
        Self {
            outbox: Outbox::new(1, Some(spool), now),
            budget: MemoryBudget::new(1 << 20),
            now,
            _dir: dir,
        }
    }

    fn frames(&self, count: usize) -> Vec<Unnumbered> {
        let one = |_| {
            let mut charge = self.budget.charge();
            charge.become_bytes(HEADER_LEN + 68);
            Unnumbered {
                bytes: BytesMut::from(&frame(0, 68)[..]),
                charge,
                origin: Origin {
                    route: Arc::default(),
                    unix_ms: 1,
                    is_shed: false,
                },
            }
        };
        (0..count).map(one).collect()
    }

    /// Offers frames; answers how many must go to the disk.
    fn keep(&self, count: usize) -> usize {
        self.outbox
            .keep(self.frames(count), ROOM, self.now, |_| ())
            .len()
    }

    /// Writes frames to the segment that begins with `first`, which has `before` frames.
    fn write(&self, first: u64, before: usize, count: usize) -> Vec<Removal> {
        let name = SegmentName { epoch: 1, first };
        let numbered = self.outbox.number(self.frames(count));
        let last = numbered.last().unwrap().0.seq;
        self.outbox.begin_write(Some(name));
        self.outbox.wrote(&[Written {
            name,
            last,
            len: 100 * (before + count) as u64,
            added: 100 * count as u64,
        }])
    }

    fn ends(&self, epoch: u64, first: u64, last: Option<u64>, is_damaged: bool) {
        let removed = self.outbox.segment_ends(SegmentEnd {
            name: SegmentName { epoch, first },
            bound: 200,
            last,
            is_empty: false,
            is_damaged,
        });
        assert_eq!(removed, vec![]);
    }

    fn next(&self, seq: u64) -> String {
        match self.outbox.next(seq, 3, usize::MAX) {
            Next::Memory(run) => {
                let seqs: Vec<u64> = run.iter().map(|stored| stored.seq).collect();
                for stored in run {
                    assert_eq!(stored.bytes, frame(stored.seq, 68));
                }
                format!("memory {seqs:?}")
            }
            Next::Disk(at) => format!("disk {} to {}", at.name.first, at.bound),
            Next::Gap(to) => format!("gap to {to}"),
            Next::Nothing => "nothing".to_owned(),
            Next::Done => "done".to_owned(),
        }
    }
}

#[test]
fn frames_are_numbered_in_order_and_let_go_when_acknowledged() {
    let bench = Bench::new();
    assert_eq!(bench.keep(5), 0);
    bench.outbox.connected(0);
    assert_eq!(bench.next(1), "memory [1, 2, 3]");
    assert_eq!(bench.next(4), "memory [4, 5]");
    assert_eq!(bench.next(6), "nothing");
    assert_eq!(bench.outbox.acked(3).frames, 3);
    assert_eq!((bench.outbox.unacked(), bench.budget.used()), (2, 200));
    assert_eq!(
        bench.outbox.acked(2).frames,
        0,
        "an old acknowledgement changes nothing"
    );
    bench.outbox.close();
    assert_eq!(bench.outbox.acked(5).frames, 2);
    assert_eq!((bench.next(6), bench.budget.used()), ("done".to_owned(), 0));
}

#[test]
fn a_batch_from_memory_has_bounds_and_at_least_one_frame() {
    let bench = Bench::new();
    bench.keep(5);
    let count = |frames, bytes| match bench.outbox.next(1, frames, bytes) {
        Next::Memory(run) => run.len(),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        (count(0, 0), count(2, 1000), count(9, 350), count(9, 1000)),
        (1, 2, 3, 5)
    );
}

#[test]
fn nobody_listening_for_a_second_sends_frames_to_the_disk() {
    let mut bench = Bench::new();
    assert_eq!(
        (bench.keep(2), bench.outbox.to_spill(bench.now).len()),
        (0, 0)
    );
    bench.now += AWAY_AFTER;
    assert_eq!(bench.keep(2), 2);
    let spilled = bench.outbox.to_spill(bench.now);
    assert_eq!(spilled.len(), 2);
    let name = SegmentName { epoch: 1, first: 1 };
    assert!(
        !bench.outbox.begin_write(Some(name)),
        "there is no such segment yet"
    );
    bench.outbox.wrote(&[Written {
        name,
        last: 2,
        len: 200,
        added: 200,
    }]);
    assert_eq!(
        (bench.budget.used(), bench.outbox.spool().unwrap().used()),
        (0, 200)
    );
    bench.write(1, 2, 2);
    assert_eq!(
        (bench.next(1), bench.outbox.unacked()),
        ("disk 1 to 400".to_owned(), 4)
    );
}

#[test]
fn what_does_not_fit_the_share_of_memory_goes_to_the_disk_until_that_is_sent() {
    let bench = Bench::new();
    bench.outbox.connected(0);
    assert_eq!(bench.keep(102), 2);
    bench.write(101, 0, 2);
    assert_eq!(bench.keep(1), 1, "behind what is on disk");
    bench.write(101, 2, 1);
    bench.outbox.sent(100);
    bench.outbox.acked(100);
    assert_eq!(
        (bench.keep(1), bench.next(101)),
        (1, "disk 101 to 300".to_owned())
    );
    bench.outbox.sent(103);
    assert_eq!(bench.keep(2), 0, "all that is on disk was sent");
    assert_eq!(bench.next(104), "memory [104, 105]");
    let done = bench.outbox.acked(103);
    assert_eq!((done.frames, done.removals.len()), (3, 1));
    assert_eq!(
        (done.removals[0].name.first, done.removals[0].len),
        (101, 300)
    );
}

#[test]
fn a_new_connection_begins_behind_what_the_receiver_has() {
    let bench = Bench::new();
    bench.outbox.connected(0);
    bench.keep(3);
    bench.outbox.sent(3);
    bench.outbox.disconnected(bench.now);
    assert_eq!(bench.outbox.connected(2).frames, 2);
    assert_eq!(
        (bench.outbox.floor(), bench.next(3)),
        (3, "memory [3]".to_owned())
    );
    assert!(bench.outbox.is_ahead(4) && !bench.outbox.is_ahead(3));
}

#[test]
fn a_segment_is_not_removed_while_it_is_written() {
    let mut bench = Bench::new();
    bench.now += AWAY_AFTER;
    bench.write(1, 0, 2);
    let name = SegmentName { epoch: 1, first: 1 };
    assert!(bench.outbox.begin_write(Some(name)));
    assert_eq!(bench.outbox.acked(2).removals, vec![]);
    let removed = bench.outbox.wrote(&[]);
    assert_eq!(removed.len(), 1);
    assert!(
        !bench.outbox.begin_write(Some(name)),
        "the next write begins another"
    );
}

#[test]
fn a_lost_range_is_known_from_what_surrounds_it() {
    let mut bench = Bench::new();
    bench.now += AWAY_AFTER;
    bench.write(1, 0, 2);
    bench.write(3, 0, 2);
    bench.ends(1, 1, Some(1), true);
    assert_eq!(bench.next(2), "gap to 3");
    bench.ends(1, 3, None, true);
    assert_eq!(bench.next(3), "gap to 5");
    let removed = bench.outbox.skip_to(5);
    assert_eq!(removed.len(), 2);
    assert!(removed.iter().all(|removal| removal.is_damaged));
    assert_eq!(
        (bench.next(5), bench.outbox.unacked()),
        ("nothing".to_owned(), 0)
    );
}

#[test]
fn a_segment_that_grew_while_it_was_read_keeps_its_end() {
    let mut bench = Bench::new();
    bench.now += AWAY_AFTER;
    bench.write(1, 0, 2);
    bench.write(1, 2, 2);
    bench.ends(1, 1, Some(2), false);
    assert_eq!(bench.next(3), "disk 1 to 400");
}

#[test]
fn a_frame_refused_for_good_is_not_counted_as_stored() {
    let bench = Bench::new();
    bench.outbox.connected(0);
    bench.keep(3);
    assert!(bench.outbox.reject(2));
    // Frames before it had to come again, and it with them.
    assert!(!bench.outbox.reject(2));
    assert_eq!(bench.outbox.acked(1).frames, 1);
    assert_eq!(bench.outbox.acked(3).frames, 1);
    bench.keep(1);
    assert_eq!(bench.outbox.acked(4).frames, 1);
}

#[test]
fn what_an_earlier_process_left_is_read_in_order_and_then_done() {
    let bench = Bench::new();
    let wall = SystemTime::now();
    let left = |first, len| Left {
        name: SegmentName { epoch: 7, first },
        len,
        modified: wall - Duration::from_secs(60),
    };
    let spool = Arc::clone(bench.outbox.spool().unwrap());
    let outbox = Outbox::left(
        spool,
        &Earlier {
            epoch: 7,
            segments: vec![left(4, 300), left(7, 100)],
            progress: None,
        },
    );
    assert_eq!((outbox.epoch(), outbox.floor()), (7, 4));
    assert_eq!(outbox.oldest(bench.now, wall), Duration::from_secs(60));
    outbox.connected(5);
    let bench = Bench { outbox, ..bench };
    assert_eq!(bench.next(6), "disk 4 to 300");
    bench.ends(7, 4, Some(6), false);
    assert_eq!(bench.next(7), "disk 7 to 100");
    bench.ends(7, 7, Some(7), false);
    assert_eq!(bench.next(8), "nothing");
    assert_eq!(bench.outbox.acked(7).removals.len(), 2);
    assert_eq!(bench.next(8), "done");
}

#[test]
fn without_a_spool_everything_stays_in_memory() {
    let now = Instant::now();
    let bench = Bench::new();
    let bench = Bench {
        outbox: Outbox::new(1, None, now),
        now: now + AWAY_AFTER,
        ..bench
    };
    assert_eq!(
        (bench.keep(200), bench.outbox.to_spill(bench.now).len()),
        (0, 0)
    );
}

#[test]
fn with_a_spool_nothing_stays_only_in_memory_for_long_although_somebody_listens() {
    let bench = Bench::new();
    bench.outbox.connected(0);
    bench.keep(2);
    let early = bench.now + MEMORY_ONLY_MAX - Duration::from_millis(1);
    assert!(bench.outbox.to_spill(early).is_empty());
    let due = bench.outbox.to_spill(bench.now + MEMORY_ONLY_MAX);
    assert_eq!(due.len(), 2);
    assert!(MEMORY_ONLY_MAX < Duration::from_millis(100));
}

#[test]
fn a_spool_is_attached_only_while_no_frame_is_in_doubt() {
    let bench = Bench::new();
    let spool = Arc::clone(bench.outbox.spool().unwrap());
    let outbox = Outbox::new(1, None, bench.now);
    outbox.connected(0);
    outbox.keep(bench.frames(3), ROOM, bench.now, |_| ());
    assert!(matches!(outbox.next(1, 2, 1 << 20), Next::Memory(run) if run.len() == 2));
    outbox.hold();
    assert!(matches!(outbox.next(3, 1, 1 << 20), Next::Nothing));
    assert!(!outbox.attach(&spool, 7), "frames 1 and 2 may be stored");
    outbox.acked(1);
    assert!(!outbox.attach(&spool, 7), "frame 2 may be stored");
    outbox.disconnected(bench.now);
    // The receiver says what it has: 2 was not stored.
    outbox.connected(1);
    assert!(outbox.attach(&spool, 7));
    assert_eq!((outbox.epoch(), outbox.floor()), (7, 2));
    assert!(matches!(outbox.next(2, 9, 1 << 20), Next::Memory(run) if run.len() == 2));
}
