//! The command line, and nothing but: what may be typed and what the help says. Commands live in
//! `cmd`, one file a noun.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::cmd;
use crate::engine;
use crate::render::Format;

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
    /// What every command takes.
    #[command(flatten)]
    pub global: Global,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Options of every command.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Global options")]
pub struct Global {
    /// Admin URL of a running router; repeat it for several. Default http://127.0.0.1:8090
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "LLMCTL_ROUTER",
        value_delimiter = ',',
        hide_env_values = true
    )]
    pub router: Vec<String>,
    /// File with the admin token, for routers that are not on this machine
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "LLMCTL_TOKEN_FILE",
        hide_env_values = true
    )]
    pub token_file: Option<PathBuf>,
    /// How results are written
    #[arg(
        long,
        global = true,
        value_enum,
        value_name = "FORMAT",
        env = "LLMCTL_OUTPUT",
        default_value_t,
        hide_env_values = true
    )]
    pub output: Format,
    /// The router.yaml to read; else ./router.yaml, /etc/llm-router/router.yaml
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "LLM_ROUTER_CONFIG",
        hide_env_values = true
    )]
    pub config: Option<PathBuf>,
    /// Directory of route files, instead of the one router.yaml names
    #[arg(
        long,
        global = true,
        value_name = "DIR",
        env = "LLMCTL_ROUTES",
        hide_env_values = true
    )]
    pub routes: Option<PathBuf>,
    /// Print results and failures only
    #[arg(long, short, global = true)]
    pub quiet: bool,
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
    /// Send a small multi-turn workload with affinity on and off, and compare
    Replay(cmd::replay::ReplayArgs),
    /// Run one simulated engine with a real prefix cache
    #[command(after_help = cmd::engine::AFTER_HELP)]
    Engine(engine::Args),
    /// Print a completion script for a shell
    Completions(cmd::completions::CompletionsArgs),
    /// Print a manual page, or write all of them
    Man(cmd::man::ManArgs),
}

/// `llmctl route …`
#[derive(Debug, Subcommand)]
pub enum RouteCommand {
    /// Check router.yaml and route files; report every problem with its place
    Check(cmd::route::check::CheckArgs),
    /// List the routes
    List(cmd::route::list::ListArgs),
    /// Show a route's peers and every option, with its value and where that came from
    Show(cmd::route::show::ShowArgs),
    /// Print the JSON Schema of a route file, for editors
    Schema(cmd::route::schema::SchemaArgs),
    /// Write a new route file
    New(cmd::route::new::NewArgs),
    /// Turn the configuration of another router into route files
    Import(cmd::route::import::ImportArgs),
    /// Explain where a request goes and why
    Explain(cmd::route::explain::ExplainArgs),
}

impl Command {
    /// Whether `--output github` means something.
    pub fn annotates(&self) -> bool {
        matches!(self, Self::Route(RouteCommand::Check(_)))
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    /// The help of `command` and of everything below it, each under its name.
    fn helps(command: &mut clap::Command, name: &str, found: &mut Vec<(String, String)>) {
        found.push((name.to_owned(), command.render_long_help().to_string()));
        for below in command.get_subcommands_mut() {
            let name = format!("{name}_{}", below.get_name());
            helps(below, &name, found);
        }
    }

    #[test]
    fn every_help_text_reads_well() {
        let mut command = Cli::command()
            .term_width(100)
            .disable_help_subcommand(true)
            .version("0.0.0");
        command.build();
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
