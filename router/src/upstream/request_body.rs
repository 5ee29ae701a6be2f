//! The body of a request to a peer: one piece, or the slices around edits, and a rest that is still
//! arriving. No piece is copied.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;

use crate::content::splice::Parts;

/// The client's part of a request body failed. Whoever reads the client knows why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the client's body broke off")]
pub struct BrokenUpload;

/// A rest of a body that is sent while it arrives.
pub struct StreamedRest {
    body: Mutex<Pin<Box<dyn Body<Data = Bytes, Error = BrokenUpload> + Send>>>,
    /// Whether a part of it is gone.
    has_begun: AtomicBool,
}

impl StreamedRest {
    /// A rest that nothing was taken from.
    pub fn new(body: impl Body<Data = Bytes, Error = BrokenUpload> + Send + 'static) -> Self {
        Self {
            body: Mutex::new(Box::pin(body)),
            has_begun: AtomicBool::new(false),
        }
    }

    fn poll_frame(&self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BrokenUpload>>> {
        self.has_begun.store(true, Ordering::Relaxed);
        self.body.lock().as_mut().poll_frame(cx)
    }
}

impl fmt::Debug for StreamedRest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamedRest").finish_non_exhaustive()
    }
}

/// A body of which at least the beginning is in memory. A clone begins again where this one is, for
/// another attempt, as long as nothing of the rest is gone.
#[derive(Clone, Debug, Default)]
pub struct RequestBody {
    /// The next piece. Empty when nothing is left.
    next: Bytes,
    /// Later pieces, of which `sent` are gone.
    rest: Option<Arc<[Bytes]>>,
    sent: usize,
    /// What follows the pieces.
    streamed: Option<Arc<StreamedRest>>,
}

impl RequestBody {
    /// The same body with a rest that is still arriving.
    pub fn followed_by(self, rest: StreamedRest) -> Self {
        Self {
            streamed: Some(Arc::new(rest)),
            ..self
        }
    }

    /// Whether a part of the body is still arriving.
    pub fn is_streamed(&self) -> bool {
        self.streamed.is_some()
    }

    /// Whether the body can be sent from its beginning.
    pub fn can_be_sent(&self) -> bool {
        let has_begun = |rest: &Arc<StreamedRest>| rest.has_begun.load(Ordering::Relaxed);
        !self.streamed.as_ref().is_some_and(has_begun)
    }

    /// The bytes in memory that are left.
    fn remaining(&self) -> u64 {
        let rest = self.rest.iter().flat_map(|rest| &rest[self.sent..]);
        rest.map(|piece| piece.len() as u64).sum::<u64>() + self.next.len() as u64
    }
}

impl From<Bytes> for RequestBody {
    fn from(next: Bytes) -> Self {
        Self {
            next,
            ..Self::default()
        }
    }
}

impl From<&Parts> for RequestBody {
    fn from(parts: &Parts) -> Self {
        match parts.as_slice() {
            [] => Self::default(),
            [whole] => whole.clone().into(),
            [next, rest @ ..] => Self {
                next: next.clone(),
                rest: Some(rest.into()),
                ..Self::default()
            },
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BrokenUpload;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenUpload>>> {
        let this = &mut *self;
        let later = this.rest.as_ref().and_then(|rest| rest.get(this.sent));
        this.sent += usize::from(later.is_some());
        let later = later.cloned().unwrap_or_default();
        let piece = std::mem::replace(&mut this.next, later);
        match &this.streamed {
            Some(rest) if piece.is_empty() => rest.poll_frame(cx),
            _ => Poll::Ready((!piece.is_empty()).then(|| Ok(Frame::data(piece)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        let has_ended = |rest: &Arc<StreamedRest>| rest.body.lock().is_end_stream();
        self.next.is_empty() && self.streamed.as_ref().is_none_or(has_ended)
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.streamed.as_ref();
        let rest = rest.map_or(Some(0), |rest| rest.body.lock().size_hint().exact());
        match rest {
            Some(rest) => SizeHint::with_exact(self.remaining() + rest),
            None => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;
    use crate::content::splice::Splices;

    #[tokio::test]
    async fn pieces_arrive_in_order_without_a_copy_and_once_more_for_a_retry() {
        let text = Bytes::from(vec![b'x'; 10_000]);
        let mut splices = Splices::default();
        splices.replace(10..20, &b"new"[..]);
        let parts = splices.apply(&text).unwrap();
        let body = RequestBody::from(&parts);
        for mut body in [body.clone(), body] {
            assert_eq!(body.size_hint().exact(), Some(9_993));
            let mut pieces = Vec::new();
            while let Some(frame) = body.frame().await {
                pieces.push(frame.unwrap().into_data().unwrap());
            }
            assert!(body.is_end_stream());
            assert_eq!(body.size_hint().exact(), Some(0));
            assert_eq!(pieces, [&text[..10], b"new", &text[20..]]);
            assert_eq!(pieces[0].as_ptr(), text.as_ptr());
        }
    }

    #[tokio::test]
    async fn a_rest_follows_the_pieces_and_is_there_once() {
        let rest = http_body_util::Full::new(Bytes::from_static(b"rest"));
        let rest = StreamedRest::new(rest.map_err(|never| match never {}));
        let body = RequestBody::from(Bytes::from_static(b"head ")).followed_by(rest);
        assert!(body.is_streamed() && body.can_be_sent() && !body.is_end_stream());
        assert_eq!(body.size_hint().exact(), Some(9));
        let mut sent = body.clone();
        let first = sent.frame().await.unwrap().unwrap();
        assert_eq!(first.into_data().unwrap(), "head ");
        assert!(body.can_be_sent(), "nothing of the rest is gone");
        assert_eq!(sent.collect().await.unwrap().to_bytes(), "rest");
        assert!(!body.can_be_sent());
    }

    #[test]
    fn an_empty_body_has_ended() {
        assert!(RequestBody::default().is_end_stream());
        assert_eq!(RequestBody::from(Bytes::new()).size_hint().exact(), Some(0));
    }
}
