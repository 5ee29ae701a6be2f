//! The accept loop, and one task per connection. It is our own, so that a fault can close a
//! connection at a chosen moment.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::app::App;
use crate::connection::Connection;
use crate::service;

/// Maximum number of headers of one request. Higher than the router's own limit, so that tests see
/// the router's limit.
const HEADERS_MAX: usize = 512;

/// Pause after a failed accept (usually because no file descriptors are left).
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// Interval between attempts to bind the address after a time of refusing connections.
const LISTEN_PAUSE: Duration = Duration::from_millis(20);

/// The signals that end the tasks of one engine.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ending {
    /// Accept no more connections, close idle ones, finish requests in flight.
    pub(crate) stop: CancellationToken,
    /// Close everything now.
    pub(crate) abort: CancellationToken,
}

/// Accepts connections until it is told to end.
pub(crate) async fn accept(
    mut listener: TcpListener,
    app: App,
    ending: Ending,
    tasks: TaskTracker,
) {
    let mut refuse = app.faults.refuse();
    let routes = service::routes(app.clone());
    let mut number = 0;
    loop {
        if refuse.borrow_and_update().is_some() {
            let Ok(addr) = listener.local_addr() else {
                return;
            };
            drop(listener);
            listener = tokio::select! {
                listener = after_refusal(addr, &app) => listener,
                () = ending.stop.cancelled() => return,
                () = ending.abort.cancelled() => return,
            };
        }
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            // `changed` cannot fail, because the sender lives in `app`.
            _ = refuse.changed() => continue,
            () = ending.stop.cancelled() => return,
            () = ending.abort.cancelled() => return,
        };
        match accepted {
            Ok((stream, peer)) => {
                let connection = Connection::new(number, peer);
                number += 1;
                tasks.spawn(carry(
                    stream,
                    connection,
                    app.clone(),
                    routes.clone(),
                    ending.clone(),
                ));
            }
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}

/// Waits until connections are no longer refused, then binds the address again.
async fn after_refusal(addr: SocketAddr, app: &App) -> TcpListener {
    let mut refuse = app.faults.refuse();
    loop {
        let Some(refusal) = *refuse.borrow_and_update() else {
            break;
        };
        let expired = async {
            match refusal.0 {
                Some(period) => tokio::time::sleep(period).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = expired => app.faults.accept_again(),
            _ = refuse.changed() => {}
        }
    }
    loop {
        // Another process may have bound the address meanwhile.
        match TcpListener::bind(addr).await {
            Ok(listener) => return listener,
            Err(_) => tokio::time::sleep(LISTEN_PAUSE).await,
        }
    }
}

/// Serves one connection until its end.
async fn carry(
    stream: TcpStream,
    connection: Arc<Connection>,
    app: App,
    routes: axum::Router,
    ending: Ending,
) {
    // Without `TCP_NODELAY`, a token would wait for the acknowledgement of the one before, and
    // every latency would be wrong. The option fails only on a closed stream, which the first read
    // reports.
    drop(stream.set_nodelay(true));
    let idled_out = connection.idled_out(app.faults.close_idle());
    let service = service_fn(|request| {
        service::serve(
            app.clone(),
            routes.clone(),
            Arc::clone(&connection),
            request,
        )
    });
    let mut serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(None)
        .max_headers(HEADERS_MAX)
        .serve_connection(TokioIo::new(stream), service);
    let mut idled_out = std::pin::pin!(idled_out);
    let mut stopping = false;
    loop {
        tokio::select! {
            // An error means that the client disconnected or a fault cut the connection; both are
            // already in the log.
            _ = &mut serving => break,
            () = idled_out.as_mut() => return,
            () = ending.abort.cancelled() => return,
            () = ending.stop.cancelled(), if !stopping => {
                stopping = true;
                std::pin::Pin::new(&mut serving).graceful_shutdown();
            }
        }
    }
    if connection.reset.load(Relaxed) {
        // The stream is dropped here. The option fails only on a closed stream.
        drop(serving.into_parts().io.into_inner().set_zero_linger());
        return;
    }
    let session = connection.session.lock().take();
    if let Some(session) = session {
        let stream = serving.into_parts().io.into_inner();
        tokio::select! {
            () = session.run(stream) => {}
            () = ending.abort.cancelled() => {}
            () = ending.stop.cancelled() => {}
        }
    }
}
