//! The option reference of the docs, made from the catalogue.

use std::fmt::Write as _;

use super::{DEFAULTS, KEYS, Kind, MAIN, Meta, PEER, ROUTE, SERVER};

/// `docs/options.md`.
pub fn markdown() -> String {
    let mut out = String::from(
        "# Options\n\n\
         Made from the option catalogue of the router (`router/src/config/options`); a test keeps the two equal.\n\n\
         `${VAR}` and `${VAR:-default}` expand in values, never in keys; `$$` is a `$`. An unset variable without a \
         default is an error. Unknown keys, duplicate keys and values out of range are errors that name file, line and \
         column. Booleans may also be written `yes`, `no`, `on`, `off`, `1` or `0`, with a warning.\n",
    );
    let _ = write!(out, "\n## `router.yaml`\n");
    table(&mut out, "", MAIN);
    for section in [&SERVER, &KEYS] {
        if let Kind::Section(keys) = section.kind {
            let _ = write!(out, "\n### `{}`\n\n{}\n", section.key, section.doc);
            table(&mut out, "", keys);
        }
    }
    let _ = write!(out, "\n### `defaults`\n\n{}\n", DEFAULTS.doc);
    let _ = write!(out, "\n## `routes/<name>.yaml`\n");
    table(&mut out, "", ROUTE);
    let _ = write!(out, "\n### `peers[]`\n");
    table(&mut out, "", PEER);
    out
}

fn table(out: &mut String, prefix: &str, keys: &[&Meta]) {
    out.push_str("\n| option | value | default | meaning |\n|---|---|---|---|\n");
    for meta in keys {
        let default = if is_literal(meta) {
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

/// Whether the default is written as a value, and not as a remark.
fn is_literal(meta: &Meta) -> bool {
    !meta.default.contains(' ') && !meta.default.contains('`') && meta.default != "unset"
        || meta.default.starts_with('[')
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}
