//! `llmctl keys`: edits the keys of a key file atomically.
//!
//! `text` changes one entry and keeps the rest of the text, `file` replaces the file, `mount` knows
//! the mounts where replacing fails. The router's own reader decides what an entry means.

mod args;
mod change;
mod check;
mod file;
mod list;
mod live;
mod mount;
mod secret;
mod text;

use std::path::PathBuf;

use clap::Subcommand;
use router_config::load::load;

use self::args::{AddArgs, CheckArgs, FileArgs, RevokeArgs, RotateArgs};
use super::route::sources;
use crate::exit::{Ended, Failure};
use crate::render::Screen;
use crate::settings::Settings;

/// `llmctl keys …`
#[derive(Debug, Subcommand)]
pub enum KeysCommand {
    /// List keys and owners; keys are masked
    #[command(
        after_help = "The ID of a key is the beginning of its SHA-256. It opens nothing.

Examples:
  llmctl keys list
  llmctl keys list --file /etc/llm-router/keys --output json"
    )]
    List(FileArgs),
    /// Add a key for an owner and print it, this once
    #[command(
        after_help = "Only the key goes to stdout: `sk-` and 48 hexadecimal digits, 192 bits from
the system's random generator. An owner may have several keys. With --hashed
the file holds only the key's SHA-256, from which nobody can read the key.
Running routers reload the file by themselves.

A missing file is created with mode 0600. An existing file keeps its owner,
comments and order. It keeps its mode too, unless every user of the machine
could read a plain key in it; then the mode becomes 0600. Two commands that
edit the file at once do not lose each other's changes.

Examples:
  llmctl keys add alice
  llmctl keys add team-a --hashed --file /etc/llm-router/keys
  llmctl keys add ci --quiet | kubectl create secret generic llm-key --from-file=key=/dev/stdin"
    )]
    Add(AddArgs),
    /// Remove the keys of an owner
    #[command(
        after_help = "Without --id or --old, every key of the owner is removed. On a terminal the
command asks first; --yes skips that. A running router keeps the last key set
that it loaded when the file has no key left, so removing the last key has no
effect there until a restart.

Examples:
  llmctl keys revoke alice
  llmctl keys revoke alice --old --yes          all but the newest: the end of a rotation
  llmctl keys revoke alice --id 3fa94c17"
    )]
    Revoke(RevokeArgs),
    /// Give an owner a new key beside the old one, and print it
    #[command(
        after_help = "The new key is added behind the owner's last one, and the old ones stay valid.
Hand out the new key, then end the rotation with `llmctl keys revoke OWNER
--old`. With --now the old keys are removed at once. The new key is hashed if
the owner's last one is, or with --hashed.

Examples:
  llmctl keys rotate alice
  llmctl keys rotate alice --now --hashed"
    )]
    Rotate(RotateArgs),
    /// Check the file: entries, mode, mounts; with --live, that routers took it
    #[command(
        after_help = "Exit code 1 for an error: a file that is missing, unreadable, a directory or
without a key; an invalid entry; a key that occurs twice. Warnings: a mode
that lets others read the file, and mounts under which routers never see a
change. With --strict, warnings give exit code 1 too.

With --live the command asks every --router whether its keys in force are
those of the file. Routers reload a changed file within moments, at the latest
after 10 s. --wait says how long to ask again.

Examples:
  llmctl keys check
  llmctl keys check --live --router http://10.0.0.5:8090 --router http://10.0.0.6:8090
  llmctl keys add alice --quiet > alice.key && llmctl keys check --live"
    )]
    Check(CheckArgs),
}

/// Runs one of these commands.
///
/// # Errors
/// When the file cannot be read or replaced, or no entry matches.
pub async fn run(
    command: &KeysCommand,
    settings: &Settings,
    screen: &mut Screen,
) -> Result<Ended, Failure> {
    match command {
        KeysCommand::List(args) => list::run(&path(args, settings)?, screen),
        KeysCommand::Add(args) => change::add(args, &path(&args.at, settings)?, screen).await,
        KeysCommand::Revoke(args) => change::revoke(args, &path(&args.at, settings)?, screen).await,
        KeysCommand::Rotate(args) => change::rotate(args, &path(&args.at, settings)?, screen).await,
        KeysCommand::Check(args) => {
            check::run(args, &path(&args.at, settings)?, settings, screen).await
        }
    }
}

/// `--file`, else `keys.file` of the main file.
fn path(args: &FileArgs, settings: &Settings) -> Result<PathBuf, Failure> {
    if let Some(file) = &args.file {
        return Ok(file.clone());
    }
    match load(&sources(settings)).main.result {
        Ok(main) => Ok(main.keys.file),
        Err(_) => Err(Failure::Wrong(
            "the main file is invalid, so the key file is not known: see `llmctl route check`, or give --file"
                .to_owned(),
        )),
    }
}
