use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::*;

/// The lines and events of a tail.
#[derive(Debug, Default)]
struct Heard {
    lines: Vec<String>,
    bad: Vec<(u64, BadLine)>,
    resets: Vec<Reset>,
    recovered: u64,
}

impl Sink for Heard {
    fn line(&mut self, _: Place, line: &[u8]) {
        self.lines.push(String::from_utf8_lossy(line).into_owned());
    }

    fn last_line(&mut self, line: &[u8]) -> bool {
        let is_whole = line.ends_with(b"}");
        if is_whole {
            self.lines.push(String::from_utf8_lossy(line).into_owned());
        }
        is_whole
    }

    fn bad(&mut self, at: Place, kind: BadLine) {
        self.bad.push((at.offset, kind));
    }

    fn reset(&mut self, _: Hour, cause: Reset) {
        self.resets.push(cause);
    }

    fn failed(&mut self, hour: Hour, error: &io::Error) {
        panic!("{hour}: {error}");
    }

    fn recovered(&mut self, _: Hour) {
        self.recovered += 1;
    }
}

/// A log with its tail and a clock.
struct Log {
    dir: tempfile::TempDir,
    tail: Tail,
    heard: Heard,
    now: Instant,
}

fn log_in(root: &Path) -> Where {
    Where {
        root: root.to_owned(),
        line_bytes_max: ROW_BYTES_MAX,
    }
}

const DAY: &str = "2026-01-02";

impl Log {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let tail = Tail::from_start(log_in(dir.path()));
        Self {
            dir,
            tail,
            heard: Heard::default(),
            now: Instant::now(),
        }
    }

    fn path(&self, hour: u8) -> PathBuf {
        let day = self.dir.path().join(DAY);
        fs::create_dir_all(&day).unwrap();
        day.join(format!("{hour:02}.jsonl"))
    }

    fn append(&self, hour: u8, text: &str) {
        append(&self.path(hour), text);
    }

    /// Closes an hour, as the listener does.
    fn close(&self, hour: u8) {
        let plain = self.path(hour);
        let gzip = plain.with_extension("jsonl.gz");
        fs::write(&gzip, gzipped(&fs::read(&plain).unwrap())).unwrap();
        fs::remove_file(plain).unwrap();
    }

    fn pass(&mut self) -> Pass {
        self.pass_within(u64::MAX)
    }

    fn pass_within(&mut self, bytes: u64) -> Pass {
        let mut budget = Budget::new(self.now, Duration::from_secs(600), bytes);
        self.tail.pass(&mut budget, &mut self.heard).unwrap()
    }

    fn later(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
    }

    /// Simulates a restart: only the state in the checkpoint survives.
    fn restart(&mut self) {
        let kept = serde_json::to_string(&self.tail.positions()).unwrap();
        let positions = serde_json::from_str(&kept).unwrap();
        self.tail = Tail::resume(log_in(self.dir.path()), positions);
    }

    fn newest(&self) -> (u64, u64) {
        let positions = self.tail.positions();
        let (_, position) = positions.newest().unwrap();
        (position.offset(), position.lines())
    }
}

fn append(path: &Path, text: &str) {
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

fn gzipped(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(bytes).unwrap();
    gzip.finish().unwrap()
}

#[test]
fn half_a_line_is_left_until_it_is_whole() {
    let mut log = Log::new();
    log.append(10, "{1}\n{2}\n{3}\n{4");
    log.pass();
    assert_eq!(log.heard.lines, ["{1}", "{2}", "{3}"]);
    assert_eq!(log.newest(), (12, 3));
    log.append(10, "}\n");
    log.pass();
    assert_eq!(log.heard.lines, ["{1}", "{2}", "{3}", "{4}"]);
    assert_eq!(log.newest(), (16, 4));
    assert!(log.heard.resets.is_empty() && log.heard.bad.is_empty());
}

#[test]
fn a_file_closed_while_stopped_is_read_on_in_its_compressed_form() {
    let mut log = Log::new();
    log.append(10, "{1}\n{2}\n");
    log.pass();
    log.append(10, "{3}\n{4}\n");
    log.close(10);
    log.restart();
    log.pass();
    log.pass();
    log.restart();
    log.pass();
    assert_eq!(log.heard.lines, ["{1}", "{2}", "{3}", "{4}"]);
    assert_eq!(log.heard.recovered, 1);
    assert!(log.heard.resets.is_empty());
}

#[test]
fn a_file_closed_while_open_is_read_to_its_end() {
    let mut log = Log::new();
    log.append(10, "{1}\n");
    log.pass();
    log.append(10, "{2}\n");
    log.close(10);
    log.append(11, "{3}\n");
    log.pass();
    log.append(11, "{4}\n");
    log.pass();
    assert_eq!(log.heard.lines, ["{1}", "{2}", "{3}", "{4}"]);
    assert_eq!(log.heard.recovered, 0);
    assert!(log.heard.resets.is_empty());
}

#[test]
fn an_hour_stays_open_until_its_end_was_seen_twice() {
    let mut log = Log::new();
    log.append(10, "{1}\n");
    log.append(11, "{2}\n");
    log.pass();
    // A late batch.
    log.append(10, "{late}\n");
    log.later(1);
    log.pass();
    assert_eq!(log.heard.lines, ["{1}", "{2}", "{late}"]);
    log.later(1);
    log.pass();
    assert!(
        !log.tail.positions().hours[0].1.is_done(),
        "one second after the last line"
    );
    log.later(2);
    log.pass();
    assert!(log.tail.positions().hours[0].1.is_done());
}

#[test]
fn a_closed_hour_that_grows_again_is_read_again_from_there() {
    let mut log = Log::new();
    log.append(10, "{1}\n");
    log.append(12, "{2}\n");
    log.pass();
    log.restart();
    log.append(10, "{3}\n");
    log.pass();
    assert_eq!(log.heard.lines, ["{1}", "{2}", "{3}"]);
    assert!(log.heard.resets.is_empty());
}

#[test]
fn an_hour_of_a_clock_that_was_wrong_hides_none_that_follows() {
    let mut log = Log::new();
    log.append(10, "{1}\n");
    log.pass();
    let ahead = log.dir.path().join("2999-01-01");
    fs::create_dir(&ahead).unwrap();
    append(&ahead.join("00.jsonl"), "{ahead}\n");
    for _ in 0..3 {
        log.pass();
        log.later(3);
    }
    // The clock is right again.
    log.append(10, "{2}\n{3");
    log.pass();
    log.restart();
    log.pass();
    log.append(10, "}\n");
    log.append(11, "{4}\n");
    log.pass();
    assert_eq!(log.heard.lines, ["{1}", "{ahead}", "{2}", "{3}", "{4}"]);
    assert!(log.heard.bad.is_empty(), "{:?}", log.heard.bad);
}

#[test]
fn an_earlier_hour_that_appears_late_is_read() {
    let mut log = Log::new();
    log.append(12, "{1}\n");
    log.pass();
    log.append(10, "{2}\n");
    log.pass();
    assert_eq!(log.heard.lines, ["{1}", "{2}"]);
}

#[test]
fn several_hours_behind_are_read_in_order_whatever_their_form() {
    let mut log = Log::new();
    for hour in [8, 9, 10, 11] {
        log.append(hour, &format!("{{{hour}a}}\n{{{hour}b}}\n"));
    }
    log.close(8);
    log.close(10);
    let expected: Vec<_> = [8, 9, 10, 11]
        .into_iter()
        .flat_map(|hour| [format!("{{{hour}a}}"), format!("{{{hour}b}}")])
        .collect();
    assert!(log.pass().is_caught_up);
    assert_eq!(log.heard.lines, expected);
}

#[test]
fn a_spent_budget_ends_the_pass_and_the_next_goes_on() {
    let mut log = Log::new();
    let line = format!("{{{}}}\n", "x".repeat(998));
    let many = line.repeat(1000);
    log.append(10, &many);
    log.append(11, &many);
    log.close(10);
    let mut passes = 0;
    loop {
        passes += 1;
        let pass = log.pass_within(300_000);
        if pass.is_caught_up {
            assert_eq!(pass.lag, 0);
            break;
        }
        assert!(passes > 1 || pass.lag > 0);
        // A stop in the middle makes no difference.
        if passes == 3 {
            log.restart();
        }
    }
    assert!(passes > 4, "{passes}");
    assert_eq!(log.heard.lines.len(), 2000);
    assert!(log.heard.lines.iter().all(|read| read.len() == 1000));
}

#[test]
fn a_replaced_file_is_read_from_its_start_and_counted() {
    for restarts in [false, true] {
        let mut log = Log::new();
        log.append(10, "{1}\n{2}\n");
        log.pass();
        let new = log.path(99);
        append(&new, "{new1}\n{new2}\n{new3}\n");
        fs::rename(new, log.path(10)).unwrap();
        if restarts {
            log.restart();
        }
        log.pass();
        assert_eq!(
            log.heard.lines,
            ["{1}", "{2}", "{new1}", "{new2}", "{new3}"]
        );
        assert_eq!(log.heard.resets, [Reset::Replaced], "restarts: {restarts}");
    }
}

#[test]
fn a_copy_in_a_files_place_is_the_same_file() {
    let mut log = Log::new();
    log.append(10, "{1}\n{2}\n");
    log.pass();
    let copy = log.path(99);
    fs::copy(log.path(10), &copy).unwrap();
    append(&copy, "{3}\n");
    fs::rename(copy, log.path(10)).unwrap();
    log.pass();
    assert_eq!(log.heard.lines, ["{1}", "{2}", "{3}"]);
    assert!(log.heard.resets.is_empty());
}

#[test]
fn a_file_written_anew_in_place_is_noticed_although_it_is_longer() {
    let mut log = Log::new();
    log.append(10, "{1}\n{2}\n");
    log.pass();
    fs::write(log.path(10), "{other1}\n{other2}\n").unwrap();
    log.pass();
    assert_eq!(log.heard.lines, ["{1}", "{2}", "{other1}", "{other2}"]);
    assert_eq!(log.heard.resets, [Reset::Replaced]);
}

#[test]
fn a_cut_file_goes_on_at_its_new_end() {
    for restarts in [false, true] {
        let mut log = Log::new();
        let line = format!("{{{}}}\n", "x".repeat(997));
        log.append(10, &line.repeat(6));
        log.pass();
        // Inside the sixth line.
        let file = OpenOptions::new().write(true).open(log.path(10)).unwrap();
        file.set_len(5 * 1000 + 10).unwrap();
        if restarts {
            log.restart();
        }
        log.pass();
        assert_eq!(log.heard.resets, [Reset::Truncated]);
        // The torn line is completed, and new ones follow.
        log.append(10, "\n{new}\n");
        log.pass();
        assert_eq!(log.heard.lines.len(), 8);
        assert_eq!(log.heard.lines[6].len(), 10, "the torn line");
        assert_eq!(log.heard.lines[7], "{new}");
        assert_eq!(log.heard.resets.len(), 1);
    }
}

#[test]
fn an_emptied_file_is_read_from_its_start() {
    let mut log = Log::new();
    log.append(10, "{1}\n{2}\n");
    log.pass();
    fs::write(log.path(10), "").unwrap();
    log.pass();
    log.append(10, "{3}\n");
    log.pass();
    assert_eq!(log.heard.lines, ["{1}", "{2}", "{3}"]);
    assert_eq!(log.heard.resets.len(), 1);
}

#[test]
fn a_deleted_file_is_counted_once_and_the_next_hour_goes_on() {
    for restarts in [false, true] {
        let mut log = Log::new();
        log.append(10, "{1}\n");
        log.pass();
        fs::remove_file(log.path(10)).unwrap();
        if restarts {
            log.restart();
        }
        log.pass();
        log.pass();
        log.append(11, "{2}\n");
        log.later(3);
        log.pass();
        log.later(3);
        log.pass();
        assert_eq!(log.heard.lines, ["{1}", "{2}"]);
        assert_eq!(log.heard.resets, [Reset::Deleted], "restarts: {restarts}");
    }
}

#[test]
fn a_deleted_file_that_is_made_anew_is_read_from_its_start() {
    for restarts in [false, true] {
        let mut log = Log::new();
        log.append(10, "{1}\n");
        log.pass();
        fs::remove_file(log.path(10)).unwrap();
        if restarts {
            log.restart();
        }
        log.pass();
        log.append(10, "{2}\n");
        log.pass();
        assert_eq!(log.heard.lines, ["{1}", "{2}"]);
        assert_eq!(log.heard.resets, [Reset::Deleted], "restarts: {restarts}");
    }
}

#[test]
fn a_deleted_file_that_is_made_anew_and_packed_before_anybody_looks_is_read() {
    let mut log = Log::new();
    log.append(10, "{1}\n");
    log.pass();
    fs::remove_file(log.path(10)).unwrap();
    log.restart();
    log.pass();
    log.append(10, "{2}\n");
    log.append(11, "{3}\n");
    log.close(10);
    log.pass();
    log.later(3);
    log.pass();
    assert_eq!(log.heard.lines, ["{1}", "{2}", "{3}"]);
    assert_eq!(log.heard.resets, [Reset::Deleted]);
}

#[test]
fn a_damaged_compressed_file_is_given_up_and_counted() {
    let mut log = Log::new();
    let text: String = (0..20_000).map(|i| format!("{{{i}}}\n")).collect();
    log.append(10, &text);
    log.close(10);
    let path = log.path(10).with_extension("jsonl.gz");
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    log.append(11, "{next}\n");
    log.pass();
    log.pass();
    assert_eq!(log.heard.resets, [Reset::Unreadable]);
    assert_eq!(log.heard.lines.last().unwrap(), "{next}");
    // The lines before the damage count, each once.
    let numbers = &log.heard.lines[..log.heard.lines.len() - 1];
    assert!(!numbers.is_empty());
    for (i, line) in numbers.iter().enumerate() {
        assert_eq!(*line, format!("{{{i}}}"));
    }
}

#[test]
fn a_line_too_long_is_skipped_whole_and_counted_once() {
    let mut log = Log::new();
    log.append(10, "{1}\n");
    log.append(10, &"x".repeat(ROW_BYTES_MAX + 300_000));
    log.pass();
    log.restart();
    log.append(10, &"x".repeat(ROW_BYTES_MAX));
    log.pass();
    log.append(10, "\n{2}\n");
    log.pass();
    assert_eq!(log.heard.lines, ["{1}", "{2}"]);
    assert_eq!(log.heard.bad, [(4, BadLine::TooLong)]);
}

#[test]
fn a_long_line_within_the_bound_is_a_line() {
    let mut log = Log::new();
    let long = "x".repeat(ROW_BYTES_MAX - 10);
    log.append(10, &format!("{{1}}\n{long}\n{{2}}\n"));
    log.pass();
    assert_eq!(log.heard.lines, ["{1}", &long, "{2}"]);
}

#[test]
fn what_a_closed_hour_ends_with_is_a_row_or_a_torn_line() {
    let mut log = Log::new();
    log.append(8, "{1}\n{2");
    log.append(9, "{3}\n{4}");
    log.append(11, "{5}\n");
    log.pass();
    log.pass();
    assert_eq!(log.heard.lines, ["{1}", "{3}", "{4}", "{5}"]);
    assert_eq!(log.heard.bad, [(4, BadLine::Torn)]);
}

#[test]
fn empty_lines_are_no_lines() {
    let mut log = Log::new();
    log.append(10, "\n{1}\n\n  \n{2}\n");
    log.pass();
    assert_eq!(log.heard.lines, ["{1}", "{2}"]);
    assert_eq!(log.newest().1, 2);
}

#[test]
fn from_the_end_only_what_follows_is_read() {
    let mut log = Log::new();
    log.append(9, "{0}\n");
    log.append(10, "{1}\n{2}\n{3");
    log.tail = Tail::from_end(log_in(log.dir.path())).unwrap();
    log.pass();
    assert!(log.heard.lines.is_empty(), "{:?}", log.heard);
    log.append(10, "}\n{4}\n");
    log.append(11, "{5}\n");
    log.pass();
    assert_eq!(log.heard.lines, ["{3}", "{4}", "{5}"]);
    assert!(log.heard.resets.is_empty());
}

#[test]
fn from_the_end_of_nothing_everything_that_comes_is_read() {
    let mut log = Log::new();
    log.tail = Tail::from_end(log_in(&log.dir.path().join("not yet"))).unwrap();
    log.tail = Tail::from_end(log_in(log.dir.path())).unwrap();
    assert!(log.pass().is_caught_up);
    log.append(10, "{1}\n");
    log.append(11, "{2}\n");
    log.pass();
    assert_eq!(log.heard.lines, ["{1}", "{2}"]);
}

#[test]
fn old_hours_are_forgotten_and_never_read_again() {
    let mut log = Log::new();
    for hour in 0..20 {
        log.append(hour, &format!("{{{hour}}}\n"));
    }
    log.pass();
    log.pass();
    log.restart();
    log.pass();
    assert_eq!(log.heard.lines.len(), 20);
    assert!(log.tail.positions().hours.len() <= LATE_HOURS as usize + 1);
}
