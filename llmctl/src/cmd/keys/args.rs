//! The arguments of the `llmctl keys` commands.

use std::path::PathBuf;

use clap::Args;

use super::{live, text};

/// Which file.
#[derive(Debug, Args)]
pub struct FileArgs {
    /// The key file; else the one that router.yaml names in keys.file
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
}

impl FileArgs {
    /// The option as the operator typed it, for a suggested command that uses the same file.
    pub(super) fn typed(&self) -> String {
        self.file
            .as_ref()
            .map_or(String::new(), |file| format!(" --file {}", file.display()))
    }
}

/// What `llmctl keys add` takes.
#[derive(Debug, Args)]
pub struct AddArgs {
    /// Who the key is for: shown in logs, metrics and records
    #[arg(value_name = "OWNER", value_parser = text::owner)]
    pub owner: String,
    /// Store the key's SHA-256 instead of the key
    #[arg(long)]
    pub hashed: bool,
    /// Which file
    #[command(flatten)]
    pub at: FileArgs,
}

/// What `llmctl keys revoke` takes.
#[derive(Debug, Args)]
pub struct RevokeArgs {
    /// Whose keys
    #[arg(value_name = "OWNER")]
    pub owner: String,
    /// Only the key with this ID, as `keys list` shows it
    #[arg(long, value_name = "ID", conflicts_with = "old")]
    pub id: Option<String>,
    /// Only the older ones: all but the last in the file
    #[arg(long)]
    pub old: bool,
    /// Do not ask
    #[arg(long, short)]
    pub yes: bool,
    /// Which file
    #[command(flatten)]
    pub at: FileArgs,
}

/// What `llmctl keys rotate` takes.
#[derive(Debug, Args)]
pub struct RotateArgs {
    /// Whose key
    #[arg(value_name = "OWNER")]
    pub owner: String,
    /// Store the new key's SHA-256 instead of the key
    #[arg(long)]
    pub hashed: bool,
    /// Remove the old keys at once
    #[arg(long)]
    pub now: bool,
    /// Which file
    #[command(flatten)]
    pub at: FileArgs,
}

/// What `llmctl keys check` takes.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Ask every router whether the file's keys are in force
    #[arg(long)]
    pub live: bool,
    /// With --live, how long a router may take
    #[arg(long, value_name = "TIME", default_value = "12s", value_parser = live::wait, requires = "live")]
    pub wait: std::time::Duration,
    /// Fail on warnings too
    #[arg(long)]
    pub strict: bool,
    /// Which file
    #[command(flatten)]
    pub at: FileArgs,
}
