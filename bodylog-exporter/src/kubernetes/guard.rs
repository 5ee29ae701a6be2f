//! Bounds around every call: how long an answer may take and how large it may be, which the client
//! leaves open. It also notices that a watch goes on, which produces no event by itself.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep};
use tower::{BoxError, Layer, Service};

use crate::resolver::{Health, Source};

/// Largest answer, and largest event of a watch, bytes.
const ANSWER_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Least time between the starts of two watches: the client takes a watch that ends at once for
/// normal and starts it again at once.
const WATCH_SPACING: Duration = Duration::from_millis(500);

/// An answer was cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refused {
    #[error("it has more than {ANSWER_BYTES_MAX} bytes")]
    TooLarge,
    #[error("it takes too long")]
    TooLong,
}

/// Puts the bounds around a client's calls.
#[derive(Clone, Debug)]
pub(super) struct Guard {
    /// For a whole answer; for a watch, until its head.
    pub(super) timeout: Duration,
    /// Notified when a watch begins.
    pub(super) watched: Option<(Arc<Health>, Source)>,
}

impl<S> Layer<S> for Guard {
    type Service = Guarded<S>;

    fn layer(&self, inner: S) -> Guarded<S> {
        Guarded {
            inner,
            guard: self.clone(),
            next_watch: None,
        }
    }
}

/// See [`Guard`].
#[derive(Debug)]
pub(super) struct Guarded<S> {
    inner: S,
    guard: Guard,
    /// When a watch may begin again.
    next_watch: Option<Instant>,
}

impl<S, Q, B> Service<Request<Q>> for Guarded<S>
where
    S: Service<Request<Q>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
{
    type Response = Response<Bounded<B>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        let query = request.uri().query().unwrap_or_default();
        let is_watch = query.split('&').any(|pair| pair == "watch=true");
        let now = Instant::now();
        let begin = self
            .next_watch
            .filter(|_| is_watch)
            .map_or(now, |at| at.max(now));
        if is_watch {
            self.next_watch = Some(begin + WATCH_SPACING);
        }
        let mut end = Box::pin(tokio::time::sleep_until(begin + self.guard.timeout));
        let watched = self.guard.watched.clone();
        let call = self.inner.call(request);
        Box::pin(async move {
            tokio::time::sleep_until(begin).await;
            let answer = tokio::select! {
                answer = call => answer.map_err(Into::into)?,
                () = &mut end => return Err(Refused::TooLong.into()),
            };
            if let Some((health, source)) = watched
                && is_watch
                && answer.status().is_success()
            {
                health.answered(&source);
            }
            Ok(answer.map(|inner| Bounded {
                inner,
                taken: 0,
                end: (!is_watch).then_some(end),
            }))
        })
    }
}

/// A body that fails when it is too large or takes too long.
#[derive(Debug)]
pub(super) struct Bounded<B> {
    inner: B,
    /// Bytes so far; for a watch, those of the current event.
    taken: usize,
    /// When it must be complete; `None` for a watch, whose events are lines.
    end: Option<Pin<Box<Sleep>>>,
}

impl<B> Bounded<B> {
    fn take(&mut self, data: &[u8]) -> Result<(), Refused> {
        let is_watch = self.end.is_none();
        self.taken = match memchr::memrchr(b'\n', data) {
            Some(at) if is_watch => data.len() - at,
            _ => self.taken.saturating_add(data.len()),
        };
        match self.taken {
            0..=ANSWER_BYTES_MAX => Ok(()),
            _ => Err(Refused::TooLarge),
        }
    }
}

impl<B> Body for Bounded<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Some(end) = &mut self.end
            && end.as_mut().poll(context).is_ready()
        {
            return Poll::Ready(Some(Err(Refused::TooLong.into())));
        }
        let frame = match ready!(Pin::new(&mut self.inner).poll_frame(context)) {
            Some(Ok(frame)) => frame,
            Some(Err(error)) => return Poll::Ready(Some(Err(error.into()))),
            None => return Poll::Ready(None),
        };
        if let Some(data) = frame.data_ref()
            && let Err(refused) = self.take(data)
        {
            return Poll::Ready(Some(Err(refused.into())));
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt, StreamBody};

    use super::*;

    /// A body that repeats this chunk, and may then stay open.
    type Chunks =
        StreamBody<futures_util::stream::BoxStream<'static, Result<Frame<Bytes>, BoxError>>>;

    fn chunks(chunk: &'static [u8], times: usize, stays_open: bool) -> Chunks {
        use futures_util::StreamExt;
        let frames = (0..times).map(move |_| Ok(Frame::data(Bytes::from_static(chunk))));
        let frames = futures_util::stream::iter(frames);
        StreamBody::new(match stays_open {
            true => frames.chain(futures_util::stream::pending()).boxed(),
            false => frames.boxed(),
        })
    }

    async fn answer(
        path: &'static str,
        chunk: &'static [u8],
        times: usize,
        stays_open: bool,
    ) -> Result<usize, String> {
        let guard = Guard {
            timeout: Duration::from_secs(4),
            watched: None,
        };
        let inner = tower::service_fn(move |_: Request<()>| async move {
            Ok::<_, BoxError>(Response::new(chunks(chunk, times, stays_open)))
        });
        let request = Request::get(path).body(()).unwrap();
        let answer = guard.layer(inner).call(request).await;
        let body = answer.map_err(|error| error.to_string())?.into_body();
        let body = body.collect().await.map_err(|error| error.to_string())?;
        Ok(body.to_bytes().len())
    }

    const MIB: &[u8] = &[b'x'; 1024 * 1024];
    const LINE: &[u8] = &{
        let mut line = [b'x'; 1024 * 1024];
        line[9] = b'\n';
        line
    };

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_small_and_a_watch_is_of_small_lines() {
        let size = |mib: usize| Ok(mib * MIB.len());
        let too_large = || Err(Refused::TooLarge.to_string());
        assert_eq!(answer("/list", MIB, 8, false).await, size(8));
        assert_eq!(answer("/list", MIB, 9, false).await, too_large());
        assert_eq!(answer("/list", LINE, 9, false).await, too_large());
        assert_eq!(
            answer("/list?watch=true&x=y", LINE, 20, false).await,
            size(20)
        );
        assert_eq!(answer("/list?watch=true", MIB, 9, false).await, too_large());
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_does_not_end_is_cut() {
        let too_long = Err(Refused::TooLong.to_string());
        assert_eq!(answer("/list", b"[", 1, true).await, too_long);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_does_not_begin_is_given_up_watch_or_not() {
        let guard = Guard {
            timeout: Duration::from_secs(4),
            watched: None,
        };
        for path in ["/list", "/list?watch=true"] {
            let inner = tower::service_fn(async |_: Request<()>| {
                std::future::pending::<Result<Response<Chunks>, BoxError>>().await
            });
            let request = Request::get(path).body(()).unwrap();
            let error = guard
                .layer(inner)
                .call(request)
                .await
                .map(|_| ())
                .unwrap_err();
            assert_eq!(error.downcast_ref(), Some(&Refused::TooLong), "{path}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_ends_at_once_begins_again_later() {
        let guard = Guard {
            timeout: Duration::from_secs(4),
            watched: None,
        };
        let inner = tower::service_fn(|_: Request<()>| async {
            Ok::<_, BoxError>(Response::new(chunks(b"", 0, false)))
        });
        let mut guarded = guard.layer(inner);
        let began = Instant::now();
        for (path, after) in [
            ("/list", Duration::ZERO),
            ("/list?watch=true", Duration::ZERO),
            ("/list?watch=true", WATCH_SPACING),
            ("/list", WATCH_SPACING),
            ("/list?watch=true", 2 * WATCH_SPACING),
        ] {
            let request = Request::get(path).body(()).unwrap();
            guarded.call(request).await.map(|_| ()).unwrap();
            assert_eq!(Instant::now() - began, after, "{path}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_begins_is_told_of() {
        let health = Arc::new(Health::default());
        health.asked(&Source::Routes);
        let guard = Guard {
            timeout: Duration::from_secs(4),
            watched: Some((Arc::clone(&health), Source::Routes)),
        };
        for (path, status, is_up) in [
            ("/list", 200, false),
            ("/list?watch=true", 403, false),
            ("/list?watch=true", 200, true),
        ] {
            let inner = tower::service_fn(move |_: Request<()>| async move {
                let answer = Response::builder().status(status);
                Ok::<_, BoxError>(answer.body(chunks(b"", 0, false)).unwrap())
            });
            let request = Request::get(path).body(()).unwrap();
            guard.layer(inner).call(request).await.map(|_| ()).unwrap();
            assert_eq!(health.is_up(), is_up, "{path} {status}");
        }
    }
}
