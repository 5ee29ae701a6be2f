//! Keeps frames that could not be read, for diagnosis. Size is limited per day.
//!
//! `<dir>/quarantine/<YYYY-MM-DD>.frames` holds entries in sequence. Each is a line of JSON
//! (`{"ts":…,"source":…,"kind":…,"len":…}`), then `len` bytes of frame, then a line end.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chrono::{NaiveDate, SecondsFormat};
use parking_lot::Mutex;
use serde_json::json;
use service::files;

use crate::metrics::{Metrics, SetAside};
use crate::storage;
use service::clock::WallClock;

/// The directory below the root.
pub(crate) const DIR: &str = "quarantine";
/// Most bytes per day.
const DAY_MAX: u64 = 16 << 20;

/// The quarantine.
#[derive(Debug)]
pub(crate) struct Quarantine {
    root: PathBuf,
    clock: WallClock,
    metrics: Arc<Metrics>,
    today: Mutex<Option<Today>>,
    /// The kinds already logged. Each kind is logged once.
    logged: Mutex<HashSet<SetAside>>,
}

#[derive(Debug)]
struct Today {
    date: NaiveDate,
    file: File,
    len: u64,
}

impl Quarantine {
    /// Creates the quarantine below `root`.
    pub(crate) fn new(root: PathBuf, clock: WallClock, metrics: Arc<Metrics>) -> Self {
        Self {
            root,
            clock,
            metrics,
            today: Mutex::new(None),
            logged: Mutex::default(),
        }
    }

    /// Keeps a frame, or only counts it if there is no room. Blocks on the disk.
    pub(crate) fn keep(&self, source: IpAddr, kind: SetAside, frame: &[u8]) {
        self.metrics.quarantined(kind);
        if self.logged.lock().insert(kind) {
            tracing::warn!(
                %source,
                kind = kind.as_str(),
                bytes = frame.len(),
                dir = DIR,
                "a frame is set aside; further ones of this kind are only counted"
            );
        }
        match self.try_keep(source, kind, frame) {
            Ok(true) => {}
            Ok(false) => {
                self.metrics.quarantine_dropped.inc();
            }
            Err(error) => {
                self.metrics.quarantine_dropped.inc();
                tracing::debug!(%error, "a broken frame cannot be kept");
            }
        }
    }

    fn try_keep(&self, source: IpAddr, kind: SetAside, frame: &[u8]) -> io::Result<bool> {
        let now = self.clock.now();
        let head = json!({
            "ts": now.to_rfc3339_opts(SecondsFormat::Millis, true),
            "source": source,
            "kind": kind.as_str(),
            "len": frame.len(),
        });
        let entry = [head.to_string().as_bytes(), b"\n", frame, b"\n"].concat();
        let mut today = self.today.lock();
        let date = now.date_naive();
        if today.as_ref().is_none_or(|today| today.date != date) {
            *today = Some(self.open(date)?);
        }
        let Some(today) = today.as_mut() else {
            return Ok(false);
        };
        if today.len + entry.len() as u64 > DAY_MAX {
            return Ok(false);
        }
        if let Err(error) = today.file.write_all(&entry) {
            today.file.set_len(today.len)?;
            return Err(error);
        }
        today.len += entry.len() as u64;
        Ok(true)
    }

    fn open(&self, date: NaiveDate) -> io::Result<Today> {
        let dir = self.root.join(DIR);
        storage::create_dirs(&self.root, &dir)?;
        let mut options = OpenOptions::new();
        options.create(true).append(true).mode(storage::FILE_MODE);
        let file = files::open_with(&mut options, &path_of(&self.root, date))?;
        let len = file.metadata()?.len();
        Ok(Today { date, file, len })
    }
}

/// The file for a day.
pub(crate) fn path_of(root: &Path, date: NaiveDate) -> PathBuf {
    root.join(DIR).join(format!("{date}.frames"))
}

#[cfg(test)]
mod tests {
    use proto::codec::Fault;

    use super::*;

    #[test]
    fn frames_are_kept_up_to_the_days_room() {
        let root = tempfile::tempdir().unwrap();
        let metrics = Arc::new(Metrics::new(&service::connections::Connections::new(
            service::http::CONNECTIONS,
        )));
        let clock = WallClock::new(|| "2026-01-02T10:00:00Z".parse().unwrap());
        let quarantine = Quarantine::new(root.path().into(), clock, Arc::clone(&metrics));
        let source = "10.0.0.7".parse().unwrap();
        quarantine.keep(source, SetAside::Fault(Fault::ReqOverrun), b"frame");
        let path = root.path().join("quarantine/2026-01-02.frames");
        assert_eq!(
            std::fs::read_to_string(&path).unwrap(),
            "{\"kind\":\"req_overrun\",\"len\":5,\"source\":\"10.0.0.7\",\"ts\":\"2026-01-02T10:00:00.000Z\"}\nframe\n"
        );
        let large = vec![0; 6 << 20];
        for _ in 0..5 {
            quarantine.keep(source, SetAside::BadMeta, &large);
        }
        assert!(std::fs::metadata(&path).unwrap().len() <= DAY_MAX);
        assert_eq!(metrics.quarantine_dropped.get(), 3);
    }
}
