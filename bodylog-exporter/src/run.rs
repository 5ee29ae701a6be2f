//! The composition root: from a configuration to an exporter that runs, and to its end.

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
use crate::epoch::{ColdStart, Now, OpenError, Pipeline};
use crate::families::Page;
use crate::http;
#[cfg(feature = "kubernetes")]
use crate::kubernetes::{self, KubernetesConfig};
use crate::poll::{self, Client, ClientError, PollConfig, RouterUrl};
use crate::shared::Shared;
use crate::tail::Where;

/// Between the ends of two epochs when there is nothing to catch up on: how stale a scrape may be.
pub const EPOCH: Duration = Duration::from_secs(2);

/// Between two rounds of polling.
pub const POLL_INTERVAL: Duration = Duration::from_secs(15);

/// For one call of a round.
pub const POLL_TIMEOUT: Duration = Duration::from_secs(3);

/// How long counting waits for a cluster to say whose the addresses in rows are. A row that was
/// counted without is not counted again.
pub const CLUSTER_WAIT: Duration = Duration::from_secs(10);

/// Begins the names of polled metrics.
pub const POLL_PREFIX: &str = "openresty_";

/// The checkpoint, below the listener's directory unless it is put elsewhere.
const CHECKPOINT: &str = "exporter.checkpoint";

/// How an exporter runs.
#[derive(Clone, Debug)]
pub struct Config {
    /// The listener's directory.
    pub dir: PathBuf,
    /// Where the checkpoint is kept; `<dir>/exporter.checkpoint` without.
    pub checkpoint: Option<PathBuf>,
    /// Where counting begins without a checkpoint.
    pub cold_start: ColdStart,
    /// Between two epochs.
    pub epoch: Duration,
    /// Routers to poll; may be none.
    pub routers: Vec<RouterUrl>,
    /// File with the routers' admin token.
    pub token_file: Option<PathBuf>,
    /// Between two rounds of polling.
    pub poll_interval: Duration,
    /// Begins the names of polled metrics.
    pub poll_prefix: String,
    /// How a cluster is asked; none is without.
    #[cfg(feature = "kubernetes")]
    pub kubernetes: Option<KubernetesConfig>,
}

impl Config {
    /// Everything but the directory at its default.
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
            #[cfg(feature = "kubernetes")]
            kubernetes: None,
        }
    }
}

/// An exporter did not start, or ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The checkpoint or the detail files.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The client that asks routers.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A bug: the counting task ended.
    #[error("keep counting")]
    Ended,
}

/// Runs an exporter on a listening socket until `stop`. `ready` is called once the first checkpoint
/// is safe and the port answers. At the end the last epoch is committed.
///
/// With routers over https the process needs a TLS provider first: [`service::tls::install_crypto_provider`].
///
/// # Errors
/// [`RunError`]. After `ready` was called it ends with an error only for a bug.
///
/// Cancel safe: dropping it loses nothing that a restart would not read again.
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
    let tasks = TaskTracker::new();
    tasks.spawn(http::serve(
        listener,
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

/// Waits until a cluster told everything once, within reason.
async fn await_cluster(cluster: oneshot::Receiver<()>, stop: &CancellationToken) {
    tokio::select! {
        () = stop.cancelled() => {}
        // An end without an answer: nobody is asked.
        _ = cluster => {}
        () = tokio::time::sleep(CLUSTER_WAIT) => {
            tracing::warn!("counting begins without all that the cluster should tell");
        }
    }
}

/// A directory that is none would look like one in which nothing was written yet.
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

/// Epochs until `stop`, and one more.
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

/// Runs what blocks on a thread for it.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, RunError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|_| RunError::Ended)
}
