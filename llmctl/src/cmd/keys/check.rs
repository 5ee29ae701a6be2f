//! `llmctl keys check`: checks the key file as a router does, and whether running routers have
//! loaded it.

use std::path::Path;

use serde::Serialize;

use super::args::CheckArgs;
use super::file::{KeyFile, OTHERS};
use super::live::{Live, ask};
use super::text::KeyText;
use crate::cmd::fleet::{self, Answer, Round};
use crate::exit::{Ended, Failure};
use crate::render::{Format, Paint, Screen, Table};
use crate::settings::Settings;

/// The result of the check; its JSON form is stable.
#[derive(Debug, Serialize)]
struct Report<'r> {
    file: String,
    /// Number of distinct keys that a router would load.
    keys: usize,
    owners: usize,
    errors: usize,
    warnings: usize,
    problems: &'r [Problem],
    /// One answer per router; with `--live` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    live: Option<&'r [Answer<Live>]>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Problem {
    severity: &'static str,
    /// A stable identifier of the problem.
    code: &'static str,
    /// 1-based; absent when the problem concerns the whole file.
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<usize>,
    message: String,
}

impl Problem {
    fn whole(severity: &'static str, code: &'static str, message: impl Into<String>) -> Self {
        Self {
            severity,
            code,
            line: None,
            message: message.into(),
        }
    }
}

/// Checks and reports.
///
/// # Errors
/// The worst failure of the routers, after the report.
pub(super) async fn run(
    args: &CheckArgs,
    path: &Path,
    settings: &Settings,
    screen: &mut Screen,
) -> Result<Ended, Failure> {
    let (text, problems) = look(path);
    let round = match (&text, args.live) {
        (_, false) => None,
        (text, true) => Some(routers(text, args, settings).await?),
    };
    show(path, &text, &problems, round.as_ref(), screen)?;
    let wrong = problems
        .iter()
        .any(|problem| problem.severity == "error" || args.strict);
    let behind = round
        .iter()
        .flat_map(Round::whole)
        .any(|(_, live)| !live.matches);
    let ended = if wrong || behind {
        Ended::Wrong
    } else {
        Ended::Fine
    };
    match round {
        Some(round) => round.end(screen).map(|_| ended),
        None => Ok(ended),
    }
}

/// Reads the file. Returns its text and the problems of the text and of the file.
fn look(path: &Path) -> (KeyText, Vec<Problem>) {
    let fatal = |code, message: &str| {
        (
            KeyText::default(),
            vec![Problem::whole("error", code, message)],
        )
    };
    let file = match KeyFile::find(path) {
        Ok(file) => file,
        Err(flaw) => return fatal(flaw.code, &flaw.message),
    };
    let text = match file.read() {
        Ok(Some(text)) => text,
        Ok(None) => {
            return fatal(
                "missing",
                "there is no such file; `llmctl keys add OWNER` makes it",
            );
        }
        Err(flaw) => return fatal(flaw.code, &flaw.message),
    };
    let mut problems = entries(&text);
    problems.extend(mode(&file));
    problems.extend(
        file.mounted()
            .map(|mounted| Problem::whole("warning", "mount", mounted.advice())),
    );
    (text, problems)
}

fn entries(text: &KeyText) -> Vec<Problem> {
    let read = text.read();
    let problem = |problem: &router_config::keys::KeyProblem| Problem {
        severity: "error",
        code: if problem.is_doubled {
            "duplicate"
        } else {
            "malformed"
        },
        line: Some(problem.line),
        message: problem.message.to_owned(),
    };
    let mut problems: Vec<_> = read.problems.iter().map(problem).collect();
    if read.keys.is_empty() {
        let message = "it holds no key: a router keeps the keys it has, or at its start does as `keys.on_missing` says";
        problems.push(Problem::whole("error", "empty", message));
    }
    problems
}

fn mode(file: &KeyFile) -> Option<Problem> {
    let mode = file.mode().filter(|mode| mode & OTHERS != 0)?;
    let message = format!(
        "every user of this machine may open it (mode {mode:04o}); `chmod o= {}` is enough for the router and its group",
        file.path().display()
    );
    Some(Problem::whole("warning", "mode", message))
}

async fn routers(
    text: &KeyText,
    args: &CheckArgs,
    settings: &Settings,
) -> Result<Round<Live>, Failure> {
    let set = text.read().keys;
    let fingerprint = set.fingerprint().hex();
    fleet::each(settings, async |router| {
        ask(router, &fingerprint, set.len(), args.wait).await
    })
    .await
}

fn show(
    path: &Path,
    text: &KeyText,
    problems: &[Problem],
    round: Option<&Round<Live>>,
    screen: &mut Screen,
) -> Result<(), Failure> {
    let mut owners: Vec<_> = text.keys().into_iter().map(|key| key.owner).collect();
    owners.sort();
    owners.dedup();
    let errors = problems
        .iter()
        .filter(|problem| problem.severity == "error")
        .count();
    let report = Report {
        file: path.display().to_string(),
        keys: text.read().keys.len(),
        owners: owners.len(),
        errors,
        warnings: problems.len() - errors,
        problems,
        live: round.map(|round| &*round.answers),
    };
    if screen.format() == Format::Json {
        return screen.json(&report);
    }
    for problem in problems {
        let paint = if problem.severity == "error" {
            Paint::Red
        } else {
            Paint::Yellow
        };
        let severity = screen.paint(paint, problem.severity);
        let line = problem
            .line
            .map_or(String::new(), |line| format!(":{line}"));
        screen.line(&format!(
            "{severity}[{}]: {}\n --> {}{line}",
            problem.code, problem.message, report.file
        ));
        screen.line("");
    }
    if let Some(round) = round {
        let table = table(round);
        if !table.is_empty() {
            screen.table(&table);
            screen.line("");
        }
    }
    let counted = |count: usize, noun: &str| match count {
        0 => format!("no {noun}s"),
        1 => format!("1 {noun}"),
        many => format!("{many} {noun}s"),
    };
    let keys = match report.keys {
        0 => "no key".to_owned(),
        keys => format!(
            "{} of {}",
            counted(keys, "key"),
            counted(report.owners, "owner")
        ),
    };
    screen.line(&format!(
        "{}: {keys}; {}, {}",
        report.file,
        counted(report.errors, "error"),
        counted(report.warnings, "warning"),
    ));
    Ok(())
}

fn table(round: &Round<Live>) -> Table {
    let mut table = Table::new(&["router", "keys", "file status", "the file's keys"]);
    for (router, live) in round.whole() {
        let plain = |text: &str| (text.to_owned(), Paint::Plain);
        let (word, paint) = match &live.why {
            None => ("in force".to_owned(), Paint::Green),
            Some(why) => (format!("not in force: {why}"), Paint::Red),
        };
        table.painted_row(vec![
            plain(router),
            plain(&live.count.to_string()),
            plain(&live.status),
            (word, paint),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn codes(content: &[u8], mode: u32) -> Vec<(&'static str, &'static str, Option<usize>)> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keys");
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        let (_, problems) = look(&path);
        let told = problems.iter().map(|p| (p.severity, p.code, p.line));
        told.collect()
    }

    #[test]
    fn each_flaw_has_its_word_and_its_line() {
        assert_eq!(codes(b"sk-a:x\n", 0o640), []);
        assert_eq!(codes(b"sk-a:x\n", 0o604), [("warning", "mode", None)]);
        assert_eq!(codes(b"# nobody\n", 0o600), [("error", "empty", None)]);
        assert_eq!(
            codes(b"sk-a:x\n\xff", 0o600),
            [("error", "unreadable", None)]
        );
        assert_eq!(
            codes(b"sk-a:x\n:y\nsha256:12:z\nsk-a:w\n", 0o600),
            [
                ("error", "malformed", Some(2)),
                ("error", "malformed", Some(3)),
                ("error", "duplicate", Some(4)),
            ]
        );
        let directory = tempfile::tempdir().unwrap();
        for (path, code) in [
            (directory.path().join("none"), "missing"),
            (directory.path().to_owned(), "directory"),
        ] {
            let (_, problems) = look(&path);
            assert_eq!((problems.len(), problems[0].code), (1, code));
        }
    }

    #[test]
    fn no_flaw_quotes_an_entry() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keys");
        fs::write(&path, "sk secret:x\nsha256:beef:y\nsk-top:z\nsk-top:z\n").unwrap();
        let (_, problems) = look(&path);
        let told = format!("{problems:?}");
        assert_eq!(problems.len(), 4, "{told}");
        for text in ["secret", "beef", "sk-top"] {
            assert!(!told.contains(text), "{told}");
        }
    }
}
