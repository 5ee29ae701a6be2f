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
use router_config::import::{self, Imported};
use router_config::report::{Machine, Problem};
use serde::Serialize;

use super::files::excerpts;
use crate::exit::{Ended, Failure};
use crate::render::{Format, Screen};

/// What `llmctl route import` takes.
#[derive(Debug, Args)]
#[command(after_help = "A FILE is one of these; its content says which:
  a route of llm-openresty (`register_route`; Lua is read as literals, never run)
  a configuration of llm-proxy (`backends`) or of LiteLLM (`model_list`)
  a script or unit with a command of vllm-router or of the SGLang router

A command may also stand behind `--`. A setting without a place in a route
file is a warning with its line. Keys that clients send are written as
digests: set the variables that hold them. An existing file is never
overwritten. With an error nothing is written.

Examples:
  llmctl route import conf.d/routes/session_route_chat.conf --out routes
  llmctl route import --name chat --out routes -- vllm-router --worker-urls http://a:8000
  llmctl route import /etc/llm-proxy/chat.yaml --out routes
  llmctl route import proxy.yaml --name chat --out routes
  PROXY_API_KEY=... llmctl route import chat.yaml code.yaml --out routes --output json")]
pub struct ImportArgs {
    /// Files to import
    #[arg(value_name = "FILE", required_unless_present = "command")]
    pub files: Vec<PathBuf>,
    /// A command line to import instead of a file
    #[arg(
        value_name = "COMMAND",
        last = true,
        conflicts_with = "files",
        requires = "name"
    )]
    pub command: Vec<String>,
    /// Directory of route files to write into; it is made if it is missing
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Name of the route, of one FILE. Default: the name in the file, else the file's stem
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
    let (env, name) = (Env::default(), args.name.as_deref());
    let mut all: Vec<_> = args
        .files
        .iter()
        .map(|path| (path.clone(), import::file(path, name, &env)))
        .collect();
    if !args.command.is_empty() {
        let imported = import::command(&args.command, name.unwrap_or_default(), &env);
        all.push((PathBuf::from("command line"), imported));
    }
    let mut outcomes = Vec::new();
    for (file, imported) in &all {
        let written = write(imported, &args.out);
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

/// Writes the route file, after the router's own check accepts it.
fn write(imported: &Imported, directory: &Path) -> Result<PathBuf, String> {
    let name = &imported.name;
    let text = imported.text.as_deref();
    let text = text.ok_or("it has errors")?;
    if let Some(error) = imported.flaw(&Env::default()) {
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
        let sample = "backends: [{name: a, url: 'http://${IMPORT_TEST_HOST}:8080', api_key: '${IMPORT_TEST_KEY}'}]\n";
        fs::write(&from, sample).unwrap();
        let out = directory.path().join("routes");
        let (shown, ended) = import(&[&from], &out);
        assert!(shown.contains("--name"), "{shown}");
        assert_eq!(ended, Ended::Wrong);
        let args = ImportArgs {
            files: vec![from],
            command: Vec::new(),
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
            command: Vec::new(),
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
