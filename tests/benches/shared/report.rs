//! The output of the benches. Each bench includes this file as a module.

/// Prints a line.
#[expect(
    clippy::print_stdout,
    reason = "the bench is a program whose result is its output"
)]
pub(crate) fn line(text: &str) {
    println!("{text}");
}

/// The head of a table of ratios: the measured value and the compared sides.
pub(crate) fn header(what: &str, [base, ours]: [&str; 2]) {
    line(&format!(
        "{what:<33} {base:>11} {ours:>10} {:>7}  {:<15} {:>8}",
        "ratio", "of the rounds", "goal"
    ));
}

/// One row: medians, their ratio, the smallest and largest ratio of the rounds, and the target
/// ratio.
pub(crate) fn ratio(name: &str, [base, ours]: &[Vec<f64>; 2], promise: Option<f64>) {
    let mut ratios: Vec<f64> = base
        .iter()
        .zip(ours)
        .map(|(base, ours)| ours / base)
        .collect();
    ratios.sort_by(f64::total_cmp);
    let spread = format!("{:.2} to {:.2}", ratios[0], ratios[ratios.len() - 1]);
    let promise = promise.map_or_else(|| "-".to_owned(), |promise| format!("{promise:.2}"));
    let (base, ours) = (median(base), median(ours));
    line(&format!(
        "{name:<33} {base:>11.2} {ours:>10.2} {:>7.2}  {spread:<15} {promise:>8}",
        ours / base
    ));
}

/// The median of some values.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        sorted[middle]
    } else {
        f64::midpoint(sorted[middle - 1], sorted[middle])
    }
}
