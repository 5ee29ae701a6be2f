//! Finds one full record by its request id, searching the newest hours first, line by line.

use std::io;
use std::path::Path;

use chrono::{DateTime, TimeDelta, Utc};
use memchr::memmem::Finder;
use serde::Deserialize;

use crate::lines::{self, Continue};

/// Default search range.
pub(super) const HOURS: u32 = 24;
/// Largest search range.
pub(super) const HOURS_MAX: u32 = 24 * 366;

#[derive(Deserialize)]
struct Id {
    #[serde(default)]
    request_id: Option<String>,
}

/// The line of a record. If its hour has several, the last one.
pub(super) fn record(
    root: &Path,
    request_id: &str,
    hours: u32,
    now: DateTime<Utc>,
) -> io::Result<Option<Vec<u8>>> {
    let from = now - TimeDelta::hours(i64::from(hours));
    let files = lines::one_per_hour(lines::hour_files(root)?);
    // The id as it appears in a line. Parsing then rules out a body that merely mentions it.
    let needle = serde_json::to_string(request_id)?;
    let finder = Finder::new(needle.as_bytes());
    for file in files.iter().rev() {
        if file.hour.next().start() <= from {
            break;
        }
        let mut found = None;
        let mut reader = match lines::open(&file.path) {
            Ok(reader) => reader,
            // The file was packed or deleted after it was listed. If packed, the next request finds
            // it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        lines::each_line(&mut *reader, 0, |line| {
            let is_it = finder.find(line).is_some()
                && serde_json::from_slice::<Id>(line)
                    .is_ok_and(|id| id.request_id.as_deref() == Some(request_id));
            if is_it {
                found = Some(line.to_vec());
            }
            Continue::Yes
        })?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_record_of_an_id_is_found_and_a_body_that_names_it_is_not() {
        let root = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = root.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write(
            "2026-01-02/09.jsonl",
            "{\"request_id\":\"r1\",\"n\":1}\nnot json \"r1\"\n",
        );
        write(
            "2026-01-02/10.jsonl",
            "{\"request_id\":\"r2\",\"req_body\":\"\\\"r1\\\"\",\"x\":\"r1\"}\n{\"request_id\":\"r3\"}\n",
        );
        let now = "2026-01-02T10:30:00Z".parse().unwrap();
        let find = |id: &str, hours| {
            record(root.path(), id, hours, now)
                .unwrap()
                .map(|line| String::from_utf8(line).unwrap())
        };
        assert_eq!(
            find("r1", 24).as_deref(),
            Some("{\"request_id\":\"r1\",\"n\":1}")
        );
        assert_eq!(find("r3", 1).as_deref(), Some("{\"request_id\":\"r3\"}"));
        assert_eq!(find("r1", 0), None);
        assert_eq!(find("r9", 24), None);
    }
}
