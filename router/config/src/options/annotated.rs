//! The annotated examples, `deploy/examples/router.yaml` and `routes/every-option.yaml`. They are
//! generated from the catalogue: every option below its meaning and with its default.

use std::fmt::Write as _;
use std::{env, fs};

use super::{BUCKET, Kind, MAIN, METRIC_ROW, Meta, PEER, ROUTE, RULE};
use crate::testing::{lines, main, route};

/// Maximum width of a comment line, characters.
const WIDTH: usize = 118;

/// The directory of the examples. `UPDATE_DOCS=1` rewrites them.
const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/examples/");

/// Defaults that describe where the value comes from. In the catalogue they look like values.
const ELSEWHERE: [&str; 5] = [
    "server.request_timeout",
    "tps_window",
    "default_max",
    "health_probe_path",
    "reject_rules_status",
];

/// An example value for an option that has no default to write.
fn shape(key: &str) -> &'static str {
    match key {
        "peers_by_model" => "{some-model: [{address: \"10.0.0.12:8000\"}]}",
        "peers_from" => "{dns: {name: vllm.inference, port: 8000}}",
        "address" => "\"10.0.0.11:8000\"",
        "url" => "https://engine.example/base",
        "name" => "node-a",
        "max_concurrency" | "slots" => "64",
        "metrics_url" => "http://10.0.0.11:9000/metrics",
        "probe" => "/health",
        "api_key" => "${ENGINE_KEY}",
        "gpu" => "4090",
        "pin_model" => "false",
        "adaptive_cc_interval" => "20s",
        "hang_after" => "90s",
        "reject_rules_enabled" => "true",
        "api_keys" => "{sk-of-this-route: team-a}",
        "request_timeout" => "10m",
        "metric" => "p95",
        "q" => ".95",
        "threshold" => "30000",
        "min_turn" => "1",
        "share" => ".85",
        "tol" => "1",
        "status" => "413",
        "message" => "at most 2 MB",
        "field" => "input_bytes",
        "op" => "gt",
        "value" => "2000000",
        other => panic!("an option without a literal default needs a shape here: {other}"),
    }
}

fn main_file() -> String {
    let mut out = head("`router.yaml`");
    for (index, meta) in MAIN.iter().enumerate() {
        if index > 0 {
            out.push('\n');
        }
        match meta.kind {
            Kind::Section(keys) if meta.key != "defaults" => {
                section(&mut out, meta, keys(), 0);
            }
            _ => option(&mut out, meta, 0),
        }
    }
    out
}

fn route_file() -> String {
    let mut out = head("a route file");
    out.push_str("# All but `name`, `peers`, `peers_by_model` and `peers_from` may also stand under `defaults` of router.yaml, for every route.\n\n");
    for meta in ROUTE.iter() {
        match meta.key {
            "name" => {
                said(&mut out, meta, 0, false);
                out.push_str("# name: every-option\n");
            }
            "peers" => {
                comment(
                    &mut out,
                    &format!("{} ({})", meta.doc, meta.kind.allowed()),
                    0,
                );
                out.push_str("peers:\n  -\n");
                for meta in PEER {
                    if meta.key == "address" {
                        said(&mut out, meta, 4, false);
                        let _ = writeln!(out, "    address: {}", shape("address"));
                    } else {
                        option(&mut out, meta, 4);
                    }
                }
            }
            key => {
                option(&mut out, meta, 0);
                if let Some(rows) = rows(key) {
                    item(&mut out, key, rows);
                }
            }
        }
    }
    out
}

/// The keys of the items of a list, if they have any.
fn rows(key: &str) -> Option<&'static [&'static Meta]> {
    match key {
        "ttft_metrics" | "tps_metrics" => Some(METRIC_ROW),
        "session_prio_table" => Some(BUCKET),
        "reject_rules" => Some(RULE),
        _ => None,
    }
}

fn head(of: &str) -> String {
    format!(
        "# Every option of {of}, with its default. Made from the option catalogue; docs/options.md is the same as tables.\n\n"
    )
}

fn section(out: &mut String, meta: &Meta, keys: &[&Meta], indent: usize) {
    comment(out, meta.doc, indent);
    let _ = writeln!(out, "{:indent$}{}:", "", meta.key);
    for meta in keys {
        match meta.kind {
            Kind::Section(keys) => section(out, meta, keys(), indent + 2),
            _ => option(out, meta, indent + 2),
        }
    }
}

/// Writes one option below its meaning. Without a default to write, the option is commented out
/// with an example value.
fn option(out: &mut String, meta: &Meta, indent: usize) {
    let shown = meta.has_literal_default() && !ELSEWHERE.contains(&meta.default);
    said(out, meta, indent, shown);
    let key = meta.key;
    let _ = if shown {
        writeln!(out, "{:indent$}{key}: {}", "", meta.default)
    } else {
        writeln!(out, "{:indent$}# {key}: {}", "", shape(key))
    };
}

/// Writes the meaning and the allowed values. Adds the default if it is not written below.
fn said(out: &mut String, meta: &Meta, indent: usize, shown: bool) {
    let default = if shown {
        String::new()
    } else {
        format!("; default: {}", meta.default)
    };
    let text = format!("{} ({}{default})", meta.doc, meta.kind.allowed());
    comment(out, &text, indent);
}

/// Writes an item of a list that is empty by default, commented out.
fn item(out: &mut String, key: &str, rows: &[&Meta]) {
    for meta in rows {
        let text = format!(
            "{}: {} ({}; default: {})",
            meta.key,
            meta.doc,
            meta.kind.allowed(),
            meta.default
        );
        comment(out, &text, 2);
    }
    let body: Vec<_> = rows
        .iter()
        .filter(|meta| !matches!(meta.key, "all" | "any"))
        .map(|meta| format!("{}: {}", meta.key, shape(meta.key)))
        .collect();
    let _ = writeln!(out, "# {key}:\n#   - {{{}}}", body.join(", "));
}

/// Writes a text as comment lines.
fn comment(out: &mut String, text: &str, indent: usize) {
    let mut width = WIDTH + 1;
    for word in text.split_ascii_whitespace() {
        let long = word.chars().count();
        if width + 1 + long > WIDTH {
            if width <= WIDTH {
                out.push('\n');
            }
            let _ = write!(out, "{:indent$}# {word}", "");
            width = indent + 2 + long;
        } else {
            let _ = write!(out, " {word}");
            width += 1 + long;
        }
    }
    out.push('\n');
}

#[test]
fn the_annotated_examples_hold_the_catalogue() {
    for (name, made) in [
        ("router.yaml", main_file()),
        ("routes/every-option.yaml", route_file()),
    ] {
        let path = format!("{EXAMPLES}{name}");
        if env::var_os("UPDATE_DOCS").is_some() {
            fs::write(&path, &made).unwrap();
        }
        let kept = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            kept == made,
            "{path} is behind the catalogue; run this test with UPDATE_DOCS=1"
        );
    }
}

#[test]
fn the_annotated_examples_are_accepted() {
    assert_eq!(lines(&main(&main_file()).1), [""; 0]);
    assert_eq!(lines(&route(&route_file()).1), [""; 0]);
}

/// Users try the options that are commented out first, so they must be valid.
#[test]
fn what_the_annotated_examples_comment_out_is_accepted() {
    let text = route_file();
    let found = text.lines().filter_map(|line| line.strip_prefix("# "));
    let is_option = |line: &&str| {
        line.split_once(": ")
            .is_some_and(|(key, _)| ROUTE.iter().any(|meta| meta.key == key))
    };
    for line in found.filter(is_option) {
        let peers = if line.starts_with("peers_by_model") {
            ""
        } else {
            "peers: []\n"
        };
        assert_eq!(
            lines(&route(&format!("{peers}{line}\n")).1),
            [""; 0],
            "{line}"
        );
    }
    for meta in ROUTE.iter() {
        if let Some(rows) = rows(meta.key) {
            let mut out = String::new();
            item(&mut out, meta.key, rows);
            let list = out.lines().rev().take(2).collect::<Vec<_>>();
            let text = format!(
                "peers: []\n{}\n{}\n",
                list[1].trim_start_matches("# "),
                &list[0][2..]
            );
            assert_eq!(lines(&route(&text).1), [""; 0], "{text}");
        }
    }
}
