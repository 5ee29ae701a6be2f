//! The only module that prints: results to stdout, everything else to stderr.
//!
//! Decides about colour (a terminal, and neither `NO_COLOR` nor `TERM=dumb`), about characters
//! beyond ASCII (by the locale), about a closed pipe (the reader has enough: drop the rest
//! silently), and whether it can ask the operator. It does not interpret the printed content.

mod ascii;
mod escape;
mod paint;
mod table;
mod wrap;

use std::borrow::Cow;
use std::io::{self, BufRead, IsTerminal, Write};

use serde::Serialize;

use crate::exit::Failure;

pub use escape::tame;
use escape::{Escapes, printable};
pub use paint::Paint;
use paint::painted;
pub use table::Table;

/// The output format of results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people: tables and sentences. May change between versions.
    #[default]
    Human,
    /// For programs: one JSON document. Stable.
    Json,
    /// For spreadsheets; `usage` only.
    #[value(hide = true)]
    Csv,
    /// Workflow commands that annotate a pull request; `route check` only.
    #[value(hide = true)]
    Github,
}

/// The output of a command.
pub struct Screen {
    format: Format,
    stdout: Box<dyn Write + Send>,
    stderr: Box<dyn Write + Send>,
    terminal: bool,
    /// Columns of the terminal on stdout. Without a terminal, lines are not broken.
    width: Option<usize>,
    colour: bool,
    colour_errors: bool,
    /// Whether text for people is limited to ASCII. Output for programs is always UTF-8.
    ascii: bool,
    /// Whether the operator can answer questions: stdin and stderr are a terminal.
    answers: bool,
    quiet: bool,
    /// The first write error of stdout. Nothing is written after it.
    broken: Option<io::Error>,
}

impl Screen {
    /// The process's own stdout and stderr.
    pub fn of_process(format: Format, quiet: bool) -> Self {
        let plain = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty())
            || std::env::var_os("TERM").is_some_and(|v| v == "dumb");
        Self {
            format,
            terminal: io::stdout().is_terminal(),
            width: terminal_size::terminal_size_of(io::stdout())
                .map(|(columns, _)| usize::from(columns.0).max(wrap::WIDTH_MIN)),
            colour: !plain && io::stdout().is_terminal(),
            colour_errors: !plain && io::stderr().is_terminal(),
            ascii: format == Format::Human && ascii::wanted(),
            answers: io::stdin().is_terminal() && io::stderr().is_terminal(),
            stdout: Box::new(io::stdout()),
            stderr: Box::new(io::stderr()),
            quiet,
            broken: None,
        }
    }

    /// A screen on other writers, without colour.
    pub fn to(
        format: Format,
        stdout: impl Write + Send + 'static,
        stderr: impl Write + Send + 'static,
    ) -> Self {
        Self {
            format,
            stdout: Box::new(stdout),
            stderr: Box::new(stderr),
            terminal: false,
            width: None,
            colour: false,
            colour_errors: false,
            ascii: false,
            answers: false,
            quiet: false,
            broken: None,
        }
    }

    /// The same screen with this number of terminal columns.
    #[cfg(test)]
    pub fn of_width(self, columns: usize) -> Self {
        Self {
            width: Some(columns),
            ..self
        }
    }

    /// Columns of the terminal; `None` without a terminal.
    pub fn width(&self) -> Option<usize> {
        self.width
    }

    /// The output format.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Whether the terminal shows ASCII alone.
    pub fn ascii(&self) -> bool {
        self.ascii
    }

    /// Whether `--quiet` suppresses notes.
    pub fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// Whether stdout gets colour.
    pub fn colour(&self) -> bool {
        self.colour
    }

    /// Writes result text. Escapes unprintable characters, and everything but ASCII where the
    /// terminal cannot show it.
    pub fn text(&mut self, text: &str) {
        let text = self.shown(text, self.colour).into_owned();
        self.write(&text);
    }

    fn write(&mut self, text: &str) {
        if self.broken.is_none()
            && let Err(error) = self.stdout.write_all(text.as_bytes())
        {
            self.broken = Some(error);
        }
    }

    /// Writes one line of result text.
    pub fn line(&mut self, text: &str) {
        self.text(text);
        self.text("\n");
    }

    /// Writes a heading.
    pub fn heading(&mut self, text: &str) {
        let painted = self.paint(Paint::Bold, text);
        self.line(&painted);
    }

    /// Writes a paragraph that fits the terminal: `lead` before its first line, and the further
    /// lines indented by `rest` columns.
    pub fn paragraph(&mut self, lead: &str, rest: usize, paint: Paint, text: &str) {
        let text = wrap::wrapped(text, lead.chars().count(), rest, self.width);
        let painted = self.paint(paint, &text);
        self.line(&format!("{lead}{painted}"));
    }

    /// Writes one JSON document, indented, with a closing newline.
    ///
    /// # Errors
    /// When the value cannot be written as JSON.
    pub fn json(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(value)
            .map_err(|error| Failure::Wrong(format!("cannot write the result as JSON: {error}")))?;
        self.line(&text);
        Ok(())
    }

    /// Writes a table.
    pub fn table(&mut self, table: &Table) {
        let text = if self.ascii {
            // Convert before measuring the columns.
            table
                .clone()
                .respelt(ascii::spelt)
                .draw(self.colour, self.width)
        } else {
            table.draw(self.colour, self.width)
        };
        self.text(&text);
    }

    /// Asks a yes/no question. Without a terminal the answer is yes: a script that runs a command
    /// means it.
    pub fn confirm(&mut self, question: &str) -> bool {
        if !self.answers {
            return true;
        }
        let question = self.shown(question, false).into_owned();
        // When stderr is closed, nobody sees the question; the answer is then no.
        let _ = write!(self.stderr, "{question} [y/N] ");
        let _ = self.stderr.flush();
        let mut answer = String::new();
        let read = io::stdin().lock().read_line(&mut answer);
        let answer = answer.trim();
        read.is_ok() && (answer.eq_ignore_ascii_case("y") || answer.eq_ignore_ascii_case("yes"))
    }

    /// The last filter before the terminal, for any text that a command produces.
    fn shown<'t>(&self, text: &'t str, colour: bool) -> Cow<'t, str> {
        let escapes = match self.format {
            Format::Json => Escapes::Json,
            Format::Human | Format::Csv | Format::Github => Escapes::Braced,
        };
        match printable(text, escapes, colour) {
            text if !self.ascii => text,
            Cow::Borrowed(text) => ascii::spelt(text),
            Cow::Owned(text) => Cow::Owned(ascii::spelt(&text).into_owned()),
        }
    }

    /// Writes a note to stderr, which `--quiet` suppresses.
    pub fn note(&mut self, text: &str) {
        if !self.quiet {
            self.complain("", Paint::Plain, text);
        }
    }

    /// Warns on stderr.
    pub fn warn(&mut self, text: &str) {
        self.complain("warning: ", Paint::Yellow, text);
    }

    /// Reports a failure on stderr.
    pub fn error(&mut self, text: &str) {
        self.complain("error: ", Paint::Red, text);
    }

    /// Writes clap's help to stdout, or clap's usage error to stderr.
    pub fn usage(&mut self, error: &clap::Error) {
        let styled = error.render();
        let text = |colour| match colour {
            true => styled.ansi().to_string(),
            false => styled.to_string(),
        };
        if error.use_stderr() {
            self.complain("", Paint::Plain, &text(self.colour_errors));
        } else {
            self.text(&text(self.colour));
        }
    }

    /// Text for stdout, painted when stdout takes colour.
    pub fn paint(&self, paint: Paint, text: &str) -> String {
        painted(self.colour, paint, text)
    }

    /// Clears a terminal for the next page. Without a terminal, pages follow one another.
    pub fn clear(&mut self) {
        if self.terminal {
            self.write("\x1b[H\x1b[2J");
        }
    }

    /// Whether the reader of stdout has gone, or writing to it failed.
    pub fn is_closed(&self) -> bool {
        self.broken.is_some()
    }

    /// Flushes the text so far.
    pub fn flush(&mut self) {
        if self.broken.is_none()
            && let Err(error) = self.stdout.flush()
        {
            self.broken = Some(error);
        }
    }

    /// Flushes stdout. A closed pipe is fine: the reader has seen enough.
    ///
    /// # Errors
    /// When writing the result failed for any other reason, for example a full disk.
    pub fn finish(&mut self) -> Result<(), Failure> {
        self.flush();
        match self.broken.take().map_or(Ok(()), Err) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                Err(Failure::Wrong(format!("cannot write the result: {error}")))
            }
            _ => Ok(()),
        }
    }

    fn complain(&mut self, label: &str, paint: Paint, text: &str) {
        let label = painted(self.colour_errors, paint, label);
        let text = self.shown(text, self.colour_errors);
        let text = text.trim_end_matches('\n').to_owned();
        // A failure of stderr cannot be reported anywhere.
        let _ = writeln!(self.stderr, "{label}{text}");
    }
}

/// Captures the output of a command, for tests.
#[cfg(test)]
pub mod testing {
    use std::io;
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::{Format, Screen};

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// The text that `print` writes to stdout and to stderr.
    pub async fn streams(format: Format, print: impl AsyncFnOnce(&mut Screen)) -> (String, String) {
        let (results, errors) = (Sink::default(), Sink::default());
        print(&mut Screen::to(format, results.clone(), errors.clone())).await;
        let text = |sink: Sink| String::from_utf8(sink.0.lock().clone()).unwrap();
        (text(results), text(errors))
    }

    /// The text that `print` writes to stdout, and its result.
    pub async fn capture_async<T>(
        format: Format,
        print: impl AsyncFnOnce(&mut Screen) -> T,
    ) -> (String, T) {
        let sink = Sink::default();
        let answer = print(&mut Screen::to(format, sink.clone(), io::sink())).await;
        let bytes = sink.0.lock().clone();
        (String::from_utf8(bytes).unwrap(), answer)
    }

    /// The text that `print` writes to a terminal of 80 columns without colour.
    pub fn capture_80(print: impl FnOnce(&mut Screen)) -> String {
        let sink = Sink::default();
        print(&mut Screen::to(Format::Human, sink.clone(), io::sink()).of_width(80));
        let bytes = sink.0.lock().clone();
        String::from_utf8(bytes).unwrap()
    }

    /// The text that `print` writes to stdout.
    pub fn capture(format: Format, print: impl FnOnce(&mut Screen)) -> String {
        let sink = Sink::default();
        print(&mut Screen::to(format, sink.clone(), io::sink()));
        let bytes = sink.0.lock().clone();
        String::from_utf8(bytes).unwrap()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Failing(io::ErrorKind);

    impl Write for Failing {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Err(self.0.into())
        }
    }

    #[test]
    fn a_closed_pipe_ends_quietly() {
        let mut screen = Screen::to(
            Format::Human,
            Failing(io::ErrorKind::BrokenPipe),
            io::sink(),
        );
        screen.line("one");
        screen.line("two");
        assert!(screen.finish().is_ok());
    }

    #[tokio::test]
    async fn nothing_raw_leaves_on_any_way_out() {
        let hostile = "\u{9b}2J\u{202e}\x1b]0;x\x07";
        for format in [Format::Human, Format::Json, Format::Github] {
            let (results, errors) = testing::streams(format, async |screen| {
                screen.line(hostile);
                screen.heading(hostile);
                screen.json(&hostile).unwrap();
                let mut table = Table::new(&["model"]);
                table.row([hostile]);
                screen.table(&table);
                screen.note(hostile);
                screen.warn(hostile);
                screen.error(hostile);
            })
            .await;
            for text in [results, errors] {
                let raw = ['\u{9b}', '\u{202e}', '\x1b', '\x07'];
                assert!(!text.contains(raw), "{format:?}: {text:?}");
                assert!(text.contains("202e"), "{format:?}: {text:?}");
            }
        }
    }

    #[test]
    fn a_full_disk_is_a_failure() {
        let mut screen = Screen::to(
            Format::Human,
            Failing(io::ErrorKind::StorageFull),
            io::sink(),
        );
        screen.line("one");
        assert!(matches!(screen.finish(), Err(Failure::Wrong(_))));
    }
}
