//! The files of `llmctl up`: an ordinary `router.yaml` with one ordinary route. The operator may
//! edit them while `up` runs, keep them, and pass them to `router --config`.
//!
//! An existing file is used as it is and never overwritten.

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::exit::Failure;

/// The route of `up`.
pub(super) const ROUTE: &str = "chat";

/// The directory with the files of `up`.
#[derive(Debug)]
pub(super) struct Workspace {
    path: PathBuf,
    /// Removes the directory at the end, unless the operator named one.
    temporary: Option<TempDir>,
}

impl Workspace {
    /// Opens `dir`, or creates a fresh directory that is removed at the end.
    ///
    /// # Errors
    /// When the directory cannot be created.
    pub(super) fn open(dir: Option<&Path>) -> Result<Self, Failure> {
        let Some(dir) = dir else {
            let made = tempfile::Builder::new().prefix("llm-router-up.").tempdir();
            let temporary = made.map_err(|error| {
                Failure::file("make a directory in", &std::env::temp_dir(), &error)
            })?;
            return Ok(Self {
                path: temporary.path().to_owned(),
                temporary: Some(temporary),
            });
        };
        fs::create_dir_all(dir).map_err(|error| Failure::file("make", dir, &error))?;
        let path = dir
            .canonicalize()
            .map_err(|error| Failure::file("open", dir, &error))?;
        Ok(Self {
            path,
            temporary: None,
        })
    }

    /// The path of the directory.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the directory is removed at the end.
    pub(super) fn is_temporary(&self) -> bool {
        self.temporary.is_some()
    }

    /// The path of `router.yaml`.
    pub(super) fn main_file(&self) -> PathBuf {
        self.path.join("router.yaml")
    }

    /// The path of the key file.
    pub(super) fn key_file(&self) -> PathBuf {
        self.path.join("keys")
    }

    /// The directory of the listener's records.
    pub(super) fn records_dir(&self) -> PathBuf {
        self.path.join("bodylog")
    }

    /// The path of the route file.
    pub(super) fn route_file(&self) -> PathBuf {
        self.path.join("routes").join(format!("{ROUTE}.yaml"))
    }
}

/// The permissions of a new file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// As the user's umask allows.
    Usual,
    /// Only for the user: the file holds a secret.
    Private,
}

/// Writes a file unless it exists. Returns whether it wrote the file.
///
/// # Errors
/// When the file or its directory cannot be created.
pub(super) fn write_new(path: &Path, text: &str, access: Access) -> Result<bool, Failure> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(|error| Failure::file("make", parent, &error))?;
    }
    let mode = if access == Access::Private {
        0o600
    } else {
        0o666
    };
    match OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)
    {
        Ok(mut file) => match file.write_all(text.as_bytes()) {
            Ok(()) => Ok(true),
            Err(error) => {
                // Remove an incomplete file: the next run must not take it for an operator's own
                // file.
                let _ = fs::remove_file(path);
                Err(Failure::file("write", path, &error))
            }
        },
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(Failure::file("write", path, &error)),
    }
}

/// A peer in a new route file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NewPeer {
    /// A simulated engine: `host:port`, and its slots.
    Engine(SocketAddr, u32),
    /// A real engine, by URL.
    Backend(String),
}

/// The text of `router.yaml`. `frames` is the listener's address for frames.
pub(super) fn main_text(public: SocketAddr, admin: SocketAddr, frames: SocketAddr) -> String {
    format!(
        "# The main file of the router that `llmctl up` runs. Edit it while it runs: what can change without a\n\
         # restart (everything but the ports and the access log) does so at once. `router --config` takes the same file.\n\
         server:\n  \
           listen: {public}          # clients\n  \
           admin_listen: {admin}    # status, switches, /metrics\n  \
           drain_delay: 0s                 # nobody balances over this router\n  \
           drain_timeout: 10s\n\
         keys:\n  \
           file: keys                      # key:owner, one a line\n\
         routes: routes/                   # one file a route\n\
         bodylog:                          # every exchange, bodies included; without these lines nothing is recorded\n  \
           listener: {frames}       # `llmctl up` runs it, and stores below bodylog/\n  \
           spool: {{dir: spool}}             # where records wait while it is away\n"
    )
}

/// The text of the key file, with one key.
pub(super) fn keys_text(secret: &str) -> String {
    format!(
        "# key:owner, one a line. They are asked for once routes/{ROUTE}.yaml has no `api_keys` line.\n\
         sk-{secret}:me\n"
    )
}

/// The text of the route's file.
pub(super) fn route_text(peers: &[NewPeer]) -> String {
    let mut text = String::from(
        "# One route. Clients reach it below /chat/v1/, and below /v1/ while it is the only one.\n\
         # The router takes up a change of this file by itself.\n\
         peers:\n",
    );
    for (index, peer) in peers.iter().enumerate() {
        let number = index + 1;
        // Writing to a String cannot fail.
        let _ = match peer {
            NewPeer::Engine(address, slots) => {
                writeln!(
                    text,
                    "  - {{name: engine-{number}, address: \"{address}\", max_concurrency: {slots}}}"
                )
            }
            NewPeer::Backend(url) => {
                writeln!(text, "  - {{name: backend-{number}, url: \"{url}\"}}")
            }
        };
    }
    text.push_str(
        "affinity: hash          # the turns of a session go to one peer; `none` balances every request\n\
         balance: least_conn     # for requests without a session, and when a session's peer is full\n\
         api_keys: {}            # open to whoever reaches the port; without this line the key file is asked\n",
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_exists_is_never_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("routes/chat.yaml");
        assert!(write_new(&path, "one", Access::Usual).unwrap());
        assert!(!write_new(&path, "two", Access::Usual).unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), "one");
    }

    #[test]
    fn a_secret_is_for_the_user_alone() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keys");
        write_new(&path, &keys_text("s"), Access::Private).unwrap();
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
    }

    #[test]
    fn a_directory_nobody_named_is_gone_at_the_end() {
        let workspace = Workspace::open(None).unwrap();
        let path = workspace.path().to_owned();
        assert!(workspace.is_temporary() && path.is_dir());
        drop(workspace);
        assert!(!path.exists());
    }

    #[test]
    fn a_named_directory_stays() {
        let base = tempfile::tempdir().unwrap();
        let workspace = Workspace::open(Some(&base.path().join("a/b"))).unwrap();
        let path = workspace.path().to_owned();
        drop(workspace);
        assert!(path.is_dir());
    }

    #[test]
    fn the_files_read_well() {
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        insta::assert_snapshot!("router_yaml", main_text(at(8080), at(8090), at(41000)));
        let peers = [
            NewPeer::Engine(at(41001), 8),
            NewPeer::Backend("http://10.0.0.11:8000/base".to_owned()),
        ];
        insta::assert_snapshot!("route_yaml", route_text(&peers));
    }
}
