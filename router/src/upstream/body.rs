//! The body of a peer's answer, and the connection it comes from.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::connect::Observed;
use super::pool::{Link, Pool};

/// A body that reads from its own connection. After the last byte the connection returns to its
/// pool. A body that is dropped earlier closes the connection, so the peer sees that the client has
/// gone.
#[derive(Debug)]
pub struct PeerBody {
    body: Incoming,
    /// `None` once the body has ended.
    link: Option<Box<Link>>,
    pool: Arc<Pool>,
    connect: Duration,
    /// A frame that was read by [`first_byte`](Self::first_byte) and not handed over yet.
    ahead: Option<Box<Result<Frame<Bytes>, hyper::Error>>>,
}

/// A connection that has left HTTP (status 101), with the bytes that were read beyond the head.
#[derive(Debug)]
pub struct Tunnel {
    /// The stream in the protocol that both ends agreed on.
    pub stream: Observed,
    /// Bytes to deliver before anything that is read from `stream`.
    pub read: Bytes,
}

impl PeerBody {
    /// `is_tunnel` keeps the connection of a status 101 for [`into_tunnel`](Self::into_tunnel).
    pub(super) fn new(body: Incoming, link: Box<Link>, pool: Arc<Pool>, is_tunnel: bool) -> Self {
        let connect = if link.is_reused {
            Duration::ZERO
        } else {
            link.history.connect()
        };
        let mut this = Self {
            body,
            link: Some(link),
            pool,
            connect,
            ahead: None,
        };
        if this.body.is_end_stream() && !is_tunnel {
            this.finish();
        }
        this
    }

    /// The connection behind a status 101. `None` when the peer has not left HTTP.
    pub fn into_tunnel(self) -> Option<Tunnel> {
        let mut link = self.link?;
        if link.driven.rest() || link.history.is_write_broken() {
            return None;
        }
        let (stream, read) = link.driven.into_parts();
        Some(Tunnel {
            stream: stream.into_inner(),
            read,
        })
    }

    /// Waits until the first frame of the body has arrived, or the body has ended. The frame stays
    /// in the body. Cancel safe.
    pub async fn first_byte(&mut self) {
        if self.ahead.is_none() {
            let frame = poll_fn(|cx| Pin::new(&mut *self).poll_frame(cx)).await;
            self.ahead = frame.map(Box::new);
        }
    }

    /// The time this request spent on connecting, TLS included. Zero for a reused connection.
    pub fn connect_time(&self) -> Duration {
        self.connect
    }

    /// Called once the whole body is read. hyper's own check of the framing decides whether the
    /// connection is reused.
    fn finish(&mut self) {
        if let Some(link) = self.link.take() {
            self.pool.put(link);
        }
    }
}

impl Body for PeerBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.get_mut();
        if let Some(frame) = this.ahead.take() {
            return Poll::Ready(Some(*frame));
        }
        let Some(link) = &mut this.link else {
            return Poll::Ready(None);
        };
        let polled = link.driven.poll_frame(cx, &mut this.body);
        match &polled {
            Poll::Pending => {}
            Poll::Ready(Some(Err(_))) => this.link = None,
            // A body of known length, or one with trailers, is not polled again after this frame.
            Poll::Ready(Some(Ok(frame))) => {
                if frame.is_trailers() || this.body.is_end_stream() {
                    this.finish();
                }
            }
            Poll::Ready(None) => this.finish(),
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.ahead.is_none() && (self.link.is_none() || self.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.body.size_hint();
        let Some(Ok(frame)) = self.ahead.as_deref() else {
            return rest;
        };
        let ahead = frame.data_ref().map_or(0, Bytes::len) as u64;
        let mut whole = SizeHint::new();
        whole.set_lower(rest.lower() + ahead);
        if let Some(upper) = rest.upper() {
            whole.set_upper(upper + ahead);
        }
        whole
    }
}
