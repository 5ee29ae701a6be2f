//! Advice on the main file.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use super::{place, warn};
use crate::check::Reader;
use crate::tree::Node;
use crate::units::show_duration;
use crate::valid::Main;

/// Permission bits that let every user of the machine read or change a file.
const OTHERS: u32 = 0o007;

/// Reports warnings for the main file.
pub(crate) fn process(reader: &mut Reader, root: &Node, main: &Main) {
    key_file(reader, root, main);
    let empty = Node::empty();
    let server = root.get("server").unwrap_or(&empty);
    reader.at("server", |reader| times(reader, server, main));
}

fn times(reader: &mut Reader, server: &Node, main: &Main) {
    let options = &main.server;
    let set = place(server, "drain_timeout").map(|at| ("drain_timeout", at));
    let set = set.or_else(|| place(server, "request_timeout").map(|at| ("request_timeout", at)));
    if let (Some(request), Some((key, at))) = (options.request_timeout, set)
        && options.drain_timeout < request
    {
        let message = format!(
            "a request may take {}, and a drain cuts it after {}",
            show_duration(request),
            show_duration(options.drain_timeout)
        );
        warn(reader, key, at, "drain-cuts", message);
    }
}

/// `llmctl keys check` reports a key file that is missing or not a regular file. A check of the
/// configuration may run on a host without the secrets.
fn key_file(reader: &mut Reader, root: &Node, main: &Main) {
    let file = &main.keys.file;
    let Some(mode) = fs::metadata(file)
        .ok()
        .filter(fs::Metadata::is_file)
        .map(|found| found.permissions().mode())
        .filter(|mode| mode & OTHERS != 0)
    else {
        return;
    };
    let at = root.get("keys").and_then(|keys| place(keys, "file"));
    let message = format!(
        "every user of this machine may open {} (mode {:04o})",
        file.display(),
        mode & 0o7777
    );
    reader.at("keys.file", |reader| {
        reader
            .warning("key-file-open", at.unwrap_or(0..0), message)
            .help(format!("chmod o= {}", file.display()));
    });
}
