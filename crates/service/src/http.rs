//! An HTTP port for operators and scrapers: everything on it is small, so every step has a bound.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Extension;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::Watcher;
use hyper_util::service::TowerToHyperService;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::accept::{Port, Serve, Stop, accept};
use crate::connections::{ConnectionLimits, Connections};
use crate::framing::Checked;

/// A client has this long for its first byte and for a head, and an idle connection this long to
/// begin one. A scraper with a longer interval opens a connection for each scrape.
const HEAD: Duration = Duration::from_secs(5);

/// Requests under way have this long at the end.
const DRAIN: Duration = Duration::from_secs(3);

/// Scrapers, probes and people.
pub const CONNECTIONS: ConnectionLimits = ConnectionLimits {
    total: 256,
    per_source: None,
};

/// The TCP peer of a request, for handlers that ask for it as an `Extension`.
#[derive(Clone, Copy, Debug)]
pub struct PeerAddr(pub SocketAddr);

/// What a connection beyond the bound is answered.
pub const OVERLOADED: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\n\
    content-type: application/json\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: 64\r\n\r\n\
    {\"error\":{\"code\":\"overloaded\",\"message\":\"too many connections\"}}";

/// Answers a connection that is one too many, and waits until the client has had time to read it.
pub async fn overloaded(mut stream: TcpStream, answer: &[u8]) {
    if stream.write_all(answer).await.is_err() || stream.shutdown().await.is_err() {
        return;
    }
    // Closing a socket with unread bytes resets it, and the client might not see the answer.
    let mut rest = [0; 4096];
    while let Ok(1..) = tokio::io::AsyncReadExt::read(&mut stream, &mut rest).await {}
}

/// Serves until `stop`, then lets requests under way finish, for a while.
pub async fn serve(
    listener: TcpListener,
    connections: Connections,
    router: axum::Router,
    stop: CancellationToken,
) {
    let mut builder = Builder::new(TokioExecutor::new()).http1_only();
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD);
    let port = Port {
        listener,
        connections,
        first_byte: HEAD,
        last_accepts: 0,
    };
    let ending = Stop {
        drain: stop.clone(),
        cut: CancellationToken::new(),
    };
    let cut = ending.cut.clone();
    let serving = accept(port, ending, Handler { builder, router });
    let mut serving = std::pin::pin!(serving);
    tokio::select! {
        () = &mut serving => return,
        () = async { stop.cancelled().await; tokio::time::sleep(DRAIN).await; } => cut.cancel(),
    }
    serving.await;
}

#[derive(Clone)]
struct Handler {
    builder: Builder<TokioExecutor>,
    router: axum::Router,
}

impl Serve for Handler {
    async fn serve(self, stream: TcpStream, peer: SocketAddr, watcher: Watcher) {
        let router = self.router.layer(Extension(PeerAddr(peer)));
        let service = TowerToHyperService::new(router);
        let connection = self
            .builder
            .serve_connection(TokioIo::new(Checked::new(stream)), service)
            .into_owned();
        if let Err(error) = watcher.watch(connection).await {
            tracing::debug!(%error, "a connection ended early");
        }
    }

    async fn reject(self, stream: TcpStream) {
        overloaded(stream, OVERLOADED).await;
    }
}

#[cfg(test)]
mod tests {
    use tokio_util::task::TaskTracker;

    use super::*;

    #[test]
    fn the_length_of_the_refusal_is_right() {
        let text = std::str::from_utf8(OVERLOADED).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.ends_with(&format!("content-length: {}", body.len())));
    }

    #[tokio::test]
    async fn more_silent_connections_than_may_speak_do_not_keep_a_caller_out() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let tasks = TaskTracker::new();
        let connections = Connections::new(CONNECTIONS);
        tasks.spawn(serve(
            listener,
            connections,
            axum::Router::new(),
            stop.clone(),
        ));
        tasks.close();
        let mut silent = Vec::new();
        for _ in 0..CONNECTIONS.total + 44 {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        let mut caller = TcpStream::connect(address).await.unwrap();
        let request = b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
        caller.write_all(request).await.unwrap();
        let mut answer = String::new();
        tokio::io::AsyncReadExt::read_to_string(&mut caller, &mut answer)
            .await
            .unwrap();
        assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
        drop(silent);
        stop.cancel();
        tasks.wait().await;
    }
}
