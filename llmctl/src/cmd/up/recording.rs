//! The body log of `up`: the very listener and exporter that run as programs elsewhere, over a
//! directory beside the other files.

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

/// Where the listener's HTTP and the exporter are by default, as of the programs; taken, they get a
/// free port.
const LISTENER_HTTP: u16 = 9998;
const EXPORTER: u16 = 9110;

/// Room to keep free on the disk. Smaller than the programs': a trial writes little, and on a laptop
/// a tenth of the disk is often not there.
const MIN_FREE: u64 = 256 << 20;

/// A bound port for frames, before there is a file that names it.
pub(super) struct Frames(TcpListener);

impl Frames {
    /// A free port.
    ///
    /// # Errors
    /// When there is none.
    pub(super) async fn free() -> Result<Self, Failure> {
        bind(0)
            .await
            .map(Self)
            .map_err(|error| Failure::Wrong(format!("no free port: {error}")))
    }

    /// Its address.
    ///
    /// # Errors
    /// When the system does not tell.
    pub(super) fn address(&self) -> Result<SocketAddr, Failure> {
        address(&self.0)
    }
}

/// A listener at work, and an exporter that is to follow the router.
#[derive(Debug)]
pub(super) struct Recording {
    /// The records' directory.
    pub(super) dir: PathBuf,
    /// The exporter's URL.
    pub(super) exporter: String,
    listener: JoinSet<()>,
    stop_listener: oneshot::Sender<()>,
    exporter_port: Option<TcpListener>,
    exporting: JoinSet<()>,
    stop_exporter: CancellationToken,
}

impl Recording {
    /// Starts the listener that the main file names, if that is one on this machine; `None` where the
    /// file names none or another. `frames` is what was bound for a file of ours.
    ///
    /// # Errors
    /// When the port is taken, or the directory cannot be used.
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

    /// Starts the exporter, for a router that listens for its administrators at `admin`.
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

    /// Ends both, the listener first: what the router sent last is stored, and then counted.
    pub(super) async fn stop(mut self) {
        let _ = self.stop_listener.send(());
        while self.listener.join_next().await.is_some() {}
        self.stop_exporter.cancel();
        while self.exporting.join_next().await.is_some() {}
    }
}

/// Starts the listener and waits until it serves.
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
            // Dropped, it is over as well.
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

/// Where the main file wants a listener of ours. What else is wrong with it the router says.
fn wanted(workspace: &Workspace) -> Option<SocketAddr> {
    let loaded = load(&Sources {
        config: Some(workspace.main_file()),
        ..Sources::default()
    });
    let listener = loaded.main.result.ok()?.bodylog.listener?;
    let address: SocketAddr = listener.parse().ok()?;
    address.ip().is_loopback().then_some(address)
}

/// How a router on this machine is reached that listens there.
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
