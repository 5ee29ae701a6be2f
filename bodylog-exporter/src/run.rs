//! The composition root: starts an exporter from a configuration, and runs it to its end.

#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::checkpoint::Store;
use crate::epoch::{ColdStart, OpenError, Pipeline};
use crate::families::Page;
use crate::http;
#[cfg(feature = "kubernetes")]
use crate::kubernetes::{self, KubernetesConfig};
use crate::now::Now;
use crate::poll::{self, Client, ClientError, PollConfig, RouterUrl};
use crate::shared::Shared;
use crate::tail::Where;
use service::connections::ConnectionLimits;

/// Pause between two epochs once all rows are counted. This is how stale a scrape may be.
pub const EPOCH: Duration = Duration::from_secs(2);

/// Interval between two polling rounds.
pub const POLL_INTERVAL: Duration = Duration::from_secs(15);

/// Time-out for one call of a round.
pub const POLL_TIMEOUT: Duration = Duration::from_secs(3);

/// How long counting waits for a cluster to map the addresses in rows. A row that was counted
/// without the mapping is not counted again.
pub const CLUSTER_WAIT: Duration = Duration::from_secs(10);

/// Prefix of the names of polled metrics.
pub const POLL_PREFIX: &str = "openresty_";

/// Default file name of the checkpoint, in the listener's directory.
const CHECKPOINT: &str = "exporter.checkpoint";

/// The configuration of an exporter.
#[derive(Clone, Debug)]
pub struct Config {
    /// The listener's directory.
    pub dir: PathBuf,
    /// The path of the checkpoint; `None` means `<dir>/exporter.checkpoint`.
    pub checkpoint: Option<PathBuf>,
    /// Where counting starts without a checkpoint.
    pub cold_start: ColdStart,
    /// Pause between two epochs.
    pub epoch: Duration,
    /// Routers to poll; may be empty.
    pub routers: Vec<RouterUrl>,
    /// File with the routers' admin token.
    pub token_file: Option<PathBuf>,
    /// Interval between two polling rounds.
    pub poll_interval: Duration,
    /// Prefix of the names of polled metrics.
    pub poll_prefix: String,
    /// Most connections on the HTTP port.
    pub max_connections: usize,
    /// Access to a cluster; `None` to use no cluster.
    #[cfg(feature = "kubernetes")]
    pub kubernetes: Option<KubernetesConfig>,
}

impl Config {
    /// The configuration with all defaults for this directory.
    pub fn new(dir: PathBuf) -> Self {
        Self {
            dir,
            checkpoint: None,
            cold_start: ColdStart::default(),
            epoch: EPOCH,
            routers: Vec::new(),
            token_file: None,
            poll_interval: POLL_INTERVAL,
            poll_prefix: POLL_PREFIX.to_owned(),
            max_connections: service::http::CONNECTIONS.total,
            #[cfg(feature = "kubernetes")]
            kubernetes: None,
        }
    }
}

/// Why an exporter did not start, or ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The checkpoint or the detail files failed.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The client for routers cannot be built.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A bug: the counting task ended.
    #[error("keep counting")]
    Ended,
}

/// Runs an exporter on a listening socket until `stop`. Calls `ready` once the first checkpoint is
/// safe and the port answers. Commits the last epoch at the end.
///
/// For routers over https, install a TLS provider first: [`service::tls::install_crypto_provider`].
///
/// # Errors
/// [`RunError`]. After `ready` was called, only a bug can cause an error.
///
/// Cancel safe: a restart reads again whatever a dropped future had not committed.
pub async fn run(
    config: Config,
    listener: TcpListener,
    stop: CancellationToken,
    ready: impl FnOnce(),
) -> Result<(), RunError> {
    let shared = Arc::new(Shared::default());
    let client = Client::new(POLL_TIMEOUT, config.token_file)?;
    let pipeline = {
        look_at(&config.dir)?;
        let log = Where::rows(&config.dir);
        let checkpoint = config
            .checkpoint
            .unwrap_or_else(|| config.dir.join(CHECKPOINT));
        let shared = Arc::clone(&shared);
        blocking(move || {
            let store = Store::open(checkpoint).map_err(OpenError::from)?;
            Pipeline::open(
                log,
                store,
                config.cold_start,
                config.epoch,
                shared,
                Now::read(),
            )
        })
        .await??
    };
    let page = Page::new(&shared, &config.poll_prefix);
    shared.connections.set_limits(ConnectionLimits {
        total: config.max_connections,
        per_source: None,
    });
    let tasks = TaskTracker::new();
    tasks.spawn(service::http::serve(
        listener,
        shared.connections.clone(),
        http::router(Arc::clone(&shared), page),
        stop.clone(),
    ));
    if !config.routers.is_empty() {
        let poll = PollConfig {
            routers: config.routers,
            interval: config.poll_interval,
        };
        tasks.spawn(poll::run(poll, client, Arc::clone(&shared), stop.clone()));
    }
    #[cfg(feature = "kubernetes")]
    let cluster = config
        .kubernetes
        .map(|config| kubernetes::start(config, &shared, &tasks, &stop));
    #[cfg(not(feature = "kubernetes"))]
    let cluster = None;
    ready();
    if let Some(cluster) = cluster {
        await_cluster(cluster, &stop).await;
    }
    let counted = count(pipeline, config.epoch, &stop).await;
    stop.cancel();
    tasks.close();
    tasks.wait().await;
    counted
}

/// Waits until the cluster has reported everything once, or until the time limit.
async fn await_cluster(cluster: oneshot::Receiver<()>, stop: &CancellationToken) {
    tokio::select! {
        () = stop.cancelled() => {}
        // The channel closes without a value if no cluster is used.
        _ = cluster => {}
        () = tokio::time::sleep(CLUSTER_WAIT) => {
            tracing::warn!("counting begins without all that the cluster should tell");
        }
    }
}

/// Without this check, a path that is not a directory would look like an empty log.
fn look_at(dir: &Path) -> Result<(), OpenError> {
    match std::fs::metadata(dir) {
        Ok(metadata) if metadata.is_dir() => Ok(()),
        Ok(_) => Err(OpenError::Details {
            path: dir.to_owned(),
            source: io::ErrorKind::NotADirectory.into(),
        }),
        Err(error) => {
            tracing::warn!(dir = %dir.display(), %error, "there are no rows to read there yet");
            Ok(())
        }
    }
}

/// Runs epochs until `stop`, and one more.
async fn count(
    mut pipeline: Pipeline,
    epoch: Duration,
    stop: &CancellationToken,
) -> Result<(), RunError> {
    loop {
        let is_last = stop.is_cancelled();
        let done = blocking(move || {
            let done = pipeline.epoch(Now::read());
            (pipeline, done)
        });
        let is_behind;
        (pipeline, is_behind) = match done.await? {
            (pipeline, Ok(is_behind)) => (pipeline, is_behind),
            (pipeline, Err(error)) => {
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                tracing::error!(%error, cause, "counts cannot be kept; the old ones stay shown");
                (pipeline, false)
            }
        };
        if is_last {
            return Ok(());
        }
        if !is_behind {
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(epoch) => {}
            }
        }
    }
}

/// Runs blocking work on a thread of its own.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, RunError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|_| RunError::Ended)
}
