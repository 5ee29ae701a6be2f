//! Server-sent events over arbitrary chunks: first lines, then events.
//!
//! [`Lines`] cuts a stream into [`Piece`]s that add up to the original stream, so a stage that
//! rewrites some lines passes the rest unchanged. A line within one chunk is borrowed from it. Only
//! a line that crosses a chunk border is copied, at most `held_max` bytes of it; a longer line
//! passes as [`Piece::Rest`] and the stream goes on. [`Events`] joins the `data` lines of one
//! event. Line ends are LF, CR LF or CR, as in the WHATWG HTML standard, section 9.2.6. Unlike
//! there, an event that the end of the stream cuts off counts.

use memchr::memchr2;

/// The most bytes of one line or event that are kept. The largest frames that engines send are the
/// closing events of the Responses API, which repeat the whole answer.
pub const HELD_MAX: usize = 1 << 20;

/// Capacity that an idle splitter keeps from line to line.
const KEPT_MAX: usize = 16 << 10;

/// A part of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// One whole line.
    Line {
        /// The line without its end.
        text: &'a [u8],
        /// `\n`, `\r\n`, `\r`, or empty at the end of the stream.
        end: &'a [u8],
        /// Whether the next line is empty and has begun in the same chunk, so that an event ends
        /// here.
        closes: bool,
    },
    /// Bytes of a line longer than the bound.
    Rest(&'a [u8]),
    /// The `\n` of a `\r\n` that two chunks share. The line before has already ended with the `\r`.
    End(&'a [u8]),
}

impl<'a> Piece<'a> {
    /// Its bytes in the stream, in two parts.
    pub fn parts(self) -> [&'a [u8]; 2] {
        match self {
            Self::Line { text, end, .. } => [text, end],
            Self::Rest(bytes) | Self::End(bytes) => [bytes, b""],
        }
    }
}

/// Cuts a stream into lines.
#[derive(Debug)]
pub struct Lines {
    /// The beginning of the line that the last chunk left open.
    held: Vec<u8>,
    held_max: usize,
    /// Whether `held` has been lent out and is no longer needed.
    lent: bool,
    /// Whether the line is longer than `held_max`.
    over: bool,
    /// Whether the last chunk ended in `\r`. A `\n` that follows belongs to it.
    after_cr: bool,
}

impl Lines {
    /// The state at the beginning of a stream. `held_max` bounds the memory, in bytes.
    pub fn new(held_max: usize) -> Self {
        Self {
            held: Vec::new(),
            held_max,
            lent: false,
            over: false,
            after_cr: false,
        }
    }

    /// The pieces that end in `chunk`. Drain the iterator: pieces that are not taken are lost.
    pub fn feed<'a>(&'a mut self, chunk: &'a [u8]) -> Feed<'a> {
        Feed {
            lines: self,
            chunk,
            at: 0,
        }
    }

    /// The beginning of the line that is still open after the last chunk.
    pub fn open(&self) -> &[u8] {
        if self.lent { b"" } else { &self.held }
    }

    /// Whether the next byte begins a line, and nothing is held.
    pub fn is_at_start(&self) -> bool {
        self.open().is_empty() && !self.over && !self.after_cr
    }

    /// Stops holding the open line. Returns its beginning, which no piece will contain; the
    /// remainder of the line passes as rest.
    pub fn let_go(&mut self) -> Vec<u8> {
        self.return_lent();
        if self.held.is_empty() {
            return Vec::new();
        }
        self.over = true;
        std::mem::take(&mut self.held)
    }

    /// The unterminated last line of the stream, if any.
    pub fn finish(&mut self) -> Option<Piece<'_>> {
        self.return_lent();
        self.lent = true;
        (!self.held.is_empty()).then_some(Piece::Line {
            text: &self.held,
            end: b"",
            closes: false,
        })
    }

    fn return_lent(&mut self) {
        if self.lent {
            self.lent = false;
            if self.held.capacity() > KEPT_MAX {
                self.held = Vec::new();
            } else {
                self.held.clear();
            }
        }
    }
}

/// The pieces of one chunk, oldest first.
#[derive(Debug)]
pub struct Feed<'a> {
    lines: &'a mut Lines,
    chunk: &'a [u8],
    at: usize,
}

impl Feed<'_> {
    /// The next piece. `None` when the chunk is used up.
    #[expect(
        clippy::should_implement_trait,
        reason = "a piece may lie in the splitter's own buffer, which no Iterator can lend"
    )]
    pub fn next(&mut self) -> Option<Piece<'_>> {
        let lines = &mut *self.lines;
        lines.return_lent();
        let rest = &self.chunk[self.at..];
        let first = *rest.first()?;
        if std::mem::take(&mut lines.after_cr) && first == b'\n' {
            self.at += 1;
            return Some(Piece::End(&rest[..1]));
        }
        let found = memchr2(b'\n', b'\r', rest);
        let length = found.unwrap_or(rest.len());
        if !lines.over && lines.held.len() + length > lines.held_max {
            lines.over = true;
            if !lines.held.is_empty() {
                lines.lent = true;
                return Some(Piece::Rest(&lines.held));
            }
        }
        let Some(length) = found else {
            self.at = self.chunk.len();
            if lines.over {
                return Some(Piece::Rest(rest));
            }
            lines.held.extend_from_slice(rest);
            return None;
        };
        let end = match &rest[length..] {
            [b'\r', b'\n', ..] => &rest[length..length + 2],
            [b'\r'] => {
                lines.after_cr = true;
                &rest[length..]
            }
            _ => &rest[length..=length],
        };
        let whole = length + end.len();
        self.at += whole;
        if std::mem::take(&mut lines.over) {
            return Some(Piece::Rest(&rest[..whole]));
        }
        let closes = matches!(rest.get(whole), Some(b'\n' | b'\r'));
        let text = if lines.held.is_empty() {
            &rest[..length]
        } else {
            lines.held.extend_from_slice(&rest[..length]);
            lines.lent = true;
            &lines.held
        };
        Some(Piece::Line { text, end, closes })
    }
}

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event<'a> {
    /// The `event` field; empty without one, cut at [`NAME_MAX`].
    pub name: &'a [u8],
    /// The `data` fields, joined by `\n`.
    pub data: &'a [u8],
}

/// The most bytes kept of an event's name. The longest names in use, of the Responses API, are
/// below 50.
pub const NAME_MAX: usize = 64;

/// Reads events. Skips events without data, comments and other fields, and events longer than
/// [`HELD_MAX`].
#[derive(Debug)]
pub struct Events {
    lines: Lines,
    open: Open,
}

/// The event that is being read.
#[derive(Debug, Default)]
struct Open {
    name: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    over: bool,
}

impl Default for Events {
    fn default() -> Self {
        Self {
            lines: Lines::new(HELD_MAX),
            open: Open::default(),
        }
    }
}

impl Events {
    /// Calls `on` for every event that ends in `chunk`.
    pub fn feed(&mut self, chunk: &[u8], mut on: impl FnMut(Event<'_>)) {
        let mut feed = self.lines.feed(chunk);
        while let Some(piece) = feed.next() {
            self.open.take(piece, &mut on);
        }
    }

    /// Calls `on` for the event that the end of the stream cut off, if any.
    pub fn finish(&mut self, mut on: impl FnMut(Event<'_>)) {
        if let Some(piece) = self.lines.finish() {
            self.open.take(piece, &mut on);
        }
        self.open.dispatch(&mut on);
    }
}

impl Open {
    fn take(&mut self, piece: Piece<'_>, on: &mut impl FnMut(Event<'_>)) {
        let (text, closes) = match piece {
            Piece::Line { text, closes, .. } => (text, closes),
            // The field of a line that is too long is unknown, so its event is skipped.
            Piece::Rest(_) => return self.over = true,
            Piece::End(_) => return,
        };
        if text.is_empty() {
            self.dispatch(on);
        } else if let Some(data) = field(text, b"data") {
            if closes && !self.has_data && !self.over {
                on(Event {
                    name: &self.name,
                    data,
                });
                self.reset();
            } else {
                self.append(data);
            }
        } else if let Some(name) = field(text, b"event") {
            self.name.clear();
            self.name
                .extend_from_slice(&name[..name.len().min(NAME_MAX)]);
        }
    }

    fn append(&mut self, data: &[u8]) {
        if self.data.len() + data.len() > HELD_MAX {
            self.over = true;
        }
        if self.over {
            return;
        }
        if self.has_data {
            self.data.push(b'\n');
        }
        self.has_data = true;
        self.data.extend_from_slice(data);
    }

    fn dispatch(&mut self, on: &mut impl FnMut(Event<'_>)) {
        if self.has_data && !self.over {
            on(Event {
                name: &self.name,
                data: &self.data,
            });
        }
        self.reset();
    }

    fn reset(&mut self) {
        self.name.clear();
        self.data.clear();
        if self.data.capacity() > KEPT_MAX {
            self.data = Vec::new();
        }
        self.has_data = false;
        self.over = false;
    }
}

/// The value of a line with this field, without the one blank after the colon.
pub fn field<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    match line.strip_prefix(name)? {
        [] => Some(b""),
        [b':', b' ', value @ ..] | [b':', value @ ..] => Some(value),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pieces of a stream given as chunks: lines with text and end, `Rest` without an end.
    fn pieces(held_max: usize, chunks: &[&[u8]]) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
        let mut lines = Lines::new(held_max);
        let mut out = Vec::new();
        let mut keep = |piece: Piece<'_>| {
            out.push(match piece {
                Piece::Line { text, end, .. } => (text.to_vec(), Some(end.to_vec())),
                Piece::Rest(bytes) | Piece::End(bytes) => (bytes.to_vec(), None),
            });
        };
        for chunk in chunks {
            let mut feed = lines.feed(chunk);
            while let Some(piece) = feed.next() {
                keep(piece);
            }
        }
        if let Some(piece) = lines.finish() {
            keep(piece);
        }
        out
    }

    fn together(pieces: &[(Vec<u8>, Option<Vec<u8>>)]) -> Vec<u8> {
        pieces
            .iter()
            .flat_map(|(text, end)| [text.clone(), end.clone().unwrap_or_default()])
            .flatten()
            .collect()
    }

    fn texts(pieces: &[(Vec<u8>, Option<Vec<u8>>)]) -> Vec<String> {
        pieces
            .iter()
            .filter(|(_, end)| end.is_some())
            .map(|(text, _)| String::from_utf8(text.clone()).unwrap())
            .collect()
    }

    fn events(chunks: &[&[u8]]) -> Vec<(String, String)> {
        let mut reader = Events::default();
        let mut out = Vec::new();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let mut on = |event: Event<'_>| out.push((text(event.name), text(event.data)));
        for chunk in chunks {
            reader.feed(chunk, &mut on);
        }
        reader.finish(&mut on);
        out
    }

    const MIXED: &[u8] =
        b"\xef: hi\r\nevent: a\r\ndata: 1\r\n\r\rdata: 2\rdata:3\n\n\ndata: [DONE]";

    #[test]
    fn lines_end_in_lf_crlf_or_cr() {
        let found = pieces(64, &[b"a\nb\r\nc\rd"]);
        let ends: Vec<_> = found
            .iter()
            .map(|(_, end)| end.as_deref().unwrap())
            .collect();
        assert_eq!(texts(&found), ["a", "b", "c", "d"]);
        assert_eq!(ends, [&b"\n"[..], b"\r\n", b"\r", b""]);
    }

    #[test]
    fn a_stream_cut_at_any_two_places_has_the_same_lines_and_every_byte() {
        let whole = pieces(64, &[MIXED]);
        let texts_of = |p: &[(Vec<u8>, Option<Vec<u8>>)]| -> Vec<Vec<u8>> {
            p.iter()
                .filter(|(_, end)| end.is_some())
                .map(|(text, _)| text.clone())
                .collect()
        };
        for first in 0..=MIXED.len() {
            for second in first..=MIXED.len() {
                let cut = pieces(
                    64,
                    &[&MIXED[..first], &MIXED[first..second], &MIXED[second..]],
                );
                assert_eq!(together(&cut), MIXED);
                assert_eq!(texts_of(&cut), texts_of(&whole), "{first} {second}");
            }
        }
    }

    #[test]
    fn a_line_beyond_the_bound_passes_and_the_next_one_is_read() {
        let stream = b"data: 0123456789\nok\n";
        for first in 0..=stream.len() {
            for second in first..=stream.len() {
                let cut = pieces(
                    8,
                    &[&stream[..first], &stream[first..second], &stream[second..]],
                );
                assert_eq!(together(&cut), stream);
                assert_eq!(texts(&cut), ["ok"], "{first} {second}");
            }
        }
    }

    #[test]
    fn memory_stays_within_the_bound_whatever_the_line() {
        let mut lines = Lines::new(1000);
        for _ in 0..1000 {
            let mut feed = lines.feed(&[b'x'; 999]);
            while feed.next().is_some() {}
            assert!(lines.held.capacity() <= 2000);
        }
    }

    #[test]
    fn an_event_cut_at_any_two_places_is_the_same_event() {
        let stream = b": ping\nevent: message_stop\r\nid: 7\ndata: {\"a\":\ndata: 1}\n\n\
            data: x\r\n\r\nevent: none\n\ndata\rdata:  y\r\rdata: [DONE]";
        let expected: Vec<(String, String)> = [
            ("message_stop", "{\"a\":\n1}"),
            ("", "x"),
            ("", "\n y"),
            ("", "[DONE]"),
        ]
        .map(|(name, data)| (name.into(), data.into()))
        .into();
        assert_eq!(events(&[stream]), expected);
        for first in 0..=stream.len() {
            for second in first..=stream.len() {
                let chunks = [&stream[..first], &stream[first..second], &stream[second..]];
                assert_eq!(events(&chunks), expected, "{first} {second}");
            }
        }
        let bytes: Vec<&[u8]> = stream.chunks(1).collect();
        assert_eq!(events(&bytes), expected);
    }

    #[test]
    fn an_event_too_long_is_skipped_and_the_next_one_is_told() {
        let long = format!("data: {}\n\ndata: ok\n\n", "x".repeat(HELD_MAX + 1));
        for size in [1 << 14, long.len()] {
            let chunks: Vec<&[u8]> = long.as_bytes().chunks(size).collect();
            assert_eq!(events(&chunks), [("".into(), "ok".into())]);
        }
        let many = format!("{}\ndata: ok\n\n", "data: 0123456789\n".repeat(110_000));
        assert_eq!(events(&[many.as_bytes()]), [("".into(), "ok".into())]);
    }

    #[test]
    fn only_the_field_itself_is_the_field() {
        assert_eq!(field(b"data: x", b"data"), Some(&b"x"[..]));
        assert_eq!(field(b"data:x", b"data"), Some(&b"x"[..]));
        assert_eq!(field(b"data", b"data"), Some(&b""[..]));
        assert_eq!(field(b"database: x", b"data"), None);
        assert_eq!(field(b" data: x", b"data"), None);
    }
}
