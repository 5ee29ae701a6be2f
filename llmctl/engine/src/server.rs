//! The accept loop, and one task per connection. It is our own so that a fault can close a
//! connection at a chosen moment.

use std::sync::Arc;
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

/// How the tasks of one engine are told to end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ending {
    /// Accept nothing more; close idle connections; finish requests in flight.
    pub(crate) stop: CancellationToken,
    /// Close everything now.
    pub(crate) abort: CancellationToken,
}

/// Accepts until told to end.
pub(crate) async fn accept(listener: TcpListener, app: App, ending: Ending, tasks: TaskTracker) {
    let routes = service::routes(app.clone());
    let mut number = 0;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
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
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(None)
        .max_headers(HEADERS_MAX)
        .serve_connection(TokioIo::new(stream), service);
    let (mut serving, mut idled_out) = (std::pin::pin!(serving), std::pin::pin!(idled_out));
    let mut stopping = false;
    loop {
        tokio::select! {
            // An error is the other side's leaving or a fault's cut; the log has both already.
            _ = serving.as_mut() => return,
            () = idled_out.as_mut() => return,
            () = ending.abort.cancelled() => return,
            () = ending.stop.cancelled(), if !stopping => {
                stopping = true;
                serving.as_mut().graceful_shutdown();
            }
        }
    }
}
