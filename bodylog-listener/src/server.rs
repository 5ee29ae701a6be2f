//! The frame port: admission of senders by address and number, and TLS.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use proto::codec::encode;
use proto::control::{GoAway, GoAwayCode};
use proto::frame::{Compression, Frame};
use rustls::ServerConfig;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::Config;
use crate::ingest::{Ingest, Peer};
use service::renewed::Renewed;

/// How long accepting pauses when the process has no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Longest time for a TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Silence after which the kernel sends TCP keepalive probes.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// The admission rules.
#[derive(Clone, Debug)]
struct Gate {
    allow: Vec<IpNet>,
    has_token: bool,
}

impl Gate {
    /// The permissions of an address; `None` if it may not connect.
    fn admit(&self, source: IpAddr) -> Option<Peer> {
        let is_named = self.allow.iter().any(|net| net.contains(&source));
        (self.allow.is_empty() || is_named).then_some(Peer {
            source,
            may_speak_v1: is_named || !self.has_token,
        })
    }
}

/// Most connections still accepted from the queue when the listener stops.
const LAST_ACCEPTS: usize = 1024;

/// The running frame port.
struct Port {
    gate: Gate,
    tls: Option<Renewed<Arc<ServerConfig>>>,
    room: Arc<Semaphore>,
    ingest: Arc<Ingest>,
    connections: TaskTracker,
    stop: CancellationToken,
}

/// Accepts senders until shutdown, then waits for the connected ones.
pub(crate) async fn run(
    listener: TcpListener,
    config: &Config,
    ingest: Arc<Ingest>,
    stop: CancellationToken,
) {
    let port = Port {
        gate: Gate {
            allow: config.allow.clone(),
            has_token: config.token.is_some(),
        },
        tls: config.tls.clone(),
        room: Arc::new(Semaphore::new(config.max_connections)),
        ingest,
        connections: TaskTracker::new(),
        stop,
    };
    loop {
        tokio::select! {
            () = port.stop.cancelled() => break,
            accepted = listener.accept() => port.take(accepted).await,
        }
    }
    // Queued connections may already have sent frames, and version 1 would not send them again.
    for _ in 0..LAST_ACCEPTS {
        match tokio::time::timeout(Duration::ZERO, listener.accept()).await {
            Ok(accepted) => port.take(accepted).await,
            Err(_) => break,
        }
    }
    drop(listener);
    port.connections.close();
    port.connections.wait().await;
}

impl Port {
    async fn take(&self, accepted: io::Result<(TcpStream, SocketAddr)>) {
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) if is_of_one_connection(&error) => return,
            Err(error) => {
                tracing::error!(%error, "accepting senders is failing");
                return tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        };
        let source = address.ip().to_canonical();
        let Some(peer) = self.gate.admit(source) else {
            tracing::warn!(%source, "a sender is not on the list of allowed addresses");
            return;
        };
        let Ok(permit) = Arc::clone(&self.room).try_acquire_owned() else {
            tracing::warn!(%source, "there are too many senders");
            return refuse(stream).await;
        };
        prepare(&stream, address);
        let ingest = Arc::clone(&self.ingest);
        let (tls, stop) = (self.tls.clone(), self.stop.clone());
        self.connections.spawn(async move {
            ingest.metrics.connections.inc();
            serve(Arc::clone(&ingest), stream, tls, peer, stop).await;
            ingest.metrics.connections.dec();
            drop(permit);
        });
    }
}

async fn serve(
    ingest: Arc<Ingest>,
    stream: TcpStream,
    tls: Option<Renewed<Arc<ServerConfig>>>,
    peer: Peer,
    stop: CancellationToken,
) {
    let Some(tls) = tls else {
        return ingest.serve(stream, peer, stop).await;
    };
    let handshake = async {
        let config = tokio::task::spawn_blocking(move || tls.now()).await;
        let config = config.map_err(io::Error::other)?;
        TlsAcceptor::from(config).accept(stream).await
    };
    match tokio::time::timeout(HANDSHAKE, handshake).await {
        Ok(Ok(stream)) => ingest.serve(stream, peer, stop).await,
        Ok(Err(error)) => {
            tracing::info!(source = %peer.source, %error, "a sender's TLS handshake failed");
        }
        Err(_) => tracing::info!(source = %peer.source, "a sender's TLS handshake took too long"),
    }
}

fn prepare(stream: &TcpStream, address: SocketAddr) {
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE);
    let set = SockRef::from(stream)
        .set_tcp_keepalive(&keepalive)
        .and_then(|()| stream.set_nodelay(true));
    if let Err(error) = set {
        tracing::debug!(%address, %error, "a socket option was refused");
    }
}

/// Sends the reason, if the few bytes fit into the socket buffer at once.
async fn refuse(mut stream: TcpStream) {
    let frame = Frame::GoAway(GoAway {
        code: GoAwayCode::Busy,
        text: "too many connections".into(),
    });
    let mut out = bytes::BytesMut::new();
    if encode(&frame, Compression::None, &mut out).is_ok() {
        let _ = tokio::time::timeout(ACCEPT_PAUSE, stream.write_all(&out)).await;
    }
}

fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admitted(allow: &[&str], has_token: bool, source: &str) -> Option<bool> {
        let gate = Gate {
            allow: allow.iter().map(|net| net.parse().unwrap()).collect(),
            has_token,
        };
        gate.admit(source.parse().unwrap())
            .map(|peer| peer.may_speak_v1)
    }

    #[test]
    fn an_empty_list_lets_everybody_in_and_a_list_those_on_it() {
        assert_eq!(admitted(&[], false, "203.0.113.9"), Some(true));
        assert_eq!(
            admitted(&["10.0.0.0/8", "::1/128"], false, "10.1.2.3"),
            Some(true)
        );
        assert_eq!(
            admitted(&["10.0.0.0/8", "::1/128"], false, "::1"),
            Some(true)
        );
        assert_eq!(admitted(&["10.0.0.0/8"], false, "203.0.113.9"), None);
    }

    #[test]
    fn with_a_token_version_1_must_be_on_the_list() {
        assert_eq!(admitted(&[], true, "10.1.2.3"), Some(false));
        assert_eq!(admitted(&["10.0.0.0/8"], true, "10.1.2.3"), Some(true));
    }
}
