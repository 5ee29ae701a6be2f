//! The three layers every switch has: runtime override, else the route's option, else the global
//! default (`defaults:` in the main file), else the built-in default; and which one it was.

use serde::{Deserialize, Serialize};

/// Which layer an effective value came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Source {
    /// A toggle or limit set on the running router.
    #[serde(rename = "runtime")]
    Runtime,
    /// The route's own file.
    #[serde(rename = "route")]
    Route,
    /// `defaults:` of the main file.
    #[serde(rename = "global")]
    Global,
    /// Nobody set it.
    #[serde(rename = "default")]
    Default,
    /// A file set it to something unusable; the built-in default is in force.
    #[serde(rename = "default (invalid)")]
    DefaultInvalid,
}

/// A value with the layer it came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting<T> {
    /// The value in force.
    pub value: T,
    /// The layer that supplied it.
    pub source: Source,
}

impl<T> Setting<T> {
    /// A built-in default.
    pub fn default_of(value: T) -> Self {
        Self {
            value,
            source: Source::Default,
        }
    }

    /// This setting under an optional runtime override.
    pub fn under(self, runtime: Option<T>) -> Self {
        match runtime {
            Some(value) => Self {
                value,
                source: Source::Runtime,
            },
            None => self,
        }
    }
}
