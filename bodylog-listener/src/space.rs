//! Measures free disk space and decides what may be stored.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::config::MinFree;

/// The storage levels, from everything to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// Everything.
    Normal,
    /// Everything, but the oldest files must be deleted.
    Tight,
    /// Records without bodies.
    NoBodies,
    /// Nothing.
    Full,
}

impl Level {
    /// The name of the level.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Tight => "tight",
            Self::NoBodies => "no_bodies",
            Self::Full => "full",
        }
    }

    /// The level for `free` of `total` bytes when `min_free` must stay free. Below half of
    /// `min_free`, bodies are not stored; below a tenth, nothing is stored.
    pub(crate) fn of(room: Room, min_free: MinFree) -> Self {
        let floor = min_free.bytes_of(room.total);
        match room.free {
            free if free >= floor => Self::Normal,
            free if free >= floor / 2 => Self::Tight,
            free if free >= floor / 10 => Self::NoBodies,
            _ => Self::Full,
        }
    }
}

/// The size of a file system, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    /// Free bytes available to this process.
    pub(crate) free: u64,
    /// All bytes.
    pub(crate) total: u64,
}

impl Room {
    /// Measures the file system that contains a path.
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        let stat = rustix::fs::statvfs(path)?;
        Ok(Self {
            free: stat.f_bavail.saturating_mul(stat.f_frsize),
            total: stat.f_blocks.saturating_mul(stat.f_frsize),
        })
    }
}

/// The shared level. Housekeeping sets it.
#[derive(Debug, Default)]
pub(crate) struct Pressure(AtomicU8);

impl Pressure {
    /// The current level.
    pub(crate) fn level(&self) -> Level {
        match self.0.load(Ordering::Relaxed) {
            0 => Level::Normal,
            1 => Level::Tight,
            2 => Level::NoBodies,
            _ => Level::Full,
        }
    }

    /// Sets the level. Returns the previous one.
    pub(crate) fn set(&self, level: Level) -> Level {
        let before = self.level();
        self.0.store(level as u8, Ordering::Relaxed);
        before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_steps_of_the_room_to_keep_free() {
        let level = |free| Level::of(Room { free, total: 1000 }, MinFree::Percent(10.0));
        assert_eq!(
            [100, 99, 50, 49, 10, 9, 0].map(level),
            [
                Level::Normal,
                Level::Tight,
                Level::Tight,
                Level::NoBodies,
                Level::NoBodies,
                Level::Full,
                Level::Full
            ]
        );
        let level = |free| {
            Level::of(
                Room {
                    free,
                    total: 1 << 40,
                },
                MinFree::Bytes(200),
            )
        };
        assert_eq!(
            [200, 150, 30, 19].map(level),
            [Level::Normal, Level::Tight, Level::NoBodies, Level::Full]
        );
        let nothing = Level::of(
            Room {
                free: 0,
                total: 1000,
            },
            MinFree::Bytes(0),
        );
        assert_eq!(nothing, Level::Normal);
    }

    #[test]
    fn the_level_is_what_was_set() {
        let pressure = Pressure::default();
        for level in [Level::Tight, Level::NoBodies, Level::Full, Level::Normal] {
            pressure.set(level);
            assert_eq!(pressure.level(), level);
        }
    }
}
