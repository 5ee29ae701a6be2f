//! `llmctl route check`: finds every problem of every file, with its location.
//!
//! The router's own loader decides what is valid. This module only selects the files and prints the
//! result.

mod probe;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use clap::Args;
use router_config::load::{Loaded, RoutesAt, Sources, load};
use router_config::report::{Machine, Problem, Severity};
use serde::Serialize;

use self::probe::Probed;
use super::files::{excerpts, sources};
use crate::exit::{Ended, Failure};
use crate::render::{Format, Screen};
use crate::settings::Settings;

/// The file name that marks a main file.
const MAIN_FILE: &str = "router.yaml";

/// What `llmctl route check` takes.
#[derive(Debug, Args)]
#[command(
    after_help = "A PATH is a route file, a router.yaml, or a directory of route files (with a
router.yaml in it: that file and the routes it names). Without a PATH, the
files that a router would read are checked. Exit code 1 for an error or a
failed probe; with --strict also for a warning or a peer that is too busy to
answer.

--output github writes workflow commands that annotate a pull request.

Examples:
  llmctl route check
  llmctl route check routes/chat.yaml --strict
  llmctl route check --config deploy/router.yaml --probe
  llmctl route check deploy --output github"
)]
pub struct CheckArgs {
    /// Files and directories to check
    #[arg(value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Fail on warnings too
    #[arg(long)]
    pub strict: bool,
    /// Ask every peer, as the router's own health probe does
    #[arg(long)]
    pub probe: bool,
}

/// The checked files and their problems; the JSON form is stable.
#[derive(Debug, Serialize)]
struct Report {
    files: Vec<PathBuf>,
    errors: usize,
    warnings: usize,
    problems: Vec<Machine>,
    #[serde(skip_serializing_if = "Option::is_none")]
    probes: Option<Vec<Probed>>,
}

/// Checks the files and prints the report.
///
/// # Errors
/// When the report cannot be written.
pub async fn run(
    args: &CheckArgs,
    settings: &Settings,
    screen: &mut Screen,
) -> Result<Ended, Failure> {
    let checks = checks(&args.paths, settings);
    let mut report = Report {
        files: Vec::new(),
        errors: 0,
        warnings: 0,
        problems: Vec::new(),
        probes: None,
    };
    let (mut problems, mut probed) = (Vec::new(), Vec::new());
    for check in &checks {
        let loaded = load(&check.sources);
        problems.extend(nothing_to_check(check, &loaded));
        problems.extend(
            loaded
                .problems
                .iter()
                .filter(|p| check.asks(p.path(), &loaded))
                .cloned(),
        );
        report.files.extend(
            files(&loaded)
                .filter(|file| check.asks(file, &loaded))
                .map(Path::to_owned),
        );
        if args.probe {
            probed.extend(probe::peers(&loaded).await?);
        }
    }
    report.warnings = problems
        .iter()
        .filter(|p| p.severity == Severity::Warning)
        .count();
    report.errors = problems.len() - report.warnings;
    report.problems = problems.iter().map(Problem::machine).collect();
    let failed = report.errors > 0
        || probed.iter().any(Probed::failed)
        || args.strict && (report.warnings > 0 || probed.iter().any(Probed::is_busy));
    report.probes = args.probe.then_some(probed);
    show(&report, &problems, screen)?;
    Ok(if failed { Ended::Wrong } else { Ended::Fine })
}

/// An error for a named directory without any file that a router would read. Otherwise the check of
/// a mistyped path would pass.
fn nothing_to_check(check: &Check, loaded: &Loaded) -> Option<Problem> {
    let RoutesAt::Directory(directory) = &check.sources.routes else {
        return None;
    };
    let message = format!("there is no route file `*.yaml` and no `{MAIN_FILE}` here");
    loaded
        .has_no_route_files()
        .then(|| Problem::of_file(Severity::Error, directory, message))
}

/// One load, and which of its files the operator named.
struct Check {
    sources: Sources,
    /// False when the main file is read only for its `defaults`.
    main: bool,
}

impl Check {
    fn asks(&self, file: &Path, loaded: &Loaded) -> bool {
        self.main || loaded.main.path.as_deref() != Some(file)
    }
}

/// The loads that cover the named paths: one per main file, one per directory, and one for all
/// route files that were named one by one.
fn checks(paths: &[PathBuf], settings: &Settings) -> Vec<Check> {
    let asked = Sources {
        advise: true,
        ..sources(settings)
    };
    if paths.is_empty() {
        return vec![Check {
            sources: asked,
            main: true,
        }];
    }
    let main_named = settings.config.is_some();
    let with = |config, routes, main| Check {
        sources: Sources {
            config,
            routes,
            ..asked.clone()
        },
        main,
    };
    let (mut checks, mut single) = (Vec::new(), Vec::new());
    for path in paths {
        let main_file = if path.is_dir() {
            path.join(MAIN_FILE)
        } else {
            path.clone()
        };
        if is_main(&main_file) {
            checks.push(with(Some(main_file), asked.routes.clone(), true));
        } else if path.is_dir() {
            checks.push(with(
                asked.config.clone(),
                RoutesAt::Directory(path.clone()),
                main_named,
            ));
        } else {
            single.push(path.clone());
        }
    }
    if !single.is_empty() {
        checks.push(with(
            asked.config.clone(),
            RoutesAt::Files(single),
            main_named,
        ));
    }
    checks
}

/// Recognizes a main file by its name, or by keys that only a main file has.
fn is_main(file: &Path) -> bool {
    if file.file_name().is_some_and(|name| name == MAIN_FILE) {
        return file.is_file();
    }
    let begins = |text: &str, keys: &[&str]| {
        text.lines()
            .any(|line| keys.iter().any(|key| line.starts_with(key)))
    };
    std::fs::read_to_string(file).is_ok_and(|text| {
        begins(&text, &["server:", "keys:", "routes:", "defaults:"])
            && !begins(&text, &["peers:", "peers_by_model:"])
    })
}

fn files(loaded: &Loaded) -> impl Iterator<Item = &Path> {
    loaded
        .main
        .path
        .as_deref()
        .into_iter()
        .chain(loaded.routes.iter().map(|route| &*route.path))
}

fn show(report: &Report, problems: &[Problem], screen: &mut Screen) -> Result<(), Failure> {
    match screen.format() {
        Format::Json => return screen.json(report),
        Format::Github => {
            for problem in problems {
                screen.line(&problem.github());
            }
            for probed in report.probes.iter().flatten() {
                probed.annotate(screen);
            }
            return Ok(());
        }
        Format::Human | Format::Csv => {}
    }
    let text = excerpts(problems, screen.colour());
    screen.text(&text);
    if !problems.is_empty() {
        screen.line("");
    }
    if let Some(probes) = &report.probes {
        probe::show(probes, screen);
    }
    screen.line(&summary(report));
    Ok(())
}

fn summary(report: &Report) -> String {
    let counted = |count: usize, noun: &str| match count {
        0 => format!("no {noun}s"),
        1 => format!("1 {noun}"),
        many => format!("{many} {noun}s"),
    };
    let (errors, warnings) = (
        counted(report.errors, "error"),
        counted(report.warnings, "warning"),
    );
    let probes = report.probes.as_ref().map_or(String::new(), |probes| {
        let peers = counted(probes.len(), "peer");
        match probes.iter().filter(|probed| probed.failed()).count() {
            0 => format!("; {peers} asked"),
            failed => format!("; {failed} of {peers} failed"),
        }
    });
    match report.files.as_slice() {
        [] => format!("no files found, every option has its default: {errors}, {warnings}{probes}"),
        [one] => format!("{}: {errors}, {warnings}{probes}", one.display()),
        many => format!("{} files: {errors}, {warnings}{probes}", many.len()),
    }
}
