//! The command line only: its arguments and its help texts. Commands live in `cmd`, one file per
//! noun.

use clap::{CommandFactory, Parser, Subcommand};

use crate::cmd;
use crate::cmd::route::RouteCommand;
use crate::settings::Global;

/// The operator's one command: check, explain, and run the whole stack.
#[derive(Debug, Parser)]
#[command(
    name = "llmctl",
    version,
    after_help = "Start here:
  llmctl up                      a router and three simulated engines, in this terminal
  llmctl route check             is what I wrote right?
  llmctl route explain chat      where would a request go, and why?
  llmctl status                  what is wrong, and what to try?

Exit codes: 0 fine, 1 the thing asked about is wrong or the router refused, 2 usage,
3 could not reach a router. Results go to stdout, everything else to stderr.

Defaults for --router and --token-file may stand in $LLMCTL_CONFIG, or else
$XDG_CONFIG_HOME/llmctl/config.yaml:
  router: [http://10.0.0.5:8090]
  token_file: /etc/llm-router/admin-token
Precedence: flag, environment, file, default."
)]
pub struct Cli {
    /// The options of every command.
    #[command(flatten)]
    pub global: Global,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a router, simulated engines and the body log in this terminal
    Up(cmd::up::UpArgs),
    /// Check, list, show, write, import and explain routes
    #[command(subcommand)]
    Route(RouteCommand),
    /// Show what running routers are doing: routes, peers, load, bans, switches
    Status(cmd::status::StatusArgs),
    /// Watch the fleet and its last requests live
    Top(cmd::top::TopArgs),
    /// Show, set or reset a switch on running routers
    Toggle(cmd::toggle::ToggleArgs),
    /// Show, set or reset a threshold on running routers, for a while
    #[command(subcommand)]
    Limit(cmd::limit::LimitCommand),
    /// List, add, revoke, rotate and check the API keys of a key file
    #[command(subcommand)]
    Keys(cmd::keys::KeysCommand),
    /// Make running routers read their files again
    Reload(cmd::reload::ReloadArgs),
    /// Make running routers finish what they have and end
    Drain(cmd::drain::DrainArgs),
    /// Show where a session lives on running routers, or release it
    #[command(subcommand)]
    Session(cmd::session::SessionCommand),
    /// Print the records a bodylog listener stored, and follow them
    Logs(cmd::logs::LogsArgs),
    /// Sum up requests, tokens and busy time by owner, model, route or day
    Usage(cmd::usage::UsageArgs),
    /// Put a load of conversations on an API and measure what its clients feel
    Bench(Box<cmd::bench::BenchArgs>),
    /// Send a small multi-turn workload with affinity on and off, and compare
    Replay(cmd::replay::ReplayArgs),
    /// Run one simulated engine with a real prefix cache
    #[command(after_help = cmd::engine::AFTER_HELP)]
    Engine(sim_engine::Args),
    /// Print a completion script for a shell
    Completions(cmd::completions::CompletionsArgs),
    /// Print a manual page, or write all of them
    Man(cmd::man::ManArgs),
}

impl Command {
    /// Whether the command can write `--output github`.
    pub fn annotates(&self) -> bool {
        matches!(self, Self::Route(RouteCommand::Check(_)))
    }
}

/// The command line that `main` runs. Only the help of `llmctl` itself lists the global options.
pub fn command() -> clap::Command {
    let mut command = service::cli::blank_is_unset(Cli::command());
    // clap passes global options to the subcommands in `build`.
    command.build();
    command.mut_subcommands(without_globals)
}

fn without_globals(command: clap::Command) -> clap::Command {
    let hidden = |argument: clap::Arg| {
        let is_global = argument.is_global_set();
        argument.hide(is_global)
    };
    command.mut_args(hidden).mut_subcommands(without_globals)
}

#[cfg(test)]
mod tests {

    use super::*;

    /// The help of `command` and of all its subcommands, each under its name.
    fn helps(command: &mut clap::Command, name: &str, found: &mut Vec<(String, String)>) {
        found.push((name.to_owned(), command.render_long_help().to_string()));
        let below = command.get_subcommands_mut();
        for below in below.filter(|command| command.get_name() != "help") {
            let name = format!("{name}_{}", below.get_name());
            helps(below, &name, found);
        }
    }

    #[test]
    fn every_help_text_reads_well() {
        let mut command = command().term_width(100).version("0.0.0");
        let mut found = Vec::new();
        helps(&mut command, "llmctl", &mut found);
        for (name, help) in found {
            assert!(help.is_ascii(), "{name}: a terminal may show nothing else");
            insta::assert_snapshot!(format!("help_{name}"), help);
        }
    }

    #[test]
    fn every_command_has_an_example() {
        let mut command = Cli::command();
        command.build();
        let mut open = vec![&command];
        while let Some(command) = open.pop() {
            open.extend(command.get_subcommands().filter(|c| c.get_name() != "help"));
            if !command.has_subcommands() {
                let after = command
                    .get_after_help()
                    .map(ToString::to_string)
                    .unwrap_or_default();
                assert!(
                    after.contains("llmctl "),
                    "{} teaches nothing",
                    command.get_name()
                );
            }
        }
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
