//! Reads two sums from a callgrind file: instructions, and calls of the allocator.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

/// Functions that request memory from the system's allocator or from jemalloc.
const ALLOCATORS: [&str; 9] = [
    "malloc",
    "calloc",
    "realloc",
    "posix_memalign",
    "_rjem_malloc",
    "_rjem_mallocx",
    "_rjem_calloc",
    "_rjem_realloc",
    "_rjem_rallocx",
];

/// The sums of one run of a program.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) instructions: u64,
    pub(crate) allocations: u64,
}

/// Reads a file that callgrind wrote.
///
/// # Panics
///
/// When the file is missing or has no sum.
pub(crate) fn read(path: &Path) -> Totals {
    let text = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let text = String::from_utf8_lossy(&text);
    let mut totals = Totals::default();
    // A name is written out once, with a number. Later lines use only the number.
    let mut allocators = HashSet::new();
    let mut calls_allocator = false;
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("cfn=").or(line.strip_prefix("fn=")) {
            let (id, name) = name.split_once(' ').unwrap_or((name, ""));
            if ALLOCATORS.contains(&name) {
                allocators.insert(id);
            }
            calls_allocator = line.starts_with('c') && allocators.contains(id);
        } else if let Some(calls) = line.strip_prefix("calls=")
            && calls_allocator
        {
            totals.allocations += first_number(calls);
        } else if let Some(sum) = line.strip_prefix("totals: ") {
            totals.instructions = first_number(sum);
        }
    }
    assert!(totals.instructions > 0, "{}: no totals", path.display());
    totals
}

fn first_number(text: &str) -> u64 {
    let number = text.split_whitespace().next();
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}
