//! Configurations of other routers → route files.
//!
//! Nothing is lost silently: whatever has no place in a route file is reported with its own, and a
//! value that the other program would refuse keeps the file from being made.

mod llm_proxy;
mod source;
#[cfg(test)]
mod tests;

pub use llm_proxy::llm_proxy;

use super::report::{Problem, Severity};

/// What became of one file.
#[derive(Debug)]
pub struct Imported {
    /// The text of the route file; `None` where an error forbids it.
    pub text: Option<String>,
    /// Whether the text holds a credential as it is.
    pub holds_secret: bool,
    /// Errors, and as warnings what could not be carried over; in file order.
    pub problems: Vec<Problem>,
}

impl Imported {
    fn refused(problem: Problem) -> Self {
        Self {
            text: None,
            holds_secret: false,
            problems: vec![problem],
        }
    }

    fn of(text: String, holds_secret: bool, problems: Vec<Problem>) -> Self {
        let is_sound = problems.iter().all(|p| p.severity == Severity::Warning);
        Self {
            text: is_sound.then_some(text),
            holds_secret,
            problems,
        }
    }
}
