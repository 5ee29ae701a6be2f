//! The body of every error.

use serde::{Deserialize, Serialize};

/// The body of every error: OpenAI's shape.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// The error.
    pub error: ErrorDetail,
}

/// The details of an error.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorDetail {
    /// A message for people.
    pub message: String,
    /// A class: `invalid_request_error`, `authentication_error`, `permission_error`,
    /// `not_found_error`, `server_error`.
    #[serde(rename = "type")]
    pub kind: String,
    /// A code for programs.
    pub code: String,
    /// Always null; OpenAI clients expect the key.
    pub param: Option<String>,
}
