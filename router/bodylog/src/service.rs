//! The body log's life: it begins with the first listener that is configured and follows the
//! configuration from there.

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

/// How long a reload waits for the body log: a spool on a disk that hangs must not hold back routes
/// and keys.
const FOLLOW_WAIT: Duration = Duration::from_secs(5);

/// A configuration to follow, and who waits for that.
#[derive(Debug)]
struct Order {
    wanted: Settings,
    done: oneshot::Sender<()>,
}

/// Tells the [`Service`] of another configuration.
#[derive(Debug)]
pub struct Follower(mpsc::Sender<Order>);

impl Follower {
    /// Returns once the service does what `wanted` says, so that with the table this is of no
    /// exchange goes unrecorded; or after five seconds, and then it follows later.
    pub async fn follow(&self, wanted: Settings) {
        let (done, told) = oneshot::channel();
        let order = Order { wanted, done };
        let followed = async {
            // Without a service the process is at its end.
            if self.0.send(order).await.is_ok() {
                let _ = told.await;
            }
        };
        if tokio::time::timeout(FOLLOW_WAIT, followed).await.is_err() {
            tracing::error!(waited = ?FOLLOW_WAIT, "the spool is not open yet: exchanges go unrecorded until it is");
        }
    }
}

/// Starts, retargets and ends the sender.
pub struct Service {
    log: Arc<BodyLog>,
    buffers: Buffers,
    orders: mpsc::Receiver<Order>,
    target: watch::Sender<Option<Target>>,
    sender: Option<Sender>,
    /// What the sender was started with.
    spool: Option<PathBuf>,
}

impl Service {
    /// The service of a body log, and who tells it what to do. `buffers` is where request bodies go
    /// back to.
    pub fn new(log: Arc<BodyLog>, buffers: Buffers) -> (Self, Follower) {
        // One reload at a time; a second order waits behind one that took too long.
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

    /// Follows orders, until `stop` says how long the last frames may take to be delivered.
    pub async fn run(mut self, mut stop: oneshot::Receiver<Duration>) {
        let limit = loop {
            tokio::select! {
                limit = &mut stop => break limit.unwrap_or_default(),
                // Without anybody to give one, what was last ordered stays.
                Some(order) = self.orders.recv() => {
                    self.follow(&order.wanted).await;
                    // Whoever waited may have given up.
                    let _ = order.done.send(());
                }
            }
        };
        self.log.pipe.store(None);
        if let Some(sender) = self.sender {
            sender.stop(limit).await;
        }
    }

    /// Does what a configuration says. Awaited before the first request is served, so that none goes
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

/// Opens the spool. Without one that can be used records wait in memory only; that is said, and
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
    // Only where the draws begin; a fixed seed would still be correct.
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
        // Room that is given while the listener is away helps at once.
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
        // Nobody is there any more, and nobody waits.
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
