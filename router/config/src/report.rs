//! Problems of files and their display: as excerpts for people, as `{file, line, column, message}`
//! for programs, and as annotations for GitHub.
//!
//! A [`Source`] holds the file's text with its secrets already masked, so that no rendered problem
//! can contain one.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};
use serde::Serialize;

use super::tree::Span;

/// The severity of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The file is invalid.
    Error,
    /// An invalid boolean or a bad content rule. It is an error for `route check`. A running router
    /// logs it, uses the option's default or drops the rule, and keeps the file.
    Tolerated,
    /// The value is accepted, with a warning.
    Warning,
}

impl Severity {
    /// `error` or `warning`, for people and programs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Error | Self::Tolerated => "error",
            Self::Warning => "warning",
        }
    }
}

/// A file in the form that a report may show.
#[derive(Debug, PartialEq, Eq)]
pub struct Source {
    /// The path as it was opened.
    pub path: PathBuf,
    /// The text with secrets masked. Byte offsets are those of the file (without its BOM). Empty
    /// when the file could not be read.
    pub text: String,
}

/// A second place of a problem, in the same file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// The place.
    pub span: Span,
    /// Description of the place.
    pub text: String,
}

/// One problem of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The severity.
    pub severity: Severity,
    /// The stable code of a warning.
    pub code: Option<&'static str>,
    /// The file.
    pub source: Arc<Source>,
    /// The place in the file; `None` when the problem concerns the whole file.
    pub span: Option<Span>,
    /// The key path (`peers[2].max_concurrency`); empty for the whole file.
    pub key: String,
    /// What was found and what is allowed; one line, no secrets.
    pub message: String,
    /// How to fix the problem.
    pub help: Option<String>,
    /// Other places.
    pub labels: Vec<Label>,
}

/// The stable form for programs: `--output json` and the body of a refused reload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Machine {
    /// The file's path.
    pub file: String,
    /// 1-based; 1 when the problem concerns the whole file.
    pub line: usize,
    /// 1-based, in characters; 1 when the problem concerns the whole file.
    pub column: usize,
    /// `error` or `warning`.
    pub severity: &'static str,
    /// The code of a warning; absent for errors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<&'static str>,
    /// Key path, what was found, what is allowed, and how to fix it.
    pub message: String,
}

impl Problem {
    /// A problem of a whole file whose text is unknown or irrelevant.
    pub fn of_file(severity: Severity, path: &Path, message: impl Into<String>) -> Self {
        Self {
            severity,
            code: None,
            source: Arc::new(Source {
                path: path.to_owned(),
                text: String::new(),
            }),
            span: None,
            key: String::new(),
            message: message.into(),
            help: None,
            labels: Vec::new(),
        }
    }

    /// Sets the code of a warning.
    pub fn with_code(mut self, code: &'static str) -> Self {
        self.code = Some(code);
        self
    }

    /// Sets the advice on how to fix the problem.
    pub fn with_help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Whether a running router cannot use the file because of this problem.
    pub fn is_fatal(&self) -> bool {
        self.severity == Severity::Error
    }

    /// Whether this is an error of either kind: a part of the file is not in force.
    pub fn is_error(&self) -> bool {
        self.severity != Severity::Warning
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        &self.source.path
    }

    /// Line and column, 1-based, columns in characters.
    pub fn position(&self) -> (usize, usize) {
        let start = self.span.as_ref().map_or(0, |span| span.start);
        let before = self.source.text.get(..start).unwrap_or_default();
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let line = before.bytes().filter(|b| *b == b'\n').count() + 1;
        (line, before[line_start..].chars().count() + 1)
    }

    /// Key path and message in one line.
    pub fn title(&self) -> String {
        if self.key.is_empty() {
            self.message.clone()
        } else {
            format!("{}: {}", self.key, self.message)
        }
    }

    /// The form for programs.
    pub fn machine(&self) -> Machine {
        let (line, column) = self.position();
        let mut message = self.title();
        if let Some(help) = &self.help {
            let _ = write!(message, " ({help})");
        }
        Machine {
            file: self.path().display().to_string(),
            line,
            column,
            severity: self.severity.as_str(),
            code: self.code,
            message,
        }
    }

    /// The form for GitHub's log: `::error file=…,line=…,col=…::…`, with the code of a warning as
    /// the title.
    pub fn github(&self) -> String {
        let machine = self.machine();
        let mut properties = vec![
            ("file", machine.file),
            ("line", machine.line.to_string()),
            ("col", machine.column.to_string()),
        ];
        properties.extend(machine.code.map(|code| ("title", code.to_owned())));
        annotation(machine.severity, &properties, &machine.message)
    }
}

/// A GitHub workflow command that annotates a pull request.
pub fn annotation(severity: &str, properties: &[(&str, String)], message: &str) -> String {
    let property = |(name, value): &(&str, String)| {
        let value = data(value).replace(':', "%3A").replace(',', "%2C");
        format!("{name}={value}")
    };
    let properties: Vec<_> = properties.iter().map(property).collect();
    format!("::{severity} {}::{}", properties.join(","), data(message))
}

/// Escapes the text of a GitHub command.
fn data(text: &str) -> String {
    text.replace('%', "%25")
        .replace('\r', "%0D")
        .replace('\n', "%0A")
}

/// Whether a report may use colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// No escape codes.
    Plain,
    /// For a terminal.
    Colour,
}

/// Renders problems with their excerpts in the given order, with an empty line between two. Empty
/// for no problems.
pub fn render(problems: &[Problem], style: Style) -> String {
    let renderer = match style {
        Style::Plain => Renderer::plain(),
        Style::Colour => Renderer::styled(),
    };
    let mut out = String::new();
    for problem in problems {
        if !out.is_empty() {
            out.push('\n');
        }
        out.push_str(&renderer.render(&[group(problem)]));
        out.push('\n');
    }
    out
}

fn group(problem: &Problem) -> Group<'_> {
    let level = if problem.severity == Severity::Warning {
        Level::WARNING
    } else {
        Level::ERROR
    };
    let path = problem.path().display().to_string();
    let mut title = level.primary_title(problem.title());
    if let Some(code) = problem.code {
        title = title.id(code);
    }
    let group = match &problem.span {
        Some(span) => {
            let window = window(&problem.source.text, span, &problem.labels);
            let shift = |span: &Span| span.start - window.start..span.end - window.start;
            let first_line = problem.source.text[..window.start]
                .bytes()
                .filter(|b| *b == b'\n')
                .count()
                + 1;
            let snippet = Snippet::source(&problem.source.text[window.clone()])
                .line_start(first_line)
                .path(path)
                .annotation(AnnotationKind::Primary.span(shift(span)))
                .annotations(problem.labels.iter().map(|label| {
                    AnnotationKind::Context
                        .span(shift(&label.span))
                        .label(&*label.text)
                }));
            title.element(snippet)
        }
        None => title.element(annotate_snippets::Origin::path(path)),
    };
    match &problem.help {
        Some(help) => group.element(Level::HELP.message(&**help)),
        None => group,
    }
}

/// The complete lines around the places of a problem. The renderer processes all text that it gets,
/// and a problem in a large file needs only a few lines.
fn window(text: &str, span: &Span, labels: &[Label]) -> Span {
    let spans = || labels.iter().map(|label| &label.span).chain([span]);
    let first = spans().map(|s| s.start).min().unwrap_or(0);
    let last = spans().map(|s| s.end).max().unwrap_or(0);
    let start = text[..first].rfind('\n').map_or(0, |newline| newline + 1);
    let end = text[last..]
        .find('\n')
        .map_or(text.len(), |newline| last + newline);
    start..end
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(text: &str, span: Span) -> Problem {
        Problem {
            severity: Severity::Error,
            code: None,
            source: Arc::new(Source {
                path: "routes/chat.yaml".into(),
                text: text.into(),
            }),
            span: Some(span),
            key: "default_max".into(),
            message: "expected a whole number, found `x`".into(),
            help: None,
            labels: Vec::new(),
        }
    }

    #[test]
    fn columns_count_characters_and_lines_start_at_one() {
        let text = "a: 1\r\nü: öx\n";
        let at = text.find('x').unwrap();
        assert_eq!(problem(text, at..at + 1).position(), (2, 5));
        assert_eq!(problem(text, 0..1).position(), (1, 1));
    }

    #[test]
    fn a_github_annotation_escapes_what_would_end_it() {
        let mut p = problem("default_max: x\n", 13..14);
        p.message = "100%\nbad".into();
        p.source = Arc::new(Source {
            path: "a,b:c.yaml".into(),
            text: p.source.text.clone(),
        });
        assert_eq!(
            p.github(),
            "::error file=a%2Cb%3Ac.yaml,line=1,col=14::default_max: 100%25%0Abad"
        );
    }

    #[test]
    fn a_warning_carries_its_code_everywhere() {
        let mut p = problem("default_max: x\n", 13..14).with_code("unused-option");
        p.severity = Severity::Warning;
        assert!(p.github().starts_with(
            "::warning file=routes/chat.yaml,line=1,col=14,title=unused-option::default_max"
        ));
        assert_eq!(p.machine().code, Some("unused-option"));
        let shown = render(&[p], Style::Plain);
        assert!(
            shown.starts_with("warning[unused-option]: default_max"),
            "{shown}"
        );
    }

    #[test]
    fn colours_appear_only_when_asked_for() {
        let p = [problem("default_max: x\n", 13..14)];
        assert!(!render(&p, Style::Plain).contains('\u{1b}'));
        assert!(render(&p, Style::Colour).contains('\u{1b}'));
    }

    #[test]
    fn a_file_without_text_is_named_without_an_excerpt() {
        let p = Problem::of_file(Severity::Error, Path::new("x.yaml"), "cannot be read")
            .with_help("check it");
        assert_eq!(p.machine().message, "cannot be read (check it)");
        let shown = render(&[p], Style::Plain);
        assert!(
            shown.contains("x.yaml") && shown.contains("cannot be read"),
            "{shown}"
        );
    }
}
