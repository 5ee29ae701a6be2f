//! The tables of `docs/metrics.md`.

use std::fs::OpenOptions;
use std::io::{self, Read as _, Seek as _, Write as _};

use super::{Entry, Kind};

/// The page. `UPDATE_DOCS=1` rewrites its tables.
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");

const HEAD: &str = "| metric | type | labels | unit | meaning |\n|---|---|---|---|---|\n";

/// Compares the table below a heading of `docs/metrics.md` with the declarations; with
/// `UPDATE_DOCS=1` in the environment, rewrites it. For tests.
///
/// # Errors
/// When the file can't be read or written.
///
/// # Panics
/// When the heading is missing, or the table differs.
pub fn pin(heading: &str, tables: &[&[Entry]]) -> io::Result<()> {
    let update = std::env::var_os("UPDATE_DOCS").is_some();
    let mut file = OpenOptions::new().read(true).write(update).open(PAGE)?;
    // Tests of several programs update the page at the same time.
    if update {
        file.lock()?;
    }
    let mut page = String::new();
    file.read_to_string(&mut page)?;
    let made = replaced(&page, heading, &markdown(tables));
    let made = made.expect("docs/metrics.md has the heading and a table below it");
    if update {
        file.rewind()?;
        file.set_len(0)?;
        file.write_all(made.as_bytes())?;
    } else {
        assert!(
            made == page,
            "docs/metrics.md is behind the declarations; run this test with UPDATE_DOCS=1"
        );
    }
    Ok(())
}

/// The rows of the families, by name.
fn markdown(tables: &[&[Entry]]) -> String {
    let mut rows: Vec<_> = tables.iter().copied().flatten().map(row).collect();
    rows.sort();
    rows.into_iter().map(|(_, row)| row).collect()
}

/// The name that Prometheus stores, and the row.
fn row(entry: &Entry) -> (String, String) {
    let (suffix, kind) = match entry.kind {
        Kind::Counter => ("_total", "counter"),
        Kind::Gauge => ("", "gauge"),
        Kind::Histogram => ("", "histogram"),
        Kind::Info => ("_info", "gauge"),
    };
    let name = format!("{}{suffix}", entry.name);
    let labels: Vec<_> = entry.labels.iter().map(|l| format!("`{l}`")).collect();
    let labels = match &*labels {
        [] => "–".to_owned(),
        labels => labels.join(", "),
    };
    let help = entry.help.replace('|', "\\|").replace('<', "&lt;");
    let unit = entry.unit.as_str();
    let row = format!("| `{name}` | {kind} | {labels} | {unit} | {help} |\n");
    (name, row)
}

/// The page with other rows in the table below `heading`.
fn replaced(page: &str, heading: &str, rows: &str) -> Option<String> {
    let section = page.find(&format!("\n## {heading}\n"))?;
    let start = section + page[section..].find(HEAD)? + HEAD.len();
    let length: usize = page[start..]
        .split_inclusive('\n')
        .take_while(|line| line.starts_with('|'))
        .map(str::len)
        .sum();
    let (before, after) = (&page[..start], &page[start + length..]);
    Some(format!("{before}{rows}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::families! {
        /// Two families.
        mod sample {
            /// Second by
            /// name.
            OPEN = gauge "open" [] Flag;
            /// First | name.
            DONE = counter "done" [route, code] Count;
        }
    }

    #[test]
    fn a_table_is_replaced_below_its_heading_only() {
        let page = format!("# M\n\n## A\n\n{HEAD}| x |\n\n## B\n\nText.\n\n{HEAD}| y |\n");
        let made = replaced(&page, "B", &markdown(&[sample::ALL])).unwrap();
        let rows = "| `done_total` | counter | `route`, `code` | count | First \\| name. |\n\
            | `open` | gauge | – | 0 or 1 | Second by name. |\n";
        assert_eq!(
            made,
            format!("# M\n\n## A\n\n{HEAD}| x |\n\n## B\n\nText.\n\n{HEAD}{rows}")
        );
        assert_eq!(replaced(&page, "C", ""), None);
    }
}
