//! `llmctl man`: prints the help texts as manual pages.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use clap_mangen::Man;
use serde::Serialize;

use crate::exit::{Ended, Failure};
use crate::render::{Format, Screen};

/// What `llmctl man` takes.
#[derive(Debug, Args)]
#[command(
    after_help = "Without --dir, prints one page: that of llmctl, or of the named command.

Examples:
  llmctl man | man -l -
  llmctl man route check | man -l -
  llmctl man --dir /usr/local/share/man/man1"
)]
pub struct ManArgs {
    /// The command whose page is printed
    #[arg(value_name = "COMMAND", conflicts_with = "dir")]
    pub command: Vec<String>,
    /// Write the page of every command into this directory
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

/// A page; its JSON form is stable.
#[derive(Debug, Serialize)]
struct Page {
    name: String,
    page: String,
}

/// The written pages; the JSON form is stable.
#[derive(Debug, Serialize)]
struct Written {
    files: Vec<PathBuf>,
}

/// Prints a page or writes all of them.
///
/// # Errors
/// When there is no such command, or when a file cannot be written.
pub fn run(root: clap::Command, args: &ManArgs, screen: &mut Screen) -> Result<Ended, Failure> {
    let root = built(root);
    if let Some(directory) = &args.dir {
        let mut files = Vec::new();
        fs::create_dir_all(directory)
            .map_err(|error| Failure::file("make the directory", directory, &error))?;
        write(&root, directory, &mut files)?;
        files.sort();
        return written(files, screen);
    }
    let page = page(named(&root, &args.command)?)?;
    if screen.format() == Format::Json {
        screen.json(&page)?;
    } else {
        screen.text(&page.page);
    }
    Ok(Ended::Fine)
}

/// The command tree, where every command has its full name. `help` gets no page, because every
/// command has `--help`.
fn built(root: clap::Command) -> clap::Command {
    let mut root = root.disable_help_subcommand(true);
    root.build();
    root
}

fn named<'c>(root: &'c clap::Command, path: &[String]) -> Result<&'c clap::Command, Failure> {
    let mut command = root;
    for name in path {
        command = command.find_subcommand(name).ok_or_else(|| {
            Failure::Usage(format!("there is no command `llmctl {}`", path.join(" ")))
        })?;
    }
    Ok(command)
}

fn page(command: &clap::Command) -> Result<Page, Failure> {
    let mut page = Vec::new();
    Man::new(command.clone())
        .source(concat!("llmctl ", env!("CARGO_PKG_VERSION")))
        .manual("llm-router")
        .render(&mut page)
        .map_err(|error| Failure::Wrong(format!("cannot write the page: {error}")))?;
    let name = command
        .get_display_name()
        .unwrap_or_else(|| command.get_name());
    Ok(Page {
        name: name.to_owned(),
        page: String::from_utf8_lossy(&page).into_owned(),
    })
}

fn write(
    command: &clap::Command,
    directory: &Path,
    files: &mut Vec<PathBuf>,
) -> Result<(), Failure> {
    let Page { name, page } = page(command)?;
    let file = directory.join(format!("{name}.1"));
    fs::write(&file, page).map_err(|error| Failure::file("write", &file, &error))?;
    files.push(file);
    let below = command.get_subcommands().filter(|c| !c.is_hide_set());
    for command in below {
        write(command, directory, files)?;
    }
    Ok(())
}

fn written(files: Vec<PathBuf>, screen: &mut Screen) -> Result<Ended, Failure> {
    if screen.format() == Format::Json {
        screen.json(&Written { files })?;
    } else {
        for file in files {
            screen.line(&file.display().to_string());
        }
    }
    Ok(Ended::Fine)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;
    use crate::render::testing::capture;

    #[test]
    fn every_command_has_a_page_of_its_own() {
        let directory = tempfile::tempdir().unwrap();
        let args = ManArgs {
            command: Vec::new(),
            dir: Some(directory.path().join("man1")),
        };
        capture(Format::Human, |screen| {
            run(Cli::command(), &args, screen).unwrap();
        });
        for (name, word) in [
            ("llmctl", "Exit codes"),
            ("llmctl-toggle", "rate\\-limit"),
            ("llmctl-route-check", "annotate"),
        ] {
            let page = directory.path().join(format!("man1/{name}.1"));
            let text = fs::read_to_string(&page).unwrap();
            assert!(text.contains(word), "{name}: {text}");
            assert!(
                text.contains(".TH") && text.contains("llm\\-router"),
                "{name}"
            );
        }
    }

    #[test]
    fn a_command_that_is_not_there_is_a_usage_error() {
        let path = ["route".to_owned(), "nonsense".to_owned()];
        assert_eq!(named(&built(Cli::command()), &path).unwrap_err().code(), 2);
        assert_eq!(
            page(named(&built(Cli::command()), &path[..1]).unwrap())
                .unwrap()
                .name,
            "llmctl-route"
        );
    }
}
