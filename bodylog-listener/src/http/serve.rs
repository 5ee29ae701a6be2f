//! Serves HTTP until shutdown.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::State;
use super::access::PeerAddr;

/// Longest time for a caller to send the request head.
const HEAD: Duration = Duration::from_secs(5);
/// Longest time for in-flight requests to finish after shutdown begins.
const DRAIN: Duration = Duration::from_secs(3);
/// Most connections.
const CONNECTIONS: usize = 256;
/// How long accepting pauses when the process has no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves until shutdown.
pub(crate) async fn serve(listener: TcpListener, state: State, stop: CancellationToken) {
    let router = super::router(state);
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD);
    let builder = Arc::new(builder);
    let graceful = GracefulShutdown::new();
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    let connections = TaskTracker::new();
    let cut = CancellationToken::new();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::debug!(%error, "accepting a caller failed");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Ok(permit) = Arc::clone(&room).try_acquire_owned() else {
            continue;
        };
        let service = TowerToHyperService::new(router.clone().layer(Extension(PeerAddr(peer))));
        let connection = builder
            .serve_connection(TokioIo::new(stream), service)
            .into_owned();
        let connection = graceful.watch(connection);
        let cut = cut.clone();
        connections.spawn(async move {
            tokio::select! {
                ended = connection => {
                    if let Err(error) = ended {
                        tracing::debug!(%error, "a caller's connection ended early");
                    }
                }
                () = cut.cancelled() => {}
            }
            drop(permit);
        });
    }
    drop(listener);
    let _ = tokio::time::timeout(DRAIN, graceful.shutdown()).await;
    cut.cancel();
    connections.close();
    connections.wait().await;
}
