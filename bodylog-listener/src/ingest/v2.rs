//! A connection of version 2: three loops on one task. One reads and numbers frames, one answers,
//! and the lane carries frames to the writers. When one loop ends, the others finish their work.

use std::sync::Arc;
use std::time::Duration;

use proto::codec::{Bad, Decoded};
use proto::control::{GoAwayCode, Hello};
use proto::frame::{Data, Frame, Protocol};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::pool::{Broken, Job, Lane};
use super::reader::{End, Reader, Received};
use super::{Ingest, Peer, first};
use crate::budget::Charge;
use crate::metrics::{FrameResult, ShedReason};
use crate::prepare::Sender;
use crate::server::now;
use crate::space::Level;
use crate::stream::{Claim, Claimed, Offer};
use crate::writer::{Mark, Origin};
use service::log::Throttle;

/// Silence after which the listener pings the sender.
const PING: Duration = Duration::from_secs(15);
/// Silence after which the sender counts as gone.
const SILENCE: Duration = Duration::from_secs(45);
/// How long stored frames can still be acknowledged after the sender's last byte or after shutdown
/// begins.
const LAST_ACKS: Duration = Duration::from_secs(10);
/// Bytes that complete a batch for the pool.
const BATCH_BYTES: usize = 512 << 10;
/// Frames that complete a batch for the pool.
const BATCH_FRAMES: usize = 128;
/// Most queued answers other than acknowledgements and refusals.
const ANSWERS: usize = 16;

/// The reason reading ended.
enum Ended {
    By(End),
    With(GoAwayCode, &'static str),
}

/// The state of the reading loop.
struct Reading<'a, R> {
    ingest: &'a Arc<Ingest>,
    reader: &'a mut Reader<R>,
    peer: Peer,
    claim: Arc<Claim>,
    lane: Lane,
    /// Arrival time of the current frames, seconds since the Unix epoch.
    heard: i64,
    /// Bytes of frames not yet counted in the metrics.
    came: u64,
    answers: mpsc::Sender<Frame>,
    displaced: CancellationToken,
    stop: CancellationToken,
}

pub(super) async fn serve<R, W>(
    ingest: &Arc<Ingest>,
    reader: &mut Reader<R>,
    write: &mut W,
    peer: Peer,
    hello: Hello,
    claimed: Claimed,
    stop: &CancellationToken,
) -> End
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    static LINES: Throttle = Throttle::new();
    if let Some(unsaid) = LINES.pass(now()) {
        tracing::info!(source = %peer.source, producer = hello.producer, epoch = hello.epoch, router = hello.router,
            version = hello.version, durable = claimed.durable, unsaid, "a sender is connected");
    }
    let welcome = first::welcome(ingest, &hello, &claimed);
    if let Err(error) = first::send(write, &[Frame::Welcome(welcome)]).await {
        return End::Io(error);
    }
    let run = (hello.producer.as_str().into(), hello.epoch);
    let sender = Sender::new(peer.source, Some(run));
    reader.expects_signs(SILENCE);
    let (answers, waiting) = mpsc::channel(ANSWERS);
    let reading = Reading {
        ingest,
        reader,
        peer,
        claim: Arc::clone(&claimed.claim),
        lane: Lane::new(
            ingest,
            sender,
            peer,
            Origin::V2 {
                claim: Arc::clone(&claimed.claim),
            },
        ),
        heard: 0,
        came: 0,
        answers,
        displaced: claimed.displaced.clone(),
        stop: stop.clone(),
    };
    let mut answering = Answering {
        write,
        claim: Arc::clone(&claimed.claim),
        waiting,
        last_ack: claimed.durable,
    };
    let ended = tokio::select! {
        ended = reading.run() => ended,
        error = answering.run() => Ended::By(End::Io(error)),
    };
    let write_works = !matches!(&ended, Ended::By(End::Io(_)));
    if write_works {
        answering.last_acks().await;
    }
    match ended {
        Ended::By(end) => {
            let reason = match &end {
                End::Fault(fault) => Some((GoAwayCode::Protocol, fault.as_str())),
                End::Stalled => Some((
                    GoAwayCode::Idle,
                    "a frame stopped midway, or comes too slowly",
                )),
                End::Closed | End::Silent | End::Io(_) => None,
            };
            if let Some((code, text)) = reason {
                first::go_away(answering.write, code, text.to_owned()).await;
            }
            end
        }
        Ended::With(code, text) => {
            static LINES: Throttle = Throttle::new();
            if let Some(unsaid) = LINES.pass(now()) {
                tracing::info!(source = %peer.source, producer = hello.producer, reason = text, unsaid, "a sender is sent away");
            }
            first::go_away(answering.write, code, text.to_owned()).await;
            End::Closed
        }
    }
}

impl<R: AsyncRead + Unpin> Reading<'_, R> {
    async fn run(mut self) -> Ended {
        loop {
            // Reading may stop only here: frames already taken are always passed on.
            let next = tokio::select! {
                biased;
                () = self.displaced.cancelled() => return Ended::With(GoAwayCode::Busy, "another connection has come for the run"),
                () = self.stop.cancelled() => return Ended::With(GoAwayCode::Shutdown, "the listener stops"),
                next = self.reader.next() => next,
            };
            let mut received = match next {
                Ok(received) => received,
                Err(End::Silent) => return Ended::With(GoAwayCode::Idle, "nothing came for 45 s"),
                Err(end) => return Ended::By(end),
            };
            let mut jobs = Vec::new();
            let mut bytes = 0;
            self.heard = self.ingest.clock.now().timestamp();
            loop {
                bytes += received.bytes;
                if let Err((code, text)) = self.take(received, &mut jobs).await {
                    let _ = self.hand_on(jobs).await;
                    return Ended::With(code, text);
                }
                if bytes >= BATCH_BYTES || jobs.len() >= BATCH_FRAMES {
                    break;
                }
                match self.reader.buffered() {
                    Ok(Some(more)) => received = more,
                    Ok(None) => break,
                    Err(end) => {
                        let _ = self.hand_on(jobs).await;
                        return Ended::By(end);
                    }
                }
            }
            if self.hand_on(jobs).await.is_err() {
                return Ended::With(GoAwayCode::Shutdown, "records cannot be written any more");
            }
        }
    }

    async fn hand_on(&mut self, jobs: Vec<Job>) -> Result<(), Broken> {
        let came = std::mem::take(&mut self.came);
        self.ingest.metrics.received(Protocol::V2, came);
        if jobs.is_empty() {
            return Ok(());
        }
        self.lane.submit(self.ingest, jobs).await
    }

    /// Handles one frame. An error ends the connection.
    async fn take(
        &mut self,
        received: Received,
        jobs: &mut Vec<Job>,
    ) -> Result<(), (GoAwayCode, &'static str)> {
        match received.decoded {
            Decoded::Frame(Frame::Data(data)) => {
                self.came += received.bytes as u64;
                let charge = received
                    .charge
                    .unwrap_or_else(|| self.ingest.budget.overdraw(received.bytes));
                self.data(data, charge, jobs)
            }
            Decoded::Frame(Frame::Ping) => {
                self.answer(Frame::Pong);
                Ok(())
            }
            Decoded::Frame(Frame::Pong | Frame::Unknown(_)) => Ok(()),
            Decoded::Frame(_) => Err((
                GoAwayCode::Protocol,
                "a frame that only a listener sends, or a second HELLO",
            )),
            Decoded::Bad(bad) => self.bad(bad, received.charge, jobs).await,
        }
    }

    fn data(
        &mut self,
        data: Data,
        mut charge: Charge,
        jobs: &mut Vec<Job>,
    ) -> Result<(), (GoAwayCode, &'static str)> {
        let seq = data.seq;
        let attempt = match self.offer(seq) {
            Offer::Gap if self.declares_lost(&data) => {
                self.ingest.metrics.gaps.inc();
                self.claim.stream().skip_to(seq);
                self.offer(seq)
            }
            offer => offer,
        };
        let attempt = match attempt {
            Offer::Accept { attempt } => attempt,
            Offer::Duplicate => {
                charge.forget();
                self.ingest.metrics.duplicates.inc();
                self.ingest
                    .metrics
                    .frame(Protocol::V2, FrameResult::Duplicate);
                return Ok(());
            }
            Offer::Ignore => {
                charge.forget();
                self.ingest
                    .metrics
                    .frame(Protocol::V2, FrameResult::Refused);
                return Ok(());
            }
            Offer::Gap => {
                charge.forget();
                self.ingest.metrics.gaps.inc();
                return Err((GoAwayCode::Gap, "a sequence was skipped"));
            }
        };
        if self.ingest.pressure.level() == Level::Full {
            charge.forget();
            self.ingest.metrics.shed(ShedReason::DiskFull);
            self.ingest
                .metrics
                .frame(Protocol::V2, FrameResult::Refused);
            let code = proto::control::NackCode::DiskFull;
            self.claim
                .stream()
                .refuse(attempt, code, "the disk is full");
            return Ok(());
        }
        jobs.push(self.job(Some(data), attempt, seq, charge));
        Ok(())
    }

    async fn bad(
        &mut self,
        bad: Bad,
        charge: Option<Charge>,
        jobs: &mut Vec<Job>,
    ) -> Result<(), (GoAwayCode, &'static str)> {
        if !bad.is_data() {
            self.ingest.set_aside(bad, self.peer).await;
            return Err((GoAwayCode::Protocol, "a control frame that cannot be read"));
        }
        let seq = bad.seq;
        let code = bad.fault.nack_code();
        let text = bad.fault.as_str();
        self.ingest.set_aside(bad, self.peer).await;
        let mut charge = charge.unwrap_or_else(|| self.ingest.budget.overdraw(0));
        charge.forget();
        if code.is_transient() {
            self.claim.stream().ask_again(seq, text);
            return Ok(());
        }
        match self.offer(seq) {
            Offer::Accept { attempt } => {
                self.claim.stream().reject(seq, code, text);
                // This frame passes the writers like any other, so that all frames before it are
                // stored when it is acknowledged.
                jobs.push(self.job(None, attempt, seq, charge));
                Ok(())
            }
            Offer::Duplicate | Offer::Ignore => Ok(()),
            Offer::Gap => {
                self.ingest.metrics.gaps.inc();
                Err((GoAwayCode::Gap, "a sequence was skipped"))
            }
        }
    }

    fn offer(&self, seq: u64) -> Offer {
        self.claim.stream().offer(seq, self.heard)
    }

    fn declares_lost(&self, data: &Data) -> bool {
        proto::meta::Meta::from_json(&data.meta)
            .is_ok_and(|meta| meta.lost_before == Some(data.seq))
    }

    fn job(&self, data: Option<Data>, attempt: u64, seq: u64, charge: Charge) -> Job {
        Job {
            data,
            mark: Mark { attempt, seq },
            charge,
        }
    }

    fn answer(&self, frame: Frame) {
        // A sender that pings faster than it reads only loses its own answers.
        let _ = self.answers.try_send(frame);
    }
}

struct Answering<'a, W> {
    write: &'a mut W,
    claim: Arc<Claim>,
    waiting: mpsc::Receiver<Frame>,
    last_ack: u64,
}

impl<W: AsyncWrite + Unpin> Answering<'_, W> {
    /// Returns when writing fails.
    async fn run(&mut self) -> std::io::Error {
        let mut last_sent = Instant::now();
        loop {
            let frames = tokio::select! {
                () = self.claim.stream().changed() => self.replies(),
                Some(frame) = self.waiting.recv() => vec![frame],
                () = tokio::time::sleep_until(last_sent + PING) => vec![Frame::Ping],
            };
            if frames.is_empty() {
                continue;
            }
            if let Err(error) = first::send(self.write, &frames).await {
                return error;
            }
            last_sent = Instant::now();
        }
    }

    fn replies(&mut self) -> Vec<Frame> {
        let (ack, nacks) = self.claim.stream().replies(self.last_ack);
        // Permanent refusals go before the acknowledgement that covers them: after it the sender
        // has already released the frame. Transient refusals go last, so that no acknowledgement
        // tells a sender that must wait to continue.
        let (later, never): (Vec<_>, Vec<_>) =
            nacks.into_iter().partition(|nack| nack.code.is_transient());
        self.last_ack = ack.unwrap_or(self.last_ack);
        let never = never.into_iter().map(Frame::Nack);
        let later = later.into_iter().map(Frame::Nack);
        never.chain(ack.map(Frame::Ack)).chain(later).collect()
    }

    /// Acknowledges frames that are still being stored.
    async fn last_acks(&mut self) {
        let deadline = Instant::now() + LAST_ACKS;
        loop {
            let frames = self.replies();
            if !frames.is_empty() && first::send(self.write, &frames).await.is_err() {
                return;
            }
            if self.claim.stream().is_settled() {
                return;
            }
            let changed = tokio::time::timeout_at(deadline, self.claim.stream().changed());
            if changed.await.is_err() {
                return;
            }
        }
    }
}
