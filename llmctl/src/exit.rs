//! The end of a command: the documented exit codes, and the failures that lead to them.
//!
//! A command returns [`Ended`] when it finished, whatever it found, and [`Failure`] when it could
//! not. Only `main` turns either into a process exit code.

use std::process::ExitCode;

use thiserror::Error;

/// Everything asked about is fine.
pub const FINE: u8 = 0;
/// The subject of the command is wrong, or the router refused.
pub const WRONG: u8 = 1;
/// The command line or `llmctl`'s own settings are invalid.
pub const USAGE: u8 = 2;
/// No router could be reached.
pub const UNREACHABLE: u8 = 3;

/// The result of a finished command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// No problem.
    Fine,
    /// A problem, which the output describes.
    Wrong,
}

/// Why a command could not finish. The operator sees the text after `error: `.
#[derive(Debug, Error)]
pub enum Failure {
    /// The subject of the command is wrong, or this machine denied an operation.
    #[error("{0}")]
    Wrong(String),
    /// The router answered, and refused.
    #[error("{router} refused: {reason}")]
    Refused {
        /// The router's URL.
        router: String,
        /// The router's error text, and the remedy.
        reason: String,
    },
    /// The arguments or settings contradict each other.
    #[error("{0}")]
    Usage(String),
    /// Nothing answered.
    #[error("could not reach {router}: {reason}")]
    Unreachable {
        /// The router's URL.
        router: String,
        /// The innermost cause.
        reason: String,
    },
}

impl Failure {
    /// A failed operation on a file or directory.
    pub fn file(doing: &str, path: &std::path::Path, error: &std::io::Error) -> Self {
        Self::Wrong(format!("cannot {doing} {}: {error}", path.display()))
    }

    /// A failure with the text and the causes of an error. Its text must read well after "failed
    /// to".
    pub fn failed_to(error: &dyn std::error::Error) -> Self {
        let mut text = format!("failed to {error}");
        let mut cause = error.source();
        while let Some(inner) = cause {
            text.push_str(": ");
            text.push_str(&inner.to_string());
            cause = inner.source();
        }
        Self::Wrong(text)
    }

    /// The exit code.
    pub fn code(&self) -> u8 {
        match self {
            Self::Wrong(_) | Self::Refused { .. } => WRONG,
            Self::Usage(_) => USAGE,
            Self::Unreachable { .. } => UNREACHABLE,
        }
    }
}

impl From<Ended> for ExitCode {
    fn from(ended: Ended) -> Self {
        match ended {
            Ended::Fine => Self::from(FINE),
            Ended::Wrong => Self::from(WRONG),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failure_has_its_documented_code() {
        let refused = Failure::Refused {
            router: String::new(),
            reason: String::new(),
        };
        let unreachable = Failure::Unreachable {
            router: String::new(),
            reason: String::new(),
        };
        assert_eq!(Failure::Wrong(String::new()).code(), 1);
        assert_eq!(refused.code(), 1);
        assert_eq!(Failure::Usage(String::new()).code(), 2);
        assert_eq!(unreachable.code(), 3);
    }
}
