//! The time limit for a client that sends nothing, or stops within a head.
//!
//! hyper limits the time for a head only once it knows the HTTP version, and by the same limit as
//! the idle time between two requests, which has to be longer than that of load balancers.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::time::Sleep;

use super::serve::FIRST_BYTE_TIMEOUT;

/// The preface of an HTTP/2 connection. Anything else is HTTP/1.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The state of a connection's first bytes.
#[derive(Debug, Default)]
pub(super) struct FirstByteTimeout {
    /// Number of preface bytes received so far.
    heard: usize,
    /// The HTTP version is known.
    over: bool,
    timer: Option<Pin<Box<Sleep>>>,
}

impl FirstByteTimeout {
    /// Takes the bytes of a read.
    pub(super) fn hear(&mut self, bytes: &[u8]) {
        if self.over {
            return;
        }
        let rest = &PREFACE[self.heard..];
        let common = bytes.len().min(rest.len());
        self.heard += common;
        self.over = bytes[..common] != rest[..common] || self.heard == PREFACE.len();
        if self.over {
            self.timer = None;
        }
    }

    /// Polled while a read is pending: ready when the protocol, or the rest of a head that has begun,
    /// has taken too long.
    pub(super) fn poll(&mut self, is_in_head: bool, cx: &mut Context<'_>) -> Poll<()> {
        if self.over && !is_in_head {
            self.timer = None;
            return Poll::Pending;
        }
        let timer = self
            .timer
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(FIRST_BYTE_TIMEOUT)));
        timer.as_mut().poll(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;
    use crate::clock::now;

    #[tokio::test(start_paused = true)]
    async fn a_client_has_its_time_until_its_protocol_is_known() {
        let unknown: [&[&[u8]]; 3] = [&[], &[b"P"], &[b"PRI * ", b"HTTP/2.0\r\n\r\nSM\r\n"]];
        for parts in unknown {
            let begun = now();
            let mut first_byte_timeout = FirstByteTimeout::default();
            parts.iter().for_each(|part| first_byte_timeout.hear(part));
            poll_fn(|cx| first_byte_timeout.poll(false, cx)).await;
            assert_eq!(now() - begun, FIRST_BYTE_TIMEOUT);
        }
        let known: [&[&[u8]]; 4] = [&[b"GET"], &[b"P", b"OST"], &[b"\r\n"], &[PREFACE]];
        for parts in known {
            let mut first_byte_timeout = FirstByteTimeout::default();
            parts.iter().for_each(|part| first_byte_timeout.hear(part));
            let waited = tokio::time::timeout(
                2 * FIRST_BYTE_TIMEOUT,
                poll_fn(|cx| first_byte_timeout.poll(false, cx)),
            );
            assert!(waited.await.is_err(), "{parts:?}");
        }
    }
}
