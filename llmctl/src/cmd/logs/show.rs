//! A record for people: one line, and its bodies where asked for. Lines come one by one, so columns
//! have widths of their own and a longer value pushes the rest aside.

use std::fmt::Write;

use super::line::Line;
use crate::render::{Paint, Screen, tame};

/// Names and widths of the columns; the last has none.
const COLUMNS: [(&str, usize); 12] = [
    ("TIME", 24),
    ("STATUS", 6),
    ("ROUTE", 12),
    ("PEER", 16),
    ("MODE", 13),
    ("SESSION", 16),
    ("MODEL", 16),
    ("IN", 7),
    ("OUT", 6),
    ("TTFT", 8),
    ("TOTAL", 8),
    ("END  REQUEST", 0),
];

/// What stands where a record says nothing.
const NOTHING: &str = "-";

pub(super) fn head(screen: &mut Screen) {
    let mut line = String::new();
    for (name, width) in COLUMNS {
        // Writing to a string cannot fail.
        let _ = write!(line, "{name:<width$}  ");
    }
    screen.heading(line.trim_end());
}

pub(super) fn record(record: &Line<'_>, bodies: bool, screen: &mut Screen) {
    let text = |value: Option<&str>| tame(value.unwrap_or(NOTHING)).into_owned();
    let count = |value: Option<u64>| value.map_or(NOTHING.to_owned(), |value| value.to_string());
    let seconds =
        |value: Option<f64>| value.map_or(NOTHING.to_owned(), |value| format!("{value:.3}s"));
    let (tokens_in, tokens_out) = record.tokens();
    let peer = record.peer_name.as_deref().or(record.peer.as_deref());
    let ending = text(record.ending());
    let cells = [
        text(record.start().as_deref()),
        record.status.map_or(NOTHING.to_owned(), |s| s.to_string()),
        text(record.route.as_deref()),
        text(peer),
        text(record.mode.as_deref()),
        text(record.session_id.as_deref()),
        text(record.model()),
        count(tokens_in),
        count(tokens_out),
        seconds(record.first_chunk_t),
        seconds(record.rt),
        format!("{ending}  {}", text(record.request_id.as_deref())),
    ];
    let mut line = String::new();
    for ((name, width), cell) in COLUMNS.into_iter().zip(cells) {
        let padding = width.saturating_sub(cell.chars().count());
        let painted = match name {
            "STATUS" => screen.paint(paint_of(record.status), &cell),
            _ => cell,
        };
        let _ = write!(line, "{painted}{:padding$}  ", "");
    }
    screen.line(line.trim_end());
    if bodies {
        body("request", record.request(), screen);
        body("answer", record.answer(), screen);
    }
}

fn paint_of(status: Option<u16>) -> Paint {
    match status {
        Some(400..=499) => Paint::Yellow,
        Some(500..) => Paint::Red,
        _ => Paint::Plain,
    }
}

fn body(what: &str, (text, is_base64): (std::borrow::Cow<'_, str>, bool), screen: &mut Screen) {
    if text.is_empty() {
        return;
    }
    let form = if is_base64 { " (base64)" } else { "" };
    let title = screen.paint(Paint::Dim, &format!("  {what}{form}:"));
    screen.line(&title);
    for line in text.lines() {
        screen.line(&format!("    {}", tame(line)));
    }
}
