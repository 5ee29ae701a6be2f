//! WebSockets: a request that leaves HTTP is joined to the engine's connection byte by byte.
//!
//! The request keeps its slot until either side closes. The connection's own task moves the bytes
//! after hyper has let go of the socket, so that whoever ends the connection ends the tunnel too.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use http::request::Parts;
use http::{Method, Request, Response, Version};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, split};

use super::error::{ApiError, Dialect};
use super::phase::{Answered, Live, Observed, Placed, Refused};
use super::relay::Body;
use super::respond::{self, Media, Stamp};
use crate::clock::now;
use crate::state::{Lifecycle, Phase};
use crate::upstream::{PeerBody, Tunnel};

/// Bytes that are read at once in each direction.
const CHUNK: usize = 16 << 10;

const WEBSOCKET: HeaderValue = HeaderValue::from_static("websocket");
const UPGRADE: HeaderValue = HeaderValue::from_static("upgrade");

type Running = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The place for the tunnel of a connection. The connection's task runs it once HTTP has ended.
#[derive(Clone, Default)]
pub(super) struct TunnelSlot(Arc<Mutex<Option<Running>>>);

impl TunnelSlot {
    /// Lends the place to a request that may leave HTTP.
    pub(super) fn lend<B>(&self, request: &mut Request<B>) {
        let asks = request.method() == Method::GET
            && request.version() == Version::HTTP_11
            && is_websocket(request.headers());
        if asks {
            let on = hyper::upgrade::on(&mut *request);
            let slot = self.clone();
            request.extensions_mut().insert(Upgrade { on, slot });
        }
    }

    /// The tunnel, if a request became one.
    pub(super) fn take(&self) -> Option<Running> {
        self.0.lock().take()
    }
}

impl fmt::Debug for TunnelSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TunnelSlot").finish_non_exhaustive()
    }
}

fn is_websocket(headers: &HeaderMap) -> bool {
    let upgrade = headers.get(header::UPGRADE).map(HeaderValue::as_bytes);
    upgrade.is_some_and(|protocol| protocol.trim_ascii().eq_ignore_ascii_case(b"websocket"))
}

/// A request that asks for a WebSocket.
#[derive(Clone, Debug)]
pub(super) struct Upgrade {
    on: OnUpgrade,
    slot: TunnelSlot,
}

/// How long a tunnel may last.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Maximum time without a byte in either direction.
    pub idle: Duration,
    /// The deadline of the whole request.
    pub deadline: Option<Instant>,
}

impl Upgrade {
    /// Takes the wish of a request to become a WebSocket.
    pub(super) fn take(parts: &mut Parts) -> Option<Box<Self>> {
        if parts.extensions.is_empty() {
            return None;
        }
        parts.extensions.remove::<Self>().map(Box::new)
    }

    /// Asks the engine for the same.
    pub(super) fn ask(headers: &mut HeaderMap) {
        headers.insert(header::CONNECTION, UPGRADE);
        headers.insert(header::UPGRADE, WEBSOCKET);
    }

    /// Hands the engine's 101 on, and joins the two connections once it is written.
    pub(super) fn join(
        self,
        placed: Live<Placed>,
        response: Response<PeerBody>,
        limits: Limits,
        lifecycle: Lifecycle,
    ) -> Result<Response<Body>, Box<Refused>> {
        let (mut head, body) = response.into_parts();
        let connect = body.connect_time();
        let Some(peer) = body.into_tunnel() else {
            let message = "the peer broke off while it changed the protocol";
            let error = ApiError::upstream(message, placed.tries.attempts.len());
            return Err(Refused::new(placed, error));
        };
        let observed = Observed {
            media: Media::Other,
            is_decoded: false,
            is_held: false,
        };
        let answered = Answered::live(placed, &head, connect, observed);
        let placed = &answered.placed;
        let authorised = &placed.inspected.authorised;
        let (dialect, stamp) = (Dialect::of(authorised.path()), Stamp::of(&authorised.route));
        let target = &placed.tries.peer.target;
        respond::translate(&mut head.headers, target, authorised.prefix());
        let routing = Some(placed.routing());
        respond::stamp(&mut head.headers, placed.id(), routing, dialect, stamp);
        Self::ask(&mut head.headers);
        head.extensions = http::Extensions::new();
        head.version = Version::HTTP_11;
        let running = run(self.on, peer, answered, limits, lifecycle);
        *self.slot.0.lock() = Some(Box::pin(running));
        Ok(Response::from_parts(head, Body::empty()))
    }
}

/// Moves bytes until either side closes, nothing has moved for too long, or the router drains.
async fn run(
    on: OnUpgrade,
    peer: Tunnel,
    mut answered: Live<Answered>,
    limits: Limits,
    lifecycle: Lifecycle,
) {
    let Ok(client) = on.await else { return };
    let (from_client, to_client) = split(TokioIo::new(client));
    let (from_peer, to_peer) = split(peer.stream);
    let moved = Moved::new();
    let down = moved.pump(peer.read, from_peer, to_client, Way::Down);
    let up = moved.pump(Bytes::new(), from_client, to_peer, Way::Up);
    tokio::select! {
        _ = down => {}
        _ = up => {}
        () = moved.rests_for(limits.idle) => {}
        () = lifecycle.reached(Phase::Draining) => {}
        () = reached(limits.deadline) => {}
    }
    let down = moved.down.load(Ordering::Relaxed);
    answered.sent(usize::try_from(down).unwrap_or(usize::MAX));
    answered.is_whole();
}

async fn reached(deadline: Option<Instant>) {
    match deadline {
        None => std::future::pending().await,
        Some(end) => tokio::time::sleep_until(end.into()).await,
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Down,
    Up,
}

/// What has passed through a tunnel.
struct Moved {
    begun: Instant,
    /// Milliseconds from `begun` to the last byte.
    last: AtomicU64,
    /// Bytes to the client.
    down: AtomicU64,
}

impl Moved {
    fn new() -> Self {
        Self {
            begun: now(),
            last: AtomicU64::new(0),
            down: AtomicU64::new(0),
        }
    }

    /// Moves bytes one way until its source ends.
    async fn pump(
        &self,
        first: Bytes,
        mut from: impl AsyncRead + Unpin,
        mut to: impl AsyncWrite + Unpin,
        way: Way,
    ) -> io::Result<()> {
        to.write_all(&first).await?;
        self.count(first.len(), way);
        let mut chunk = vec![0; CHUNK];
        loop {
            let read = from.read(&mut chunk).await?;
            if read == 0 {
                return to.shutdown().await;
            }
            to.write_all(&chunk[..read]).await?;
            to.flush().await?;
            self.count(read, way);
        }
    }

    fn count(&self, bytes: usize, way: Way) {
        let since = now().saturating_duration_since(self.begun).as_millis();
        let since = u64::try_from(since).unwrap_or(u64::MAX);
        self.last.store(since, Ordering::Relaxed);
        if way == Way::Down {
            self.down.fetch_add(bytes as u64, Ordering::Relaxed);
        }
    }

    /// Ready when no byte has moved for this long.
    async fn rests_for(&self, limit: Duration) {
        loop {
            let last = Duration::from_millis(self.last.load(Ordering::Relaxed));
            let end = self.begun + last + limit;
            if end <= now() {
                return;
            }
            tokio::time::sleep_until(end.into()).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_tunnel_without_a_byte_ends_and_one_with_bytes_goes_on() {
        let moved = Moved::new();
        let begun = now();
        let limit = Duration::from_secs(60);
        let (mut client, near) = tokio::io::duplex(64);
        let (far, mut engine) = tokio::io::duplex(64);
        let pump = moved.pump(Bytes::from_static(b"first "), near, far, Way::Down);
        let talk = async {
            tokio::time::sleep(Duration::from_secs(45)).await;
            client.write_all(b"second").await.unwrap();
            let mut heard = [0; 12];
            engine.read_exact(&mut heard).await.unwrap();
            assert_eq!(&heard, b"first second");
            std::future::pending::<()>().await;
        };
        tokio::select! {
            _ = pump => panic!("both ends are open"),
            () = talk => {}
            () = moved.rests_for(limit) => {}
        }
        assert_eq!(now() - begun, Duration::from_secs(105));
        assert_eq!(moved.down.load(Ordering::Relaxed), 12);
    }
}
