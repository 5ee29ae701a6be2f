//! The paths of records below the listener's directory. All times are UTC.
//!
//! ```text
//! <dir>/<YYYY-MM-DD>/<HH>.jsonl            full records
//! <dir>/details/<YYYY-MM-DD>/<HH>.jsonl    slim rows
//! ```
//!
//! A closed hour is `.jsonl.gz`, with the same lines. While it is being compressed, both files
//! exist; a reader that has found one ignores the other.

use std::path::{Path, PathBuf};

use chrono::{DateTime, Days, NaiveDate, NaiveDateTime, Timelike, Utc};

/// The directory of the slim rows, below the listener's directory.
pub const DETAILS: &str = "details";

/// One hour of UTC, the content of one file. Ordered by time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Hour {
    date: NaiveDate,
    hour: u32,
}

impl Hour {
    /// The hour that contains a moment.
    pub fn of(wall: DateTime<Utc>) -> Self {
        Self {
            date: wall.date_naive(),
            hour: wall.hour(),
        }
    }

    /// Its first moment.
    pub fn start(self) -> DateTime<Utc> {
        self.date
            .and_hms_opt(self.hour, 0, 0)
            .as_ref()
            .map(NaiveDateTime::and_utc)
            .expect("an hour of a day is a time")
    }

    /// The hour after it.
    #[must_use]
    pub fn next(self) -> Self {
        if self.hour < 23 {
            Self {
                hour: self.hour + 1,
                ..self
            }
        } else {
            Self {
                date: self
                    .date
                    .checked_add_days(Days::new(1))
                    .unwrap_or(self.date),
                hour: 0,
            }
        }
    }

    /// The day.
    pub fn date(self) -> NaiveDate {
        self.date
    }

    /// `<YYYY-MM-DD>/<HH>.jsonl`
    pub fn plain(self) -> PathBuf {
        PathBuf::from(format!("{}/{:02}.jsonl", self.date, self.hour))
    }

    /// `<YYYY-MM-DD>/<HH>.jsonl.gz`
    pub fn packed(self) -> PathBuf {
        PathBuf::from(format!("{}/{:02}.jsonl.gz", self.date, self.hour))
    }

    /// The hour of a path that ends like [`Hour::plain`] or [`Hour::packed`], and whether the file
    /// is compressed.
    pub fn of_path(path: &Path) -> Option<(Self, bool)> {
        let name = path.file_name()?.to_str()?;
        let (hour, packed) = match name.strip_suffix(".jsonl") {
            Some(hour) => (hour, false),
            None => (name.strip_suffix(".jsonl.gz")?, true),
        };
        let hour = two_digits(hour).filter(|hour| *hour < 24)?;
        let date = date_of_name(path.parent()?.file_name()?.to_str()?)?;
        Some((Self { date, hour }, packed))
    }
}

fn two_digits(text: &str) -> Option<u32> {
    (text.len() == 2 && text.bytes().all(|b| b.is_ascii_digit()))
        .then(|| text.parse().ok())
        .flatten()
}

/// The day of a directory with this name; `None` for any other name.
pub fn date_of_name(name: &str) -> Option<NaiveDate> {
    // The parser also accepts `2026-1-2`, which is not a name that we write.
    let shaped = name.len() == 10 && name.bytes().all(|b| b.is_ascii_digit() || b == b'-');
    shaped
        .then(|| NaiveDate::parse_from_str(name, "%Y-%m-%d").ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hour(text: &str) -> Hour {
        Hour::of(text.parse().unwrap())
    }

    #[test]
    fn a_path_names_its_hour_and_back() {
        let last = hour("2026-01-02T23:59:59.999Z");
        assert_eq!(last.plain(), Path::new("2026-01-02/23.jsonl"));
        assert_eq!(last.packed(), Path::new("2026-01-02/23.jsonl.gz"));
        let below = |path: PathBuf| Path::new("/var/log/details").join(path);
        assert_eq!(Hour::of_path(&below(last.plain())), Some((last, false)));
        assert_eq!(Hour::of_path(&below(last.packed())), Some((last, true)));
    }

    #[test]
    fn the_hour_after_the_last_of_a_day_is_the_first_of_the_next() {
        let last = hour("2026-12-31T23:00:00Z");
        assert_eq!(last.next(), hour("2027-01-01T00:00:00Z"));
        assert_eq!(last.next().next(), hour("2027-01-01T01:30:00Z"));
        assert!(last < last.next());
        assert_eq!(last.start().to_rfc3339(), "2026-12-31T23:00:00+00:00");
    }

    #[test]
    fn other_names_are_no_hours() {
        for path in [
            "23.jsonl",
            "2026-01-02/24.jsonl",
            "2026-01-02/3.jsonl",
            "2026-01-02/03.json",
            "2026-01-02/03.jsonl.gz.tmp",
            "2026-1-02/03.jsonl",
            "2026-02-30/03.jsonl",
            "details/03.jsonl",
            "2026-01-02/+3.jsonl",
        ] {
            assert_eq!(Hour::of_path(Path::new(path)), None, "{path}");
        }
    }
}
