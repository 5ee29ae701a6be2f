//! `llmctl keys list`: the owners and IDs of the keys, without the keys.

use std::path::Path;

use serde::Serialize;

use super::file::KeyFile;
use crate::exit::{Ended, Failure};
use crate::render::{Format, Screen, Table};

/// The keys of a file; its JSON form is stable.
#[derive(Debug, Serialize)]
struct Listing {
    file: String,
    keys: Vec<Row>,
    /// Invalid and duplicate entries.
    problems: Vec<Problem>,
}

#[derive(Debug, Serialize)]
struct Row {
    line: usize,
    owner: String,
    key: String,
    hashed: bool,
    id: String,
}

#[derive(Debug, Serialize)]
struct Problem {
    line: usize,
    message: &'static str,
}

/// Lists the keys.
///
/// # Errors
/// When the file cannot be read or does not exist.
pub(super) fn run(path: &Path, screen: &mut Screen) -> Result<Ended, Failure> {
    let failed = |why: &str| Failure::Wrong(format!("{}: {why}", path.display()));
    let file = KeyFile::find(path).map_err(|flaw| failed(&flaw.message))?;
    let text = file
        .read()
        .map_err(|flaw| failed(&flaw.message))?
        .ok_or_else(|| failed("there is no such file; `llmctl keys add OWNER` makes it"))?;
    let keys = text.keys().into_iter().map(|key| Row {
        line: key.line,
        owner: key.owner,
        key: key.masked,
        hashed: key.hashed,
        id: key.id,
    });
    let problems = text.read().problems.into_iter().map(|problem| Problem {
        line: problem.line,
        message: problem.message,
    });
    let listing = Listing {
        file: path.display().to_string(),
        keys: keys.collect(),
        problems: problems.collect(),
    };
    if screen.format() == Format::Json {
        screen.json(&listing)?;
        return Ok(Ended::Fine);
    }
    let mut table = Table::new(&["line", "owner", "key", "id"]);
    for key in &listing.keys {
        let line = key.line.to_string();
        table.row([&*line, &key.owner, &key.key, &key.id]);
    }
    if table.is_empty() {
        screen.line("no keys");
    } else {
        screen.table(&table);
    }
    for Problem { line, message } in &listing.problems {
        screen.warn(&format!("{}:{line}: {message}", listing.file));
    }
    Ok(Ended::Fine)
}
