//! The body log's life: it begins with the first listener that is configured and follows the
//! configuration from there.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::{oneshot, watch};
use tokio::task::spawn_blocking;

use super::pipe::{BodyLog, Pipe, Running};
use super::sampling::Sampler;
use super::sender::{Sender, Shared, Target};
use super::spool::{Identity, Left, Spool};
use crate::config::valid::Bodylog;
use crate::proxy::buffers::Buffers;
use crate::state::RouteTable;
use crate::upstream::client::chain;

/// Starts, retargets and ends the sender.
pub struct Service {
    log: Arc<BodyLog>,
    buffers: Buffers,
    target: watch::Sender<Option<Target>>,
    sender: Option<Sender>,
    /// What the sender was started with.
    spool: Option<PathBuf>,
}

impl Service {
    /// The service of a body log. `buffers` is where request bodies go back to.
    pub fn new(log: Arc<BodyLog>, buffers: Buffers) -> Self {
        Self {
            log,
            buffers,
            target: watch::Sender::new(None),
            sender: None,
            spool: None,
        }
    }

    /// Follows the tables in force, `replaced` being marked whenever there is another, until `stop`
    /// says how long the last frames may take to be delivered.
    pub async fn run(
        mut self,
        tables: Arc<ArcSwap<RouteTable>>,
        mut replaced: watch::Receiver<u64>,
        mut stop: oneshot::Receiver<Duration>,
    ) {
        let limit = loop {
            let wanted = Arc::clone(&tables.load().bodylog);
            self.follow(&wanted).await;
            tokio::select! {
                limit = &mut stop => break limit.unwrap_or_default(),
                // Without anybody to replace it the table stays.
                Ok(()) = replaced.changed() => {}
            }
        };
        self.log.pipe.store(None);
        if let Some(sender) = self.sender {
            sender.stop(limit).await;
        }
    }

    /// Does what a configuration says. Awaited before the first request is served, so that none goes
    /// unrecorded.
    pub async fn follow(&mut self, wanted: &Bodylog) {
        self.log.budget.set_limit(wanted.memory);
        let target = wanted.listener.as_ref().map(|address| Target {
            address: Arc::clone(address),
            token_file: wanted.token_file.clone(),
            tls: wanted.tls.clone(),
        });
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
                tracing::warn!("bodylog.spool has changed: the old one is used until the restart");
            }
            _ => {}
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

    async fn start(&mut self, wanted: &Bodylog) {
        self.spool = wanted.spool.as_ref().map(|spool| spool.dir.clone());
        let (spool, identity, left, spool_error) = open(wanted).await;
        let shared = Shared::new(
            Arc::clone(&self.log.tally),
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
async fn open(wanted: &Bodylog) -> Opened {
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
