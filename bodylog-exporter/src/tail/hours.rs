//! The hours of the log and their files: `<details>/<YYYY-MM-DD>/<HH>.jsonl`, and `<HH>.jsonl.gz`
//! once an hour is closed. UTC.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use chrono::{DateTime, NaiveDate, Timelike};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use service::files;

/// An hour, counted from the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hour(i32);

const HOURS_OF_DAY: i32 = 24;

impl Hour {
    /// Before every hour.
    pub const FIRST: Self = Self(i32::MIN);

    /// Parses a directory name and a file's stem.
    pub fn parse(day: &str, hour: &str) -> Option<Self> {
        // The parsers below would accept signs and spaces too.
        let is_digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
        let is_day = day.len() == "YYYY-MM-DD".len() && day.split('-').all(is_digits);
        if !is_day || hour.len() != "HH".len() || !is_digits(hour) {
            return None;
        }
        let day = NaiveDate::parse_from_str(day, "%Y-%m-%d").ok()?;
        let hour: u8 = hour.parse().ok()?;
        let days = day.signed_duration_since(NaiveDate::default()).num_days();
        let hours = i32::try_from(days).ok()?.checked_mul(HOURS_OF_DAY)?;
        (i32::from(hour) < HOURS_OF_DAY).then_some(Self(hours + i32::from(hour)))
    }

    /// The hour that contains a time in milliseconds since the Unix epoch.
    pub fn at(unix_ms: i64) -> Self {
        let hours = unix_ms.div_euclid(3_600_000);
        Self(i32::try_from(hours).unwrap_or(if hours < 0 { i32::MIN } else { i32::MAX }))
    }

    /// The hour `hours` later; earlier if negative.
    pub fn plus(self, hours: i32) -> Self {
        Self(self.0.saturating_add(hours))
    }

    /// Number of hours from `earlier` to this one.
    pub fn since(self, earlier: Self) -> i32 {
        self.0.saturating_sub(earlier.0)
    }

    /// The path of the growing file.
    pub fn plain(self, details: &Path) -> PathBuf {
        let at = DateTime::from_timestamp(i64::from(self.0) * 3600, 0).unwrap_or_default();
        details
            .join(at.format("%Y-%m-%d").to_string())
            .join(format!("{:02}.jsonl", at.hour()))
    }

    /// The path of the compressed file.
    pub fn gzip(self, details: &Path) -> PathBuf {
        let mut path = self.plain(details).into_os_string();
        path.push(".gz");
        path.into()
    }
}

impl fmt::Display for Hour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match DateTime::from_timestamp(i64::from(self.0) * 3600, 0) {
            Some(at) => at.format("%Y-%m-%dT%H").fmt(f),
            None => f.write_str("-"),
        }
    }
}

impl Serialize for Hour {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_i32(self.0)
    }
}

impl<'de> Deserialize<'de> for Hour {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        i32::deserialize(from).map(Self)
    }
}

/// The existing files of an hour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Forms {
    /// Whether the growing file exists.
    pub(super) plain: bool,
    /// Whether the compressed file exists.
    pub(super) gzip: bool,
}

/// The hours on disk from `from` on, ascending. Files with other names are skipped; a directory
/// that does not exist yet holds no hours.
///
/// # Errors
/// A directory cannot be listed.
pub(super) fn list(details: &Path, from: Hour) -> io::Result<BTreeMap<Hour, Forms>> {
    let mut found: BTreeMap<Hour, Forms> = BTreeMap::new();
    for day in names(details)? {
        let Some(last) = Hour::parse(&day, "23") else {
            continue;
        };
        if last < from {
            continue;
        }
        let day_dir = details.join(&day);
        if !files::is_dir(&day_dir) {
            // A link may lead out of the directory.
            continue;
        }
        for name in names(&day_dir)? {
            let (stem, is_gzip) = match name.strip_suffix(".gz") {
                Some(plain) => (plain, true),
                None => (&*name, false),
            };
            let hour = stem
                .strip_suffix(".jsonl")
                .and_then(|stem| Hour::parse(&day, stem));
            let Some(hour) = hour.filter(|hour| *hour >= from) else {
                continue;
            };
            let forms = found.entry(hour).or_default();
            forms.plain |= !is_gzip;
            forms.gzip |= is_gzip;
        }
    }
    Ok(found)
}

/// The UTF-8 names in a directory. Empty if the directory does not exist or disappears meanwhile.
fn names(directory: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if is_absent(&error) => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut names = Vec::new();
    for entry in entries {
        names.extend(entry?.file_name().into_string().ok());
    }
    Ok(names)
}

/// Whether an error means that the file does not exist.
pub(super) fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_hour_and_its_path_say_the_same() {
        let hour = Hour::parse("2026-01-02", "23").unwrap();
        assert_eq!(
            hour.plain(Path::new("d")),
            Path::new("d/2026-01-02/23.jsonl")
        );
        assert_eq!(
            hour.plus(1).gzip(Path::new("d")),
            Path::new("d/2026-01-03/00.jsonl.gz")
        );
        assert_eq!(hour.to_string(), "2026-01-02T23");
        assert_eq!(hour.plus(3).since(hour), 3);
        assert_eq!(Hour::at(1_767_398_399_999), hour);
        assert_eq!(Hour::at(1_767_398_400_000), hour.plus(1));
    }

    #[test]
    fn other_names_are_no_hours() {
        for (day, hour) in [
            ("2026-01-02", "24"),
            ("2026-01-02", "+1"),
            ("2026-01-02", "1"),
            ("2026-1-2", "01"),
            ("2026-02-30", "01"),
            ("metrics", "01"),
            ("+226-01-02", "01"),
        ] {
            assert_eq!(Hour::parse(day, hour), None, "{day}/{hour}");
        }
    }

    #[test]
    fn the_hours_on_disk_are_listed_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let day = |name: &str, files: &[&str]| {
            fs::create_dir(dir.path().join(name)).unwrap();
            for file in files {
                fs::write(dir.path().join(name).join(file), "").unwrap();
            }
        };
        day(
            "2026-01-02",
            &["22.jsonl.gz", "23.jsonl", "23.jsonl.gz", ".tmp-1-2"],
        );
        day("2026-01-03", &["00.jsonl", "00.txt"]);
        day("2025-12-31", &["00.jsonl"]);
        day("other", &["00.jsonl"]);
        let from = Hour::parse("2026-01-02", "22").unwrap();
        let found: Vec<_> = list(dir.path(), from)
            .unwrap()
            .into_iter()
            .map(|(hour, forms)| (hour.to_string(), forms.plain, forms.gzip))
            .collect();
        assert_eq!(
            found,
            [
                ("2026-01-02T22".into(), false, true),
                ("2026-01-02T23".into(), true, true),
                ("2026-01-03T00".into(), true, false),
            ]
        );
        assert!(list(&dir.path().join("none"), from).unwrap().is_empty());
        let elsewhere = tempfile::tempdir().unwrap();
        fs::write(elsewhere.path().join("00.jsonl"), "").unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), dir.path().join("2026-01-04")).unwrap();
        assert_eq!(list(dir.path(), from).unwrap().len(), 3);
    }
}
