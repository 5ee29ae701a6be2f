//! `llmctl completions`: a script with which a shell completes commands and options.

use clap::Args;
use clap_complete::Shell;
use serde::Serialize;

use crate::exit::{Ended, Failure};
use crate::render::{Format, Screen};

/// What `llmctl completions` takes.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  llmctl completions bash > /etc/bash_completion.d/llmctl
  llmctl completions zsh > ~/.zfunc/_llmctl
  llmctl completions fish > ~/.config/fish/completions/llmctl.fish")]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub shell: Shell,
}

/// A completion script; its JSON form is stable.
#[derive(Debug, Serialize)]
struct Script {
    shell: String,
    script: String,
}

/// Prints the script.
///
/// # Errors
/// When the script cannot be written as JSON.
pub fn run(
    mut root: clap::Command,
    args: &CompletionsArgs,
    screen: &mut Screen,
) -> Result<Ended, Failure> {
    let script = script(&mut root, args.shell);
    if screen.format() == Format::Json {
        screen.json(&Script {
            shell: args.shell.to_string(),
            script,
        })?;
    } else {
        screen.text(&script);
    }
    Ok(Ended::Fine)
}

fn script(root: &mut clap::Command, shell: Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, root, "llmctl", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, ValueEnum};

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn every_shell_learns_every_command() {
        for shell in Shell::value_variants() {
            let script = script(&mut Cli::command(), *shell);
            for word in ["toggle", "completions", "explain", "token-file"] {
                assert!(script.contains(word), "{shell}: {word}");
            }
        }
    }
}
