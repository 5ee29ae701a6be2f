//! The body of a request to a peer: one piece, or the slices around edits. No piece is copied.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use crate::content::splice::Parts;

/// A body that is complete in memory. A clone begins again where this one is, for another attempt.
#[derive(Clone, Debug, Default)]
pub struct RequestBody {
    /// The next piece. Empty when nothing is left.
    next: Bytes,
    /// Later pieces, of which `sent` are gone.
    rest: Option<Arc<[Bytes]>>,
    sent: usize,
}

impl RequestBody {
    /// The bytes that are left.
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
                sent: 0,
            },
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = &mut *self;
        let later = this.rest.as_ref().and_then(|rest| rest.get(this.sent));
        this.sent += usize::from(later.is_some());
        let later = later.cloned().unwrap_or_default();
        let piece = std::mem::replace(&mut this.next, later);
        Poll::Ready((!piece.is_empty()).then(|| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.next.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.remaining())
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

    #[test]
    fn an_empty_body_has_ended() {
        assert!(RequestBody::default().is_end_stream());
        assert_eq!(RequestBody::from(Bytes::new()).size_hint().exact(), Some(0));
    }
}
