//! Live views: a stream of server-sent events, each with the view as it is now.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::response::Response;
use futures_util::stream;
use http::{StatusCode, Uri};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::view::View;
use crate::admin::{AdminState, IntoAxum, answer};
use crate::clock::now;

/// Time between two renderings.
const EVERY: Duration = Duration::from_secs(2);

/// Maximum number of open streams. Each renders a view every two seconds, about a millisecond of
/// work with 200 peers.
const STREAMS_MAX: usize = 16;

/// Length of a stream. The browser then asks again, so a revoked token does not read on for ever.
const STREAM_TIME: Duration = Duration::from_secs(600);

/// The number of streams that may still open.
#[derive(Clone, Debug)]
pub(in crate::admin) struct Streams(Arc<Semaphore>);

impl Default for Streams {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(STREAMS_MAX)))
    }
}

struct Live {
    state: AdminState,
    view: View,
    began: Instant,
    is_first: bool,
    shown: String,
    _open: OwnedSemaphorePermit,
}

/// `GET /console/events`: the view now and every two seconds, until the browser leaves.
pub(super) async fn live(State(state): State<AdminState>, uri: Uri) -> Response {
    let view = match View::of(&uri) {
        Ok(view) => view,
        Err(refused) => return answer::bad_request(refused).into_axum(),
    };
    let Ok(open) = Arc::clone(&state.streams.0).try_acquire_owned() else {
        let message = format!("{STREAMS_MAX} consoles are open already; close one of them");
        return answer::error(
            StatusCode::SERVICE_UNAVAILABLE,
            "too_many_consoles",
            message,
        )
        .into_axum();
    };
    let live = Live {
        state,
        view,
        began: now(),
        is_first: true,
        shown: String::new(),
        _open: open,
    };
    let events = stream::unfold(live, |mut live| async move {
        let event = live.next().await?;
        Some((Ok::<_, Infallible>(event), live))
    });
    let mut response = answer::typed(StatusCode::OK, "text/event-stream", Bytes::new()).into_axum();
    *response.body_mut() = Body::from_stream(events);
    response
}

impl Live {
    async fn next(&mut self) -> Option<Bytes> {
        if !std::mem::take(&mut self.is_first) {
            tokio::time::sleep(EVERY).await;
        }
        let is_over = now().saturating_duration_since(self.began) >= STREAM_TIME;
        if is_over || self.state.lifecycle.is_stopped() {
            return None;
        }
        let html = self.view.render(&self.state).into_string();
        if html == self.shown {
            // A comment: the connection is alive, and nothing has changed.
            return Some(Bytes::from_static(b":\n\n"));
        }
        let data = serde_json::to_string(&html).expect("a text is JSON");
        self.shown = html;
        Some(Bytes::from(format!("data: {data}\n\n")))
    }
}
