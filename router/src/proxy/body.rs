//! Reading a request body: once, into one piece, bounded by the route and by the process.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::poll_immediate;
use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};

use super::error::ApiError;
use service::budget::{ByteBudget, Held};

/// A client that sends no body bytes for this long is gone or hostile (nginx's
/// `client_body_timeout`).
const BODY_IDLE: Duration = Duration::from_secs(60);

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
}

/// The bounds in force.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Limit of one body in bytes.
    pub body: u64,
    /// Limit of all bodies together in bytes.
    pub buffered: u64,
}

/// Reads a body to its end. Cancel safe: dropping the future gives the budget back.
///
/// # Errors
/// 413 (decided before reading when the length is declared), 503 `overloaded`, 408, or 400 when
/// the client's framing breaks.
pub(super) async fn collect(
    mut body: Incoming,
    limits: Limits,
    budget: &ByteBudget,
) -> Result<Collected, ApiError> {
    let declared = body.size_hint().exact();
    let mut held = budget.hold();
    if body.is_end_stream() {
        return Ok(Collected {
            bytes: Bytes::new(),
            held,
        });
    }
    if let Some(length) = declared {
        if length > limits.body {
            return Err(ApiError::body_too_large(limits.body));
        }
        if !held.take(length, limits.buffered) {
            return Err(ApiError::overloaded(limits.buffered));
        }
    }
    let Some(first) = next(&mut body).await? else {
        return Ok(Collected {
            bytes: Bytes::new(),
            held,
        });
    };
    charge(&mut held, &first, 0, declared, limits)?;
    // A body that came in one piece is forwarded without a copy.
    if body.is_end_stream() {
        return Ok(Collected { bytes: first, held });
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
    while let Some(chunk) = next(&mut body).await? {
        charge(&mut held, &chunk, whole.len() as u64, declared, limits)?;
        whole.extend_from_slice(&chunk);
    }
    Ok(Collected {
        bytes: whole.freeze(),
        held,
    })
}

async fn next(body: &mut Incoming) -> Result<Option<Bytes>, ApiError> {
    loop {
        // Most bodies arrive with their head, and need no timer.
        let frame = match poll_immediate(body.frame()).await {
            Some(frame) => frame,
            None => match tokio::time::timeout(BODY_IDLE, body.frame()).await {
                Err(_) => return Err(ApiError::body_timeout()),
                Ok(frame) => frame,
            },
        };
        let frame = match frame {
            None => return Ok(None),
            Some(Err(_)) => {
                return Err(ApiError::bad_request(
                    "bad_body",
                    "the request body broke off",
                ));
            }
            Some(Ok(frame)) => frame,
        };
        // Engines do not use request trailers.
        if let Ok(data) = frame.into_data() {
            return Ok(Some(data));
        }
    }
}

fn charge(
    held: &mut Held,
    chunk: &Bytes,
    have: u64,
    declared: Option<u64>,
    limits: Limits,
) -> Result<(), ApiError> {
    let len = chunk.len() as u64;
    if have + len > limits.body {
        return Err(ApiError::body_too_large(limits.body));
    }
    if declared.is_none() && !held.take(len, limits.buffered) {
        return Err(ApiError::overloaded(limits.buffered));
    }
    Ok(())
}
