//! Prints the sums as a table, as CSV and as JSON.

use std::cmp::Reverse;

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::tally::{Sums, Tally};
use crate::render::{Screen, Table};

/// Names of the sums in CSV and tables.
const SUMS: [&str; 6] = [
    "requests",
    "prompt_tokens",
    "cached_tokens",
    "generated_tokens",
    "busy_s",
    "refused",
];

/// The JSON form, which is stable.
#[derive(Debug, Serialize)]
pub(super) struct Document {
    by: Vec<&'static str>,
    groups: Vec<Value>,
    total: Sums,
    skipped_lines: u64,
}

pub(super) fn document(tally: &Tally) -> Document {
    let group = |(key, sums): (&Vec<String>, &Sums)| {
        let names = tally.by.iter().map(|by| by.name().to_owned());
        let mut group: Map<String, Value> =
            names.zip(key.iter().map(|value| json!(value))).collect();
        if let Value::Object(sums) = json!(sums) {
            group.extend(sums);
        }
        Value::Object(group)
    };
    Document {
        by: tally.by.iter().map(|by| by.name()).collect(),
        groups: tally.groups.iter().map(group).collect(),
        total: tally.total,
        skipped_lines: tally.skipped(),
    }
}

/// Prints a table: groups with the most tokens first, the total last.
pub(super) fn table(tally: &Tally, screen: &mut Screen) {
    if tally.groups.is_empty() {
        screen.note("no row matches");
        return;
    }
    let mut head: Vec<&str> = tally.by.iter().map(|by| by.name()).collect();
    head.extend([
        "requests",
        "prompt",
        "cached",
        "generated",
        "busy",
        "refused",
    ]);
    let mut table = Table::new(&head);
    let mut groups: Vec<_> = tally.groups.iter().collect();
    groups.sort_by_key(|(key, sums)| (Reverse(sums.prompt_tokens + sums.generated_tokens), *key));
    for (key, sums) in groups {
        table.row(key.iter().cloned().chain(cells(sums)));
    }
    let names = tally.by.iter().enumerate();
    let names = names.map(|(at, _)| if at == 0 { "total" } else { "" }.to_owned());
    table.row(names.chain(cells(&tally.total)));
    screen.table(&table);
}

fn cells(sums: &Sums) -> [String; 6] {
    [
        sums.requests.to_string(),
        sums.prompt_tokens.to_string(),
        sums.cached_tokens.to_string(),
        sums.generated_tokens.to_string(),
        format!("{:.1}s", sums.busy_s),
        sums.refused.to_string(),
    ]
}

/// Prints a line of names, then one line per group, sorted by name (RFC 4180).
pub(super) fn csv(tally: &Tally, screen: &mut Screen) {
    let names = tally.by.iter().map(|by| by.name());
    let head: Vec<&str> = names.chain(SUMS).collect();
    screen.line(&head.join(","));
    for (key, sums) in &tally.groups {
        let numbers = [
            sums.requests.to_string(),
            sums.prompt_tokens.to_string(),
            sums.cached_tokens.to_string(),
            sums.generated_tokens.to_string(),
            format!("{:.3}", sums.busy_s),
            sums.refused.to_string(),
        ];
        let fields: Vec<String> = key
            .iter()
            .map(|value| field(value))
            .chain(numbers)
            .collect();
        screen.line(&fields.join(","));
    }
}

/// A CSV field, quoted when necessary.
fn field(value: &str) -> String {
    if value.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", value.replace('"', "\"\""))
    } else {
        value.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::usage::By;
    use crate::render::Format;
    use crate::render::testing::capture;

    fn tally() -> Tally {
        let mut tally = Tally::new(&[By::Owner, By::Model], None, None, 0);
        for (seq, owner, prompt) in [(1, "alice", 10), (2, "b,ob", 5000), (3, "alice", 20)] {
            let row = format!(
                r#"{{"v":2,"pid":"p","epoch":1,"seq":{seq},"ts":"2026-01-02T10:00:00Z","tenant":"{owner}","model":"m","status":200,"backend":"a:1","frt":0,"lct":0,"rt":0.5,"prompt_tokens":{prompt},"completion_tokens":3}}"#
            );
            assert!(tally.line(row.as_bytes()));
        }
        tally
    }

    #[test]
    fn the_table_begins_with_who_used_most_and_ends_with_the_sum() {
        let text = capture(Format::Human, |screen| table(&tally(), screen));
        insta::assert_snapshot!(text, @r"
        OWNER  MODEL  REQUESTS  PROMPT  CACHED  GENERATED  BUSY  REFUSED
        b,ob   m      1         5000    0       3          0.5s  0
        alice  m      2         30      0       6          1.0s  0
        total         3         5030    0       9          1.5s  0
        ");
    }

    #[test]
    fn csv_quotes_what_would_break_a_line() {
        let text = capture(Format::Csv, |screen| csv(&tally(), screen));
        insta::assert_snapshot!(text, @r#"
        owner,model,requests,prompt_tokens,cached_tokens,generated_tokens,busy_s,refused
        alice,m,2,30,0,6,1.000,0
        "b,ob",m,1,5000,0,3,0.500,0
        "#);
    }
}
