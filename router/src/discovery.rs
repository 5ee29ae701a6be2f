//! Asks the sources of routes for their peers (`peers_from`).
//!
//! Files are read at every load, because the watcher triggers one when they change. Names are
//! resolved by a task, which triggers a load when the addresses changed. What a source gave last is
//! kept in the route's state ([`FoundPeers`](crate::state::FoundPeers)).

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::future::join_all;
use router_config::valid::{Peer, PeersFrom};
use router_config::{peers_at, peers_in_file};
use tokio::net::lookup_host;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::clock::now;
use crate::state::{Route, RouteTable};

/// How long one answer of the resolver may take.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);

/// How often is checked whether a name is due.
const TICK: Duration = Duration::from_millis(100);

/// The most peers that one source may give.
const PEERS_MAX: usize = 4096;

/// Asks a source once.
///
/// # Errors
/// A sentence that says what is wrong. An empty answer is an error: a fleet does not vanish at once,
/// and its last addresses are the better guess.
///
/// # Cancel safety
/// Dropping the future ends the question.
pub(crate) async fn ask(source: &PeersFrom, default_max: u32) -> Result<Vec<Peer>, String> {
    let peers = match source {
        PeersFrom::File(path) => {
            let path = path.clone();
            let read = spawn_blocking(move || peers_in_file(&path, default_max)).await;
            let read = read.map_err(|error| format!("reading it failed: {error}"))?;
            read.map_err(|problems| match problems.first() {
                Some(problem) => {
                    let (line, column) = problem.position();
                    format!(
                        "{}:{line}:{column}: {}",
                        problem.path().display(),
                        problem.title()
                    )
                }
                None => "it is invalid".to_owned(),
            })?
        }
        PeersFrom::Dns { name, port, .. } => {
            let looking = lookup_host((&**name, *port));
            let found = timeout(LOOKUP_TIMEOUT, looking).await;
            let found = found
                .map_err(|_| format!("`{name}` is not resolved within {LOOKUP_TIMEOUT:?}"))?
                .map_err(|error| format!("`{name}` cannot be resolved: {error}"))?;
            let mut addresses: Vec<String> = found.map(|address| address.to_string()).collect();
            addresses.sort_unstable();
            addresses.dedup();
            peers_at(&addresses, default_max)
        }
    };
    match peers.len() {
        0 => Err("it names no peer".to_owned()),
        count if count > PEERS_MAX => Err(format!(
            "it names {count} peers, at most {PEERS_MAX} are taken"
        )),
        _ => Ok(peers),
    }
}

/// Resolves the names of all routes when they are due, until cancelled. Signals each change.
pub(crate) async fn run(
    tables: Arc<ArcSwap<RouteTable>>,
    changed: watch::Sender<u64>,
    cancelled: CancellationToken,
) {
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = cancelled.cancelled() => return,
            _ = ticks.tick() => {}
        }
        let table = tables.load_full();
        let due = table.routes().filter_map(|route| {
            let source = route.peers_from.as_ref()?;
            let PeersFrom::Dns { refresh, .. } = source else {
                return None;
            };
            let is_due = route.state.found.is_due(source, *refresh, now());
            is_due.then_some((route, source))
        });
        let asked = due.map(|(route, source)| look(route, source));
        let any_changed = tokio::select! {
            () = cancelled.cancelled() => return,
            answered = join_all(asked) => answered.into_iter().any(|changed| changed),
        };
        if any_changed {
            changed.send_modify(|count| *count += 1);
        }
    }
}

/// Asks a route's source and keeps the answer. Returns whether the peers changed.
async fn look(route: &Route, source: &PeersFrom) -> bool {
    let answer = ask(source, route.options.default_max.value).await;
    if let Err(error) = &answer
        && route
            .state
            .found
            .state()
            .is_none_or(|state| state.error.is_none())
    {
        tracing::warn!(route = %route.name, %source, error, "the source of peers fails: its last peers stay");
    }
    route.state.found.take(source, answer, now())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_name_stands_for_its_addresses() {
        let dns = |name: &str| PeersFrom::Dns {
            name: name.into(),
            port: 8000,
            refresh: Duration::from_secs(1),
        };
        let peers = ask(&dns("127.0.0.1"), 8).await.unwrap();
        assert_eq!(peers[0].key.as_str(), "127.0.0.1:8000");
        let error = ask(&dns("no-such-name.invalid"), 8).await.unwrap_err();
        assert!(
            error.starts_with("`no-such-name.invalid` cannot be resolved"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn a_file_that_is_missing_or_cut_says_where() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("engines.yaml");
        let source = PeersFrom::File(path.clone());
        assert!(
            ask(&source, 8)
                .await
                .unwrap_err()
                .contains("cannot be read")
        );
        std::fs::write(&path, "- 10.0.0.1:8000\n- nonsense\n").unwrap();
        let error = ask(&source, 8).await.unwrap_err();
        assert!(error.contains("engines.yaml:2:3"), "{error}");
        std::fs::write(&path, "- 10.0.0.1:8000\n").unwrap();
        assert_eq!(ask(&source, 8).await.unwrap().len(), 1);
    }
}
