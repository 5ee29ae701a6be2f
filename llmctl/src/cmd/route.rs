//! `llmctl route …`: check, list, show, schema, new, import, explain.

pub mod check;
pub mod explain;
pub mod import;
pub mod list;
pub mod new;
pub mod schema;
pub mod show;

use std::sync::Arc;

use router::config::load::{Loaded, RouteLoad, RoutesAt, Sources, load};
use router::config::report::{self, Style};
use router::config::valid;
use serde_json::Value;

use crate::cli::RouteCommand;
use crate::exit::{Ended, Failure};
use crate::render::Screen;
use crate::settings::Settings;

/// Runs one of them.
///
/// # Errors
/// As the command says.
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

/// Where `--config` and `--routes` say the files are.
pub(super) fn sources(settings: &Settings) -> Sources {
    Sources {
        config: settings.config.clone(),
        routes: settings
            .routes
            .clone()
            .map_or(RoutesAt::Main, RoutesAt::Directory),
        ..Sources::default()
    }
}

/// The text of an excerpt report, in the style stderr or stdout takes.
fn excerpts(problems: &[report::Problem], colour: bool) -> String {
    report::render(problems, if colour { Style::Colour } else { Style::Plain })
}

/// Everything the files say, when the main file is usable.
fn loaded(settings: &Settings) -> Result<Loaded, Failure> {
    let loaded = load(&sources(settings));
    match &loaded.main.result {
        Ok(_) => Ok(loaded),
        Err(problems) => Err(Failure::Wrong(format!(
            "the main file is invalid\n{}",
            excerpts(problems, false).trim_end()
        ))),
    }
}

/// A route from the files by name.
fn route_of<'a>(loaded: &'a Loaded, name: &str) -> Result<&'a valid::Route, Failure> {
    let Some(found) = loaded.routes.iter().find(|route| *route.name == *name) else {
        let names: Vec<&str> = loaded.routes.iter().map(|route| &*route.name).collect();
        return Err(no_such_route(name, &names, &place(loaded)));
    };
    found.result.as_ref().map_err(|problems| {
        let text = excerpts(problems, false);
        Failure::Wrong(format!("route {name} is invalid\n{}", text.trim_end()))
    })
}

/// What to say of a name that nobody has.
fn no_such_route(name: &str, names: &[&str], place: &str) -> Failure {
    let known = match names {
        [] => "there is none".to_owned(),
        names => format!("there are: {}", names.join(", ")),
    };
    Failure::Wrong(format!("no route is named `{name}` in {place}; {known}"))
}

/// A JSON value as a table shows it.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) if items.is_empty() => "none".to_owned(),
        Value::Array(items) => items.iter().map(shown).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

fn place(loaded: &Loaded) -> String {
    match &loaded.routes_dir {
        Some(directory) => directory.display().to_string(),
        None => "the files given".to_owned(),
    }
}

/// The routes of the files by name, valid or not.
fn by_name(loaded: &Loaded) -> Vec<&RouteLoad> {
    let mut routes: Vec<&RouteLoad> = loaded.routes.iter().collect();
    routes.sort_by_key(|route| Arc::clone(&route.name));
    routes
}
