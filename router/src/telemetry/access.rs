//! The access line: one per request, to stdout.
//!
//! A request formats its line and passes it to the process's writer; it never waits for the reader
//! of stdout.

use std::fmt::Write as _;

use chrono::SecondsFormat;
use router_core::decision::Mode;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::settled::Settled;
use service::log::{LogFormat, LogWriter};

/// One exchange as a line. JSON lines always have every key; `null` means that the fact is absent.
struct Line<'a>(&'a Settled);

impl Line<'_> {
    /// Formats the line, with its newline.
    fn render(&self, format: LogFormat) -> String {
        match format {
            LogFormat::Text => self.text(),
            LogFormat::Json => self.json(),
        }
    }

    fn text(&self) -> String {
        let mut line = String::with_capacity(160);
        let settled = self.0;
        let (rid, path) = (Printable(&settled.rid), Printable(settled.uri.path()));
        let (method, status) = (Printable(settled.method.as_str()), settled.status);
        let (route, peer) = (
            or_dash(settled.route.as_deref()),
            or_dash(settled.peer_name.as_deref()),
        );
        let mode = or_dash(settled.mode().map(Mode::as_str));
        let (seconds, retries) = (settled.took().as_secs_f64(), settled.retries());
        // Writing to a String cannot fail.
        let _ = writeln!(
            line,
            "rid={rid} {method} {path} -> {status} \
             ({seconds:.2}s, route={route}, peer={peer}, mode={mode}, retries={retries})"
        );
        line
    }

    fn json(&self) -> String {
        let text = serde_json::to_string(self);
        let mut text = text.expect("texts and numbers are JSON");
        text.push('\n');
        text
    }
}

impl Serialize for Line<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let settled = self.0;
        let time = settled
            .ended_at
            .to_rfc3339_opts(SecondsFormat::Millis, true);
        let seconds = (settled.took().as_secs_f64() * 1000.0).round() / 1000.0;
        let mut line = serializer.serialize_map(None)?;
        line.serialize_entry("time", &time)?;
        line.serialize_entry("level", "info")?;
        line.serialize_entry("rid", &*settled.rid)?;
        line.serialize_entry("method", settled.method.as_str())?;
        line.serialize_entry("path", settled.uri.path())?;
        line.serialize_entry("status", &settled.status)?;
        line.serialize_entry("seconds", &seconds)?;
        line.serialize_entry("route", &settled.route.as_deref())?;
        line.serialize_entry("peer", &settled.peer_name.as_deref())?;
        line.serialize_entry("mode", &settled.mode().map(Mode::as_str))?;
        line.serialize_entry("retries", &settled.retries())?;
        line.serialize_entry("owner", &settled.owner.as_deref())?;
        line.serialize_entry("model", &settled.model.as_deref())?;
        line.serialize_entry("served_model", &settled.served_model.as_deref())?;
        line.serialize_entry("bytes_in", &settled.bytes_in)?;
        line.serialize_entry("bytes_out", &settled.bytes_out)?;
        line.serialize_entry("ttft_ms", &settled.ttft_ms())?;
        line.serialize_entry("tokens", &settled.completion())?;
        line.serialize_entry("trace_id", &settled.trace_id.as_deref())?;
        line.end()
    }
}

fn or_dash(text: Option<&str>) -> Printable<'_> {
    Printable(text.unwrap_or("-"))
}

/// Escapes a text, so that no character can end the line or control a terminal.
struct Printable<'a>(&'a str);

impl std::fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for part in self.0.split_inclusive(is_unprintable) {
            let mut chars = part.chars();
            match chars.next_back() {
                Some(last) if is_unprintable(last) => {
                    write!(f, "{}{}", chars.as_str(), last.escape_unicode())?;
                }
                _ => f.write_str(part)?,
            }
        }
        Ok(())
    }
}

/// Controls, line and paragraph separators, and the marks that reorder text.
fn is_unprintable(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Accepts access lines. Shared by reference.
#[derive(Debug)]
pub struct AccessLog {
    format: LogFormat,
    lines: LogWriter,
}

impl AccessLog {
    /// A log in this format, written by `lines`.
    pub fn new(format: LogFormat, lines: LogWriter) -> Self {
        Self { format, lines }
    }

    /// Queues the line of one exchange. Never blocks: when the writer's queue is full, the line is
    /// dropped and counted.
    pub fn write(&self, settled: &Settled) {
        let line = Line(settled).render(self.format);
        self.lines.offer(line.as_bytes());
    }
}

#[cfg(test)]
mod tests;
