//! The recorded counts of each scenario, as last accepted.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use crate::report;
use crate::scenario::Scenario;

/// The text in front of the counts.
const PREFACE: &str = "\
# Instructions and allocations of the router per request of a release, as callgrind counts them.
# `tests/run` fails when a count grows by more than 5 %. Written by
# cargo bench --workspace --profile dev --bench guard -- --router target/release/router --write
";

/// The counts of one request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counts {
    pub(crate) instructions: f64,
    pub(crate) allocations: f64,
}

/// All scenarios, in order.
#[derive(Debug, Default)]
pub(crate) struct Record(Vec<(&'static str, Counts)>);

impl Record {
    pub(crate) fn add(&mut self, scenario: Scenario, counts: Counts) {
        self.0.push((scenario.id(), counts));
    }

    /// The record in the tree. Empty when there is no record.
    pub(crate) fn load() -> Self {
        let text = fs::read_to_string(file()).unwrap_or_default();
        let mut record = Self::default();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [id, instructions, allocations] = words[..] else {
                continue;
            };
            let known = Scenario::ALL.into_iter().find(|known| known.id() == id);
            if let (Some(scenario), Ok(instructions), Ok(allocations)) =
                (known, instructions.parse(), allocations.parse())
            {
                let counts = Counts {
                    instructions,
                    allocations,
                };
                record.add(scenario, counts);
            }
        }
        record
    }

    /// Writes the record into the tree.
    ///
    /// # Panics
    ///
    /// When the file cannot be written.
    pub(crate) fn save(&self) {
        let mut text = PREFACE.to_owned();
        for (id, counts) in &self.0 {
            let _infallible = writeln!(
                text,
                "{id:<12} {:>9.0} {:>7.1}",
                counts.instructions, counts.allocations
            );
        }
        fs::write(file(), text).expect("the source tree can be written");
    }

    /// Prints each count with its recorded value. Returns `false` when a count has grown too much
    /// or has no record.
    pub(crate) fn compare(&self, record: &Self, growth_max: f64) -> bool {
        report::line(&format!(
            "{:<12} {:>12} {:>9} {:>7}  {:>11} {:>9} {:>7}",
            "per request", "instructions", "record", "", "allocations", "record", ""
        ));
        let mut is_within = true;
        for (id, now) in &self.0 {
            let Some((_, before)) = record.0.iter().find(|(known, _)| known == id) else {
                report::line(&format!("{id}: no record"));
                is_within = false;
                continue;
            };
            let instructions = growth(now.instructions, before.instructions);
            let allocations = growth(now.allocations, before.allocations);
            report::line(&format!(
                "{id:<12} {:>12.0} {:>9.0} {instructions:>+6.1}%  {:>11.1} {:>9.1} {allocations:>+6.1}%",
                now.instructions, before.instructions, now.allocations, before.allocations
            ));
            for (what, grown) in [("instructions", instructions), ("allocations", allocations)] {
                if grown > growth_max {
                    report::line(&format!(
                        "{id}: {what} grew by more than {growth_max} %: mend it, or write a new record (--write) and say why in the commit"
                    ));
                    is_within = false;
                } else if grown < -growth_max {
                    report::line(&format!(
                        "{id}: {what} fell: write a new record (--write), so that they stay there"
                    ));
                }
            }
        }
        is_within
    }
}

/// The growth in per cent.
fn growth(now: f64, before: f64) -> f64 {
    (now / before.max(1.0) - 1.0) * 100.0
}

fn file() -> PathBuf {
    PathBuf::from(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/benches/guard/counts.txt"
    ))
}
