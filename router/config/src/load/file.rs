//! Reads one file: its bytes, its text and its tree, or the reason for failure.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use super::{ContentHash, FILE_MAX};
use crate::report::{Problem, Severity, Source};
use crate::tree::Node;
use crate::{masking, yaml};

/// A file's text without its BOM, and its hash.
pub(crate) struct ReadFile {
    /// UTF-8, without a BOM.
    pub(crate) text: String,
    /// Hash of the bytes, including the BOM.
    pub(super) hash: ContentHash,
}

/// Reads a configuration file.
pub(crate) fn read(path: &Path) -> Result<ReadFile, Box<Problem>> {
    let fatal = |message: String| Box::new(Problem::of_file(Severity::Error, path, message));
    let bytes = read_bounded(path, FILE_MAX)
        .map_err(|error| fatal(format!("this file cannot be read: {error}")))?;
    let hash = ContentHash::of(&bytes);
    match String::from_utf8(bytes) {
        Ok(text) => {
            let text = text
                .strip_prefix('\u{feff}')
                .map(str::to_owned)
                .unwrap_or(text);
            Ok(ReadFile { text, hash })
        }
        Err(error) => {
            let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            let line = before.iter().filter(|b| **b == b'\n').count() + 1;
            Err(fatal(format!(
                "this file is not UTF-8: the first broken byte is in line {line}"
            )))
        }
    }
}

/// A regular file's bytes.
///
/// # Errors
/// The system's error. Also for a file that is larger than `max` or not a regular file.
pub fn read_bounded(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    // Checked before the file is opened, because opening a pipe waits for its writer.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    let file = File::open(path)?;
    let mut bytes = Vec::new();
    file.take(max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max {
        return Err(io::Error::other(format!("it is larger than {max} bytes")));
    }
    Ok(bytes)
}

/// The text with its tree.
pub(crate) fn parse(path: &Path, text: String) -> Result<(String, Node), Box<Problem>> {
    match yaml::parse(&text) {
        Ok(tree) => Ok((text, tree)),
        Err(error) => {
            // Without a tree the places of secrets are unknown. So every line that looks like a
            // secret is masked.
            let mut problem = Problem::of_file(Severity::Error, path, error.message);
            problem.source = Arc::new(Source {
                path: path.to_owned(),
                text: masking::mask_lines(&text),
            });
            problem.span = error.at;
            Err(Box::new(problem))
        }
    }
}
