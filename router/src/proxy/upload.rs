//! Forms that are sent to a peer while they arrive.
//!
//! A file may be large, and only the fields of its form decide where it goes. So the router reads a
//! form until it knows them, and passes the rest on without holding it. Such a request cannot be
//! repeated once a peer has taken some of the rest.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use parking_lot::Mutex;
use tokio::time::Sleep;

use super::body::{BODY_IDLE, Collected, Limits, Pace, charge, next};
use super::error::ApiError;
use super::head::HeadWatch;
use crate::content::form::FormScan;
use crate::content::{Form, FormError};
use crate::placement::wanted_facts;
use crate::state::{Route, RouteTable};
use crate::upstream::{BrokenUpload, RequestBody, StreamedRest};
use service::budget::{ByteBudget, Held};

/// Forms up to this length are held whole: they arrive soon, occupy no slot until then, and can be
/// sent to another peer.
const HELD_MAX: u64 = 1 << 20;

/// How much of a form must be read before it is placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FormNeed {
    /// No field decides anything.
    Nothing,
    /// The model.
    Model,
    /// All of it.
    Whole,
}

impl FormNeed {
    /// What a route needs.
    pub(super) fn of(route: &Route) -> Self {
        // Any field may decide about a rule, and a fallback sends the form again.
        if wanted_facts(route).is_some() || !route.options.fallback.value.0.is_empty() {
            return Self::Whole;
        }
        match route.reads_the_model() || route.aliases.is_some() {
            true => Self::Model,
            false => Self::Nothing,
        }
    }

    /// What a form without a route needs.
    pub(super) fn of_any(table: &RouteTable) -> Self {
        let needs = table.routes().map(|route| Self::of(route));
        needs.fold(Self::Model, Self::max)
    }
}

/// Why an upload broke off, for the answer to its client.
pub(super) type Fault = Arc<Mutex<Option<ApiError>>>;

/// The rest of a form that is still arriving.
#[derive(Debug)]
pub(super) struct Upload {
    body: Incoming,
    /// `None` if no field matters any more.
    scan: Option<FormScan>,
    head: Arc<HeadWatch>,
    timer: Option<Pin<Box<Sleep>>>,
    fault: Fault,
}

/// Reads a form until `need` is met, and to its end if that is not far.
///
/// # Errors
/// As for any body; see [`collect`](super::body::collect).
pub(super) async fn read_form(
    body: Incoming,
    headers: &HeaderMap,
    need: FormNeed,
    limits: Limits,
    budget: &ByteBudget,
    head: &Arc<HeadWatch>,
) -> Result<Collected, ApiError> {
    let declared = body.size_hint().exact();
    if declared.is_some_and(|length| length > limits.body) {
        return Err(ApiError::body_too_large(limits.body));
    }
    let may_stream = need != FormNeed::Whole && declared.is_some_and(|length| length > HELD_MAX);
    let mut form = Reading {
        scan: FormScan::new(headers),
        whole: BytesMut::new(),
        pace: Pace::default(),
        body,
    };
    let mut held = budget.hold();
    while let Some(chunk) = next(&mut form.body, &mut form.pace).await? {
        charge(&mut held, &chunk, form.pace.received, limits)?;
        form.take(&chunk);
        if may_stream && !form.body.is_end_stream() && form.meets(need) {
            return Ok(form.streamed(need, held, head));
        }
    }
    Ok(form.ended(held))
}

/// A form of which the beginning was read.
struct Reading {
    scan: Result<FormScan, FormError>,
    whole: BytesMut,
    pace: Pace,
    body: Incoming,
}

impl Reading {
    fn take(&mut self, chunk: &[u8]) {
        self.whole.extend_from_slice(chunk);
        if let Ok(scan) = &mut self.scan
            && let Err(why) = scan.feed(chunk)
        {
            self.scan = Err(why);
        }
    }

    /// Whether the rest cannot change where the form goes.
    fn meets(&self, need: FormNeed) -> bool {
        match (need, &self.scan) {
            (FormNeed::Nothing, Ok(scan)) => scan.has_file(),
            (FormNeed::Nothing, Err(_)) => true,
            (FormNeed::Model, Ok(scan)) => scan.has_file() && scan.has_model(),
            (FormNeed::Model, Err(_)) | (FormNeed::Whole, _) => false,
        }
    }

    fn streamed(self, need: FormNeed, held: Held, head: &Arc<HeadWatch>) -> Collected {
        let form = match &self.scan {
            Ok(scan) => Ok(scan.so_far()),
            Err(why) => Err(*why),
        };
        let upload = Upload {
            fault: Fault::default(),
            // A second model would contradict the first, which has decided.
            scan: self
                .scan
                .ok()
                .filter(|scan| need == FormNeed::Model && scan.has_model()),
            body: self.body,
            head: Arc::clone(head),
            timer: None,
        };
        Collected {
            bytes: self.whole.freeze(),
            held,
            form: Some(Box::new(ReadForm {
                form,
                rest: Some(upload),
            })),
        }
    }

    fn ended(self, held: Held) -> Collected {
        let form = self.scan.and_then(FormScan::end);
        Collected {
            bytes: self.whole.freeze(),
            held,
            form: Some(Box::new(ReadForm { form, rest: None })),
        }
    }
}

/// What was read of a form.
#[derive(Debug)]
pub(super) struct ReadForm {
    /// The fields.
    pub form: Result<Form, FormError>,
    /// The rest of the body, if it is still arriving.
    pub rest: Option<Upload>,
}

impl ReadForm {
    /// The form again, for another route. The body must be complete.
    pub(super) fn again(&self) -> Box<Self> {
        Box::new(Self {
            form: self.form.clone(),
            rest: None,
        })
    }

    /// Puts the rest of the body behind its beginning.
    pub(super) fn complete(self, beginning: RequestBody) -> (RequestBody, Option<Fault>) {
        match self.rest {
            None => (beginning, None),
            Some(upload) => {
                let fault = Arc::clone(&upload.fault);
                (
                    beginning.followed_by(StreamedRest::new(upload)),
                    Some(fault),
                )
            }
        }
    }
}

impl Upload {
    /// Length of the rest in bytes.
    pub(super) fn remaining(&self) -> u64 {
        self.body.size_hint().exact().unwrap_or_default()
    }

    fn broken<T>(&self, why: ApiError) -> Poll<Option<Result<T, BrokenUpload>>> {
        self.fault.lock().get_or_insert(why);
        Poll::Ready(Some(Err(BrokenUpload)))
    }

    /// Judges a chunk before it is sent on.
    fn judge(&mut self, chunk: &[u8]) -> Result<(), FormError> {
        let is_last = self.body.is_end_stream();
        if is_last {
            self.head.body_was_read();
        }
        let Some(scan) = &mut self.scan else {
            return Ok(());
        };
        scan.feed(chunk)?;
        match is_last && !scan.has_ended() {
            true => Err(FormError::Cut),
            false => Ok(()),
        }
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = BrokenUpload;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenUpload>>> {
        let this = &mut *self;
        loop {
            let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(cx) else {
                let timer = this
                    .timer
                    .get_or_insert_with(|| Box::pin(tokio::time::sleep(BODY_IDLE)));
                ready!(timer.as_mut().poll(cx));
                return this.broken(ApiError::body_paused(BODY_IDLE));
            };
            this.timer = None;
            let chunk = match frame {
                None => return Poll::Ready(None),
                Some(Err(_)) => return this.broken(ApiError::body_broke_off()),
                Some(Ok(frame)) => frame.into_data(),
            };
            // Engines do not use request trailers.
            let Ok(chunk) = chunk else { continue };
            return match this.judge(&chunk) {
                Err(why) => this.broken(ApiError::unreadable_form(why)),
                Ok(()) => Poll::Ready(Some(Ok(Frame::data(chunk)))),
            };
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
