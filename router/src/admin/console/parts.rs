//! Small drawings and texts that several views use. Sizes are SVG attributes: the policy of the
//! pages forbids inline styles.

use maud::{Markup, html};
use proto::admin::CacheHits;

use crate::state::SAMPLES_MAX;

/// Height of a sparkline in its own units.
const HIGH: f64 = 24.0;

/// A bar of `value` out of `limit`.
pub(super) fn bar(value: f64, limit: f64, label: &str) -> Markup {
    let share = if limit > 0.0 {
        (value / limit).min(1.0)
    } else {
        0.0
    };
    html! {
        svg.bar role="img" aria-label=(label) viewBox="0 0 100 6" preserveAspectRatio="none" {
            rect.track width="100" height="6" rx="1" {}
            rect.full[share >= 1.0].fill width=(format!("{:.1}", share * 100.0)) height="6" rx="1" {}
        }
    }
}

/// The last quarter of an hour, the newest value at the right. Gaps are values that are absent.
pub(super) fn sparkline(values: impl Iterator<Item = Option<f64>>, label: &str) -> Markup {
    let values: Vec<Option<f64>> = values.collect();
    let top = values.iter().flatten().copied().fold(0.0, f64::max);
    let start = SAMPLES_MAX.saturating_sub(values.len());
    let mut path = String::new();
    let mut is_down = false;
    for (at, value) in values.iter().enumerate() {
        let Some(value) = value else {
            is_down = false;
            continue;
        };
        let x = start + at;
        let y = if top > 0.0 {
            HIGH - 1.0 - value / top * (HIGH - 2.0)
        } else {
            HIGH - 1.0
        };
        let step = if is_down { 'L' } else { 'M' };
        path.push_str(&format!("{step}{x} {y:.1}"));
        is_down = true;
    }
    let width = SAMPLES_MAX - 1;
    html! {
        svg.spark role="img" aria-label=(label) viewBox=(format!("0 0 {width} {HIGH}")) preserveAspectRatio="none" {
            path d=(path) {}
        }
    }
}

/// `45 s`, `3 min`, `2 h 5 min`, `4 d`.
pub(super) fn duration(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// `850 ms`, `2.4 s`, `31 s`.
pub(super) fn millis(ms: f64) -> String {
    match ms {
        ms if ms < 1000.0 => format!("{ms:.0} ms"),
        ms if ms < 10_000.0 => format!("{:.1} s", ms / 1000.0),
        ms => format!("{:.0} s", ms / 1000.0),
    }
}

/// The share of prompt tokens that came from a cache, over the last five minutes.
pub(super) fn hit_rate(hits: Option<&CacheHits>) -> Option<String> {
    let percent = hits?.last_5m.percent()?;
    Some(format!("{percent} %"))
}

/// A value, or a dash that says nothing to a screen reader but "none".
pub(super) fn or_dash(text: Option<String>) -> Markup {
    html! {
        @match text {
            Some(text) => (text),
            None => span.quiet aria-label="none" { "–" },
        }
    }
}

/// A rate: `0`, `0.05`, `2.4`, `31`.
pub(super) fn rate(per_s: f64) -> String {
    match per_s {
        0.0 => "0".to_owned(),
        r if r < 1.0 => format!("{r:.2}"),
        r if r < 10.0 => format!("{r:.1}"),
        r => format!("{r:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_at_most_two_units() {
        let shown = [0, 119, 120, 7199, 7500, 200_000].map(duration);
        assert_eq!(
            shown,
            ["0 s", "119 s", "2 min", "119 min", "2 h 5 min", "2 d"]
        );
    }

    #[test]
    fn a_sparkline_ends_at_the_right_and_breaks_at_gaps() {
        let values = [Some(1.0), None, Some(2.0), Some(2.0)];
        let text = sparkline(values.into_iter(), "x").into_string();
        assert!(text.contains(r#"d="M176 12.0M178 1.0L179 1.0""#), "{text}");
    }

    #[test]
    fn a_bar_never_leaves_its_track() {
        let text = bar(9.0, 4.0, "9 of 4").into_string();
        assert!(text.contains(r#"width="100.0""#), "{text}");
        assert!(bar(1.0, 0.0, "").into_string().contains(r#"width="0.0""#));
    }
}
