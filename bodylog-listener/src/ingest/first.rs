//! The start of a connection: detects the protocol version and identifies the sender.

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use proto::codec::{Decoded, encode};
use proto::control::{GoAway, GoAwayCode, Hello, Welcome};
use proto::frame::{Compression, Frame, Protocol};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio_util::sync::CancellationToken;

use super::reader::{End, Reader};
use super::{Ingest, Peer, v1, v2};
use crate::server::now;
use crate::stream::{Claimed, WINDOW_BYTES, WINDOW_FRAMES};
use service::log::Throttle;

/// Longest time for a sender of version 2 to send its HELLO, and to wait until its former
/// connection ends.
const HELLO: Duration = Duration::from_secs(5);
/// How long a silent connection is still watched when the listener stops.
const LAST_LOOK: Duration = Duration::from_millis(100);
/// Longest time for one write to a sender.
pub(super) const WRITE: Duration = Duration::from_secs(10);

pub(super) async fn serve<R, W>(
    ingest: Arc<Ingest>,
    mut reader: Reader<R>,
    mut write: W,
    peer: Peer,
    stop: CancellationToken,
) where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let protocol = tokio::select! {
        biased;
        protocol = reader.first_byte() => protocol,
        () = stop.cancelled() => {
            // Version 1 does not resend: bytes already in the socket are lost unless they are read
            // now.
            match tokio::time::timeout(LAST_LOOK, reader.first_byte()).await {
                Ok(protocol) => protocol,
                Err(_) => return,
            }
        }
    };
    let end = match protocol {
        Err(end) => end,
        Ok(Protocol::V1) if !peer.may_speak_v1 => {
            static LINES: Throttle = Throttle::new();
            if let Some(unsaid) = LINES.pass(now()) {
                tracing::warn!(source = %peer.source, unsaid, "a sender of version 1 is not on the list of allowed addresses");
            }
            return;
        }
        Ok(Protocol::V1) => v1::serve(&ingest, &mut reader, peer, &stop).await,
        Ok(Protocol::V2) => {
            let welcomed = tokio::select! {
                welcomed = tokio::time::timeout(HELLO, hello(&ingest, &mut reader)) => welcomed,
                () = stop.cancelled() => Ok(Err(Refused::Told(GoAwayCode::Shutdown, "the listener stops".into()))),
            };
            match welcomed {
                Ok(Ok((hello, claimed))) => {
                    v2::serve(
                        &ingest,
                        &mut reader,
                        &mut write,
                        peer,
                        hello,
                        claimed,
                        &stop,
                    )
                    .await
                }
                Ok(Err(Refused::Ended(end))) => end,
                Ok(Err(Refused::Told(code, text))) => {
                    static LINES: Throttle = Throttle::new();
                    if let Some(unsaid) = LINES.pass(now()) {
                        tracing::info!(source = %peer.source, reason = text, unsaid, "a sender is turned away");
                    }
                    go_away(&mut write, code, text).await;
                    return;
                }
                Err(_) => {
                    go_away(
                        &mut write,
                        GoAwayCode::Busy,
                        "no HELLO, or its run is still being stored".into(),
                    )
                    .await;
                    return;
                }
            }
        }
    };
    ingest.count_end(reader.protocol(), &end, peer);
}

enum Refused {
    Ended(End),
    Told(GoAwayCode, String),
}

/// Reads the HELLO and claims the run.
async fn hello<R: AsyncRead + Unpin>(
    ingest: &Ingest,
    reader: &mut Reader<R>,
) -> Result<(Hello, Claimed), Refused> {
    let refused = |code, text: &str| Err(Refused::Told(code, text.to_owned()));
    let received = reader.next().await.map_err(Refused::Ended)?;
    let Decoded::Frame(Frame::Hello(hello)) = received.decoded else {
        return refused(GoAwayCode::Protocol, "the first frame is no sound HELLO");
    };
    if !hello.proto.contains(&proto::frame::VERSION) {
        return refused(GoAwayCode::Protocol, "no common protocol version");
    }
    if let Some(token) = &ingest.token
        && !token
            .now()
            .matches(hello.token.as_deref().unwrap_or_default())
    {
        return refused(GoAwayCode::Auth, "the token is missing or wrong");
    }
    if !hello.has_valid_producer() {
        return refused(GoAwayCode::Protocol, "the producer's name is not valid");
    }
    let heard = ingest.clock.now().timestamp();
    let stream = ingest.streams.get(&hello.producer, hello.epoch, heard);
    let claimed = stream.claim(hello.next_seq, heard).await;
    if claimed.has_gap {
        ingest.metrics.gaps.inc();
        static LINES: Throttle = Throttle::new();
        if let Some(unsaid) = LINES.pass(now()) {
            tracing::warn!(
                producer = hello.producer,
                epoch = hello.epoch,
                next_seq = hello.next_seq,
                unsaid,
                "a sender goes on behind what is stored"
            );
        }
    }
    Ok((hello, claimed))
}

/// Answers a HELLO.
pub(super) fn welcome(ingest: &Ingest, hello: &Hello, claimed: &Claimed) -> Welcome {
    let codec = hello
        .codecs
        .iter()
        .find_map(|name| Compression::from_name(name))
        .unwrap_or_default();
    Welcome {
        proto: proto::frame::VERSION,
        codec: codec.as_str().to_owned(),
        max_frame: ingest.max_frame,
        window_bytes: WINDOW_BYTES,
        window_frames: WINDOW_FRAMES,
        last_durable_seq: claimed.durable,
        server_epoch: ingest.server_epoch,
    }
}

/// Sends frames, within [`WRITE`].
pub(super) async fn send<W: AsyncWrite + Unpin>(
    write: &mut W,
    frames: &[Frame],
) -> std::io::Result<()> {
    let mut out = BytesMut::new();
    for frame in frames {
        if let Err(error) = encode(frame, Compression::None, &mut out) {
            tracing::error!(%error, "an answer cannot be encoded");
        }
    }
    let written = tokio::time::timeout(WRITE, async {
        write.write_all(&out).await?;
        write.flush().await
    });
    written
        .await
        .unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()))
}

/// Ends a connection with a reason. The sender may not receive it.
pub(super) async fn go_away<W: AsyncWrite + Unpin>(write: &mut W, code: GoAwayCode, text: String) {
    let _ = send(write, &[Frame::GoAway(GoAway { code, text })]).await;
    let _ = write.shutdown().await;
}
