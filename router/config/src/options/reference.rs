//! The option reference of the docs, generated from the catalogue.

use std::fmt::Write as _;

use super::{
    BODYLOG_SECTION, BODYLOG_SPOOL, BUCKET, CORS, DEFAULTS, EJECT, FINDINGS, HEALTH_CHECK, KEYS,
    Kind, MAIN, METRIC_ROW, Meta, OWNER, PEER, PEERS_FROM_DNS_KEYS, PEERS_FROM_KEYS, ROUTE, RULE,
    SERVER,
};

/// The text of `docs/options.md`.
pub fn markdown() -> String {
    let mut out = String::from(
        "# Options\n\n\
         Made from the option catalogue of the router (`router/config/src/options`); a test keeps the two equal.\n\n\
         `${VAR}` and `${VAR:-default}` expand in values, never in keys; `$$` is a `$`. An unset variable without a \
         default is an error. Unknown keys, duplicate keys and values out of range are errors that name file, line and \
         column. Booleans may also be written `yes`, `no`, `on`, `off`, `1` or `0`, with a warning.\n",
    );
    let _ = write!(out, "\n## `router.yaml`\n");
    table(&mut out, "", MAIN);
    let sections = [
        ("server", &SERVER),
        ("server.findings", &FINDINGS),
        ("server.cors", &CORS),
        ("keys", &KEYS),
        ("bodylog", &BODYLOG_SECTION),
        ("bodylog.spool", &BODYLOG_SPOOL),
    ];
    for (path, section) in sections {
        if let Kind::Section(keys) = section.kind {
            let _ = write!(out, "\n### `{path}`\n\n{}\n", section.doc);
            table(&mut out, "", keys());
        }
    }
    let _ = write!(out, "\n### `owners.*`\n");
    table(&mut out, "", OWNER);
    let _ = write!(out, "\n### `defaults`\n\n{}\n", DEFAULTS.doc);
    let _ = write!(out, "\n## `routes/<name>.yaml`\n");
    table(&mut out, "", &ROUTE);
    let rows = [
        ("peers[]", PEER),
        ("peers_from", PEERS_FROM_KEYS),
        ("peers_from.dns", PEERS_FROM_DNS_KEYS),
        ("ttft_metrics[]`, `tps_metrics[]", METRIC_ROW),
        ("session_prio_table[]", BUCKET),
        ("eject", EJECT),
        ("health_check", HEALTH_CHECK),
        ("reject_rules[]", RULE),
    ];
    for (heading, keys) in rows {
        let _ = write!(out, "\n### `{heading}`\n");
        table(&mut out, "", keys);
    }
    out
}

fn table(out: &mut String, prefix: &str, keys: &[&Meta]) {
    out.push_str("\n| option | value | default | meaning |\n|---|---|---|---|\n");
    for meta in keys {
        let default = if meta.has_literal_default() {
            format!("`{}`", meta.default)
        } else {
            meta.default.to_owned()
        };
        let _ = writeln!(
            out,
            "| `{prefix}{}` | {} | {} | {} |",
            meta.key,
            cell(&meta.kind.allowed()),
            cell(&default),
            cell(meta.doc)
        );
    }
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use std::{env, fs};

    use super::*;

    /// The path of the reference. `UPDATE_DOCS=1` rewrites it.
    const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/options.md");

    #[test]
    fn the_docs_hold_the_catalogue() {
        let made = markdown();
        if env::var_os("UPDATE_DOCS").is_some() {
            fs::write(PATH, &made).unwrap();
        }
        let kept = fs::read_to_string(PATH).unwrap_or_default();
        assert!(
            kept == made,
            "docs/options.md is behind the catalogue; run this test with UPDATE_DOCS=1"
        );
    }

    #[test]
    fn every_row_has_four_cells() {
        for row in markdown().lines().filter(|line| line.starts_with("| `")) {
            assert_eq!(row.replace("\\|", "").matches('|').count(), 5, "{row}");
        }
    }
}
