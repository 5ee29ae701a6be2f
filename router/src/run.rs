//! The composition root: starts a serving process from files, and ends it.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use router_bodylog::BodyLog;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::admin::{self, AdminState};
use crate::clock::now;
use crate::control::{Control, Controlled};
use crate::findings::Watch;
use crate::proxy::serve::{self, Stop};
use crate::proxy::{Proxy, Sinks};
use crate::reload::{Reloader, Shared};
use crate::state::{Lifecycle, Phase, RouteTable, StoredIds, recording, ticker};
use crate::telemetry::access::AccessLog;
use crate::telemetry::events::Events;
use crate::telemetry::metrics::Metrics;
use crate::upstream::{ConnectTimeout, PeerClient, probe};
use crate::watch::{self, Timing, Watched};
use router_config::load::Sources;
use router_config::report::Problem;
use service::budget::ByteBudget;
use service::connections::Connections;
use service::listener::{Inherited, ListenError};
use service::log::{self, LogFormat};
use service::supervisor;

/// Time beyond the drain before the process is ended by force. It covers the last events of
/// streams, the last records, the last log lines, and a margin.
const END_SLACK: Duration = Duration::from_secs(20);

/// Time for streams and requests to receive the notice of the end.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Time to deliver the last records; the rest goes to the spool.
const RECORDS_DRAIN: Duration = Duration::from_secs(10);

/// The same time when the process has to end at once.
const RECORDS_CUT: Duration = Duration::from_secs(1);

/// The start options of a process.
#[derive(Clone, Debug)]
pub struct Options {
    /// The location of the configuration.
    pub sources: Sources,
    /// Replaces `server.listen`.
    pub listen: Option<SocketAddr>,
    /// Replaces `server.admin_listen`.
    pub admin_listen: Option<SocketAddr>,
    /// The output for access lines.
    pub access_lines: AccessLines,
    /// The format of access lines.
    pub log_format: LogFormat,
}

/// The output for access lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessLines {
    /// stdout, as in the `router` binary.
    #[default]
    Stdout,
    /// To stderr, for a program whose stdout is its result.
    Stderr,
}

/// The addresses of a started process.
#[derive(Clone, Copy, Debug)]
pub struct Ready {
    /// The public port.
    pub public: SocketAddr,
    /// The admin port.
    pub admin: SocketAddr,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Every request finished.
    Drained,
    /// The time was up, or the process had to end at once: requests were cut.
    Cut,
}

/// Why a process did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The main file is invalid.
    #[error("the main configuration is invalid")]
    Config(Vec<Problem>),
    /// An address could not be bound.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// A signal handler could not be installed.
    #[error("signals cannot be handled: {0}")]
    Signals(#[source] io::Error),
    /// The thread for the access log could not be started.
    #[error("the access log cannot start: {0}")]
    AccessLog(#[source] io::Error),
}

/// Runs a router until it has drained or was cut. Calls `ready` when both ports listen.
///
/// # Errors
/// [`StartError`]; after the call of `ready` only [`Ended`] is possible.
pub async fn run(
    options: Options,
    control: Control,
    controlled: Controlled,
    ready: impl FnOnce(&Ready),
) -> Result<Ended, StartError> {
    let metrics = Arc::new(Metrics::default());
    let events = Arc::new(Events::new(Arc::clone(&metrics)));
    let lifecycle = Lifecycle::default();
    let (watcher, changes) = watch::watch(Watched::default(), Timing::default());
    let (reloader, table) = Reloader::start(
        options.sources.clone(),
        Arc::clone(&metrics),
        Arc::clone(&events),
    )
    .await
    .map_err(StartError::Config)?;
    let server = Arc::clone(&table.server);
    let tables = Arc::new(ArcSwap::from_pointee(table));
    let connect_timeout = ConnectTimeout::new(server.connect_timeout);

    let mut inherited = Inherited::from_env();
    let public = inherited.listen(0, options.listen.unwrap_or(server.listen))?;
    let admin_port = inherited.listen(1, options.admin_listen.unwrap_or(server.admin_listen))?;
    let addresses = Ready {
        public: address_of(&public),
        admin: address_of(&admin_port),
    };

    let bodylog = Arc::new(BodyLog::new(tables.load().bodylog.memory));
    let access = access_log(&server, &options)?;
    let findings = Arc::new(Watch::new(now()));
    let sinks = Arc::new(Sinks {
        metrics: Arc::clone(&metrics),
        events: Arc::clone(&events),
        access,
        bodylog: Arc::clone(&bodylog),
        findings: Arc::clone(&findings),
        stored: StoredIds::default(),
    });
    let budget = ByteBudget::default();
    let connections = Connections::new(serve::limits(&server));
    let client = PeerClient::new(connect_timeout.clone());
    let proxy = Arc::new(Proxy {
        tables: Arc::clone(&tables),
        client: client.clone(),
        budget: budget.clone(),
        lifecycle: lifecycle.clone(),
        sinks,
    });

    let admin_state = AdminState::new(admin::Parts {
        tables: Arc::clone(&tables),
        lifecycle: lifecycle.clone(),
        control,
        metrics,
        events: Arc::clone(&events),
        budget: budget.clone(),
        connections: connections.clone(),
        bodylog: Arc::clone(&bodylog),
        findings,
    });

    let tasks = TaskTracker::new();
    let background = CancellationToken::new();
    tasks.spawn(admin::watch(admin_state.clone(), background.clone()));
    changes.follow(reloader.watched());
    tasks.spawn(watcher.run(background.clone()));
    tasks.spawn(client.close_idle(background.clone()));
    tasks.spawn(ticker::run(
        Arc::clone(&tables),
        reloader.replaced(),
        Arc::clone(&events),
        background.clone(),
    ));
    let first_round = TaskTracker::new();
    tasks.spawn(probe::supervise(
        Arc::clone(&tables),
        reloader.replaced(),
        events,
        first_round.clone(),
        background.clone(),
    ));
    let (mut records, follower) = router_bodylog::Service::new(bodylog, budget.buffers().clone());
    let wanted = Arc::clone(&tables.load().bodylog);
    records.follow(&recording::settings(&wanted)).await;
    let (records_end, end_of_records) = oneshot::channel();
    tasks.spawn(records.run(end_of_records));
    let Controlled {
        reload,
        drain,
        cut,
        grace,
    } = controlled;
    grace.set(server.drain_delay + server.drain_timeout + END_SLACK);
    tasks.spawn(reloader.run(
        Arc::clone(&tables),
        Shared {
            connect_timeout,
            connections: connections.clone(),
        },
        follower,
        changes,
        reload,
        background.clone(),
    ));

    wait_for_first_round(&tables, &first_round, &drain).await;
    let public_stop = Stop {
        drain: CancellationToken::new(),
        cut: CancellationToken::new(),
    };
    let admin_stop = Stop::default();
    let serving = tasks.spawn(serve::public(
        public,
        connections,
        proxy,
        public_stop.clone(),
    ));
    tasks.spawn(serve::admin(
        admin_port,
        admin::router(admin_state),
        admin_stop.clone(),
    ));
    ready(&addresses);
    supervisor::ready();

    let ended = wind_down(&tables, &lifecycle, &public_stop, serving, drain, cut).await;
    let deliver = match ended {
        Ended::Drained => RECORDS_DRAIN,
        Ended::Cut => RECORDS_CUT,
    };
    // The service lives as long as the tracker waits for it.
    let _ = records_end.send(deliver);
    background.cancel();
    admin_stop.drain.cancel();
    admin_stop.cut.cancel();
    tasks.close();
    tasks.wait().await;
    tracing::info!(ended = ?ended, "router stopped");
    Ok(ended)
}

/// Waits until every engine was polled once for the data that dispatch and placement need, at most
/// the time of one poll. A peer that was never polled is no candidate. While lists of models are
/// missing, a served model has no route, `GET /v1/models` lacks it, and a pin would move sessions
/// away from their home. Readiness would count peers that were never reached. Connections meanwhile
/// wait in the listeners' backlogs.
async fn wait_for_first_round(
    tables: &ArcSwap<RouteTable>,
    first_round: &TaskTracker,
    drain: &CancellationToken,
) {
    let table = tables.load_full();
    let timeouts = table
        .routes()
        .map(|route| route.options.load.poll_timeout.value);
    let Some(longest) = timeouts.max() else {
        return;
    };
    tokio::select! {
        () = first_round.wait() => {}
        () = tokio::time::sleep(longest) => {
            tracing::warn!(waited = ?longest, "some engines have not told their load or their models yet");
        }
        () = drain.cancelled() => {}
    }
}

/// Waits for the drain request. Then: not ready, but still accepting; no longer accepting; cut.
async fn wind_down(
    tables: &ArcSwap<RouteTable>,
    lifecycle: &Lifecycle,
    stop: &Stop,
    serving: tokio::task::JoinHandle<()>,
    drain: CancellationToken,
    cut: CancellationToken,
) -> Ended {
    drain.cancelled().await;
    supervisor::stopping();
    let server = Arc::clone(&tables.load().server);
    tracing::info!(delay = ?server.drain_delay, timeout = ?server.drain_timeout, "draining");
    lifecycle.advance(Phase::DrainDelay);
    tokio::select! {
        () = tokio::time::sleep(server.drain_delay) => {}
        () = cut.cancelled() => {}
    }
    lifecycle.advance(Phase::Draining);
    stop.drain.cancel();
    let mut serving = serving;
    let drained = tokio::select! {
        _ = &mut serving => true,
        () = tokio::time::sleep(server.drain_timeout) => false,
        () = cut.cancelled() => false,
    };
    lifecycle.advance(Phase::Stopped);
    if drained {
        return Ended::Drained;
    }
    if !cut.is_cancelled() {
        tracing::warn!("`drain_timeout` has passed: what is left is cut");
    }
    // Notify streams and waiting requests, unless the process has to end at once.
    let told = tokio::select! {
        _ = &mut serving => true,
        () = tokio::time::sleep(LAST_WORDS) => false,
        () = cut.cancelled() => false,
    };
    stop.cut.cancel();
    if !told {
        // The cut drops every connection, so this ends at once.
        let _ = serving.await;
    }
    Ended::Cut
}

fn address_of(listener: &TcpListener) -> SocketAddr {
    listener
        .local_addr()
        .expect("a bound socket has an address")
}

fn access_log(
    server: &router_config::valid::Server,
    options: &Options,
) -> Result<Option<Arc<AccessLog>>, StartError> {
    if !server.access_log {
        return Ok(None);
    }
    let lines = match options.access_lines {
        AccessLines::Stdout => log::stdout(),
        AccessLines::Stderr => log::stderr(),
    }
    .map_err(StartError::AccessLog)?;
    let log = AccessLog::new(options.log_format, lines);
    Ok(Some(Arc::new(log)))
}
