//! The condition of a rule: the grammar as types, and its meaning.

use std::fmt;

use regex::bytes::{Regex, RegexBuilder};

use super::Fact;

/// Maximum length of a literal text or pattern, bytes.
pub const TEXT_BYTES_MAX: usize = 1024;

/// Maximum memory of one compiled pattern, bytes. A thousand letters with a few counted repeats
/// fit.
const PATTERN_BYTES_MAX: usize = 1 << 20;

/// A condition over fields of kind `F`: [`Field`](super::Field)s as written, or their numbers after
/// compilation.
#[derive(Clone, Debug, PartialEq)]
pub enum Condition<F> {
    /// Every sub-condition holds.
    All(Vec<Self>),
    /// At least one sub-condition holds.
    Any(Vec<Self>),
    /// One field passes one test.
    Leaf(F, Test),
}

/// The test of one field. Values are not converted: `"5"` is not a number, and `1` equals `1.0`.
#[derive(Clone, Debug, PartialEq)]
pub enum Test {
    /// `gt`, `ge`, `lt`, `le`: the value is a number on that side of this one.
    Number(Order, f64),
    /// `eq`: the value has the same type and content.
    Equals(Literal),
    /// `ne`: not `eq`; so it holds for a missing field.
    Differs(Literal),
    /// `in`: the value equals one of these.
    In(Vec<Literal>),
    /// `nin`: the value equals none of these; so it holds for a missing field.
    NotIn(Vec<Literal>),
    /// `match`: the value is a text, and the pattern is found anywhere in it.
    Matches(Pattern),
    /// `contains`: the value is a text that contains this one.
    Contains(Pattern),
    /// `prefix`: the value is a text that starts with this one.
    Prefix(Box<str>),
    /// `exists`: the field is present, even as `null`.
    Exists,
    /// `absent`: the field is missing.
    Absent,
}

/// The direction of a comparison of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Above.
    Gt,
    /// Above or equal.
    Ge,
    /// Below.
    Lt,
    /// Below or equal.
    Le,
}

/// A value that a rule compares with.
#[derive(Clone, Debug, PartialEq)]
pub enum Literal {
    /// A text.
    Text(Box<str>),
    /// A finite number.
    Number(f64),
    /// A boolean.
    Bool(bool),
}

/// A text to search for: a regular expression, or a literal. Searching takes time linear in the
/// text, for every pattern.
#[derive(Clone, Debug)]
pub struct Pattern {
    written: Box<str>,
    regex: Regex,
}

/// Why a text is not a valid pattern; one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatternError(String);

impl fmt::Display for PatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for PatternError {}

impl Pattern {
    /// A regular expression.
    ///
    /// # Errors
    /// When the pattern is invalid or too large; with the reason.
    pub fn regex(text: &str) -> Result<Self, PatternError> {
        Self::new(text, text)
    }

    /// A text that is matched literally.
    ///
    /// # Errors
    /// When the text is too large.
    pub fn literal(text: &str) -> Result<Self, PatternError> {
        Self::new(text, &regex::escape(text))
    }

    fn new(written: &str, pattern: &str) -> Result<Self, PatternError> {
        if written.len() > TEXT_BYTES_MAX {
            let message = format!("it is longer than {TEXT_BYTES_MAX} bytes");
            return Err(PatternError(message));
        }
        let mut builder = RegexBuilder::new(pattern);
        builder
            .size_limit(PATTERN_BYTES_MAX)
            .dfa_size_limit(PATTERN_BYTES_MAX);
        match builder.build() {
            Ok(regex) => Ok(Self {
                written: written.into(),
                regex,
            }),
            Err(regex::Error::CompiledTooBig(limit)) => {
                let message = format!("it takes more than {limit} bytes once compiled");
                Err(PatternError(message))
            }
            Err(error) => {
                // In an error that points into the pattern, the last line of the drawing has the
                // reason.
                let text = error.to_string();
                let last = text.lines().next_back().unwrap_or_default();
                let reason = last.strip_prefix("error: ").unwrap_or(last);
                Err(PatternError(reason.to_owned()))
            }
        }
    }

    fn is_in(&self, text: &[u8]) -> bool {
        self.regex.is_match(text)
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.regex.as_str() == other.regex.as_str()
    }
}

impl<F> Condition<F> {
    /// The same condition with its fields replaced.
    pub(super) fn map<G>(self, with: &mut impl FnMut(F) -> G) -> Condition<G> {
        let mut all = |list: Vec<Self>| list.into_iter().map(|one| one.map(with)).collect();
        match self {
            Self::All(list) => Condition::All(all(list)),
            Self::Any(list) => Condition::Any(all(list)),
            Self::Leaf(field, test) => Condition::Leaf(with(field), test),
        }
    }
}

impl Condition<usize> {
    /// Whether the condition holds for the found values, indexed by field number.
    pub(super) fn holds(&self, facts: &[Fact<'_>]) -> bool {
        match self {
            Self::All(list) => list.iter().all(|one| one.holds(facts)),
            Self::Any(list) => list.iter().any(|one| one.holds(facts)),
            Self::Leaf(field, test) => test.holds(&facts[*field]),
        }
    }
}

impl Test {
    /// Whether the found value passes.
    pub fn holds(&self, fact: &Fact<'_>) -> bool {
        match self {
            Self::Number(order, number) => match fact {
                Fact::Number(found) => order.holds(*found, *number),
                _ => false,
            },
            Self::Equals(literal) => literal.equals(fact),
            Self::Differs(literal) => !literal.equals(fact),
            Self::In(list) => list.iter().any(|literal| literal.equals(fact)),
            Self::NotIn(list) => !list.iter().any(|literal| literal.equals(fact)),
            Self::Matches(pattern) | Self::Contains(pattern) => match fact {
                Fact::Text(text) => pattern.is_in(text),
                _ => false,
            },
            Self::Prefix(prefix) => match fact {
                Fact::Text(text) => text.starts_with(prefix.as_bytes()),
                _ => false,
            },
            Self::Exists => *fact != Fact::Missing,
            Self::Absent => *fact == Fact::Missing,
        }
    }
}

impl Order {
    fn holds(self, found: f64, number: f64) -> bool {
        match self {
            Self::Gt => found > number,
            Self::Ge => found >= number,
            Self::Lt => found < number,
            Self::Le => found <= number,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Gt => "gt",
            Self::Ge => "ge",
            Self::Lt => "lt",
            Self::Le => "le",
        }
    }
}

impl Literal {
    #[expect(clippy::float_cmp, reason = "equality of two numbers is what is asked")]
    fn equals(&self, fact: &Fact<'_>) -> bool {
        match (self, fact) {
            (Self::Text(text), Fact::Text(found)) => text.as_bytes() == &**found,
            (Self::Number(number), Fact::Number(found)) => number == found,
            (Self::Bool(value), Fact::Bool(found)) => value == found,
            _ => false,
        }
    }
}

impl<F: fmt::Display> fmt::Display for Condition<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All(list) => joined(f, "ALL(", list, " & ", ")"),
            Self::Any(list) => joined(f, "ANY(", list, " | ", ")"),
            Self::Leaf(field, test) => write!(f, "{field} {test}"),
        }
    }
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(order, number) => write!(f, "{} {number}", order.as_str()),
            Self::Equals(literal) => write!(f, "eq {literal}"),
            Self::Differs(literal) => write!(f, "ne {literal}"),
            Self::In(list) => joined(f, "in [", list, ",", "]"),
            Self::NotIn(list) => joined(f, "nin [", list, ",", "]"),
            Self::Matches(pattern) => write!(f, "match {}", pattern.written),
            Self::Contains(pattern) => write!(f, "contains {}", pattern.written),
            Self::Prefix(prefix) => write!(f, "prefix {prefix}"),
            Self::Exists => f.write_str("exists"),
            Self::Absent => f.write_str("absent"),
        }
    }
}

impl fmt::Display for Literal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Number(number) => write!(f, "{number}"),
            Self::Bool(value) => write!(f, "{value}"),
        }
    }
}

fn joined<T: fmt::Display>(
    f: &mut fmt::Formatter<'_>,
    open: &str,
    list: &[T],
    between: &str,
    close: &str,
) -> fmt::Result {
    f.write_str(open)?;
    for (i, one) in list.iter().enumerate() {
        if i > 0 {
            f.write_str(between)?;
        }
        write!(f, "{one}")?;
    }
    f.write_str(close)
}
