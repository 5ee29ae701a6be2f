//! Builds tables from configuration text, and settled exchanges, for the tests of the edge.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use chrono::DateTime;
use http::{Method, Uri};
use router_bodylog::End;
use router_core::decision::Attempt;
use router_core::pool::PeerKey;

use crate::clock::now;
use crate::settled::{Settled, Times, dash, no_source};
use crate::state::{Entry, RouteTable, TableBuilder};
use crate::telemetry::metrics::Metrics;
use router_config::keys::{KeyState, read};
use router_config::{Env, RoutesAt, Sources, load};

/// Builds tables over states that outlive them, as the process does.
pub(crate) struct Tables {
    pub(crate) metrics: Arc<Metrics>,
    builder: TableBuilder,
    directory: tempfile::TempDir,
}

impl Tables {
    pub(crate) fn new() -> Self {
        let metrics = Arc::new(Metrics::default());
        let builder = TableBuilder::new(Arc::clone(&metrics));
        let directory = tempfile::tempdir().expect("a temporary directory");
        Self {
            metrics,
            builder,
            directory,
        }
    }

    /// The directory with the files of the last table.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Builds a table from a main file (without `keys:`; the file is `keys` in the directory) and
    /// from route files by stem. A broken route file gives an invalid route.
    pub(crate) fn table(&mut self, main: &str, routes: &[(&str, &str)]) -> RouteTable {
        let directory = self.directory.path();
        let routes_dir = directory.join("routes");
        let _ = fs::remove_dir_all(&routes_dir);
        fs::create_dir(&routes_dir).expect("create routes/");
        let main = format!(
            "{main}\nkeys: {{file: {}}}\n",
            directory.join("keys").display()
        );
        fs::write(directory.join("router.yaml"), main).expect("write router.yaml");
        for (stem, text) in routes {
            fs::write(routes_dir.join(format!("{stem}.yaml")), text).expect("write a route");
        }
        let loaded = load(&Sources {
            config: Some(directory.join("router.yaml")),
            routes: RoutesAt::Directory(routes_dir),
            env: Env::fixed([] as [(&str, &str); 0]),
            advise: false,
        });
        let main = loaded.main.result.expect("a valid main file");
        let entries = loaded.routes.into_iter().map(|load| match load.result {
            Ok(route) => Entry::Ready {
                route: self.builder.attach(route),
                stale: Arc::default(),
                flaws: load.flaws.into(),
            },
            Err(problems) => Entry::Invalid {
                name: load.name,
                path: load.path,
                problems: problems.into(),
            },
        });
        let entries = entries.collect();
        let keys = KeyState::next(
            None,
            &main.keys.file,
            read(&main.keys.file),
            main.keys.on_missing,
        )
        .0;
        self.builder.build(
            Arc::new(main.server),
            Arc::new(main.bodylog),
            Arc::new(keys),
            entries,
            Arc::default(),
        )
    }
}

/// An exchange that ended well before a route was found.
pub(crate) fn settled() -> Settled {
    let arrived = now();
    Settled {
        rid: "r1".into(),
        method: Method::POST,
        uri: Uri::from_static("/chat/v1/chat/completions"),
        path_at: 5,
        trace_id: None,
        route: None,
        owner: None,
        model: None,
        served_model: None,
        pings: 0,
        hops: Vec::new(),
        session: dash(),
        source: no_source(),
        choice: None,
        attempts: Vec::new(),
        peer_name: None,
        status: 200,
        bytes_in: 0,
        bytes_out: 0,
        times: Times {
            arrived,
            received: None,
            sent: None,
            first_chunk: None,
            first_token: None,
            last_chunk: None,
            ended: arrived,
        },
        ended_at: DateTime::from_timestamp_millis(1_790_000_011_400).expect("a time"),
        end: End::Whole,
        meter: None,
    }
}

/// A single attempt at a peer.
pub(crate) fn attempt(peer: &str) -> Attempt {
    Attempt {
        peer: PeerKey::new(peer),
        error: None,
        failure: None,
    }
}
