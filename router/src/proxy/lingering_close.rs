//! The end of a connection whose client is still sending.
//!
//! Closing a socket with unread bytes resets the connection, and the reset can reach the client
//! before the client reads the answer. A refused upload would then look like a broken pipe. So the
//! router closes the write side first and discards further input until the client is done or the
//! time is up.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::Sleep;

use crate::clock::now;

/// A client that is silent for this long has seen the answer, or never will.
const IDLE: Duration = Duration::from_secs(2);

/// Maximum total wait (nginx's `lingering_time`).
const WHOLE: Duration = Duration::from_secs(30);

/// Bytes discarded per read.
const GULP: usize = 8 << 10;

/// The state of a lingering close.
#[derive(Debug, Default)]
pub(super) struct LingeringClose(Option<Wait>);

#[derive(Debug)]
struct Wait {
    end: Instant,
    timer: Pin<Box<Sleep>>,
}

impl LingeringClose {
    /// Set by the first poll.
    pub(super) fn is_under_way(&self) -> bool {
        self.0.is_some()
    }

    /// Ready when the connection may be closed.
    pub(super) fn poll<S>(&mut self, stream: &mut S, cx: &mut Context<'_>) -> Poll<()>
    where
        S: AsyncRead + Unpin,
    {
        let wait = self.0.get_or_insert_with(|| Wait {
            end: now() + WHOLE,
            timer: Box::pin(tokio::time::sleep(IDLE)),
        });
        let mut gulp = [0; GULP];
        loop {
            let mut into = ReadBuf::new(&mut gulp);
            match Pin::new(&mut *stream).poll_read(cx, &mut into) {
                Poll::Ready(Ok(())) if !into.filled().is_empty() => {
                    let next = (now() + IDLE).min(wait.end);
                    wait.timer.as_mut().reset(next.into());
                }
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => return wait.timer.as_mut().poll(cx),
            }
            // A client that sends faster than this loop reads must not keep it busy for ever.
            if now() >= wait.end {
                return Poll::Ready(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::{AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_a_client_still_sends_is_read_until_it_is_done() {
        let (mut client, mut server) = duplex(16);
        let begun = now();
        let sender = async {
            client.write_all(&[b'x'; 100_000]).await.unwrap();
            drop(client);
        };
        let mut lingering_close = LingeringClose::default();
        tokio::join!(sender, poll_fn(|cx| lingering_close.poll(&mut server, cx)));
        assert!(now() - begun < IDLE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_client_and_an_endless_one_are_left() {
        let (client, mut server) = duplex(16);
        let begun = now();
        let mut lingering_close = LingeringClose::default();
        poll_fn(|cx| lingering_close.poll(&mut server, cx)).await;
        assert_eq!(now() - begun, IDLE);
        drop(client);

        let (mut client, mut server) = duplex(16);
        let begun = now();
        let mut lingering_close = LingeringClose::default();
        let endless = async {
            while client.write_all(b"x").await.is_ok() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        };
        tokio::select! {
            () = endless => {}
            () = poll_fn(|cx| lingering_close.poll(&mut server, cx)) => {}
        }
        assert_eq!(now() - begun, WHOLE);
    }
}
