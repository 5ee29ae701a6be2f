//! The lifetime of the body log: it starts with the first configured listener and follows the
//! configuration from then on.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ::service::buffers::Buffers;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::spawn_blocking;

use super::pipe::{BodyLog, Pipe, Running};
use super::sampling::Sampler;
use super::sender::{Sender, Shared};
use super::settings::{Settings, Target};
use super::spool::{Identity, Left, Spool};
use crate::clock::chain;

/// Longest time that a reload waits for the body log. A spool on a hanging disk must not delay
/// routes and keys.
const FOLLOW_WAIT: Duration = Duration::from_secs(5);

/// A configuration to apply, and the channel to the caller that waits for it.
#[derive(Debug)]
struct Order {
    wanted: Settings,
    done: oneshot::Sender<()>,
}

/// Sends a new configuration to the [`Service`].
#[derive(Debug)]
pub struct Follower(mpsc::Sender<Order>);

impl Follower {
    /// Returns once the service has applied `wanted`, so that no exchange of the new table goes
    /// unrecorded. Returns after five seconds in any case; the service then applies it later.
    pub async fn follow(&self, wanted: Settings) {
        let (done, told) = oneshot::channel();
        let order = Order { wanted, done };
        let followed = async {
            // A missing service means that the process is shutting down.
            if self.0.send(order).await.is_ok() {
                let _ = told.await;
            }
        };
        if tokio::time::timeout(FOLLOW_WAIT, followed).await.is_err() {
            tracing::error!(waited = ?FOLLOW_WAIT, "the spool is not open yet: exchanges go unrecorded until it is");
        }
    }
}

/// Starts, redirects and stops the sender.
pub struct Service {
    log: Arc<BodyLog>,
    buffers: Buffers,
    orders: mpsc::Receiver<Order>,
    target: watch::Sender<Option<Target>>,
    sender: Option<Sender>,
    /// The settings with which the sender was started.
    spool: Option<PathBuf>,
}

impl Service {
    /// Creates the service of a body log and the handle that sends it configurations. `buffers`
    /// takes the buffers of request bodies back.
    pub fn new(log: Arc<BodyLog>, buffers: Buffers) -> (Self, Follower) {
        // One reload runs at a time. A second order waits behind one that took too long.
        let (sender, orders) = mpsc::channel(1);
        let service = Self {
            log,
            buffers,
            orders,
            target: watch::Sender::new(None),
            sender: None,
            spool: None,
        };
        (service, Follower(sender))
    }

    /// Applies orders until `stop` tells how long the delivery of the last frames may take.
    pub async fn run(mut self, mut stop: oneshot::Receiver<Duration>) {
        let limit = loop {
            tokio::select! {
                limit = &mut stop => break limit.unwrap_or_default(),
                // If all followers are gone, the last order stays in effect.
                Some(order) = self.orders.recv() => {
                    self.follow(&order.wanted).await;
                    // The caller may have stopped waiting.
                    let _ = order.done.send(());
                }
            }
        };
        self.log.pipe.store(None);
        if let Some(sender) = self.sender {
            sender.stop(limit).await;
        }
    }

    /// Applies a configuration. Awaited before the first request is served, so that none goes
    /// unrecorded.
    pub async fn follow(&mut self, wanted: &Settings) {
        self.log.budget.set_limit(wanted.memory);
        let target = wanted.target.clone();
        let is_on = target.is_some();
        self.target.send_if_modified(|now| {
            let differs = *now != target;
            *now = target;
            differs
        });
        let dir = wanted.spool.as_ref().map(|spool| spool.dir.clone());
        match &self.sender {
            None if is_on => self.start(wanted).await,
            Some(_) if dir != self.spool => {
                tracing::warn!(
                    "bodylog.spool.dir has changed: the old one is used until the restart"
                );
            }
            Some(sender) => {
                if let (Some(spool), Some(wanted)) = (&sender.shared.spool, &wanted.spool) {
                    spool.set_max(wanted.max_bytes);
                }
            }
            None => {}
        }
        let pipe = self.sender.as_ref().filter(|_| is_on).map(|sender| {
            Arc::new(Pipe {
                records: sender.records.clone(),
                shared: Arc::clone(&sender.shared),
                sampler: Sampler::new(seed()),
            })
        });
        self.log.pipe.store(pipe);
    }

    async fn start(&mut self, wanted: &Settings) {
        self.spool = wanted.spool.as_ref().map(|spool| spool.dir.clone());
        let (spool, identity, left, spool_error) = open(wanted).await;
        let shared = Shared::new(
            Arc::clone(&self.log.counters),
            self.log.budget.clone(),
            spool,
            identity,
            self.buffers.clone(),
        );
        let sender = Sender::start(shared, left, &self.target.subscribe());
        self.log.running.store(Some(Arc::new(Running {
            shared: Arc::clone(&sender.shared),
            outbox: Arc::clone(&sender.outbox),
            spool_error,
        })));
        self.sender = Some(sender);
    }
}

type Opened = (Option<Arc<Spool>>, Identity, Vec<Left>, Option<String>);

/// Opens the spool. If it is unusable, an error is logged, records wait in memory only, and
/// requests are served.
async fn open(wanted: &Settings) -> Opened {
    let Some(spool) = wanted.spool.clone() else {
        return (None, Identity::fresh(), Vec::new(), None);
    };
    let opened = spawn_blocking(move || Spool::open(&spool.dir, spool.max_bytes)).await;
    let error = match opened {
        Ok(Ok((spool, identity, left))) => return (Some(spool), identity, left, None),
        Ok(Err(error)) => chain(&error),
        Err(_) => "open the spool: a bug".to_owned(),
    };
    tracing::error!(
        error,
        "the body log has no spool: records wait in memory only"
    );
    (None, Identity::fresh(), Vec::new(), Some(error))
}

fn seed() -> u64 {
    let mut seed = [0; 8];
    // The seed only sets where the draws begin; a fixed seed would also be correct.
    let _ = rand::TryRng::try_fill_bytes(&mut rand::rngs::SysRng, &mut seed);
    u64::from_ne_bytes(seed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::SpoolSettings;

    fn wanted(listener: Option<&str>, spool: Option<&std::path::Path>) -> Settings {
        Settings {
            target: listener.map(|address| Target {
                address: address.into(),
                token_file: None,
                tls: None,
            }),
            memory: 1 << 20,
            spool: spool.map(|dir| SpoolSettings {
                dir: dir.to_owned(),
                max_bytes: 1 << 20,
            }),
        }
    }

    #[tokio::test]
    async fn recording_begins_and_ends_before_its_order_is_done() {
        let dir = tempfile::tempdir().unwrap();
        let log = Arc::new(BodyLog::new(1 << 20));
        let (service, follower) = Service::new(Arc::clone(&log), Buffers::default());
        let (stop, stopped) = oneshot::channel();
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(service.run(stopped));
        follower.follow(wanted(None, Some(dir.path()))).await;
        assert!(!log.status().is_on);
        follower
            .follow(wanted(Some("127.0.0.1:1"), Some(dir.path())))
            .await;
        let status = log.status();
        assert!(
            status.is_on && status.spool_limit_bytes == 1 << 20,
            "{status:?}"
        );
        // A larger limit takes effect at once, even while the listener is unreachable.
        let mut roomy = wanted(Some("127.0.0.1:1"), Some(dir.path()));
        if let Some(spool) = &mut roomy.spool {
            spool.max_bytes = 2 << 20;
        }
        follower.follow(roomy).await;
        assert_eq!(log.status().spool_limit_bytes, 2 << 20);
        follower.follow(wanted(None, Some(dir.path()))).await;
        assert!(!log.status().is_on);
        stop.send(Duration::ZERO).unwrap();
        tasks.join_all().await;
        // The service has ended, so `follow` returns at once.
        follower.follow(wanted(Some("127.0.0.1:1"), None)).await;
    }

    #[tokio::test]
    async fn a_spool_that_cannot_be_used_is_told_and_recording_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        let taken = dir.path().join("taken");
        let _other = Spool::open(&taken, 1 << 20).unwrap();
        for (spool, why) in [(file, "use the spool"), (taken, "another process uses it")] {
            let log = Arc::new(BodyLog::new(1 << 20));
            let (mut service, _) = Service::new(Arc::clone(&log), Buffers::default());
            service
                .follow(&wanted(Some("127.0.0.1:1"), Some(&spool)))
                .await;
            let status = log.status();
            let error = status.spool_error.unwrap();
            assert!(status.is_on && error.contains(why), "{error}");
        }
    }
}
