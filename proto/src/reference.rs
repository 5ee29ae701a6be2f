//! The tables of members in `docs/bodylog.md`.

use std::{env, fs};

use crate::{meta, record, row};

/// The page. `UPDATE_DOCS=1` rewrites its tables.
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/bodylog.md");

/// A comment as the cell of a table: links to the code become words.
fn cell(comment: &str) -> String {
    let text = comment.trim().replace(['[', ']'], "");
    text.replace("NO_BACKEND", row::NO_BACKEND)
        .replace('|', "\\|")
}

fn of_records() -> String {
    let row = |[name, kind, by, meaning]: &[&str; 4]| {
        let kind = match *kind {
            "optional" => "text",
            "flag" => "`true` or absent",
            "boolean" => "`true`, `false`",
            "time" => "seconds",
            "headers" | "usage" | "found" => "object",
            "json" => "JSON",
            kind => kind,
        };
        let by = match *by {
            "sender" => "router",
            _ => "listener",
        };
        format!("| `{name}` | {kind} | {by} | {} |\n", cell(meaning))
    };
    meta::TABLE.iter().chain(record::TABLE).map(row).collect()
}

fn of_rows() -> String {
    let row = |[name, meaning]: &[&str; 2]| format!("| `{name}` | {} |\n", cell(meaning));
    row::TABLE.iter().map(row).collect()
}

/// The page with other rows in the table below this head.
fn replaced(page: &str, head: &str, rows: &str) -> String {
    let start = page.find(head).expect("the page has the table") + head.len();
    let old = page[start..].split_inclusive('\n');
    let length: usize = old
        .take_while(|line| line.starts_with('|'))
        .map(str::len)
        .sum();
    format!("{}{rows}{}", &page[..start], &page[start + length..])
}

#[test]
fn the_docs_hold_the_members() {
    let page = fs::read_to_string(PAGE).unwrap();
    let head = "| member | type | set by | meaning |\n|---|---|---|---|\n";
    let made = replaced(&page, head, &of_records());
    let made = replaced(&made, "| member | meaning |\n|---|---|\n", &of_rows());
    if env::var_os("UPDATE_DOCS").is_some() {
        return fs::write(PAGE, made).unwrap();
    }
    assert!(
        made == page,
        "docs/bodylog.md is behind the declarations; run this test with UPDATE_DOCS=1"
    );
}
