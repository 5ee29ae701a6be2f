//! `llmctl route new`: writes a commented route file to start from, which is valid as it is.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use router_config::Env;
use router_config::load::{RoutesAt, Sources, load};
use router_config::report::{Problem, Source};
use serde::Serialize;

use super::files::{excerpts, loaded};
use crate::exit::{Ended, Failure};
use crate::render::{Format, Screen};
use crate::settings::Settings;

/// What `llmctl route new` takes.
#[derive(Debug, Args)]
#[command(
    after_help = "The file goes into --routes, or else into the directory that router.yaml names (routes/ by
default). A file that exists is never overwritten.

Examples:
  llmctl route new chat --peer 10.0.0.11:8000 --peer 10.0.0.12:8000
  llmctl route new coder --peer https://gpu.example.com/base --print"
)]
pub struct NewArgs {
    /// The route's name, which is the first segment of its URLs
    #[arg(value_name = "NAME")]
    pub name: String,
    /// A peer, host:port or URL; repeat for more
    #[arg(long = "peer", value_name = "HOST:PORT")]
    pub peers: Vec<String>,
    /// Print the file instead of writing it
    #[arg(long)]
    pub print: bool,
}

/// The printed file; its JSON form is stable.
#[derive(Debug, Serialize)]
struct Printed<'a> {
    name: &'a str,
    text: &'a str,
}

/// The written file; its JSON form is stable.
#[derive(Debug, Serialize)]
struct Written {
    file: PathBuf,
}

/// Writes or prints the file, which always passes `route check`.
///
/// # Errors
/// When the name or a peer is invalid, the file exists, or it cannot be written.
pub fn run(args: &NewArgs, settings: &Settings, screen: &mut Screen) -> Result<Ended, Failure> {
    let text = text(&args.name, &args.peers);
    checked(&args.name, &text)?;
    if args.print {
        if screen.format() == Format::Json {
            screen.json(&Printed {
                name: &args.name,
                text: &text,
            })?;
        } else {
            screen.text(&text);
        }
        return Ok(Ended::Fine);
    }
    let directory = match &settings.routes {
        Some(directory) => directory.clone(),
        None => loaded(settings)?
            .routes_dir
            .unwrap_or_else(|| PathBuf::from("routes")),
    };
    let file = directory.join(format!("{}.yaml", args.name));
    write(&directory, &file, &text)?;
    if screen.format() == Format::Json {
        screen.json(&Written { file })?;
    } else {
        screen.line(&format!("wrote {}", file.display()));
    }
    Ok(Ended::Fine)
}

/// Checks that the text is a valid route file without warnings.
fn checked(name: &str, text: &str) -> Result<(), Failure> {
    let problems = judged(name, text, Env::default())?;
    if problems.is_empty() {
        return Ok(());
    }
    Err(Failure::Usage(format!(
        "such a route would be invalid\n{}",
        excerpts(&problems, false).trim_end()
    )))
}

/// Checks the text of a route file with the router's own loader, in a temporary directory.
///
/// # Errors
/// When no route can have this name, or the temporary directory cannot be created.
pub(super) fn judged(name: &str, text: &str, env: Env) -> Result<Vec<Problem>, Failure> {
    let usable =
        |name: &str| !name.is_empty() && !name.contains(['/', '\0']) && !name.starts_with('.');
    if !usable(name) {
        return Err(Failure::Usage(format!(
            "`{name}` cannot be the name of a route"
        )));
    }
    let directory = tempfile::tempdir()
        .map_err(|error| Failure::file("make a directory in", &std::env::temp_dir(), &error))?;
    let main = directory.path().join("router.yaml");
    let file = directory.path().join(format!("{name}.yaml"));
    for (path, text) in [(&main, "{}\n"), (&file, text)] {
        fs::write(path, text).map_err(|error| Failure::file("write", path, &error))?;
    }
    let loaded = load(&Sources {
        config: Some(main),
        routes: RoutesAt::Files(vec![file.clone()]),
        env,
        ..Sources::default()
    });
    let own = loaded.problems.into_iter();
    let mut own: Vec<_> = own.filter(|problem| problem.path() == file).collect();
    // Replace the temporary path in the problems: the operator does not know it.
    for problem in &mut own {
        let source = Source {
            path: Path::new("routes").join(format!("{name}.yaml")),
            text: problem.source.text.clone(),
        };
        problem.source = Arc::new(source);
    }
    Ok(own)
}

fn write(directory: &Path, file: &Path, text: &str) -> Result<(), Failure> {
    fs::create_dir_all(directory).map_err(|error| Failure::file("make", directory, &error))?;
    match File::create_new(file) {
        Ok(mut open) => open
            .write_all(text.as_bytes())
            .map_err(|error| Failure::file("write", file, &error)),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(Failure::Wrong(format!(
            "{} exists already and is left as it is",
            file.display()
        ))),
        Err(error) => Err(Failure::file("write", file, &error)),
    }
}

fn text(name: &str, peers: &[String]) -> String {
    let mut text = format!(
        "# Route {name}. Clients reach it below /{name}/v1/.\n\
         # `llmctl route show {name}` lists every option with its value; `llmctl route check` finds mistakes.\n\n\
         # The engines, in an order that matters: `hash: crc32` counts in it. host:port, or `url:` for https or a base path.\n"
    );
    if peers.is_empty() {
        text.push_str(
            "# Without a peer the route answers 503. A peer looks like this:\n\
             #   - {address: 10.0.0.11:8000, name: node-a, max_concurrency: 20}\n\
             peers: []\n",
        );
    } else {
        text.push_str("peers:\n");
    }
    for peer in peers {
        let key = if peer.contains("://") {
            "url"
        } else {
            "address"
        };
        // A JSON string is also a YAML string, and writing to a String cannot fail. `$` is escaped
        // because the loader expands it.
        let value = serde_json::Value::from(peer.replace('$', "$$"));
        let _ = write!(
            text,
            "  - {key}: {value}\n    max_concurrency: 20    # requests it runs at once; the sum is the route's limit\n"
        );
    }
    text.push_str(
        "\n# The turns of a session go to one peer; `none` balances every request.\n\
         affinity: hash\n\
         # For requests without a session, and when a session's peer is full or down.\n\
         balance: least_conn\n\n\
         # Keys come from the key file that router.yaml names. To have keys of its own, or none at all (`{}`):\n\
         # api_keys: {some-secret: some-owner}\n",
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_valid_with_and_without_peers() {
        for peers in [
            &[][..],
            &[
                "10.0.0.11:8000".to_owned(),
                "https://gpu.example.com/base".to_owned(),
            ],
        ] {
            checked("chat", &text("chat", peers)).unwrap();
        }
    }

    #[test]
    fn a_bad_peer_or_name_is_a_usage_error_with_the_place() {
        let failure = checked("chat", &text("chat", &["10.0.0.11".to_owned()])).unwrap_err();
        assert_eq!(failure.code(), 2);
        assert!(failure.to_string().contains("address"), "{failure}");
        for name in ["", "../x", "v1", "UPPER", ".hidden"] {
            assert_eq!(
                checked(name, &text(name, &[])).unwrap_err().code(),
                2,
                "{name}"
            );
        }
    }

    #[test]
    fn an_existing_file_is_left_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("chat.yaml");
        write(directory.path(), &file, "one").unwrap();
        assert_eq!(write(directory.path(), &file, "two").unwrap_err().code(), 1);
        assert_eq!(fs::read_to_string(&file).unwrap(), "one");
    }

    #[test]
    fn the_file_reads_well() {
        insta::assert_snapshot!("new_route", text("chat", &["10.0.0.11:8000".to_owned()]));
    }
}
