//! Reading a request body: once, into one piece, bounded by the route and by the process.

use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::poll_immediate;
use http_body_util::BodyExt;
use hyper::body::Body;
use router_bodylog::Capture;

use super::error::ApiError;
use super::upload::{ReadForm, Upload};
use crate::clock::now;
use service::budget::{ByteBudget, Held};

/// A client that sends no body bytes for this long is gone or hostile (nginx's
/// `client_body_timeout`).
pub(super) const BODY_IDLE: Duration = Duration::from_secs(60);

/// How long a body may arrive at any rate.
const GRACE: Duration = Duration::from_secs(20);

/// The lowest average rate of a body after [`GRACE`], bytes a second.
const RATE_MIN: u64 = 1 << 10;

/// Largest buffer reserved because of a `Content-Length` alone. Beyond it the buffer grows with the
/// bytes that arrive.
const TRUSTED_LENGTH_MAX: u64 = 1 << 20;

/// A complete body with its share of the process's memory budget.
#[derive(Debug)]
pub(super) struct Collected {
    /// The bytes as received.
    pub bytes: Bytes,
    /// The budget share. It is released when the bytes are no longer needed.
    pub held: Held,
    /// What was read of a form.
    pub form: Option<Box<ReadForm>>,
}

impl Collected {
    fn plain(bytes: Bytes, held: Held) -> Self {
        Self {
            bytes,
            held,
            form: None,
        }
    }

    /// Bytes that the client has still to send.
    pub(super) fn arriving(&self) -> u64 {
        let rest = self.form.as_ref().and_then(|form| form.rest.as_ref());
        rest.map_or(0, Upload::remaining)
    }

    /// Hands the body to the body log.
    pub(super) fn record(&self, capture: &mut Capture) {
        capture.request(&self.bytes);
        capture.request_goes_on(self.arriving());
    }
}

/// The bounds in force.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Limit of one body in bytes.
    pub body: u64,
    /// Limit of all bodies together in bytes.
    pub buffered: u64,
}

/// The progress of one body against [`RATE_MIN`] and [`BODY_IDLE`].
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// The first time that bytes had to be waited for. Most bodies arrive with their head and need
    /// no clock.
    start: Option<Instant>,
    pub(super) received: u64,
}

impl Pace {
    /// When the next bytes must be there.
    fn due(&mut self, now: Instant) -> Instant {
        let start = *self.start.get_or_insert(now);
        let earned = Duration::from_millis(self.received.saturating_mul(1000) / RATE_MIN);
        (now + BODY_IDLE).min(start + earned.max(GRACE))
    }

    fn too_late(&self, now: Instant) -> ApiError {
        let took = now.duration_since(self.start.unwrap_or(now));
        ApiError::body_timeout(format!(
            "the request body arrives too slowly: {} bytes in {} s; a body needs {RATE_MIN} bytes \
             a second on average after {} s, and no pause of {} s",
            self.received,
            took.as_secs(),
            GRACE.as_secs(),
            BODY_IDLE.as_secs(),
        ))
    }
}

/// Reads a body to its end. The budget is charged for bytes that have arrived, never for announced
/// ones. Cancel safe: dropping the future gives the budget back.
///
/// # Errors
/// 413 and 503 `overloaded` (decided before reading when the length is declared), 408, or 400 when
/// the client's framing breaks.
pub(super) async fn collect<B: Body<Data = Bytes> + Unpin>(
    mut body: B,
    limits: Limits,
    budget: &ByteBudget,
) -> Result<Collected, ApiError> {
    let declared = body.size_hint().exact();
    let mut held = budget.hold();
    if body.is_end_stream() {
        return Ok(Collected::plain(Bytes::new(), held));
    }
    if let Some(length) = declared {
        if length > limits.body {
            return Err(ApiError::body_too_large(limits.body));
        }
        if !budget.has_room(length, limits.buffered) {
            return Err(ApiError::overloaded(limits.buffered));
        }
    }
    let mut pace = Pace::default();
    let Some(first) = next(&mut body, &mut pace).await? else {
        return Ok(Collected::plain(Bytes::new(), held));
    };
    charge(&mut held, &first, pace.received, limits)?;
    // A body that came in one piece is forwarded without a copy.
    if body.is_end_stream() {
        return Ok(Collected::plain(first, held));
    }
    let reserve = declared
        .unwrap_or(0)
        .min(TRUSTED_LENGTH_MAX)
        .max(first.len() as u64);
    let mut whole = budget
        .buffers()
        .take(usize::try_from(reserve).unwrap_or(first.len()));
    whole.extend_from_slice(&first);
    drop(first);
    while let Some(chunk) = next(&mut body, &mut pace).await? {
        charge(&mut held, &chunk, pace.received, limits)?;
        whole.extend_from_slice(&chunk);
    }
    Ok(Collected::plain(whole.freeze(), held))
}

pub(super) async fn next<B: Body<Data = Bytes> + Unpin>(
    body: &mut B,
    pace: &mut Pace,
) -> Result<Option<Bytes>, ApiError> {
    loop {
        // Most bodies arrive with their head, and need no timer.
        let frame = match poll_immediate(body.frame()).await {
            Some(frame) => frame,
            None => match tokio::time::timeout_at(pace.due(now()).into(), body.frame()).await {
                Err(_) => return Err(pace.too_late(now())),
                Ok(frame) => frame,
            },
        };
        let frame = match frame {
            None => return Ok(None),
            Some(Err(_)) => {
                return Err(ApiError::body_broke_off());
            }
            Some(Ok(frame)) => frame,
        };
        // Engines do not use request trailers.
        if let Ok(data) = frame.into_data() {
            pace.received += data.len() as u64;
            return Ok(Some(data));
        }
    }
}

/// Charges the newest chunk. `received` includes it.
pub(super) fn charge(
    held: &mut Held,
    chunk: &Bytes,
    received: u64,
    limits: Limits,
) -> Result<(), ApiError> {
    if received > limits.body {
        return Err(ApiError::body_too_large(limits.body));
    }
    if !held.take(chunk.len() as u64, limits.buffered) {
        return Err(ApiError::overloaded(limits.buffered));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
