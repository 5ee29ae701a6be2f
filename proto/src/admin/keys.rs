//! The shared key file.

use serde::{Deserialize, Serialize};

/// The shared key file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keys {
    /// Its path.
    pub file: String,
    /// What the last read found: `ok`, `missing`, `unreadable` or `empty`.
    pub status: String,
    /// Why, when it was unreadable.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub detail: Option<String>,
    /// `keys`: holders of a key pass; `open`: everyone does; `closed`: nobody.
    pub in_force: KeysInForce,
    /// How many keys are in force. A set that was loaded stays in force when the file goes bad.
    pub count: usize,
    /// Entries of the file that were skipped, or are there twice; by line, never by text.
    pub problems: Vec<KeyProblem>,
}

/// Who passes where the shared keys decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeysInForce {
    /// Holders of a key.
    Keys,
    /// Everyone.
    Open,
    /// Nobody.
    Closed,
}

/// `GET /_keys`: the shared key file. `?fingerprint=<hex>` asks whether the keys in force are those of
/// this fingerprint, the SHA-256 over the lines `<sha256 of the key, hex>:<owner>\n` in ascending order.
/// The router never says its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeysAnswer {
    /// As in [`Routes::keys`](super::Routes::keys).
    #[serde(flatten)]
    pub keys: Keys,
    /// Whether the fingerprint is that of the keys in force; absent unless asked.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub matches: Option<bool>,
}

/// An entry of the key file that was not taken as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyProblem {
    /// 1-based.
    pub line: usize,
    /// What is wrong with it.
    pub message: String,
}
