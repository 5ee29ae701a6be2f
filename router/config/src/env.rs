//! Environment expansion in scalar values: `${NAME}` and `${NAME:-default}`.
//!
//! Expansion works on the parsed tree, never on the text, so a value cannot inject structure. Keys
//! are not expanded. `$$` is a `$`, and a `$` before anything but `{` and `$` stands for itself. A
//! default is literal up to the first `}`. No value ever becomes empty silently.

use std::collections::BTreeMap;
use std::env::{self, VarError};

use super::check::{Reader, sounds_secret};
use super::tree::{Node, Span, Style, Value};

/// The source of variables.
#[derive(Clone, Debug, Default)]
pub enum Env {
    /// The variables of the process.
    #[default]
    Process,
    /// A fixed set, for tests and for checking a file as another host would see it.
    Fixed(BTreeMap<String, String>),
}

impl Env {
    /// A fixed set of variables.
    pub fn fixed<K: Into<String>, V: Into<String>>(vars: impl IntoIterator<Item = (K, V)>) -> Self {
        Self::Fixed(
            vars.into_iter()
                .map(|(k, v)| (k.into(), v.into()))
                .collect(),
        )
    }

    /// The value of a variable; `None` when it is unset.
    ///
    /// # Errors
    /// When the value is not UTF-8.
    pub fn get(&self, name: &str) -> Result<Option<String>, NotUtf8> {
        match self {
            Self::Fixed(vars) => Ok(vars.get(name).cloned()),
            Self::Process => match env::var(name) {
                Ok(value) => Ok(Some(value)),
                Err(VarError::NotPresent) => Ok(None),
                Err(VarError::NotUnicode(_)) => Err(NotUtf8),
            },
        }
    }
}

/// A variable's value is not UTF-8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotUtf8;

/// Why a text could not be expanded.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// `${NAME}` without a value or a default.
    Undefined(String),
    /// The variable's value is not UTF-8.
    NotUtf8(String),
    /// `${` without its `}`.
    Unterminated,
    /// The text between the braces is not `NAME` or `NAME:-default`.
    Malformed,
}

/// An expanded text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Expanded {
    /// The result.
    text: String,
    /// Whether the text was a single `${...}`.
    whole: bool,
}

/// Expands every scalar value below `node` in place. A scalar that cannot be expanded is reported
/// and marked [`Style::Unusable`].
pub(super) fn expand_tree(node: &mut Node, env: &Env, reader: &mut Reader) {
    expand_below(node, env, reader, Unset::Refused, false);
}

/// Expands a file that is only converted. A variable that is unset here causes only a warning,
/// because it may be set where the result is used. Its scalar is marked all the same.
pub(super) fn expand_known(node: &mut Node, env: &Env, reader: &mut Reader) {
    expand_below(node, env, reader, Unset::Kept, false);
}

/// Treatment of a variable without a value and a default.
#[derive(Clone, Copy)]
enum Unset {
    Refused,
    Kept,
}

/// Code of the warning for a variable that is unset here.
const UNSET_VARIABLE: &str = "unset-variable";

/// `hidden`: the keys of this mapping may be secrets, so key paths leave them out.
fn expand_below(node: &mut Node, env: &Env, reader: &mut Reader, unset: Unset, hidden: bool) {
    let (span, defined) = (node.span.clone(), node.defined.clone());
    match &mut node.value {
        Value::Seq(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                reader.item(index, |reader| {
                    expand_below(item, env, reader, unset, hidden);
                });
            }
        }
        Value::Map(pairs) => {
            for (key, value) in pairs {
                let below = hidden || sounds_secret(&key.text);
                // The value of `keys:` in the main file is not a secret, although its name suggests
                // one.
                let hide = hidden && !matches!(key.text.as_str(), "file" | "on_missing");
                let inner = |reader: &mut Reader| expand_below(value, env, reader, unset, below);
                if hide {
                    reader.secret_key(inner);
                } else {
                    reader.key(&key.text, inner);
                }
            }
        }
        Value::Scalar(scalar) if scalar.text.contains('$') => match expand(&scalar.text, env) {
            Ok(expanded) => {
                scalar.text = expanded.text;
                scalar.style = if expanded.whole {
                    Style::Expanded
                } else {
                    Style::Quoted
                };
            }
            Err(fault) => {
                scalar.style = Style::Unusable;
                let span = if span.is_empty() { defined } else { span };
                match (&fault, unset) {
                    (Fault::Undefined(name), Unset::Kept) => {
                        let message = format!(
                            "the variable `{name}` is not set here: its value is not checked"
                        );
                        reader.warning(UNSET_VARIABLE, span, message);
                    }
                    _ => report(&fault, span, reader),
                }
            }
        },
        Value::Scalar(_) => {}
    }
}

fn report(fault: &Fault, span: Span, reader: &mut Reader) {
    match fault {
        Fault::Undefined(name) => reader
            .error(span, format!("the variable `{name}` is not set"))
            .help(format!("set it, or give a default: `${{{name}:-…}}`")),
        Fault::NotUtf8(name) => reader.error(span, format!("the variable `{name}` is not UTF-8")),
        Fault::Unterminated => reader
            .error(span, "`${` without its `}`")
            .help("write `$$` for a literal `$`"),
        Fault::Malformed => reader
            .error(span, "expected `${NAME}` or `${NAME:-default}`")
            .help("a name is letters, digits and `_`, not starting with a digit; write `$$` for a literal `$`"),
    };
}

/// Expands one text.
fn expand(text: &str, env: &Env) -> Result<Expanded, Fault> {
    let mut out = String::with_capacity(text.len());
    let mut whole = false;
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        if let Some(body) = after.strip_prefix('{') {
            let end = body.find('}').ok_or(Fault::Unterminated)?;
            out.push_str(&resolve(&body[..end], env)?);
            rest = &body[end + 1..];
            whole = text.len() == end + "${}".len();
        } else if let Some(literal) = after.strip_prefix('$') {
            out.push('$');
            rest = literal;
        } else {
            out.push('$');
            rest = after;
        }
    }
    out.push_str(rest);
    Ok(Expanded { text: out, whole })
}

/// The value for the text between the braces.
fn resolve(body: &str, env: &Env) -> Result<String, Fault> {
    let (name, default) = match body.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (body, None),
    };
    let mut bytes = name.bytes();
    let starts = bytes
        .next()
        .is_some_and(|b| b.is_ascii_alphabetic() || b == b'_');
    if !starts || !bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_') {
        return Err(Fault::Malformed);
    }
    match (env.get(name), default) {
        (Err(NotUtf8), _) => Err(Fault::NotUtf8(name.to_owned())),
        (Ok(Some(value)), Some(default)) if value.is_empty() => Ok(default.to_owned()),
        (Ok(Some(value)), _) => Ok(value),
        (Ok(None), Some(default)) => Ok(default.to_owned()),
        (Ok(None), None) => Err(Fault::Undefined(name.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vars() -> Env {
        Env::fixed([
            ("PORT", "8000"),
            ("EMPTY", ""),
            ("NESTED", "${PORT}"),
            ("_x1", "y"),
        ])
    }

    fn text(input: &str) -> String {
        expand(input, &vars()).unwrap().text
    }

    #[test]
    fn variables_and_defaults_are_expanded_anywhere_in_a_text() {
        assert_eq!(text("${PORT}"), "8000");
        assert_eq!(text("host:${PORT}/x"), "host:8000/x");
        assert_eq!(text("${_x1}${PORT}"), "y8000");
        assert_eq!(text("${NOPE:-4000}"), "4000");
        assert_eq!(text("${NOPE:-}"), "");
    }

    #[test]
    fn a_default_counts_for_unset_and_for_empty() {
        assert_eq!(text("${EMPTY:-d}"), "d");
        assert_eq!(text("${EMPTY}"), "");
        assert_eq!(text("${PORT:-d}"), "8000");
    }

    #[test]
    fn a_default_is_literal_up_to_the_first_brace() {
        assert_eq!(text("${NOPE:-a:-b}"), "a:-b");
        assert_eq!(text("${NOPE:-${PORT}}"), "${PORT}");
        assert_eq!(text("${NESTED}"), "${PORT}");
    }

    #[test]
    fn dollars_that_start_nothing_are_literal() {
        assert_eq!(text("$$"), "$");
        assert_eq!(text("$${PORT}"), "${PORT}");
        assert_eq!(text("$$${PORT}"), "$8000");
        assert_eq!(text("cost $5, $PORT, $"), "cost $5, $PORT, $");
    }

    #[test]
    fn only_a_lone_expansion_is_retyped() {
        let whole = |input| expand(input, &vars()).unwrap().whole;
        assert!(whole("${PORT}") && whole("${NOPE:-1}"));
        assert!(
            !whole("${PORT}0") && !whole("0${PORT}") && !whole("${PORT}${PORT}") && !whole("$$")
        );
        assert!(!whole(" ${PORT}"));
    }

    #[test]
    fn faults_name_what_is_wrong() {
        let fault = |input| expand(input, &vars()).unwrap_err();
        assert_eq!(fault("a${NOPE}"), Fault::Undefined("NOPE".into()));
        assert_eq!(fault("${PORT"), Fault::Unterminated);
        for malformed in [
            "${}", "${1A}", "${A B}", "${A-b}", "${:-x}", "${A:=x}", "${ä}",
        ] {
            assert_eq!(fault(malformed), Fault::Malformed, "{malformed}");
        }
    }
}
