//! A connection of version 1. The listener never answers and never makes the sender wait. Frames
//! that do not fit into memory are written to the spill as they arrive and read back later.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use proto::codec::{Bad, Decoded};
use proto::frame::{Frame, Protocol};
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::pool::{Job, Lane};
use super::reader::{End, NoRoom, Reader, Received};
use super::{Ingest, Peer};
use crate::metrics::{FrameResult, ShedReason};
use crate::prepare::Sender;
use crate::space::Level;
use crate::spill::Filling;
use crate::writer::{Mark, Origin};

/// Bytes moved to the spill in one step.
const PIECE: usize = 64 << 10;
/// Bytes that complete a batch for the pool.
const BATCH_BYTES: usize = 256 << 10;
/// Silence that ends a connection once the listener stops. All bytes that the kernel had received
/// are then stored.
const LAST_SILENCE: Duration = Duration::from_millis(100);
/// Longest time that a stopping listener continues to read.
const LAST_READS: Duration = Duration::from_secs(2);

pub(super) async fn serve<R: AsyncRead + Unpin>(
    ingest: &Arc<Ingest>,
    reader: &mut Reader<R>,
    peer: Peer,
    stop: &CancellationToken,
) -> End {
    let target = FrameTarget {
        lane: lane(ingest, peer, Origin::V1 { held: None }),
        peer,
    };
    let mut filling = None;
    let end = read_all(ingest, reader, &target, &mut filling, stop).await;
    finish(ingest, &mut filling);
    end
}

/// The destination of a connection's frames.
struct FrameTarget {
    lane: Lane,
    peer: Peer,
}

fn lane(ingest: &Arc<Ingest>, peer: Peer, origin: Origin) -> Lane {
    Lane::new(ingest, Sender::new(peer.source, None), peer, origin)
}

/// Reads to the end of the connection; once the listener stops, to a silence or the time limit.
/// Stops only between frames: frames already taken are always passed on.
async fn read_all<R: AsyncRead + Unpin>(
    ingest: &Arc<Ingest>,
    reader: &mut Reader<R>,
    target: &FrameTarget,
    filling: &mut Option<Filling>,
    stop: &CancellationToken,
) -> End {
    let mut last = None;
    loop {
        let next = match last {
            None => tokio::select! {
                next = reader.next_or_no_room() => next,
                () = stop.cancelled() => {
                    last = Some(Instant::now() + LAST_READS);
                    continue;
                }
            },
            Some(last) => {
                let until = last.min(Instant::now() + LAST_SILENCE);
                match tokio::time::timeout_at(until, reader.next_or_no_room()).await {
                    Ok(next) => next,
                    Err(_) => return End::Closed,
                }
            }
        };
        match next {
            Err(end) => return end,
            Ok(Err(no_room)) => {
                if let Err(end) = spill(ingest, reader, target.peer, filling, no_room).await {
                    return end;
                }
            }
            Ok(Ok(received)) => {
                finish(ingest, filling);
                if let Err(end) = take(ingest, reader, target, received).await {
                    return end;
                }
            }
        }
    }
}

/// Takes a frame and the frames that arrived with it.
async fn take<R: AsyncRead + Unpin>(
    ingest: &Arc<Ingest>,
    reader: &mut Reader<R>,
    target: &FrameTarget,
    mut received: Received,
) -> Result<(), End> {
    let mut jobs = Vec::new();
    let mut bytes = 0;
    let mut end = Ok(());
    loop {
        bytes += received.bytes;
        match received.decoded {
            Decoded::Frame(Frame::Data(data)) => jobs.push(Job {
                data: Some(data),
                mark: Mark::default(),
                charge: received
                    .charge
                    .unwrap_or_else(|| ingest.budget.overdraw(received.bytes)),
            }),
            Decoded::Frame(_) => {}
            Decoded::Bad(bad) => set_aside(ingest, bad, received.charge, target.peer).await,
        }
        if bytes >= BATCH_BYTES {
            break;
        }
        match reader.buffered() {
            Ok(Some(more)) => received = more,
            Ok(None) => break,
            Err(error) => {
                end = Err(error);
                break;
            }
        }
    }
    ingest.metrics.received(Protocol::V1, bytes as u64);
    if !jobs.is_empty() && target.lane.submit(ingest, jobs).await.is_err() {
        return Err(End::Closed);
    }
    end
}

async fn set_aside(ingest: &Ingest, bad: Bad, charge: Option<crate::budget::Charge>, peer: Peer) {
    if let Some(mut charge) = charge {
        charge.forget();
    }
    ingest.set_aside(bad, peer).await;
}

/// Moves one frame from the connection to the spill, or discards it if the spill is full too.
async fn spill<R: AsyncRead + Unpin>(
    ingest: &Arc<Ingest>,
    reader: &mut Reader<R>,
    peer: Peer,
    filling: &mut Option<Filling>,
    NoRoom { len }: NoRoom,
) -> Result<(), End> {
    if filling.as_ref().is_some_and(Filling::is_full) {
        finish(ingest, filling);
    }
    let has_room = ingest.pressure.level() < Level::NoBodies && ingest.spill.has_room(len as u64);
    if has_room && filling.is_none() {
        *filling = ingest.spill.begin(peer.source).inspect_err(warn).ok();
    }
    let mut file = if has_room { filling.take() } else { None };
    let good = file.as_ref().map_or(0, Filling::len);
    let mut left = len;
    while left > 0 {
        let piece = match reader.take_raw(left.min(PIECE)).await {
            Ok(piece) => piece,
            Err(end) => {
                put_back(filling, file, Some(good));
                return Err(end);
            }
        };
        left -= piece.len();
        let Some(mut open) = file.take() else {
            continue;
        };
        let written = ingest.tasks.spawn_blocking(move || {
            let written = open.append(&piece);
            (open, written)
        });
        match written.await {
            Ok((open, Ok(()))) => file = Some(open),
            Ok((open, Err(error))) => {
                warn(&error);
                put_back(filling, Some(open), Some(good));
            }
            Err(_) => {}
        }
    }
    if file.is_some() {
        ingest.metrics.spilled.inc();
    } else {
        ingest.metrics.shed(ShedReason::Memory);
        ingest.metrics.frame(Protocol::V1, FrameResult::Lost);
    }
    put_back(filling, file, None);
    Ok(())
}

fn put_back(filling: &mut Option<Filling>, file: Option<Filling>, cut: Option<u64>) {
    let Some(mut file) = file else { return };
    if let Some(len) = cut
        && file.cut(len).is_err()
    {
        // A partial frame at the end of a file is detected and counted when it is read back.
        // Nothing may follow it in the file.
        return;
    }
    *filling = Some(file);
}

fn finish(ingest: &Ingest, filling: &mut Option<Filling>) {
    if let Some(filling) = filling.take() {
        ingest.spill.finish(&filling);
    }
}

fn warn(error: &io::Error) {
    tracing::warn!(%error, "frames of version 1 cannot be spilled and are lost");
}

/// Stores the spilled frames as room becomes free, until shutdown.
pub(crate) async fn drain_spill(ingest: Arc<Ingest>, stop: CancellationToken) {
    while !stop.is_cancelled() {
        let oldest = if ingest.pressure.level() < Level::Full {
            ingest.spill.oldest()
        } else {
            Ok(None)
        };
        let drained = match oldest {
            Ok(Some(path)) => drain(&ingest, &path)
                .await
                .and_then(|()| ingest.spill.remove(&path)),
            Ok(None) => {
                pause(&ingest, &stop).await;
                continue;
            }
            Err(error) => Err(error),
        };
        if let Err(error) = drained {
            tracing::warn!(%error, "spilled frames cannot be read");
            pause(&ingest, &stop).await;
        }
    }
}

async fn pause(ingest: &Ingest, stop: &CancellationToken) {
    tokio::select! {
        () = ingest.spill.finished() => {}
        () = tokio::time::sleep(Duration::from_secs(5)) => {}
        () = stop.cancelled() => {}
    }
}

/// Reads one file back. Returns when all its frames are finished.
async fn drain(ingest: &Arc<Ingest>, path: &Path) -> io::Result<()> {
    let mut file = BufReader::new(tokio::fs::File::open(path).await?);
    let mut head = String::new();
    file.read_line(&mut head).await?;
    let Ok(source) = head.trim_end().parse() else {
        return Ok(());
    };
    let (held, mut let_go) = mpsc::channel(1);
    let peer = Peer {
        source,
        may_speak_v1: true,
    };
    let target = FrameTarget {
        lane: lane(ingest, peer, Origin::V1 { held: Some(held) }),
        peer,
    };
    let mut reader = Reader::new(
        file,
        ingest.budget.clone(),
        Arc::clone(&ingest.buffers),
        ingest.max_frame,
    );
    let end = loop {
        let taken = match reader.next().await {
            Ok(received) => take(ingest, &mut reader, &target, received).await,
            Err(end) => break end,
        };
        if let Err(end) = taken {
            break end;
        }
    };
    ingest.count_end(Some(Protocol::V1), &end, target.peer);
    drop(target);
    // Nothing is ever sent on this channel. It closes when the last frame is finished.
    let _ = let_go.recv().await;
    Ok(())
}
