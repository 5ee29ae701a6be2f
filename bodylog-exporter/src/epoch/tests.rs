//! Tests that each row is counted exactly once, across crashes and all changes of files.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::Instant;

use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::*;

use super::*;
use crate::tail::Hour;

/// A log directory with its exporter and a clock.
struct Bench {
    dir: tempfile::TempDir,
    shared: Arc<Shared>,
    pipeline: Option<Pipeline>,
    now: Now,
    hour: Hour,
    /// Ids of the rows created so far.
    made: u64,
    /// The second half of a line whose first half is in the file.
    half: Option<String>,
    /// Hours whose plain file may be closed.
    plain: BTreeSet<Hour>,
    /// Ids of the rows that a committed epoch was able to read.
    expected: BTreeSet<u64>,
}

impl Bench {
    fn new(cold: ColdStart) -> Self {
        let mut bench = Self {
            dir: tempfile::tempdir().unwrap(),
            shared: Arc::default(),
            pipeline: None,
            now: Now {
                instant: Instant::now(),
                wall_ms: 1_767_369_600_000,
            },
            hour: Hour::parse("2026-01-02", "20").unwrap(),
            made: 0,
            half: None,
            plain: BTreeSet::new(),
            expected: BTreeSet::new(),
        };
        bench.start_with(cold);
        bench
    }

    fn details(&self) -> PathBuf {
        self.dir.path().join("details")
    }

    fn checkpoint(&self) -> PathBuf {
        self.dir.path().join("exporter.checkpoint")
    }

    fn path(&self, hour: Hour) -> PathBuf {
        let path = hour.plain(&self.details());
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        path
    }

    fn start_with(&mut self, cold: ColdStart) {
        // Release the previous exporter's lock first.
        self.pipeline = None;
        self.shared = Arc::default();
        let store = Store::open(self.checkpoint()).unwrap();
        let pipeline = Pipeline::open(
            Where::rows(self.dir.path()),
            store,
            cold,
            Duration::from_secs(600),
            Arc::clone(&self.shared),
            self.now,
        );
        self.pipeline = Some(pipeline.unwrap());
    }

    fn restart(&mut self) {
        self.start_with(ColdStart::End);
    }

    fn later(&mut self, seconds: u64) {
        self.now.instant += Duration::from_secs(seconds);
        self.now.wall_ms += seconds as i64 * 1000;
    }

    /// A new row. Every other one has no number, as from old senders.
    fn row(&mut self) -> String {
        self.made += 1;
        row(self.made)
    }

    fn write(&mut self, text: &str) {
        let path = self.path(self.hour);
        let mut file = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .unwrap();
        file.write_all(text.as_bytes()).unwrap();
        self.plain.insert(self.hour);
    }

    fn append(&mut self, rows: u64) {
        self.finish_half();
        for _ in 0..rows {
            let row = self.row();
            self.write(&format!("{row}\n"));
        }
    }

    fn append_half(&mut self) {
        self.finish_half();
        let row = self.row();
        let (first, second) = row.split_at(row.len() / 2);
        self.write(first);
        self.half = Some(format!("{second}\n"));
    }

    fn finish_half(&mut self) {
        if let Some(half) = self.half.take() {
            self.write(&half);
        }
    }

    fn next_hour(&mut self) {
        self.finish_half();
        self.hour = self.hour.plus(1);
        self.append(1);
    }

    /// Closes an hour that is over, as the listener does: compress, rename, delete.
    fn close(&mut self) {
        let over: Vec<_> = self.plain.range(..self.hour).copied().collect();
        for hour in over {
            let plain = self.path(hour);
            let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
            gzip.write_all(&fs::read(&plain).unwrap()).unwrap();
            fs::write(hour.gzip(&self.details()), gzip.finish().unwrap()).unwrap();
            fs::remove_file(plain).unwrap();
            self.plain.remove(&hour);
        }
    }

    fn truncate(&mut self, permille: u64) {
        let Ok(file) = fs::OpenOptions::new()
            .write(true)
            .open(self.path(self.hour))
        else {
            return;
        };
        let len = file.metadata().unwrap().len();
        file.set_len(len * permille / 1000).unwrap();
        // The remaining text may end inside a line, which is completed as the listener does.
        self.half = None;
        self.write("\n");
    }

    fn replace(&mut self, rows: u64) {
        self.half = None;
        let again = self.made.saturating_sub(2).max(1);
        let mut text: String = (again..=self.made).map(|id| row(id) + "\n").collect();
        for _ in 0..rows {
            text += &(self.row() + "\n");
        }
        let new = self.dir.path().join("new");
        fs::write(&new, text).unwrap();
        fs::rename(new, self.path(self.hour)).unwrap();
        self.plain.insert(self.hour);
    }

    fn delete(&mut self) {
        self.half = None;
        let _ = fs::remove_file(self.path(self.hour));
        self.plain.remove(&self.hour);
    }

    fn read(&mut self) {
        let now = self.now;
        self.pipeline.as_mut().unwrap().read(now);
    }

    fn commit(&mut self) {
        let now = self.now;
        self.pipeline.as_mut().unwrap().commit(now).unwrap();
    }

    fn epoch(&mut self) {
        let now = self.now;
        while self.pipeline.as_mut().unwrap().epoch(now).unwrap() {}
        let on_disk = ids_below(&self.details());
        self.expected.extend(on_disk);
    }

    /// The number of requests that a scrape would show.
    fn shown(&self) -> u64 {
        let committed = self.shared.committed().unwrap();
        let series = &committed.view.series;
        series
            .iter()
            .flat_map(|series| series.requests.iter().flatten())
            .sum()
    }

    fn own(&self) -> crate::aggregate::Own {
        self.shared.committed().unwrap().view.own.clone()
    }
}

fn row(id: u64) -> String {
    let key = match id % 2 {
        0 => format!(r#""request_id":"r{id}""#),
        _ => format!(r#""pid":"p","epoch":1,"seq":{id}"#),
    };
    format!(
        r#"{{"v":2,{key},"ts":"2026-01-02T20:00:00.000Z","route":"chat","backend":"a:1","status":200,"rt":{id}.5}}"#
    )
}

/// Ids of the complete rows in all files, recognised by their `rt`.
fn ids_below(details: &Path) -> BTreeSet<u64> {
    let mut ids = BTreeSet::new();
    for day in fs::read_dir(details).into_iter().flatten() {
        for file in fs::read_dir(day.unwrap().path()).unwrap() {
            let path = file.unwrap().path();
            let bytes = fs::read(&path).unwrap();
            let text = match path.extension().unwrap().to_str().unwrap() {
                "gz" => std::io::read_to_string(flate2::read::GzDecoder::new(&*bytes)).unwrap(),
                _ => String::from_utf8(bytes).unwrap(),
            };
            let whole = text
                .split_inclusive('\n')
                .filter(|line| line.ends_with('\n'));
            ids.extend(whole.filter_map(|line| {
                let row: serde_json::Value = serde_json::from_str(line).ok()?;
                row["rt"].as_f64().map(|rt| rt as u64)
            }));
        }
    }
    ids
}

#[test]
fn a_crash_between_counting_and_keeping_neither_loses_nor_doubles() {
    let mut bench = Bench::new(ColdStart::End);
    bench.append(3);
    bench.append_half();
    bench.epoch();
    assert_eq!((bench.shown(), bench.own().lines), (3, 3));
    bench.finish_half();
    bench.read();
    assert_eq!(bench.shown(), 3, "counted, not committed");
    bench.restart();
    assert_eq!(bench.shown(), 3);
    bench.epoch();
    assert_eq!((bench.shown(), bench.own().lines), (4, 4));
    assert_eq!(bench.own().duplicates, 0);
}

#[test]
fn a_crash_between_keeping_and_showing_shows_what_was_kept() {
    let mut bench = Bench::new(ColdStart::End);
    bench.append(2);
    bench.read();
    bench.commit();
    bench.restart();
    assert_eq!(bench.shown(), 2, "before anything is read");
    bench.epoch();
    assert_eq!(bench.shown(), 2);
}

#[test]
fn a_file_compressed_while_stopped_is_counted_to_its_end() {
    let mut bench = Bench::new(ColdStart::End);
    bench.append(2);
    bench.epoch();
    bench.append(2);
    bench.next_hour();
    bench.close();
    bench.restart();
    bench.epoch();
    assert_eq!(bench.shown(), 5);
    assert_eq!(bench.own().recoveries, 1);
    assert_eq!(bench.own().duplicates, 0);
}

#[test]
fn an_hour_that_cannot_be_read_holds_nobody_up_and_is_not_asked_without_a_pause() {
    let mut bench = Bench::new(ColdStart::Start);
    // A directory can be opened but not read.
    fs::create_dir_all(bench.path(bench.hour)).unwrap();
    bench.next_hour();
    let epoch = |bench: &mut Bench| {
        let now = bench.now;
        bench.pipeline.as_mut().unwrap().epoch(now).unwrap()
    };
    let is_behind = epoch(&mut bench);
    assert_eq!((bench.shown(), is_behind), (1, false));
    assert_eq!(bench.own().file_resets.get(&Reset::Unreadable), None);
    bench.hour = bench.hour.plus(24);
    bench.append(1);
    let is_behind = epoch(&mut bench);
    assert_eq!((bench.shown(), is_behind), (2, false));
    // One day later the hour is given up, and this is reported.
    let is_behind = epoch(&mut bench);
    assert_eq!((bench.shown(), is_behind), (2, false));
    assert_eq!(bench.own().file_resets.get(&Reset::Unreadable), Some(&1));
}

#[test]
fn without_a_checkpoint_counting_begins_at_the_end_or_where_asked() {
    for (cold, expected) in [(ColdStart::End, 1), (ColdStart::Start, 4)] {
        let mut bench = Bench::new(ColdStart::End);
        bench.append(3);
        bench.epoch();
        bench.pipeline = None;
        for name in ["exporter.checkpoint", "exporter.checkpoint.old"] {
            fs::remove_file(bench.dir.path().join(name)).unwrap();
        }
        bench.start_with(cold);
        bench.append(1);
        bench.epoch();
        assert_eq!(bench.shown(), expected, "{cold:?}");
        assert_eq!(bench.own().cold_starts, 1);
    }
}

#[test]
fn the_older_checkpoint_counts_the_rows_in_between_again_and_only_those() {
    let mut bench = Bench::new(ColdStart::End);
    for _ in 0..3 {
        bench.append(2);
        bench.epoch();
    }
    fs::write(bench.checkpoint(), "damaged").unwrap();
    bench.restart();
    assert_eq!(bench.shown(), 4);
    bench.epoch();
    assert_eq!(bench.shown(), 6);
    assert_eq!(bench.own().fallbacks, 1);
    bench.restart();
    assert_eq!(bench.shown(), 6);
}

#[test]
fn while_the_checkpoint_cannot_be_written_the_old_counts_stay_shown() {
    let mut bench = Bench::new(ColdStart::End);
    bench.append(1);
    bench.epoch();
    let in_the_way = bench.dir.path().join("exporter.checkpoint.tmp");
    fs::create_dir(&in_the_way).unwrap();
    bench.append(1);
    for _ in 0..3 {
        let now = bench.now;
        bench.pipeline.as_mut().unwrap().epoch(now).unwrap_err();
        assert_eq!(bench.shown(), 1);
    }
    assert_eq!(bench.shared.troubles().checkpoint_errors, 3);
    fs::remove_dir(in_the_way).unwrap();
    bench.epoch();
    assert_eq!(bench.shown(), 2);
}

#[test]
fn nothing_new_writes_nothing() {
    let mut bench = Bench::new(ColdStart::End);
    bench.append(1);
    bench.epoch();
    let written = || {
        fs::metadata(bench.checkpoint())
            .unwrap()
            .modified()
            .unwrap()
    };
    let before = written();
    let at = bench.shared.committed().unwrap().at.instant;
    bench.later(2);
    let now = bench.now;
    bench.pipeline.as_mut().unwrap().epoch(now).unwrap();
    let after = fs::metadata(bench.checkpoint())
        .unwrap()
        .modified()
        .unwrap();
    assert_eq!(after, before);
    assert!(
        bench.shared.committed().unwrap().at.instant > at,
        "but it is as good as kept now"
    );
}

#[test]
fn refusals_of_routers_are_kept_with_the_counts() {
    use std::collections::BTreeMap;
    let reading = |value| {
        let reasons = BTreeMap::from([("ttft".into(), value)]);
        RefusalReading::from([("chat".into(), reasons)])
    };
    let mut bench = Bench::new(ColdStart::End);
    bench.shared.refusals("router:1", reading(5));
    bench.shared.refusals("router:1", reading(7));
    bench.epoch();
    bench.restart();
    // The router was restarted too.
    bench.shared.refusals("router:1", reading(2));
    bench.epoch();
    let committed = bench.shared.committed().unwrap();
    let totals: Vec<_> = committed.view.refusals.totals().collect();
    assert_eq!(totals, [("router:1", "chat", "ttft", 9)]);
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Append(u64),
    AppendHalf,
    FinishHalf,
    NextHour,
    Close,
    Truncate(u64),
    Replace(u64),
    Delete,
    Epoch,
    Restart,
    CrashBeforeKeeping,
    Wait(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (1..6_u64).prop_map(Step::Append),
        2 => Just(Step::AppendHalf),
        1 => Just(Step::FinishHalf),
        2 => Just(Step::NextHour),
        2 => Just(Step::Close),
        1 => (0..1000_u64).prop_map(Step::Truncate),
        1 => (0..4_u64).prop_map(Step::Replace),
        1 => Just(Step::Delete),
        3 => Just(Step::Epoch),
        1 => Just(Step::Restart),
        2 => Just(Step::CrashBeforeKeeping),
        1 => (0..4_u64).prop_map(Step::Wait),
    ];
    prop::collection::vec(step, 1..30)
}

fn take(bench: &mut Bench, step: Step) {
    match step {
        Step::Append(rows) => bench.append(rows),
        Step::AppendHalf => bench.append_half(),
        Step::FinishHalf => bench.finish_half(),
        Step::NextHour => bench.next_hour(),
        Step::Close => bench.close(),
        // A row that is destroyed before the exporter reads it cannot be counted.
        Step::Truncate(permille) => {
            bench.epoch();
            bench.truncate(permille);
        }
        Step::Replace(rows) => {
            bench.epoch();
            bench.replace(rows);
        }
        Step::Delete => {
            bench.epoch();
            bench.delete();
        }
        Step::Epoch => bench.epoch(),
        Step::Restart => bench.restart(),
        Step::CrashBeforeKeeping => {
            bench.read();
            bench.restart();
        }
        Step::Wait(seconds) => bench.later(seconds),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn counts_equal_the_rows_that_were_there_whatever_happens(steps in steps()) {
        let mut bench = Bench::new(ColdStart::End);
        for step in steps {
            take(&mut bench, step);
            prop_assert_eq!(bench.shown(), bench.expected.len() as u64, "after {:?}", step);
        }
        bench.finish_half();
        bench.epoch();
        prop_assert_eq!(bench.shown(), bench.expected.len() as u64);
        let sum: u64 = bench.expected.iter().sum();
        let committed = bench.shared.committed().unwrap();
        let seconds: f64 = committed
            .view
            .series
            .iter()
            .flat_map(|series| series.rt.iter().flatten())
            .map(|histogram| histogram.sum())
            .sum();
        let expected = sum as f64 + 0.5 * bench.expected.len() as f64;
        prop_assert!((seconds - expected).abs() < 1e-6, "{} and not {}", seconds, expected);
    }
}

#[test]
fn a_full_disk_at_the_start_is_waited_out() {
    let mut bench = Bench::new(ColdStart::End);
    bench.append(3);
    bench.epoch();
    bench.append(2);
    // Every byte for the new checkpoint is refused for want of room.
    let temporary = bench.dir.path().join("exporter.checkpoint.tmp");
    std::os::unix::fs::symlink("/dev/full", &temporary).unwrap();
    let checkpoint = fs::read(bench.checkpoint()).unwrap();
    bench.append(1);
    bench.restart();
    assert_eq!(bench.shown(), 3, "what was kept is shown");
    assert!(bench.pipeline.as_mut().unwrap().epoch(bench.now).is_err());
    assert_eq!(bench.shown(), 3);
    assert_eq!(fs::read(bench.checkpoint()).unwrap(), checkpoint);
    fs::remove_file(&temporary).unwrap();
    bench.epoch();
    assert_eq!(bench.shown(), 6);
}
