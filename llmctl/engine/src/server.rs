//! The accept loop, and one task per connection. It is our own so that a fault can close a
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

/// Headers taken on one request: more than a router allows itself, so that the router's own limit
/// is the one that shows.
const HEADERS_MAX: usize = 512;

/// Pause after a failed accept (no file descriptors left, as a rule).
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// How often the address is tried again after a time of refusing connections.
const LISTEN_PAUSE: Duration = Duration::from_millis(20);

/// How the tasks of one engine are told to end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ending {
    /// Accept nothing more; close idle connections; finish requests in flight.
    pub(crate) stop: CancellationToken,
    /// Close everything now.
    pub(crate) abort: CancellationToken,
}

/// Accepts until told to end.
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
            // The sender lives in `app`.
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

/// Waits until connections are no longer refused, then takes the address again.
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
        // Somebody else may hold the address meanwhile.
        match TcpListener::bind(addr).await {
            Ok(listener) => return listener,
            Err(_) => tokio::time::sleep(LISTEN_PAUSE).await,
        }
    }
}

/// Serves one connection to its end.
async fn carry(
    stream: TcpStream,
    connection: Arc<Connection>,
    app: App,
    routes: axum::Router,
    ending: Ending,
) {
    // A token that waits for its predecessor's acknowledgement would falsify every latency. A
    // stream that refuses the option is closed already, which the first read tells.
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
            // An error is the other side's leaving or a fault's cut; the log has both already.
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
        // The stream is dropped here. One that refuses the option is gone already.
        drop(serving.into_parts().io.into_inner().set_zero_linger());
    }
}
