//! Loads the routes from the files that `--config` and `--routes` name.

use std::sync::Arc;

use router_config::load::{Loaded, RouteLoad, RoutesAt, Sources, load};
use router_config::report::{self, Style};
use router_config::valid;
use serde_json::Value;

use crate::exit::Failure;
use crate::settings::Settings;

/// The locations of the files, from `--config` and `--routes`.
pub(in crate::cmd) fn sources(settings: &Settings) -> Sources {
    Sources {
        config: settings.config.clone(),
        routes: settings
            .routes
            .clone()
            .map_or(RoutesAt::Main, RoutesAt::Directory),
        ..Sources::default()
    }
}

/// An excerpt report as text, in the style for stderr or stdout.
pub(super) fn excerpts(problems: &[report::Problem], colour: bool) -> String {
    report::render(problems, if colour { Style::Colour } else { Style::Plain })
}

/// Loads all files; fails when the main file is unusable.
pub(super) fn loaded(settings: &Settings) -> Result<Loaded, Failure> {
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
pub(super) fn route_of<'a>(loaded: &'a Loaded, name: &str) -> Result<&'a valid::Route, Failure> {
    let Some(found) = loaded.routes.iter().find(|route| *route.name == *name) else {
        let names: Vec<&str> = loaded.routes.iter().map(|route| &*route.name).collect();
        return Err(no_such_route(name, &names, &place(loaded)));
    };
    found.result.as_ref().map_err(|problems| {
        let text = excerpts(problems, false);
        Failure::Wrong(format!("route {name} is invalid\n{}", text.trim_end()))
    })
}

/// The failure for an unknown route name.
pub(super) fn no_such_route(name: &str, names: &[&str], place: &str) -> Failure {
    let known = match names {
        [] => "there is none".to_owned(),
        names => format!("there are: {}", names.join(", ")),
    };
    Failure::Wrong(format!("no route is named `{name}` in {place}; {known}"))
}

/// A JSON value as a table cell.
pub(super) fn shown(value: &Value) -> String {
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
pub(super) fn by_name(loaded: &Loaded) -> Vec<&RouteLoad> {
    let mut routes: Vec<&RouteLoad> = loaded.routes.iter().collect();
    routes.sort_by_key(|route| Arc::clone(&route.name));
    routes
}
