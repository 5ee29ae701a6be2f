//! Parses `--since` and `--until`: an age or a time.

use std::str::FromStr;

use chrono::DateTime;

/// A point in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// Milliseconds ago.
    Ago(i64),
    /// Milliseconds since the Unix epoch.
    At(i64),
}

impl Since {
    /// The time in milliseconds since the Unix epoch.
    pub fn unix_ms(self, now_ms: i64) -> i64 {
        match self {
            Self::Ago(ms) => now_ms.saturating_sub(ms),
            Self::At(ms) => ms,
        }
    }
}

impl FromStr for Since {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(at) = DateTime::parse_from_rfc3339(text) {
            return Ok(Self::At(at.timestamp_millis()));
        }
        ago(text).map(Self::Ago).ok_or_else(|| {
            "expected a distance like 90s, 10m, 2h or 3d, or a time like 2026-01-02T10:00:00Z"
                .to_owned()
        })
    }
}

/// The current time, milliseconds since the Unix epoch.
pub(super) fn wall_ms() -> i64 {
    let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    // A clock before 1970 counts as 1970: no record is older.
    since_epoch.map_or(0, |elapsed| elapsed.as_millis() as i64)
}

fn ago(text: &str) -> Option<i64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit_ms = match unit {
        "ms" => 1,
        "" | "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    number.parse::<i64>().ok()?.checked_mul(unit_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distance_or_a_time() {
        for (text, expected) in [
            ("90s", Since::Ago(90_000)),
            ("0s", Since::Ago(0)),
            ("15", Since::Ago(15_000)),
            ("10m", Since::Ago(600_000)),
            ("3d", Since::Ago(259_200_000)),
            ("2026-01-02T10:00:00Z", Since::At(1_767_348_000_000)),
            (
                "2026-01-02T18:00:00.500+08:00",
                Since::At(1_767_348_000_500),
            ),
        ] {
            assert_eq!(text.parse(), Ok(expected), "{text}");
        }
        for text in [
            "",
            "m",
            "-5m",
            "1y",
            "yesterday",
            "99999999999999999999d",
            "10:00",
        ] {
            assert!(text.parse::<Since>().is_err(), "{text}");
        }
    }
}
