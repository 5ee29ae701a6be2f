//! The body log of `up`: runs the code of the listener and exporter binaries, with a directory next
//! to the other files.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use bodylog_exporter::epoch::ColdStart;
use bodylog_listener::config::MinFree;
use bodylog_listener::{Listeners, StartError};
use router_config::load::{Sources, load};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::files::Workspace;
use crate::exit::Failure;

/// Default ports of the listener's HTTP and of the exporter, as in their binaries. If one is in
/// use, `up` takes a free port.
const LISTENER_HTTP: u16 = 9998;
const EXPORTER: u16 = 9110;

/// Disk space to keep free. Smaller than the default of the binaries: a trial writes little, and
/// laptops often have less than a tenth of the disk free.
const MIN_FREE: u64 = 256 << 20;

/// A bound port for frames, until a file names it.
pub(super) struct Frames(TcpListener);

impl Frames {
    /// Binds a free port.
    ///
    /// # Errors
    /// When no port is free.
    pub(super) async fn free() -> Result<Self, Failure> {
        bind(0)
            .await
            .map(Self)
            .map_err(|error| Failure::Wrong(format!("no free port: {error}")))
    }

    /// The bound address.
    ///
    /// # Errors
    /// When the system does not return the address.
    pub(super) fn address(&self) -> Result<SocketAddr, Failure> {
        address(&self.0)
    }
}

/// A running listener, and an exporter that starts when the router is up.
#[derive(Debug)]
pub(super) struct Recording {
    /// The records' directory.
    pub(super) dir: PathBuf,
    /// The URL of the exporter.
    pub(super) exporter: String,
    listener: JoinSet<()>,
    stop_listener: oneshot::Sender<()>,
    exporter_port: Option<TcpListener>,
    exporting: JoinSet<()>,
    stop_exporter: CancellationToken,
}

impl Recording {
    /// Starts the listener that the main file names, if it is on this machine. `None` when the file
    /// names none, or one elsewhere. `frames` is the port that was bound for a file that `up`
    /// wrote.
    ///
    /// # Errors
    /// When the port is in use, or the directory cannot be used.
    pub(super) async fn start(
        workspace: &Workspace,
        frames: Option<Frames>,
    ) -> Result<Option<Self>, Failure> {
        let Some(wanted) = wanted(workspace) else {
            return Ok(None);
        };
        let frames = match frames {
            Some(frames) if frames.address()? == wanted => frames.0,
            _ => TcpListener::bind(wanted).await.map_err(|error| {
                Failure::Wrong(format!(
                    "cannot start a bodylog listener on {wanted}: {error}\n{} names it; is another `llmctl up` running from there?",
                    workspace.main_file().display()
                ))
            })?,
        };
        let http = usual_or_free(LISTENER_HTTP).await?;
        let exporter_port = usual_or_free(EXPORTER).await?;
        let exporter = format!("http://{}/metrics", address(&exporter_port)?);
        let dir = workspace.records_dir();
        let (stop_listener, listener) = listen(&dir, frames, http).await?;
        Ok(Some(Self {
            dir,
            exporter,
            listener,
            stop_listener,
            exporter_port: Some(exporter_port),
            exporting: JoinSet::new(),
            stop_exporter: CancellationToken::new(),
        }))
    }

    /// Starts the exporter, for a router with this admin address.
    pub(super) fn export(&mut self, admin: SocketAddr) {
        let Some(port) = self.exporter_port.take() else {
            return;
        };
        let config = bodylog_exporter::Config {
            cold_start: ColdStart::Start,
            routers: format!("http://{}", reachable(admin))
                .parse()
                .into_iter()
                .collect(),
            ..bodylog_exporter::Config::new(self.dir.clone())
        };
        let stop = self.stop_exporter.clone();
        self.exporting.spawn(async move {
            if let Err(error) = bodylog_exporter::run(config, port, stop, || {}).await {
                tracing::error!(%error, "there is no exporter: it failed");
            }
        });
    }

    /// Ends both, the listener first: it stores the router's last records, and then the exporter
    /// counts them.
    pub(super) async fn stop(mut self) {
        let _ = self.stop_listener.send(());
        while self.listener.join_next().await.is_some() {}
        self.stop_exporter.cancel();
        while self.exporting.join_next().await.is_some() {}
    }
}

/// Starts the listener and waits until it is ready.
async fn listen(
    dir: &Path,
    frames: TcpListener,
    http: TcpListener,
) -> Result<(oneshot::Sender<()>, JoinSet<()>), Failure> {
    let mut config = bodylog_listener::Config::new(dir);
    config.min_free = MinFree::Bytes(MIN_FREE);
    let listeners = Listeners {
        frames,
        http: Some(http),
    };
    let (stop, stopped) = oneshot::channel();
    let (started, starting) = oneshot::channel::<Result<(), StartError>>();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let stopped = async {
            // A dropped sender also means that the listener has ended.
            let _ = stopped.await;
        };
        let mut started = Some(started);
        let ready = || {
            if let Some(started) = started.take() {
                let _ = started.send(Ok(()));
            }
        };
        let ended = bodylog_listener::run(config, listeners, stopped, ready).await;
        if let (Err(error), Some(started)) = (ended, started) {
            let _ = started.send(Err(error));
        }
    });
    match starting.await {
        Ok(Ok(())) => Ok((stop, tasks)),
        Ok(Err(error)) => Err(Failure::Wrong(format!(
            "the bodylog listener cannot start: failed to {error}"
        ))),
        Err(_) => Err(Failure::Wrong(
            "the bodylog listener ended by itself".to_owned(),
        )),
    }
}

/// The address of a listener that `up` has to run for the main file. The router itself reports
/// other errors of the file.
fn wanted(workspace: &Workspace) -> Option<SocketAddr> {
    let loaded = load(&Sources {
        config: Some(workspace.main_file()),
        ..Sources::default()
    });
    let listener = loaded.main.result.ok()?.bodylog.listener?;
    let address: SocketAddr = listener.parse().ok()?;
    address.ip().is_loopback().then_some(address)
}

/// The address to reach a router on this machine that listens on `admin`.
fn reachable(mut admin: SocketAddr) -> SocketAddr {
    if admin.ip().is_unspecified() {
        admin.set_ip(Ipv4Addr::LOCALHOST.into());
    }
    admin
}

async fn bind(port: u16) -> io::Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await
}

async fn usual_or_free(port: u16) -> Result<TcpListener, Failure> {
    match bind(port).await {
        Ok(listener) => Ok(listener),
        Err(_) => Frames::free().await.map(|free| free.0),
    }
}

fn address(listener: &TcpListener) -> Result<SocketAddr, Failure> {
    listener
        .local_addr()
        .map_err(|error| Failure::Wrong(format!("a port has no address: {error}")))
}
