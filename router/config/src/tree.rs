//! A file as a tree of nodes with their places. Scalars keep their text as written. The check
//! decides what a text *means*, because only it knows the expected type.

use std::ops::Range;

/// Bytes of the source text.
pub(super) type Span = Range<usize>;

/// One value of a file.
#[derive(Clone, Debug)]
pub(super) struct Node {
    /// The value.
    pub value: Value,
    /// The place of use; for an alias, the place of the alias itself.
    pub span: Span,
    /// The place of its text; differs from `span` only for aliases and merged entries.
    pub defined: Span,
}

/// The three shapes of YAML.
#[derive(Clone, Debug)]
pub(super) enum Value {
    /// Text, number, boolean or nothing.
    Scalar(Scalar),
    /// A list.
    Seq(Vec<Node>),
    /// A mapping in file order. A duplicate key occurs twice.
    Map(Vec<(Key, Node)>),
}

/// A mapping's key.
#[derive(Clone, Debug)]
pub(super) struct Key {
    /// The key's text.
    pub text: String,
    /// Where it stands.
    pub span: Span,
}

/// A scalar as written.
#[derive(Clone, Debug)]
pub(super) struct Scalar {
    /// The text, after quotes, escapes and environment expansion.
    pub text: String,
    /// How the scalar was written.
    pub style: Style,
}

/// How a scalar was written, which determines its possible types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// Without quotes: `5` is a number and `true` a boolean.
    Plain,
    /// With quotes, or as a block: always a text.
    Quoted,
    /// A single `${...}`: a number where a number is expected, a text where a text is expected.
    Expanded,
    /// The expansion failed and was reported; no further problem is reported for this scalar.
    Unusable,
}

impl Scalar {
    /// True for an unquoted `null`, `~` or nothing at all.
    pub(super) fn is_null(&self) -> bool {
        matches!(self.style, Style::Plain | Style::Expanded)
            && matches!(self.text.as_str(), "" | "~" | "null" | "Null" | "NULL")
    }

    /// True for an unquoted number.
    pub(super) fn is_number(&self) -> bool {
        self.style == Style::Plain && self.text.parse::<f64>().is_ok()
    }

    /// True for an unquoted `true` or `false`.
    pub(super) fn is_bool(&self) -> bool {
        self.style == Style::Plain
            && matches!(self.text.to_ascii_lowercase().as_str(), "true" | "false")
    }
}

impl Node {
    /// An empty mapping without a place, for an absent section.
    pub(super) fn empty() -> Self {
        Self {
            value: Value::Map(Vec::new()),
            span: 0..0,
            defined: 0..0,
        }
    }

    /// The scalar, if it is one.
    pub(super) fn as_scalar(&self) -> Option<&Scalar> {
        match &self.value {
            Value::Scalar(scalar) => Some(scalar),
            _ => None,
        }
    }

    /// True for an unquoted `null`, `~` or nothing at all.
    pub(super) fn is_null(&self) -> bool {
        self.as_scalar().is_some_and(Scalar::is_null)
    }

    /// True for a scalar whose expansion failed.
    pub(super) fn is_unusable(&self) -> bool {
        self.as_scalar().is_some_and(|s| s.style == Style::Unusable)
    }

    /// The last value of `key` in a mapping.
    pub(super) fn get(&self, key: &str) -> Option<&Node> {
        match &self.value {
            Value::Map(pairs) => pairs
                .iter()
                .rev()
                .find(|(k, _)| k.text == key)
                .map(|(_, v)| v),
            _ => None,
        }
    }
}
