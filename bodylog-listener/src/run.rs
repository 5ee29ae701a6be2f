//! The composition root: builds a listener from settings and sockets, runs it, and shuts it down.

use std::io;
use std::sync::Arc;
use std::thread;

use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::budget::Budget;
use crate::buffers::Buffers;
use crate::config::Config;
use crate::housekeeping::{self, AskRoom, Housekeeping};
use crate::http;
use crate::ingest::{self, Ingest, Outputs, Pool};
use crate::ledger::{self, LedgerError, Position};
use crate::metrics::Metrics;
use crate::quarantine::Quarantine;
use crate::recent::Recent;
use crate::retention::Policy;
use crate::root::{Root, RootError};
use crate::server;
use crate::space::{Pressure, Room};
use crate::spill::Spill;
use crate::storage::{Disk, Storage};
use crate::stream::{Output, Streams};
use crate::writer::{self, Bundle, Status, Writer};
use service::clock::WallClock;
use service::connections::{ConnectionLimits, Connections};

/// Most batches queued for a writer. The budget limits their bytes.
const INBOX: usize = 64;

/// The sockets of a listener.
#[derive(Debug)]
pub struct Listeners {
    /// The frame port.
    pub frames: TcpListener,
    /// The HTTP port; `None` disables HTTP.
    pub http: Option<TcpListener>,
}

/// The reason a listener did not start or had to stop.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The root directory cannot be used.
    #[error(transparent)]
    Root(#[from] RootError),
    /// The ledger cannot be read.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The spill cannot be opened.
    #[error("read what was spilled: {0}")]
    Spill(#[source] io::Error),
    /// A thread cannot be started.
    #[error("start a writer: {0}")]
    Thread(#[source] io::Error),
    /// A writer ended unexpectedly, which is a bug. Nothing can be stored any more, so the listener
    /// stops.
    #[error("go on writing: a writer has ended")]
    Writer,
}

/// The parts that tests replace.
pub(crate) struct Outside {
    pub(crate) clock: WallClock,
    pub(crate) storage: Box<dyn Fn(Output) -> Box<dyn Storage> + Send>,
    pub(crate) ask_room: AskRoom,
}

impl Outside {
    /// The real system.
    pub(crate) fn system(config: &Config) -> Self {
        let dir = config.dir.clone();
        Self {
            clock: WallClock::default(),
            storage: Box::new(|_| Box::new(Disk)),
            ask_room: Arc::new(move || Room::of(&dir)),
        }
    }
}

/// Runs a listener until `shutdown` completes, and then until all frames taken are on disk and
/// acknowledged. Calls `ready` once senders are served.
///
/// # Errors
/// If the listener cannot start or cannot continue: see [`StartError`].
pub async fn run(
    config: Config,
    listeners: Listeners,
    shutdown: impl Future<Output = ()>,
    ready: impl FnOnce(),
) -> Result<(), StartError> {
    let outside = Outside::system(&config);
    run_with(config, outside, listeners, shutdown, ready).await
}

pub(crate) async fn run_with(
    config: Config,
    outside: Outside,
    listeners: Listeners,
    shutdown: impl Future<Output = ()>,
    ready: impl FnOnce(),
) -> Result<(), StartError> {
    let dir = config.dir.clone();
    let clock = outside.clock.clone();
    let opened = tokio::task::spawn_blocking(move || open(&dir, &clock));
    let (root, streams, positions, spill) = opened
        .await
        .map_err(|_| StartError::Thread(io::ErrorKind::Other.into()))??;

    let senders = Connections::new(ConnectionLimits {
        total: config.max_connections,
        per_source: None,
    });
    let metrics = Arc::new(Metrics::new(&senders));
    let pressure = Arc::new(Pressure::default());
    let buffers = Arc::new(Buffers::default());
    let statuses = [Arc::new(Status::default()), Arc::new(Status::default())];
    let mut writers = Vec::new();
    let mut inboxes = Vec::new();
    for ((output, position), status) in Output::ALL.into_iter().zip(positions).zip(&statuses) {
        let (inbox, arriving) = mpsc::channel(INBOX);
        let parts = writer::Parts {
            output,
            root: config.dir.clone(),
            storage: (outside.storage)(output),
            clock: outside.clock.clone(),
            durability: config.durability,
            position,
            streams: Arc::clone(&streams),
            buffers: Arc::clone(&buffers),
            metrics: Arc::clone(&metrics),
            status: Arc::clone(status),
        };
        writers.push(start(parts, arriving).map_err(StartError::Thread)?);
        inboxes.push(inbox);
    }
    let (Some(details), Some(records)) = (inboxes.pop(), inboxes.pop()) else {
        unreachable!("there are two outputs");
    };

    let house = Housekeeping {
        root: config.dir.clone(),
        policy: Policy {
            keep: housekeeping::days(config.keep_days),
            details_keep: housekeeping::days(config.details_keep_days),
            max_bytes: config.max_bytes,
            min_free: config.min_free,
        },
        clock: outside.clock.clone(),
        ask_room: outside.ask_room,
        pressure: Arc::clone(&pressure),
        metrics: Arc::clone(&metrics),
        statuses: statuses.clone(),
    };
    // Measure free space before the first frame: the disk may already be full.
    let first = house.clone();
    let _ = tokio::task::spawn_blocking(move || first.look(true)).await;

    let tasks = TaskTracker::new();
    let ingest = Arc::new(Ingest {
        budget: Budget::new(config.memory, Arc::clone(&metrics)),
        streams: Arc::clone(&streams),
        outputs: Outputs { records, details },
        pool: Pool::new(thread::available_parallelism().map_or(1, Into::into)),
        buffers,
        quarantine: Arc::new(Quarantine::new(
            config.dir.clone(),
            outside.clock.clone(),
            Arc::clone(&metrics),
        )),
        spill,
        recent: Mutex::new(Recent::default()),
        pressure,
        metrics: Arc::clone(&metrics),
        clock: outside.clock.clone(),
        token: config.token.clone(),
        max_frame: config.max_frame,
        server_epoch: u64::try_from(outside.clock.now().timestamp_millis()).unwrap_or(0),
        tasks: tasks.clone(),
    });

    let background = CancellationToken::new();
    let stop = CancellationToken::new();
    let beside = TaskTracker::new();
    beside.spawn(house.run(background.clone()));
    if let Some(listener) = listeners.http {
        let state = http::State::new(&config, Arc::clone(&ingest), statuses);
        beside.spawn(service::http::serve(
            listener,
            Connections::new(service::http::CONNECTIONS),
            http::router(state),
            background.clone(),
        ));
    }
    let drain = tasks.spawn(ingest::drain_spill(Arc::clone(&ingest), stop.clone()));
    let serving = server::run(
        listeners.frames,
        senders,
        &config,
        Arc::clone(&ingest),
        stop.clone(),
    );
    ready();
    let mut serving = std::pin::pin!(serving);
    let outputs = ingest.outputs.clone();
    let ended = tokio::select! {
        () = shutdown => Ok(()),
        () = &mut serving => Ok(()),
        () = outputs.records.closed() => Err(StartError::Writer),
        () = outputs.details.closed() => Err(StartError::Writer),
    };
    drop(outputs);
    tracing::info!("stopping: what was taken is being stored");
    stop.cancel();
    serving.await;
    let _ = drain.await;
    tasks.close();
    tasks.wait().await;
    background.cancel();
    beside.close();
    beside.wait().await;
    // This is the last reference to the inboxes. Dropping it lets the writers finish.
    drop(ingest);
    let joined = tokio::task::spawn_blocking(move || {
        for writer in writers {
            if writer.join().is_err() {
                tracing::error!("a writer has panicked");
            }
        }
    });
    let _ = joined.await;
    drop(root);
    tracing::info!("stopped");
    ended
}

type Open = (Root, Arc<Streams>, [Option<Position>; 2], Spill);

/// Reads the stored state from disk before the first frame.
fn open(dir: &std::path::Path, clock: &WallClock) -> Result<Open, StartError> {
    let root = Root::take(dir)?;
    let streams = Arc::new(Streams::default());
    let now = clock.now().timestamp();
    let records = ledger::load(dir, Output::Records, &streams, now)?;
    let details = ledger::load(dir, Output::Details, &streams, now)?;
    let spill = Spill::open(dir).map_err(StartError::Spill)?;
    Ok((root, streams, [records, details], spill))
}

fn start(
    parts: writer::Parts,
    inbox: mpsc::Receiver<Bundle>,
) -> io::Result<thread::JoinHandle<()>> {
    let name = format!("write-{}", parts.output.as_str());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()?;
    let writer = Writer::new(parts);
    thread::Builder::new().name(name).spawn(move || {
        runtime.block_on(writer.run(inbox));
    })
}
