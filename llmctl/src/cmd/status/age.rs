//! Ages in words.

/// `45 s`, `12 min`, `3 h 5 min`, `2 d 4 h`.
pub(super) fn age_words(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, minutes) => format!("{minutes} min"),
        (0, hours, minutes) => format!("{hours} h {} min", minutes % 60),
        (days, hours, _) => format!("{days} d {} h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_told_in_two_units_at_most() {
        let told = [59, 60, 3_599, 11_100, 187_200].map(age_words);
        assert_eq!(told, ["59 s", "1 min", "59 min", "3 h 5 min", "2 d 4 h"]);
    }
}
