//! Checks that every test named in `docs/bodylog-losses.md` exists.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const WORKSPACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
const PACKAGES: [&str; 6] = [
    "crates",
    "proto",
    "router",
    "bodylog-listener",
    "bodylog-exporter",
    "tests",
];

/// The names of all test functions below `dir`.
fn tests_below(dir: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && path.file_name().unwrap() != "target" {
            tests_below(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            tests_in(&fs::read_to_string(&path).unwrap(), found);
        }
    }
}

fn tests_in(source: &str, found: &mut BTreeSet<String>) {
    let mut is_test = false;
    for line in source.lines().map(str::trim_start) {
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            is_test = true;
        } else if !line.starts_with("#[") {
            let function = line.trim_start_matches("async ").strip_prefix("fn ");
            if let Some(function) = function.filter(|_| is_test) {
                let end = function.find('(').unwrap_or(function.len());
                found.insert(function[..end].to_owned());
            }
            is_test = false;
        }
    }
}

/// The texts between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

#[test]
fn every_loss_mode_has_tests_and_all_of_them_exist() {
    let mut tests = BTreeSet::new();
    for package in PACKAGES {
        tests_below(&Path::new(WORKSPACE).join(package), &mut tests);
    }
    let page = fs::read_to_string(Path::new(WORKSPACE).join("docs/bodylog-losses.md")).unwrap();
    let mut modes = Vec::new();
    for row in page.lines().filter(|line| line.starts_with("| E")) {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").collect();
        let [mode, _, _, pinned] = cells[..] else {
            panic!("four cells: {row}");
        };
        modes.push(mode.trim().to_owned());
        let names: Vec<&str> = quoted(pinned).collect();
        assert!(!names.is_empty(), "{mode} has no test");
        for name in names {
            assert!(tests.contains(name), "{mode}: there is no test {name}");
        }
    }
    let expected: Vec<String> = (1..=35).map(|n| format!("E{n}")).collect();
    assert_eq!(modes, expected);
    let (_, beyond) = page.split_once("## Beyond the list").unwrap();
    for name in quoted(beyond) {
        assert!(tests.contains(name), "there is no test {name}");
    }
}
