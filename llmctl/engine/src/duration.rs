//! Durations in the syntax of the flags: `250us`, `250ms`, `2s`, `5m`, `1h`, or bare seconds.

use std::time::Duration;

/// Parses a duration.
///
/// # Errors
///
/// A sentence with the invalid text and the allowed syntax.
pub fn parse(text: &str) -> Result<Duration, String> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let scale = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(wrong(text)),
    };
    let seconds = number.parse::<f64>().map_err(|_| wrong(text))? * scale;
    // Round to nanoseconds, so that 0.1 * 1e-3 is exactly 100us.
    Duration::try_from_secs_f64((seconds * 1e9).round() / 1e9).map_err(|_| wrong(text))
}

fn wrong(text: &str) -> String {
    format!(
        "found `{text}`; a duration is a number with us, ms, s, m or h, or bare seconds, such as 250ms"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_and_bare_seconds() {
        for (text, millis) in [
            ("250ms", 250.0),
            ("2s", 2e3),
            ("0.5", 500.0),
            ("5m", 3e5),
            ("1h", 3.6e6),
            ("100us", 0.1),
        ] {
            assert_eq!(
                parse(text),
                Ok(Duration::from_nanos((millis * 1e6) as u64)),
                "{text}"
            );
        }
    }

    #[test]
    fn anything_else_is_refused_with_what_was_found() {
        for text in [
            "",
            "ms",
            "1d",
            "-1s",
            "1.2.3",
            "1 s",
            "99999999999999999999999999",
        ] {
            assert!(
                parse(text).unwrap_err().contains(&format!("`{text}`")),
                "{text}"
            );
        }
    }
}
