//! Converts configurations of other routers to route files.
//!
//! Nothing is lost silently. A setting that has no place in a route file is reported with its own
//! place. A value that the other program would reject prevents the conversion.

mod llm_proxy;
mod source;
#[cfg(test)]
mod tests;

pub use llm_proxy::llm_proxy;

use super::report::{Problem, Severity};

/// The result for one file.
#[derive(Debug)]
pub struct Imported {
    /// The text of the route file; `None` if an error prevents it.
    pub text: Option<String>,
    /// Whether the text contains a credential in plain form.
    pub holds_secret: bool,
    /// Errors, and as warnings the settings that could not be converted; in file order.
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
