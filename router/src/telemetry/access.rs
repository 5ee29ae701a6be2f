//! The access line: one per request, to stdout.
//!
//! A request formats its line and offers it to one writer thread; it never waits for the reader of
//! stdout. When the reader is too slow the line is dropped and counted.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};
use serde::Serialize;

use service::log::LogFormat;

/// Lines that wait for the writer. At about 150 bytes each this is at most 1.2 MiB, and absorbs a
/// reader that stalls for a second at eight thousand requests a second.
const LINES_WAITING_MAX: usize = 8192;

/// What one line says. `None` means there was none; in JSON every key is always there.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct AccessLine<'a> {
    /// The `x-request-id`.
    pub rid: &'a str,
    /// Request method.
    pub method: &'a str,
    /// Path as the client sent it, route prefix included, without the query.
    pub path: &'a str,
    /// Status sent to the client; 499 when it left before one was.
    pub status: u16,
    /// Arrival to the last byte.
    #[serde(serialize_with = "three_decimals")]
    pub seconds: f64,
    /// The route, when one was found.
    pub route: Option<&'a str>,
    /// The operator's name of the peer that answered, or was tried last.
    pub peer: Option<&'a str>,
    /// How the peer was found, as `X-Routed-Mode` shows it.
    pub mode: Option<&'a str>,
    /// Attempts beyond the first.
    pub retries: u32,
    /// Whose key it was.
    pub owner: Option<&'a str>,
    /// The body's `model`.
    pub model: Option<&'a str>,
    /// Bytes of the request's body.
    pub bytes_in: u64,
    /// Bytes of the answer's body that the client was sent.
    pub bytes_out: u64,
    /// Arrival to the first body byte of a stream, milliseconds.
    pub ttft_ms: Option<u64>,
    /// Tokens generated, where the answer told them.
    pub tokens: Option<u64>,
    /// The trace id of `traceparent`.
    pub trace_id: Option<&'a str>,
}

impl AccessLine<'_> {
    /// The line in one format, with its newline. `wall` is when the request ended.
    pub fn render(&self, format: LogFormat, wall: DateTime<Utc>) -> String {
        match format {
            LogFormat::Text => self.text(),
            LogFormat::Json => self.json(wall),
        }
    }

    fn text(&self) -> String {
        let mut line = String::with_capacity(160);
        let Self {
            rid,
            method,
            status,
            seconds,
            retries,
            ..
        } = self;
        let (rid, method, path) = (Printable(rid), Printable(method), Printable(self.path));
        let (route, peer) = (or_dash(self.route), or_dash(self.peer));
        let mode = or_dash(self.mode);
        // Writing to a String cannot fail.
        let _ = writeln!(
            line,
            "rid={rid} {method} {path} -> {status} \
             ({seconds:.2}s, route={route}, peer={peer}, mode={mode}, retries={retries})"
        );
        line
    }

    fn json(&self, wall: DateTime<Utc>) -> String {
        #[derive(Serialize)]
        struct Line<'a> {
            time: String,
            level: &'static str,
            #[serde(flatten)]
            line: &'a AccessLine<'a>,
        }
        let time = wall.to_rfc3339_opts(SecondsFormat::Millis, true);
        let mut text = serde_json::to_string(&Line {
            time,
            level: "info",
            line: self,
        })
        .expect("a struct of texts and numbers is JSON");
        text.push('\n');
        text
    }
}

fn or_dash(text: Option<&str>) -> Printable<'_> {
    Printable(text.unwrap_or("-"))
}

/// A text in which no character can end the line or steer a terminal.
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

fn three_decimals<S: serde::Serializer>(seconds: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64((seconds * 1000.0).round() / 1000.0)
}

/// Takes access lines and writes them in the background. Cheap to share by reference.
#[derive(Debug)]
pub struct AccessLog {
    format: LogFormat,
    lines: SyncSender<String>,
    dropped: Arc<AtomicU64>,
}

/// The other end of an [`AccessLog`]: tells when everything has been written.
#[derive(Debug)]
pub struct AccessLogEnd {
    done: Receiver<()>,
}

impl AccessLog {
    /// Starts the writer. `dropped` counts lines that were lost because `out` was too slow or
    /// refused them.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start(
        format: LogFormat,
        out: impl Write + Send + 'static,
        dropped: Arc<AtomicU64>,
    ) -> io::Result<(Self, AccessLogEnd)> {
        let (lines, waiting) = sync_channel(LINES_WAITING_MAX);
        let (finished, done) = sync_channel(1);
        let lost = Arc::clone(&dropped);
        std::thread::Builder::new()
            .name("access-log".into())
            .spawn(move || {
                write_all(&waiting, out, &lost);
                // Nobody may be waiting for the end.
                let _ = finished.send(());
            })?;
        Ok((
            Self {
                format,
                lines,
                dropped,
            },
            AccessLogEnd { done },
        ))
    }

    /// Offers one line. Never blocks: at the bound the line is dropped and counted.
    pub fn write(&self, line: &AccessLine<'_>, wall: DateTime<Utc>) {
        if self.lines.try_send(line.render(self.format, wall)).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl AccessLogEnd {
    /// Waits until the [`AccessLog`] is dropped and its lines are written, at most `limit`. Blocks
    /// the thread. False when time ran out: the reader of stdout has stopped reading.
    pub fn wait(self, limit: Duration) -> bool {
        self.done.recv_timeout(limit) != Err(RecvTimeoutError::Timeout)
    }
}

fn write_all(waiting: &Receiver<String>, out: impl Write, lost: &AtomicU64) {
    let mut out = io::BufWriter::new(out);
    while let Ok(line) = waiting.recv() {
        let mut batch = 1;
        let mut result = out.write_all(line.as_bytes());
        while let Ok(next) = waiting.try_recv() {
            batch += 1;
            result = result.and_then(|()| out.write_all(next.as_bytes()));
        }
        // Flushed as soon as nothing more is waiting, so that a line is seen when it is written.
        if result.and_then(|()| out.flush()).is_err() {
            lost.fetch_add(batch, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests;
