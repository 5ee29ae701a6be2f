//! A wall clock for a child process that steps on command. `libfaketime` sits between the program
//! and the system. The program does not know about it, and its timers run as usual.

use std::fs;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use tempfile::TempDir;

/// The clock of each program that is started with its environment.
pub struct SteppedClock {
    library: PathBuf,
    directory: TempDir,
}

impl SteppedClock {
    /// A clock that shows the right time at first.
    ///
    /// # Errors
    ///
    /// When `libfaketime` is not installed.
    ///
    /// # Panics
    ///
    /// When no directory can be made for it.
    pub fn new() -> Result<Self, String> {
        let places = fs::read_dir("/usr/lib").into_iter().flatten().flatten();
        let library = places
            .map(|place| place.path().join("faketime/libfaketimeMT.so.1"))
            .find(|library| library.exists())
            .ok_or("libfaketime is not installed (Debian: faketime)")?;
        let clock = Self {
            library,
            directory: tempfile::tempdir().expect("a temporary directory"),
        };
        clock.step(0);
        Ok(clock)
    }

    /// Sets the clock off by this many seconds from now on.
    ///
    /// # Panics
    ///
    /// When the directory cannot be written.
    pub fn step(&self, seconds: i64) {
        // Written by rename, so that nobody reads half of it.
        let aside = self.directory.path().join("offset.new");
        fs::write(&aside, format!("{seconds:+}\n"))
            .and_then(|()| fs::rename(&aside, self.offset()))
            .expect("the directory is ours");
    }

    /// Sets the clock to `at`, in seconds since the Unix epoch. It runs on from there.
    ///
    /// # Panics
    ///
    /// As [`step`](Self::step).
    pub fn set(&self, at: i64) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.expect("it is past 1970").as_secs();
        self.step(at - i64::try_from(now).expect("it is before the year 292 billion"));
    }

    /// The environment for the program.
    pub fn environment(&self) -> Vec<(String, String)> {
        let text = |path: PathBuf| path.to_string_lossy().into_owned();
        [
            ("LD_PRELOAD", text(self.library.clone())),
            ("FAKETIME_TIMESTAMP_FILE", text(self.offset())),
            // libfaketime reads the file at each call for the time.
            ("FAKETIME_NO_CACHE", "1".to_owned()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
            // Times of files stay those of the system.
            ("NO_FAKE_STAT", "1".to_owned()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }

    fn offset(&self) -> PathBuf {
        self.directory.path().join("offset")
    }
}
