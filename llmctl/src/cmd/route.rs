//! `llmctl route …`: check, list, show, schema, new, import, explain.

pub mod check;
pub mod explain;
mod files;
pub mod import;
pub mod list;
pub mod new;
pub mod schema;
pub mod show;

use clap::Subcommand;

use crate::exit::{Ended, Failure};
use crate::render::Screen;
use crate::settings::Settings;

pub(super) use files::sources;

/// `llmctl route …`
#[derive(Debug, Subcommand)]
pub enum RouteCommand {
    /// Check router.yaml and route files; report every problem with its place
    Check(check::CheckArgs),
    /// List the routes
    List(list::ListArgs),
    /// Show a route's peers and every option, with its value and where that came from
    Show(show::ShowArgs),
    /// Print the JSON Schema of a route file, for editors
    Schema(schema::SchemaArgs),
    /// Write a new route file
    New(new::NewArgs),
    /// Turn the configuration of another router into route files
    Import(import::ImportArgs),
    /// Explain where a request goes and why
    Explain(explain::ExplainArgs),
}

/// Runs one of these commands.
///
/// # Errors
/// The error of the command.
pub async fn run(
    command: RouteCommand,
    settings: &Settings,
    screen: &mut Screen,
) -> Result<Ended, Failure> {
    match command {
        RouteCommand::Check(args) => check::run(&args, settings, screen).await,
        RouteCommand::List(args) => list::run(&args, settings, screen).await,
        RouteCommand::Show(args) => show::run(&args, settings, screen).await,
        RouteCommand::Schema(args) => schema::run(&args, screen),
        RouteCommand::New(args) => new::run(&args, settings, screen),
        RouteCommand::Import(args) => import::run(&args, screen),
        RouteCommand::Explain(args) => explain::run(&args, settings, screen).await,
    }
}
