//! What is printed.

use std::time::Duration;

use crate::load::Case;

/// Prints a line.
#[expect(
    clippy::print_stdout,
    reason = "the bench is a program whose result is its output"
)]
pub(crate) fn line(text: &str) {
    println!("{text}");
}

/// The head of a table of ratios: what is measured, and of whom.
pub(crate) fn header(what: &str, [base, ours]: [&str; 2]) {
    line(&format!(
        "{:<28} {:>11} {:>10} {:>7}  {:<15} {:>8}",
        what, base, ours, "ratio", "of the rounds", "promise"
    ));
}

/// One row: medians, their ratio, the least and greatest ratio of the rounds.
pub(crate) fn ratio(case: &Case, floor: &[f64], router: &[f64]) {
    let (base, ours) = (median(floor), median(router));
    let mut ratios: Vec<f64> = floor
        .iter()
        .zip(router)
        .map(|(base, ours)| ours / base)
        .collect();
    ratios.sort_by(f64::total_cmp);
    let spread = format!("{:.2} to {:.2}", ratios[0], ratios[ratios.len() - 1]);
    let promise = case
        .limit
        .map_or_else(|| "-".to_owned(), |limit| format!("{limit:.2}"));
    line(&format!(
        "{:<28} {base:>11.2} {ours:>10.2} {:>7.2}  {spread:<15} {promise:>8}",
        case.name,
        ours / base
    ));
}

/// Added time to the first chunk.
pub(crate) fn added(streams: usize, floor: &[Duration], router: &[Duration]) {
    let ms = |times: &[Duration]| {
        median(
            &times
                .iter()
                .map(|time| time.as_secs_f64() * 1e3)
                .collect::<Vec<_>>(),
        )
    };
    let (base, ours) = (ms(floor), ms(router));
    line(&format!(
        "{streams} streams paced at 20 ms, first chunk p50: floor {base:.2} ms, router {ours:.2} ms, added {:.2} ms (promise 0.6)",
        ours - base
    ));
}

/// Resident memory.
pub(crate) fn memory(name: &str, idle_kib: u64, open_kib: u64, streams: usize) {
    let each = open_kib.saturating_sub(idle_kib) as f64 / streams as f64;
    line(&format!(
        "{name}: {:.1} MiB idle, {each:.1} KiB more per open stream (router's promise: 12 MiB, 45 KiB)",
        idle_kib as f64 / 1024.0
    ));
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        sorted[middle]
    } else {
        f64::midpoint(sorted[middle - 1], sorted[middle])
    }
}
