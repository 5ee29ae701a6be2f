//! The shared key file.

use serde::{Deserialize, Serialize};

/// The shared key file.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keys {
    /// Its path.
    pub file: String,
    /// Status of the last read: `ok`, `missing`, `unreadable` or `empty`.
    pub status: String,
    /// The reason, if the file was unreadable.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub detail: Option<String>,
    /// `keys`: holders of a key may pass; `open`: all requests; `closed`: no request.
    pub in_force: KeysInForce,
    /// Number of keys in force. A loaded set stays in force when the file becomes invalid.
    pub count: usize,
    /// Equal on routers with the same keys and owners; absent without keys. Eight hexadecimal
    /// digits, too few to confirm a guessed key.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub fingerprint: Option<String>,
    /// Entries of the file that were skipped or are duplicate; by line, never by text.
    pub problems: Vec<KeyProblem>,
}

/// Which requests may pass where the shared keys decide.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeysInForce {
    /// Requests with a key.
    Keys,
    /// All requests.
    Open,
    /// No request.
    Closed,
}

/// `GET /_keys`: the shared key file. `?fingerprint=<hex>` asks whether the keys in force have this
/// fingerprint: the SHA-256 over the lines `<sha256 of the key, hex>:<owner>\n` in ascending order.
/// The router reveals only eight digits of its own fingerprint.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeysAnswer {
    /// Same as in [`Routes::keys`](super::Routes::keys).
    #[serde(flatten)]
    pub keys: Keys,
    /// Whether the fingerprint matches the keys in force; absent without `?fingerprint=`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub matches: Option<bool>,
}

/// A skipped or duplicate entry of the key file.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyProblem {
    /// 1-based.
    pub line: usize,
    /// The problem.
    pub message: String,
}
