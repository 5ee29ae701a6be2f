//! The frame port: admission of senders by address and number, and TLS.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper_util::server::graceful::Watcher;
use ipnet::IpNet;
use proto::codec::encode;
use proto::control::{GoAway, GoAwayCode};
use proto::frame::{Compression, Frame};
use rustls::ServerConfig;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::ingest::{Ingest, Peer};
use service::accept::{Port, Serve, Stop, accept};
use service::connections::Connections;
use service::http::overloaded;
use service::log::Throttle;
use service::renewed::Renewed;

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

/// Most connections still accepted from the queue when the listener stops. They may already have
/// sent frames, and version 1 would not send them again.
const LAST_ACCEPTS: usize = 1024;

/// Longest time for a sender to send its first byte.
const FIRST_BYTE: Duration = Duration::from_secs(5);

/// Accepts senders until shutdown, then waits for the connected ones.
pub(crate) async fn run(
    listener: TcpListener,
    connections: Connections,
    config: &Config,
    ingest: Arc<Ingest>,
    stop: CancellationToken,
) {
    let port = Port {
        listener,
        connections,
        first_byte: FIRST_BYTE,
        last_accepts: LAST_ACCEPTS,
    };
    let frames = Frames {
        gate: Arc::new(Gate {
            allow: config.allow.clone(),
            has_token: config.token.is_some(),
        }),
        tls: config.tls.clone(),
        ingest,
        stop: stop.clone(),
    };
    // Connections end by themselves after `stop`, so none is cut.
    let ending = Stop {
        drain: stop,
        cut: CancellationToken::new(),
    };
    accept(port, ending, frames).await;
}

/// The frame port's service.
#[derive(Clone)]
struct Frames {
    gate: Arc<Gate>,
    tls: Option<Renewed<Arc<ServerConfig>>>,
    ingest: Arc<Ingest>,
    stop: CancellationToken,
}

impl Serve for Frames {
    async fn serve(self, stream: TcpStream, address: SocketAddr, _: Watcher) {
        static UNKNOWN: Throttle = Throttle::new();
        let source = address.ip().to_canonical();
        let Some(peer) = self.gate.admit(source) else {
            if let Some(unsaid) = UNKNOWN.pass(now()) {
                tracing::warn!(%source, unsaid, "a sender is not on the list of allowed addresses");
            }
            return;
        };
        prepare(&stream, address);
        let ingest = Arc::clone(&self.ingest);
        self.ingest.metrics.connections.inc();
        serve(ingest, stream, self.tls, peer, self.stop).await;
        self.ingest.metrics.connections.dec();
    }

    async fn reject(self, stream: TcpStream) {
        static MANY: Throttle = Throttle::new();
        if let Some(unsaid) = MANY.pass(now()) {
            tracing::warn!(unsaid, "there are too many senders");
        }
        refuse(stream).await;
    }
}

async fn serve(
    ingest: Arc<Ingest>,
    stream: TcpStream,
    tls: Option<Renewed<Arc<ServerConfig>>>,
    peer: Peer,
    stop: CancellationToken,
) {
    static FAILED: Throttle = Throttle::new();
    static SLOW: Throttle = Throttle::new();
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
            if let Some(unsaid) = FAILED.pass(now()) {
                tracing::info!(source = %peer.source, %error, unsaid, "a sender's TLS handshake failed");
            }
        }
        Err(_) => {
            if let Some(unsaid) = SLOW.pass(now()) {
                tracing::info!(source = %peer.source, unsaid, "a sender's TLS handshake took too long");
            }
        }
    }
}

pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
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

/// Sends the reason.
async fn refuse(stream: TcpStream) {
    let frame = Frame::GoAway(GoAway {
        code: GoAwayCode::Busy,
        text: "too many connections".into(),
    });
    let mut out = bytes::BytesMut::new();
    if encode(&frame, Compression::None, &mut out).is_ok() {
        overloaded(stream, &out).await;
    }
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
