//! The fields that a rule may read, and the values found there.

use std::borrow::Cow;
use std::fmt;

/// Maximum number of steps in a path. Deeper values cannot be named.
pub const STEPS_MAX: usize = 32;

/// A field that a condition compares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Field {
    /// `input_bytes`: length of the client's body, bytes.
    InputBytes,
    /// `input_chars`: Unicode code points over `messages[].content`. A string counts fully. In a
    /// list, its strings count, and of its objects the `text` or else the `content`, if that is a
    /// string.
    InputChars,
    /// `messages_count`: length of the list `messages`, else 0.
    MessagesCount,
    /// `tools_count`: length of the list `tools`, else 0.
    ToolsCount,
    /// A path from the body's root; at least one step, at most [`STEPS_MAX`].
    Path(Box<[Step]>),
}

/// One step of a path: into an object by name, into a list by index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The member's name.
    pub name: Box<str>,
    /// The element's index, when the name is a whole number; negative ones count from the end, -1
    /// being the last.
    pub index: Option<i64>,
}

impl Field {
    /// Parses the name of a field. A path is split at its dots and empty parts are dropped, so a
    /// member whose name contains a dot or is empty cannot be named. The four computed fields hide
    /// members of the same name. `None` for a path without steps, or with more than [`STEPS_MAX`].
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "input_bytes" => return Some(Self::InputBytes),
            "input_chars" => return Some(Self::InputChars),
            "messages_count" => return Some(Self::MessagesCount),
            "tools_count" => return Some(Self::ToolsCount),
            _ => {}
        }
        let steps: Box<[Step]> = text
            .split('.')
            .filter(|part| !part.is_empty())
            .map(Step::new)
            .collect();
        (1..=STEPS_MAX)
            .contains(&steps.len())
            .then_some(Self::Path(steps))
    }
}

impl Step {
    fn new(name: &str) -> Self {
        // Only the plain spelling is an index: `01` and `+1` are member names.
        let index = name.parse::<i64>().ok();
        Self {
            index: index.filter(|index| index.to_string() == name),
            name: name.into(),
        }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InputBytes => f.write_str("input_bytes"),
            Self::InputChars => f.write_str("input_chars"),
            Self::MessagesCount => f.write_str("messages_count"),
            Self::ToolsCount => f.write_str("tools_count"),
            Self::Path(steps) => {
                for (i, step) in steps.iter().enumerate() {
                    let dot = if i == 0 { "" } else { "." };
                    write!(f, "{dot}{}", step.name)?;
                }
                Ok(())
            }
        }
    }
}

/// The value of one request at a [`Field`].
#[derive(Clone, Debug, PartialEq)]
pub enum Fact<'a> {
    /// The field is missing.
    Missing,
    /// `null`: present, but equal to no value.
    Null,
    /// A boolean.
    Bool(bool),
    /// A number, as a double.
    Number(f64),
    /// The decoded bytes of a string. They are UTF-8, except for lone surrogates, which JSON can
    /// spell.
    Text(Cow<'a, [u8]>),
    /// An object or a list: present, but equal to no value.
    Composite,
}
