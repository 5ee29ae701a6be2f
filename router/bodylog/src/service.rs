//! The lifetime of the body log: it starts with the first configured listener and follows the
//! configuration from then on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ::service::buffers::Buffers;
use arc_swap::ArcSwapOption;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};

use super::pipe::{BodyLog, Pipe, Running};
use super::sampling::Sampler;
use super::sender::{Sender, Shared};
use super::settings::{Settings, SpoolSettings, Target};
use super::spool::{Earlier, Identity, Opened, Spool};
use crate::clock::chain;

/// Longest time that a reload waits for the body log. A spool on a hanging disk must not delay
/// routes and keys.
const FOLLOW_WAIT: Duration = Duration::from_secs(5);

/// Pause between two tries to open a spool. A predecessor that drains holds its lock.
const SPOOL_RETRY: Duration = Duration::from_secs(1);

/// A configuration to apply, and the channel to the caller that waits for it.
#[derive(Debug)]
struct Order {
    wanted: Settings,
    /// Gets the reason why a configured spool is not used.
    done: oneshot::Sender<Option<String>>,
}

/// Sends a new configuration to the [`Service`].
#[derive(Debug)]
pub struct Follower(mpsc::Sender<Order>);

impl Follower {
    /// Returns once the service does what `wanted` says, so that with the table this is of no
    /// exchange goes unrecorded; or after five seconds, and then it follows later. Answers why a
    /// configured spool is not used.
    pub async fn follow(&self, wanted: Settings) -> Option<String> {
        let (done, told) = oneshot::channel();
        let order = Order { wanted, done };
        let followed = async {
            // Without a service the process is at its end.
            self.0.send(order).await.ok()?;
            told.await.ok().flatten()
        };
        match tokio::time::timeout(FOLLOW_WAIT, followed).await {
            Ok(error) => error,
            Err(_) => {
                tracing::error!(waited = ?FOLLOW_WAIT, "the spool is not open yet: exchanges go unrecorded until it is");
                Some("it is still being opened".to_owned())
            }
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
    /// The spool that is used, or tried to be.
    spool: Option<SpoolSettings>,
    /// It is open, and waits until no frame is in doubt.
    opened: Option<Opened>,
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
            opened: None,
        };
        (service, Follower(sender))
    }

    /// Applies orders until `stop` tells how long the delivery of the last frames may take.
    pub async fn run(mut self, mut stop: oneshot::Receiver<Duration>) {
        let mut retry = interval(SPOOL_RETRY);
        retry.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let limit = loop {
            tokio::select! {
                limit = &mut stop => break limit.unwrap_or_default(),
                // If all followers are gone, the last order stays in effect.
                Some(order) = self.orders.recv() => {
                    self.follow(&order.wanted).await;
                    // Whoever waited may have given up.
                    let _ = order.done.send(self.spool_error());
                }
                _ = retry.tick(), if self.lacks_spool() => self.open_again().await,
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
        let dir = self.spool.as_ref().map(|spool| spool.dir.clone());
        match &self.sender {
            None if is_on => self.start(wanted).await,
            Some(sender) => match (sender.shared.spool(), &wanted.spool) {
                (Some(_), wanted) if wanted.as_ref().map(|spool| &spool.dir) != dir.as_ref() => {
                    tracing::warn!(
                        "bodylog.spool.dir has changed: the old one is used until the restart"
                    );
                }
                (Some(spool), Some(wanted)) => spool.set_max(wanted.max_bytes),
                (Some(_), None) => {}
                (None, _) => {
                    if self.spool != wanted.spool {
                        self.opened = None;
                        self.spool.clone_from(&wanted.spool);
                    }
                    self.open_again().await;
                }
            },
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
        self.spool.clone_from(&wanted.spool);
        let (opened, error) = match &self.spool {
            None => (None, None),
            Some(spool) => match open(spool).await {
                Ok(opened) => (Some(opened), None),
                Err(error) => {
                    tracing::error!(error, "{NO_SPOOL}");
                    (None, Some(error))
                }
            },
        };
        let (spool, identity, left) = match opened {
            Some(opened) => {
                let left = Earlier::of(&opened);
                (Some(opened.spool), opened.identity, left)
            }
            None => (None, Identity::fresh(), Vec::new()),
        };
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
            wants_spool: AtomicBool::new(self.spool.is_some()),
            spool_error: ArcSwapOption::from_pointee(error),
        })));
        self.sender = Some(sender);
    }

    /// Why a configured spool is not used.
    fn spool_error(&self) -> Option<String> {
        self.log.status().spool_error
    }

    fn lacks_spool(&self) -> bool {
        let has_none = |sender: &Sender| sender.shared.spool().is_none();
        self.spool.is_some() && self.sender.as_ref().is_some_and(has_none)
    }

    /// Tries to open the spool that is missing, and goes on with it.
    async fn open_again(&mut self) {
        let Some(running) = self.log.running.load_full() else {
            return;
        };
        running
            .wants_spool
            .store(self.spool.is_some(), Ordering::Relaxed);
        let Some(wanted) = &self.spool else {
            return running.spool_error.store(None);
        };
        if self.opened.is_none() {
            match open(wanted).await {
                Ok(opened) => self.opened = Some(opened),
                Err(error) => {
                    let known = running.spool_error.swap(Some(Arc::new(error.clone())));
                    // The same failure again and again is said once.
                    if known.is_none_or(|known| *known != error) {
                        tracing::error!(error, "{NO_SPOOL}");
                    }
                    return;
                }
            }
        }
        let (Some(opened), Some(sender)) = (&self.opened, &mut self.sender) else {
            return;
        };
        if sender.attach(opened) {
            self.opened = None;
            running.spool_error.store(None);
            tracing::info!(dir = %wanted.dir.display(), "the body log has its spool");
        }
    }
}

const NO_SPOOL: &str = "the body log has no spool: records wait in memory only";

/// Opens a spool, or says why that is not possible. Requests are served without one.
async fn open(wanted: &SpoolSettings) -> Result<Opened, String> {
    let wanted = wanted.clone();
    let opened = spawn_blocking(move || Spool::open(&wanted.dir, wanted.max_bytes)).await;
    match opened {
        Ok(opened) => opened.map_err(|error| chain(&error)),
        Err(_) => Err("open the spool: a bug".to_owned()),
    }
}

fn seed() -> u64 {
    let mut seed = [0; 8];
    // The seed only sets where the draws begin; a fixed seed would also be correct.
    let _ = rand::TryRng::try_fill_bytes(&mut rand::rngs::SysRng, &mut seed);
    u64::from_ne_bytes(seed)
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;
    use crate::testing::{ALL, Ending, begun, route};

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

    #[tokio::test]
    async fn a_spool_that_a_predecessor_held_is_used_once_it_is_free() {
        let dir = tempfile::tempdir().unwrap();
        let predecessor = Spool::open(dir.path(), 1 << 20).unwrap();
        let log = Arc::new(BodyLog::new(1 << 20));
        let (mut service, _) = Service::new(Arc::clone(&log), Buffers::default());
        let wanted = wanted(Some("127.0.0.1:1"), Some(dir.path()));
        service.follow(&wanted).await;
        assert_eq!(log.status().is_spool_up, Some(false));
        let (route, headers) = (route(&[]), http::HeaderMap::new());
        let capture = log.begin(|| Some(begun(&route, ALL, &headers))).unwrap();
        capture.settle(Box::new(Ending::default()));
        drop(predecessor);
        service.open_again().await;
        let status = log.status();
        assert_eq!((status.is_spool_up, status.spool_error), (Some(true), None));
        let deadline = Instant::now() + Duration::from_secs(20);
        while log.status().spool_bytes == 0 {
            assert!(Instant::now() < deadline, "the record stays in memory");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!(service.spool_error().is_none());
    }

    #[tokio::test]
    async fn without_a_spool_in_the_configuration_none_is_missing() {
        let log = Arc::new(BodyLog::new(1 << 20));
        let (mut service, _) = Service::new(Arc::clone(&log), Buffers::default());
        service.follow(&wanted(Some("127.0.0.1:1"), None)).await;
        assert_eq!(log.status().is_spool_up, None);
        assert!(!service.lacks_spool());
    }
}
