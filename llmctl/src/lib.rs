//! `llmctl`, the operator's one command.
//!
//! [`main`] is the whole program: the binary only calls it. Commands live in [`cmd`], their output
//! goes through [`render`], and the exit codes are in [`exit`].

pub mod cli;
pub mod client;
pub mod cmd;
pub mod exit;
mod nonce;
pub mod render;
pub mod settings;
mod signals;

use std::process::ExitCode;

use clap::{ArgMatches, CommandFactory, FromArgMatches};

use crate::cli::{Cli, Command};
use crate::exit::{Ended, Failure};
use crate::render::{Format, Screen};
use crate::settings::Settings;

/// Runs the command line and returns the exit code.
pub fn main() -> ExitCode {
    let command = cli::command();
    let matches = match command.try_get_matches() {
        Ok(matches) => matches,
        Err(help_or_usage) => {
            return answer(
                &help_or_usage,
                &mut Screen::of_process(Format::Human, false),
            );
        }
    };
    let cli = match Cli::from_arg_matches(&matches) {
        Ok(cli) => cli,
        Err(usage) => return answer(&usage, &mut Screen::of_process(Format::Human, false)),
    };
    let mut screen = Screen::of_process(cli.global.output, cli.global.quiet);
    let ended = run(cli, &matches, &mut screen);
    let ended = match screen.finish() {
        Ok(()) => ended,
        Err(failure) => ended.and(Err(failure)),
    };
    match ended {
        Ok(ended) => ended.into(),
        Err(failure) => {
            screen.error(&failure.to_string());
            ExitCode::from(failure.code())
        }
    }
}

fn run(cli: Cli, matches: &ArgMatches, screen: &mut Screen) -> Result<Ended, Failure> {
    if cli.global.output == Format::Github && !cli.command.annotates() {
        return Err(Failure::Usage(
            "--output github belongs to `route check` alone".to_owned(),
        ));
    }
    if cli.global.output == Format::Csv && !matches!(cli.command, Command::Usage(_)) {
        return Err(Failure::Usage(
            "--output csv belongs to `usage` alone".to_owned(),
        ));
    }
    let settings = Settings::resolve(&cli.global, matches)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::Wrong(format!("cannot start the runtime: {error}")))?;
    runtime.block_on(dispatch(cli.command, &settings, screen))
}

async fn dispatch(
    command: Command,
    settings: &Settings,
    screen: &mut Screen,
) -> Result<Ended, Failure> {
    match command {
        Command::Up(args) => cmd::up::run(&args, screen).await,
        Command::Route(command) => cmd::route::run(command, settings, screen).await,
        Command::Status(args) => cmd::status::run(&args, settings, screen).await,
        Command::Top(args) => cmd::top::run(&args, settings, screen).await,
        Command::Toggle(args) => cmd::toggle::run(&args, settings, screen).await,
        Command::Limit(command) => cmd::limit::run(&command, settings, screen).await,
        Command::Keys(command) => cmd::keys::run(&command, settings, screen).await,
        Command::Reload(args) => cmd::reload::run(&args, settings, screen).await,
        Command::Drain(args) => cmd::drain::run(&args, settings, screen).await,
        Command::Session(command) => cmd::session::run(command, settings, screen).await,
        Command::Logs(args) => cmd::logs::run(&args, screen).await,
        Command::Usage(args) => cmd::usage::run(&args, screen),
        Command::Engine(args) => cmd::engine::run(args, screen).await,
        Command::Bench(args) => cmd::bench::run(&args, screen).await,
        Command::Replay(args) => cmd::replay::run(&args, settings, screen).await,
        Command::Completions(args) => cmd::completions::run(Cli::command(), &args, screen),
        Command::Man(args) => cmd::man::run(Cli::command(), &args, screen),
    }
}

/// Help and version go to stdout with exit code 0, usage errors to stderr with 2; clap
/// distinguishes them.
fn answer(error: &clap::Error, screen: &mut Screen) -> ExitCode {
    screen.usage(error);
    if error.use_stderr() {
        return ExitCode::from(exit::USAGE);
    }
    match screen.finish() {
        Ok(()) => ExitCode::from(exit::FINE),
        Err(failure) => {
            screen.error(&failure.to_string());
            ExitCode::from(failure.code())
        }
    }
}
