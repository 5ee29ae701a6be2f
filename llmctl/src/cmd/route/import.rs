//! `llmctl route import`: converts the configuration of another router into a route file.
//!
//! The router's own library converts the values. This module selects the output files and never
//! overwrites one.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use clap::Args;
use router_config::Env;
use router_config::import::{Imported, llm_proxy};
use router_config::report::{Machine, Problem, Severity};
use serde::Serialize;

use super::files::excerpts;
use super::new::judged;
use crate::exit::{Ended, Failure};
use crate::render::{Format, Screen};

/// What `llmctl route import` takes.
#[derive(Debug, Args)]
#[command(
    after_help = "A FILE is a configuration of llm-proxy; chat.yaml becomes the route chat. Its own defaults are
written out, so that the route behaves as the proxy did. What has no place in a route file is
reported with its line, as a warning. Accepted keys are written as digests: set the variables
they come from. A file that exists is never overwritten; with an error nothing is written.

Examples:
  llmctl route import /etc/llm-proxy/chat.yaml --out routes
  llmctl route import proxy.yaml --name chat --out routes
  PROXY_API_KEY=... llmctl route import chat.yaml code.yaml --out routes --output json"
)]
pub struct ImportArgs {
    /// Files to import
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Directory of route files to write into; it is made if it is missing
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Name of the route, of one FILE; the file's stem where it is not given
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
}

/// The result for one file; its JSON form is stable.
#[derive(Debug, Serialize)]
struct Outcome {
    from: PathBuf,
    /// The route file; absent when none was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    wrote: Option<PathBuf>,
    /// Why no file was written, in addition to the problems.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    problems: Vec<Machine>,
}

/// Imports each file. A file that cannot be imported does not stop the others.
///
/// # Errors
/// When the report cannot be written.
pub fn run(args: &ImportArgs, screen: &mut Screen) -> Result<Ended, Failure> {
    if args.name.is_some() && args.files.len() > 1 {
        return Err(Failure::Usage(
            "--name goes with one FILE: every route has a name of its own".to_owned(),
        ));
    }
    let mut outcomes = Vec::new();
    for file in &args.files {
        let name = args.name.clone().unwrap_or_else(|| route_name(file));
        let imported = llm_proxy(file, &name, &Env::default());
        let written = write(&imported, &name, &args.out);
        if screen.format() != Format::Json {
            let text = excerpts(&imported.problems, screen.colour());
            screen.text(&text);
            let line = match &written {
                Ok(path) => format!("{}: wrote {}", file.display(), path.display()),
                Err(error) => format!("{}: nothing is written: {error}", file.display()),
            };
            screen.line(&line);
        }
        let (wrote, error) = match written {
            Ok(path) => (Some(path), None),
            Err(error) => (None, Some(error)),
        };
        outcomes.push(Outcome {
            from: file.clone(),
            wrote,
            error,
            problems: imported.problems.iter().map(Problem::machine).collect(),
        });
    }
    if screen.format() == Format::Json {
        screen.json(&outcomes)?;
    }
    let all = outcomes.iter().all(|outcome| outcome.wrote.is_some());
    Ok(if all { Ended::Fine } else { Ended::Wrong })
}

/// The environment, plus a placeholder for each variable of the route file that is not set here.
/// The import keeps variable references; the router's own environment provides the values.
fn completed(text: &str) -> Env {
    // A value that is valid as number, port, host and text.
    const PLACEHOLDER: &str = "1";
    let names = text.split("${").skip(1).filter_map(|rest| {
        let (name, _) = rest.split_once(['}', ':'])?;
        Some((name.to_owned(), PLACEHOLDER.to_owned()))
    });
    let set = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    Env::fixed(names.chain(set))
}

/// The file's stem, converted to a valid route name.
fn route_name(file: &Path) -> String {
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let allowed = |c: char| match c.to_ascii_lowercase() {
        c if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') => c,
        _ => '-',
    };
    stem.chars().map(allowed).collect()
}

/// Writes the route file, after the router's own check accepts it.
fn write(imported: &Imported, name: &str, directory: &Path) -> Result<PathBuf, String> {
    let text = imported.text.as_deref();
    let text = text.ok_or("it has errors")?;
    let problems = judged(name, text, completed(text)).map_err(|failure| failure.to_string())?;
    let errors = problems.iter().filter(|p| p.severity != Severity::Warning);
    if let Some(error) = errors.map(Problem::title).next() {
        return Err(format!(
            "the route `{name}` would be invalid: {error}; --name gives it another name"
        ));
    }
    let file = directory.join(format!("{name}.yaml"));
    let failed = |error: std::io::Error| match error.kind() {
        ErrorKind::AlreadyExists => {
            format!("{} exists already and is left as it is", file.display())
        }
        _ => format!("cannot write {}: {error}", file.display()),
    };
    fs::create_dir_all(directory).map_err(failed)?;
    // A route file with plain-text credentials is readable by its owner only.
    let mode = if imported.holds_secret { 0o600 } else { 0o644 };
    let mut options = OpenOptions::new();
    let mut open = options
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(&file)
        .map_err(failed)?;
    open.write_all(text.as_bytes()).map_err(failed)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::render::testing::capture;

    #[test]
    fn any_file_name_imports_and_unset_variables_are_carried_over() {
        let directory = tempfile::tempdir().unwrap();
        let from = directory.path().join("proxy.yaml");
        let sample =
            "backends: [{name: a, url: 'http://10.0.0.1:8080', api_key: '${IMPORT_TEST_KEY}'}]\n";
        fs::write(&from, sample).unwrap();
        let out = directory.path().join("routes");
        let (shown, ended) = import(&[&from], &out);
        assert!(shown.contains("--name"), "{shown}");
        assert_eq!(ended, Ended::Wrong);
        let args = ImportArgs {
            files: vec![from],
            out: out.clone(),
            name: Some("chat".to_owned()),
        };
        let mut ended = None;
        capture(Format::Human, |screen| {
            ended = Some(run(&args, screen).unwrap());
        });
        assert_eq!(ended, Some(Ended::Fine));
        let text = fs::read_to_string(out.join("chat.yaml")).unwrap();
        assert!(text.contains("${IMPORT_TEST_KEY}"), "{text}");
    }

    const PROXY: &str = "backends: [{name: a, url: 'http://10.0.0.1:8080', api_key: sk-1}]\n";

    fn import(files: &[&Path], out: &Path) -> (String, Ended) {
        let args = ImportArgs {
            files: files.iter().map(|file| file.to_path_buf()).collect(),
            out: out.to_owned(),
            name: None,
        };
        let mut ended = None;
        let shown = capture(Format::Human, |screen| {
            ended = Some(run(&args, screen).unwrap());
        });
        (shown, ended.unwrap())
    }

    #[test]
    fn a_written_file_is_kept_and_its_secret_is_the_owners() {
        let directory = tempfile::tempdir().unwrap();
        let (file, out) = (
            directory.path().join("My Chat.yaml"),
            directory.path().join("routes"),
        );
        fs::write(&file, PROXY).unwrap();
        let (shown, ended) = import(&[&file], &out);
        assert_eq!(ended, Ended::Fine, "{shown}");
        let made = out.join("my-chat.yaml");
        assert!(shown.contains(&format!("wrote {}", made.display())));
        let mode = fs::metadata(&made).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        fs::write(&made, "mine").unwrap();
        let (shown, ended) = import(&[&file], &out);
        assert_eq!(ended, Ended::Wrong);
        assert!(shown.contains("exists already"), "{shown}");
        assert_eq!(fs::read_to_string(&made).unwrap(), "mine");
    }

    #[test]
    fn a_file_with_errors_writes_nothing_and_the_others_are_imported() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = directory.path().join(name);
            fs::write(&path, text).unwrap();
            path
        };
        let bad = file("bad.yaml", "backends: [{name: a}]\n");
        let reserved = file("metrics.yaml", PROXY);
        let good = file("good.yaml", PROXY);
        let out = directory.path().join("routes");
        let (shown, ended) = import(&[&bad, &reserved, &good], &out);
        assert_eq!(ended, Ended::Wrong);
        assert!(shown.contains("`url` is missing"), "{shown}");
        assert!(shown.contains("reserved"), "{shown}");
        let made: Vec<_> = fs::read_dir(&out).unwrap().collect();
        assert_eq!(made.len(), 1, "{made:?}");
    }
}
