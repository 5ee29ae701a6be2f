//! Prints a record for people: one line, or one screen with `--show`, and the bodies on request.
//!
//! Lines are printed one by one, so the columns have fixed widths. On a terminal longer values are
//! cut, so that a record stays one line. Elsewhere they shift the rest of the line, and nothing is
//! lost.

use std::borrow::Cow;
use std::fmt::Write as _;

use super::line::Line;
use crate::render::{Paint, Screen, tame};

/// Placeholder for an absent value.
const NOTHING: &str = "-";

/// Lines of a body that `--show` prints. `--bodies` prints all.
const EXCERPT_LINES: usize = 6;

/// Characters of a line of a body that `--show` prints.
const EXCERPT_CHARS: usize = 76;

/// A column: its name, its width, and the screen widths at which it is shown.
struct Column {
    name: &'static str,
    width: usize,
    /// Shown at screen widths from the first number up to, but not including, the second.
    screen: (usize, usize),
    cell: fn(&Line<'_>) -> Option<String>,
}

/// From this screen width on, times are shown in full.
const WIDE: usize = 120;

/// The nine columns that every screen shows fill 80 columns.
const COLUMNS: [Column; 13] = [
    column("TIME", 14, (0, WIDE), |record| record.start_short()),
    column("TIME", 24, from(WIDE), |record| record.start()),
    column("STATUS", 6, from(0), |record| {
        Some(record.status?.to_string())
    }),
    column("ROUTE", 8, from(0), |record| record.route.clone()),
    column("PEER", 8, from(0), |record| peer(record).map(str::to_owned)),
    column("IN", 7, from(0), |record| {
        Some(record.tokens().0?.to_string())
    }),
    column("OUT", 6, from(0), |record| {
        Some(record.tokens().1?.to_string())
    }),
    column("TTFT", 6, from(0), |record| seconds(record.first_chunk_t)),
    column("TOTAL", 6, from(0), |record| seconds(record.rt)),
    column("END", 11, from(0), |record| {
        record.ending().map(str::to_owned)
    }),
    column("SESSION", 16, from(110), |record| record.session_id.clone()),
    column("MODEL", 16, from(130), |record| {
        record.model().map(str::to_owned)
    }),
    column("REQUEST", 36, from(170), |record| record.request_id.clone()),
];

const fn from(screen: usize) -> (usize, usize) {
    (screen, usize::MAX)
}

const fn column(
    name: &'static str,
    width: usize,
    screen: (usize, usize),
    cell: fn(&Line<'_>) -> Option<String>,
) -> Column {
    Column {
        name,
        width,
        screen,
        cell,
    }
}

pub(super) fn head(screen: &mut Screen) {
    let mut line = String::new();
    for column in shown(screen) {
        // Writing to a string cannot fail.
        let _ = write!(line, "{:<1$} ", column.name, column.width);
    }
    screen.heading(line.trim_end());
}

/// Prints a record as one line.
pub(super) fn line(record: &Line<'_>, screen: &mut Screen) {
    let is_cut = screen.width().is_some();
    let mut line = String::new();
    for column in shown(screen) {
        let cell = (column.cell)(record);
        let cell = tame(cell.as_deref().unwrap_or(NOTHING)).into_owned();
        let cell = if is_cut {
            cut(&cell, column.width)
        } else {
            cell
        };
        let padding = column.width.saturating_sub(cell.chars().count());
        let painted = match column.name {
            "STATUS" => screen.paint(paint_of(record.status), &cell),
            _ => cell,
        };
        let _ = write!(line, "{painted}{:padding$} ", "");
    }
    screen.line(line.trim_end());
}

fn shown(screen: &Screen) -> impl Iterator<Item = &'static Column> + use<> {
    let width = screen.width().unwrap_or(usize::MAX - 1);
    COLUMNS
        .iter()
        .filter(move |column| (column.screen.0..column.screen.1).contains(&width))
}

/// Prints a record as one screen: every member with a value, and the beginnings of the bodies.
pub(super) fn screenful(record: &Line<'_>, screen: &mut Screen) {
    let text = |value: Option<&str>| tame(value.unwrap_or(NOTHING)).into_owned();
    let status = record.status.map_or(NOTHING.to_owned(), |s| s.to_string());
    let title = format!("request {}: {status}", text(record.request_id.as_deref()));
    let title = screen.paint(paint_of(record.status), &title);
    screen.line(&title);
    for (name, value) in members(record) {
        screen.paragraph(&format!("  {name:<9} "), 12, Paint::Plain, &tame(&value));
    }
    body("request", record.request(), Part::Excerpt, screen);
    body("answer", record.answer(), Part::Excerpt, screen);
    screen.line("");
}

fn members(record: &Line<'_>) -> Vec<(&'static str, String)> {
    let mut members = Vec::new();
    let mut add = |name, value: Option<String>| members.extend(value.map(|value| (name, value)));
    let first = seconds(record.first_chunk_t).map(|first| format!(", first byte after {first}"));
    let took = seconds(record.rt).map(|took| format!(", {took}{}", first.unwrap_or_default()));
    let start = record.start().unwrap_or_else(|| NOTHING.to_owned());
    add("time", Some(format!("{start}{}", took.unwrap_or_default())));
    let asked = [record.method.as_deref(), record.uri.as_deref()];
    let asked: Vec<&str> = asked.into_iter().flatten().collect();
    add("asked", (!asked.is_empty()).then(|| asked.join(" ")));
    add("route", record.route.clone());
    let mode = record.mode.as_deref().map(|mode| format!(", by {mode}"));
    let attempts = record.attempts.filter(|attempts| *attempts > 1);
    let attempts = attempts.map(|attempts| format!(", {attempts} attempts"));
    let more = format!(
        "{}{}",
        mode.unwrap_or_default(),
        attempts.unwrap_or_default()
    );
    add(
        "peer",
        whole_peer(record).map(|peer| format!("{peer}{more}")),
    );
    let other = record.other_model_asked();
    let other = other.map(|asked| format!(", asked for {asked}"));
    add(
        "model",
        record
            .model()
            .map(|model| format!("{model}{}", other.unwrap_or_default())),
    );
    add("owner", record.tenant.clone());
    let source = record.session_src.as_deref();
    let source = source.map(|source| format!(" (from {source})"));
    let session = record.session_id.as_deref();
    add(
        "session",
        session.map(|id| format!("{id}{}", source.unwrap_or_default())),
    );
    let cached = record.cached().map(|cached| format!(" ({cached} cached)"));
    if let (Some(prompt), completion) = record.tokens() {
        let completion = completion.map_or(NOTHING.to_owned(), |n| n.to_string());
        let cached = cached.unwrap_or_default();
        add(
            "tokens",
            Some(format!("{prompt} in{cached}, {completion} out")),
        );
    }
    add("end", record.ending().map(str::to_owned));
    members
}

/// Prints the complete bodies.
pub(super) fn bodies(record: &Line<'_>, screen: &mut Screen) {
    body("request", record.request(), Part::Whole, screen);
    body("answer", record.answer(), Part::Whole, screen);
}

fn peer<'r>(record: &'r Line<'_>) -> Option<&'r str> {
    record.peer_name.as_deref().or(record.peer.as_deref())
}

fn whole_peer(record: &Line<'_>) -> Option<String> {
    match (&record.peer_name, &record.peer) {
        (Some(name), Some(address)) => Some(format!("{name} ({address})")),
        (one, other) => one.as_ref().or(other.as_ref()).cloned(),
    }
}

fn seconds(value: Option<f64>) -> Option<String> {
    value.map(|value| match value {
        ..1.0 => format!("{:.0}ms", value * 1000.0),
        ..100.0 => format!("{value:.2}s"),
        _ => format!("{value:.0}s"),
    })
}

fn paint_of(status: Option<u16>) -> Paint {
    match status {
        Some(400..=499) => Paint::Yellow,
        Some(500..) => Paint::Red,
        _ => Paint::Plain,
    }
}

/// The text, cut to this many characters, with a mark where it was cut.
fn cut(text: &str, chars: usize) -> String {
    if text.chars().count() <= chars {
        return text.to_owned();
    }
    let mut cut: String = text.chars().take(chars.saturating_sub(1)).collect();
    cut.push('\u{2026}');
    cut
}

/// How much of a body is shown.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Excerpt,
    Whole,
}

fn body(what: &str, (text, is_base64): (Cow<'_, str>, bool), part: Part, screen: &mut Screen) {
    if text.is_empty() {
        return;
    }
    let form = if is_base64 { " (base64)" } else { "" };
    let title = format!("  {what}{form}, {} bytes:", text.len());
    let title = screen.paint(Paint::Dim, &title);
    screen.line(&title);
    if part == Part::Whole {
        for line in text.lines() {
            screen.line(&format!("    {}", tame(line)));
        }
        return;
    }
    let mut left = EXCERPT_LINES;
    let mut is_cut = false;
    for line in text.lines() {
        if left == 0 {
            is_cut = true;
            break;
        }
        left -= 1;
        is_cut |= line.chars().count() > EXCERPT_CHARS;
        screen.line(&format!("    {}", cut(&tame(line), EXCERPT_CHARS)));
    }
    if is_cut {
        screen.line("    (cut; --bodies shows all of it)");
    }
}
