//! Reads and writes numbers with units: durations and sizes.
//!
//! Every reader accepts only digits first, so `NaN`, `inf`, signs and exponents are never accepted.

use std::time::Duration;

/// The suffixes of durations, longest first, with their seconds.
const DURATION_UNITS: [(&str, f64); 4] = [("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];

/// The suffixes of sizes with their bytes.
const SIZE_UNITS: [(char, u64); 4] = [
    ('k', 1 << 10),
    ('m', 1 << 20),
    ('g', 1 << 30),
    ('t', 1 << 40),
];

/// Reads `250ms`, `2s`, `5m`, `1h`, or bare seconds; fractions like `1.5s` and `.5` are allowed.
/// `None` for anything else.
pub fn duration(text: &str) -> Option<Duration> {
    let (number, unit) = DURATION_UNITS
        .iter()
        .find_map(|(suffix, unit)| text.strip_suffix(suffix).map(|number| (number, *unit)))
        .unwrap_or((text, 1.0));
    Duration::try_from_secs_f64(decimal(number)? * unit).ok()
}

/// Reads `512k`, `10m`, `1g`, `1t` (1024-based, either case) or bare bytes. `None` for anything
/// else, and for values beyond 64 bits.
pub fn size(text: &str) -> Option<u64> {
    let last = text.chars().next_back()?.to_ascii_lowercase();
    match SIZE_UNITS.iter().find(|(suffix, _)| *suffix == last) {
        Some((_, unit)) => whole(&text[..text.len() - 1])?.checked_mul(*unit),
        None => whole(text),
    }
}

/// Reads a whole number without a sign. `None` for anything else, and for values beyond 64 bits.
pub fn whole(text: &str) -> Option<u64> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

/// Reads digits with at most one decimal point. `None` for anything else.
pub fn decimal(text: &str) -> Option<f64> {
    let digits = text.bytes().filter(u8::is_ascii_digit).count();
    let points = text.bytes().filter(|b| *b == b'.').count();
    if digits == 0 || points > 1 || digits + points != text.len() {
        return None;
    }
    text.parse().ok().filter(|number: &f64| number.is_finite())
}

/// The shortest spelling of a duration that parses to the same value.
pub fn show_duration(duration: Duration) -> String {
    let ms = duration.as_millis();
    match ms {
        0 => "0s".to_owned(),
        _ if Duration::from_millis(u64::try_from(ms).unwrap_or(u64::MAX)) != duration => {
            format!("{}s", duration.as_secs_f64())
        }
        _ if ms.is_multiple_of(3_600_000) => format!("{}h", ms / 3_600_000),
        _ if ms.is_multiple_of(60_000) => format!("{}m", ms / 60_000),
        _ if ms.is_multiple_of(1000) => format!("{}s", ms / 1000),
        _ => format!("{ms}ms"),
    }
}

/// The shortest spelling of a size that parses to the same value.
pub fn show_size(bytes: u64) -> String {
    let unit = SIZE_UNITS
        .iter()
        .rev()
        .find(|(_, unit)| bytes != 0 && bytes.is_multiple_of(*unit));
    match unit {
        Some((suffix, unit)) => format!("{}{suffix}", bytes / unit),
        None => bytes.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_with_and_without_a_unit() {
        let ms = |text| duration(text).map(|d| d.as_micros());
        assert_eq!(ms("250ms"), Some(250_000));
        assert_eq!(ms("2s"), Some(2_000_000));
        assert_eq!(ms("5m"), Some(300_000_000));
        assert_eq!(ms("1h"), Some(3_600_000_000));
        assert_eq!(ms("30"), Some(30_000_000));
        assert_eq!(ms(".5"), Some(500_000));
        assert_eq!(ms("1.5m"), Some(90_000_000));
        assert_eq!(ms("0"), Some(0));
        assert_eq!(ms("3."), Some(3_000_000));
    }

    #[test]
    fn what_is_not_a_duration_is_none() {
        for text in [
            "", "s", "ms", ".", "-1s", "+1", "1e3", "1d", "1 s", "NaN", "inf", ".nan", "1h30m",
            "0x10", "1_000", "5M",
        ] {
            assert_eq!(duration(text), None, "{text:?}");
        }
        assert_eq!(duration(&"9".repeat(400)), None);
        assert_eq!(duration(&format!("{}h", "9".repeat(30))), None);
    }

    #[test]
    fn sizes_are_1024_based_and_checked_for_overflow() {
        assert_eq!(size("512k"), Some(512 << 10));
        assert_eq!(size("10m"), Some(10 << 20));
        assert_eq!(size("1G"), Some(1 << 30));
        assert_eq!(size("2t"), Some(2 << 40));
        assert_eq!(size("4096"), Some(4096));
        for text in [
            "",
            "k",
            "10mb",
            "10MiB",
            "-1",
            "1.5g",
            "1e6",
            "99999999999999999999",
            "18446744073709551615k",
        ] {
            assert_eq!(size(text), None, "{text:?}");
        }
    }

    #[test]
    fn what_is_shown_reads_back() {
        for text in ["250ms", "2s", "90s", "5m", "1h", "0s"] {
            let value = duration(text).unwrap();
            assert_eq!(duration(&show_duration(value)), Some(value), "{text}");
        }
        for text in ["512k", "10m", "1g", "2t", "1000", "0"] {
            assert_eq!(show_size(size(text).unwrap()), text);
        }
    }
}
