//! Collects the problems of one file, each with its place and key path, and the places that no
//! excerpt may show.

use std::path::Path;
use std::sync::Arc;

use crate::report::{Label, Problem, Severity, Source};
use crate::tree::{Node, Span, Value};

/// Maximum number of problems kept per file. The last one says that there were more.
const PROBLEMS_MAX: usize = 200;

/// Text shown at a masked place.
const MASK: &str = "***";

/// Collects the problems of one file. Made for each check; [`Reader::finish`] consumes it.
pub(crate) struct Reader {
    problems: Vec<Draft>,
    dropped: usize,
    masks: Vec<Span>,
    at: String,
    tolerates: bool,
}

/// A problem before the file's text is masked.
pub(crate) struct Draft {
    severity: Severity,
    code: Option<&'static str>,
    span: Span,
    key: String,
    message: String,
    help: Option<String>,
    labels: Vec<Label>,
}

impl Draft {
    /// Adds advice on how to fix the problem.
    pub(crate) fn help(&mut self, help: impl Into<String>) -> &mut Self {
        self.help = Some(help.into());
        self
    }

    /// Adds a second place.
    pub(crate) fn label(&mut self, span: Span, text: impl Into<String>) -> &mut Self {
        self.labels.push(Label {
            span,
            text: text.into(),
        });
        self
    }
}

impl Reader {
    /// An empty collector at the top of the file.
    pub(crate) fn new() -> Self {
        Self {
            problems: Vec::new(),
            dropped: 0,
            masks: Vec::new(),
            at: String::new(),
            tolerates: false,
        }
    }

    /// Runs `inner` one key deeper.
    pub(crate) fn key<T>(&mut self, key: &str, inner: impl FnOnce(&mut Self) -> T) -> T {
        let plain = !key.is_empty()
            && key
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b));
        let shown = if plain {
            key.to_owned()
        } else {
            format!("\"{}\"", short(key))
        };
        self.deeper(
            &if self.at.is_empty() {
                shown
            } else {
                format!(".{shown}")
            },
            inner,
        )
    }

    /// Runs `inner` one key deeper, but does not record the key's name, because it is a secret.
    pub(crate) fn secret_key<T>(&mut self, inner: impl FnOnce(&mut Self) -> T) -> T {
        self.deeper(".***", inner)
    }

    /// Runs `inner` one list item deeper; `index` from 0.
    pub(crate) fn item<T>(&mut self, index: usize, inner: impl FnOnce(&mut Self) -> T) -> T {
        self.deeper(&format!("[{index}]"), inner)
    }

    /// Runs `inner` at a full key path.
    pub(crate) fn at<T>(&mut self, path: &str, inner: impl FnOnce(&mut Self) -> T) -> T {
        self.deeper(path, inner)
    }

    fn deeper<T>(&mut self, segment: &str, inner: impl FnOnce(&mut Self) -> T) -> T {
        let length = self.at.len();
        self.at.push_str(segment);
        let result = inner(self);
        self.at.truncate(length);
        result
    }

    /// Runs `inner`. A running router tolerates the errors that `inner` reports.
    pub(crate) fn tolerating<T>(&mut self, inner: impl FnOnce(&mut Self) -> T) -> T {
        let before = std::mem::replace(&mut self.tolerates, true);
        let result = inner(self);
        self.tolerates = before;
        result
    }

    /// Number of errors so far, fatal and tolerated.
    pub(crate) fn errors(&self) -> usize {
        let kept = self.problems.iter();
        kept.filter(|draft| draft.severity != Severity::Warning)
            .count()
            + self.dropped
    }

    /// Reports an error that makes the file invalid. Inside [`tolerating`](Self::tolerating), it
    /// makes only its part invalid.
    pub(crate) fn error(&mut self, span: Span, message: impl Into<String>) -> &mut Draft {
        let severity = if self.tolerates {
            Severity::Tolerated
        } else {
            Severity::Error
        };
        self.push(severity, span, message.into())
    }

    /// Reports an error that a running router tolerates.
    pub(crate) fn tolerated(&mut self, span: Span, message: impl Into<String>) -> &mut Draft {
        self.push(Severity::Tolerated, span, message.into())
    }

    /// Reports a warning: the value is accepted. The code comes from the catalogue of warnings.
    pub(crate) fn warning(
        &mut self,
        code: &'static str,
        span: Span,
        message: impl Into<String>,
    ) -> &mut Draft {
        let draft = self.push(Severity::Warning, span, message.into());
        draft.code = Some(code);
        draft
    }

    /// Reports a value that does not match `allowed`. Reports nothing if the expansion of the value
    /// was already reported.
    pub(crate) fn unexpected(&mut self, node: &Node, allowed: &str) -> Option<&mut Draft> {
        if node.is_unusable() {
            return None;
        }
        let found = self.found(node);
        Some(self.error(
            node.span.clone(),
            format!("expected {allowed}, found {found}"),
        ))
    }

    /// Describes a value for a message.
    pub(crate) fn found(&self, node: &Node) -> String {
        match &node.value {
            Value::Seq(_) => "a list".to_owned(),
            Value::Map(_) => "a mapping".to_owned(),
            Value::Scalar(_) if self.is_masked(node) => "a secret".to_owned(),
            Value::Scalar(scalar) if scalar.is_null() => "nothing".to_owned(),
            Value::Scalar(scalar) if scalar.is_bool() => format!("the boolean `{}`", scalar.text),
            Value::Scalar(scalar) if scalar.is_number() => format!("the number `{}`", scalar.text),
            Value::Scalar(scalar) => format!("the text `{}`", short(&scalar.text)),
        }
    }

    /// Masks a place in every excerpt.
    pub(crate) fn mask(&mut self, span: &Span) {
        if !span.is_empty() {
            self.masks.push(span.clone());
        }
    }

    /// Masks every scalar of a value, and every key below it, in every excerpt.
    pub(crate) fn mask_tree(&mut self, node: &Node) {
        match &node.value {
            Value::Scalar(_) => {
                self.mask(&node.span);
                self.mask(&node.defined);
            }
            Value::Seq(items) => items.iter().for_each(|item| self.mask_tree(item)),
            Value::Map(pairs) => {
                for (key, value) in pairs {
                    self.mask(&key.span);
                    self.mask_tree(value);
                }
            }
        }
    }

    fn is_masked(&self, node: &Node) -> bool {
        self.masks
            .iter()
            .any(|mask| *mask == node.span || *mask == node.defined)
    }

    fn push(&mut self, severity: Severity, span: Span, message: String) -> &mut Draft {
        let key = self.at.clone();
        if self.problems.len() == PROBLEMS_MAX {
            self.dropped += 1;
            // The draft beyond the bound is still returned, and the next one replaces it.
            self.problems.truncate(PROBLEMS_MAX - 1);
        }
        self.problems.push(Draft {
            severity,
            code: None,
            span,
            key,
            message,
            help: None,
            labels: Vec::new(),
        });
        self.problems
            .last_mut()
            .expect("one was pushed in the line above")
    }

    /// The problems in file order, with the secrets in the text masked.
    pub(crate) fn finish(self, path: &Path, text: &str) -> Vec<Problem> {
        let masked = mask(text, &self.masks);
        let source = Arc::new(Source {
            path: path.to_owned(),
            text: masked,
        });
        let clip = |span: Span| clip(span, &self.masks, text.len());
        let mut problems: Vec<_> = self
            .problems
            .into_iter()
            .map(|draft| Problem {
                severity: draft.severity,
                code: draft.code,
                source: Arc::clone(&source),
                span: Some(clip(draft.span)),
                key: draft.key,
                message: draft.message,
                help: draft.help,
                labels: draft
                    .labels
                    .into_iter()
                    .map(|label| Label {
                        span: clip(label.span),
                        text: label.text,
                    })
                    .collect(),
            })
            .collect();
        problems.sort_by_key(|p| p.span.as_ref().map(|span| span.start));
        if self.dropped > 0 {
            let more = format!("{} more problems are not shown", self.dropped);
            problems.push(Problem::of_file(Severity::Error, path, more));
        }
        problems
    }
}

/// At most forty characters of a text, on one line.
pub(crate) fn short(text: &str) -> String {
    let mut out: String = text
        .chars()
        .take(40)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    if text.chars().nth(40).is_some() {
        out.push('…');
    }
    out
}

/// Masks places without moving other text: blanks pad `***` to the length of the hidden text.
fn mask(text: &str, masks: &[Span]) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for span in masks {
        let Some(hidden) = bytes.get_mut(span.clone()) else {
            continue;
        };
        for (index, byte) in hidden.iter_mut().enumerate() {
            if !matches!(byte, b'\n' | b'\r') {
                *byte = MASK.as_bytes().get(index).copied().unwrap_or(b' ');
            }
        }
    }
    String::from_utf8(bytes).unwrap_or_default()
}

/// A span inside a masked place points only at the mask, so that not even a length shows.
fn clip(span: Span, masks: &[Span], len: usize) -> Span {
    let span = span.start.min(len)..span.end.min(len);
    match masks
        .iter()
        .find(|mask| mask.start <= span.start && span.end <= mask.end)
    {
        Some(mask) => mask.start..mask.end.min(mask.start + MASK.len()),
        None => span,
    }
}
