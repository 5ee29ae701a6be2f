//! The state of each sender's run: which sequences are on disk, in which file, and which are on
//! their way.
//!
//! Producer and epoch identify a run. Its frames are stored in order, in two files (see
//! [`Output`]), and only one connection at a time may deliver them. The two files can differ: after
//! a crash, one may hold a record that the other lacks. So each has its own position, and the lower
//! one is acknowledged.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use parking_lot::Mutex;
use proto::control::{Nack, NackCode};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

/// Unacknowledged bytes a sender may have.
pub(crate) const WINDOW_BYTES: u64 = 8 << 20;
/// Unacknowledged frames a sender may have.
pub(crate) const WINDOW_FRAMES: u32 = 1024;

/// The two files a record goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Output {
    /// Full records.
    Records,
    /// Slim rows.
    Details,
}

impl Output {
    /// Both.
    pub(crate) const ALL: [Self; 2] = [Self::Records, Self::Details];

    /// The label value and file name.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Records => "records",
            Self::Details => "details",
        }
    }

    fn index(self) -> usize {
        match self {
            Self::Records => 0,
            Self::Details => 1,
        }
    }
}

/// Identifies a run of a sender.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct StreamId {
    /// The sender.
    pub(crate) producer: Arc<str>,
    /// Its run.
    pub(crate) epoch: u64,
}

/// The decision about a frame of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offer {
    /// The frame is the next one: store it, under this attempt.
    Accept {
        /// See [`Standing::attempt`].
        attempt: u64,
    },
    /// The frame was already accepted.
    Duplicate,
    /// The frame follows a refused one, which must be sent again first.
    Ignore,
    /// A frame before this one is missing.
    Gap,
}

/// The position of a run in one output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    /// The current attempt. Frames accepted under another attempt must not be stored any more.
    pub(crate) attempt: u64,
    /// Highest sequence on disk.
    pub(crate) stored: u64,
}

/// One run of one sender.
#[derive(Debug)]
pub(crate) struct Stream {
    id: StreamId,
    state: Mutex<State>,
    changed: Notify,
    /// One permit. It is held by the connection that delivers the run and by each of its frames
    /// until the frame is finished.
    owner: Arc<Semaphore>,
}

#[derive(Debug, Default)]
struct State {
    /// Highest sequence on disk, per output.
    stored: [u64; 2],
    /// Highest sequence passed on for storing.
    accepted: u64,
    /// Incremented whenever the frames on their way must not be stored any more.
    attempt: u64,
    /// Whether frames after `accepted + 1` are skipped silently.
    rewinding: bool,
    /// Refusals to send, besides acknowledgements.
    nacks: Vec<Nack>,
    /// Highest sequence whose acknowledgement must be sent again.
    owed: u64,
    /// Tells the connection that another one claims the same run.
    displace: CancellationToken,
    /// Last contact, seconds since the Unix epoch.
    heard: i64,
}

impl State {
    fn durable(&self) -> u64 {
        self.stored[0].min(self.stored[1])
    }

    fn restart(&mut self) {
        self.attempt += 1;
        self.accepted = self.durable();
        self.rewinding = true;
    }
}

/// The right to deliver the frames of a run. It ends when the connection and all its frames are
/// gone.
#[derive(Debug)]
pub(crate) struct Claim {
    stream: Arc<Stream>,
    _permit: OwnedSemaphorePermit,
}

impl Claim {
    /// The run.
    pub(crate) fn stream(&self) -> &Stream {
        &self.stream
    }
}

/// A claim, with the data that its connection needs.
#[derive(Debug)]
pub(crate) struct Claimed {
    /// The claim.
    pub(crate) claim: Arc<Claim>,
    /// Cancelled when another connection claims the same run.
    pub(crate) displaced: CancellationToken,
    /// The sender continues after this sequence.
    pub(crate) durable: u64,
    /// Whether the sender has given up sequences that never arrived.
    pub(crate) has_gap: bool,
}

impl Stream {
    fn new(id: StreamId) -> Self {
        Self {
            id,
            state: Mutex::default(),
            changed: Notify::new(),
            owner: Arc::new(Semaphore::new(1)),
        }
    }

    /// The id of the run.
    pub(crate) fn id(&self) -> &StreamId {
        &self.id
    }

    /// Claims the run. Waits until all frames of the current owner are finished. `next_seq` is the
    /// sender's lowest sequence.
    ///
    /// Cancel safe, but the former owner is displaced in any case.
    pub(crate) async fn claim(self: Arc<Self>, next_seq: u64, heard: i64) -> Claimed {
        self.state.lock().displace.cancel();
        let permit = Arc::clone(&self.owner)
            .acquire_owned()
            .await
            .expect("the semaphore is never closed");
        let displaced = CancellationToken::new();
        let mut state = self.state.lock();
        let baseline = next_seq.saturating_sub(1);
        let has_gap = state.durable() > 0 && baseline > state.durable();
        for stored in &mut state.stored {
            *stored = baseline.max(*stored);
        }
        state.accepted = state.durable();
        state.rewinding = false;
        // A permanent refusal that was not sent is still due. Transient refusals are dropped,
        // because the sender sends those frames again anyway.
        state.nacks.retain(|nack| !nack.code.is_transient());
        if !state.nacks.is_empty() {
            self.changed.notify_one();
        }
        state.owed = 0;
        state.displace = displaced.clone();
        state.heard = heard;
        let durable = state.durable();
        drop(state);
        Claimed {
            claim: Arc::new(Claim {
                stream: self,
                _permit: permit,
            }),
            displaced,
            durable,
            has_gap,
        }
    }

    /// Decides whether the frame with this sequence is stored now.
    pub(crate) fn offer(&self, seq: u64, heard: i64) -> Offer {
        let mut state = self.state.lock();
        state.heard = heard;
        if seq <= state.accepted {
            state.owed = state.owed.max(seq);
            self.changed.notify_one();
            Offer::Duplicate
        } else if seq == state.accepted + 1 {
            state.accepted = seq;
            state.rewinding = false;
            Offer::Accept {
                attempt: state.attempt,
            }
        } else if state.rewinding {
            Offer::Ignore
        } else {
            Offer::Gap
        }
    }

    /// The sender declares the missing frames before `seq` lost: `seq` is the next one.
    pub(crate) fn skip_to(&self, seq: u64) {
        let mut state = self.state.lock();
        state.accepted = state.accepted.max(seq.saturating_sub(1));
    }

    /// Requests `seq` again because it arrived broken.
    pub(crate) fn ask_again(&self, seq: u64, text: &str) {
        let mut state = self.state.lock();
        if seq != state.accepted + 1 {
            return;
        }
        state.rewinding = true;
        state.nacks.push(Nack {
            seq,
            code: NackCode::Crc,
            text: text.to_owned(),
        });
        self.changed.notify_one();
    }

    /// Tells the sender that `seq` will never be stored.
    pub(crate) fn reject(&self, seq: u64, code: NackCode, text: &str) {
        self.state.lock().nacks.push(Nack {
            seq,
            code,
            text: text.to_owned(),
        });
        self.changed.notify_one();
    }

    /// The frames of `attempt` could not be stored: everything that is not on disk must be sent
    /// again.
    pub(crate) fn refuse(&self, attempt: u64, code: NackCode, text: &str) {
        let mut state = self.state.lock();
        if attempt != state.attempt {
            return;
        }
        state.restart();
        let seq = state.accepted + 1;
        state.nacks.push(Nack {
            seq,
            code,
            text: text.to_owned(),
        });
        self.changed.notify_one();
    }

    /// The values that decide whether a frame is still stored in this output.
    pub(crate) fn standing(&self, output: Output) -> Standing {
        let state = self.state.lock();
        Standing {
            attempt: state.attempt,
            stored: state.stored[output.index()],
        }
    }

    /// Highest sequence on disk in this output.
    pub(crate) fn stored(&self, output: Output) -> u64 {
        self.state.lock().stored[output.index()]
    }

    /// Records that everything up to `seq` is on disk in this output.
    pub(crate) fn raise(&self, output: Output, seq: u64) {
        let mut state = self.state.lock();
        let stored = &mut state.stored[output.index()];
        *stored = seq.max(*stored);
        self.changed.notify_one();
    }

    /// Whether all accepted frames are on disk.
    pub(crate) fn is_settled(&self) -> bool {
        let state = self.state.lock();
        state.accepted <= state.durable()
    }

    /// The answers to send, given the last acknowledgement sent: refusals, and an acknowledgement
    /// if it has advanced or must be sent again.
    pub(crate) fn replies(&self, last_ack: u64) -> (Option<u64>, Vec<Nack>) {
        let mut state = self.state.lock();
        let nacks = std::mem::take(&mut state.nacks);
        let durable = state.durable();
        let owed = state.owed > 0 && durable >= state.owed;
        if owed {
            state.owed = 0;
        }
        ((durable > last_ack || owed).then_some(durable), nacks)
    }

    /// Waits until [`Stream::replies`] may have something new. Supports one waiter.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Last contact, seconds since the Unix epoch.
    pub(crate) fn heard(&self) -> i64 {
        self.state.lock().heard
    }
}

/// Runs that are silent for longer than this are forgotten.
pub(crate) const IDLE_SECONDS: i64 = 7 * 24 * 3600;
/// Most runs remembered. Above this, the run that is silent for longest is forgotten.
pub(crate) const MAX_STREAMS: usize = 10_000;

/// All runs.
#[derive(Debug, Default)]
pub(crate) struct Streams(Mutex<HashMap<StreamId, Arc<Stream>>>);

impl Streams {
    /// The run with this id. Created if it is unknown.
    pub(crate) fn get(&self, producer: &str, epoch: u64, heard: i64) -> Arc<Stream> {
        let id = StreamId {
            producer: producer.into(),
            epoch,
        };
        let mut streams = self.0.lock();
        if streams.len() >= MAX_STREAMS && !streams.contains_key(&id) {
            forget_one(&mut streams);
        }
        match streams.entry(id) {
            Entry::Occupied(entry) => Arc::clone(entry.get()),
            Entry::Vacant(entry) => {
                let stream = Arc::new(Stream::new(entry.key().clone()));
                stream.state.lock().heard = heard;
                Arc::clone(entry.insert(stream))
            }
        }
    }

    /// Forgets the runs that are silent for too long.
    pub(crate) fn expire(&self, now: i64) {
        self.0.lock().retain(|_, stream| {
            Arc::strong_count(stream) > 1 || now - stream.heard() < IDLE_SECONDS
        });
    }

    /// All runs with their ids.
    pub(crate) fn all(&self) -> Vec<Arc<Stream>> {
        let mut all: Vec<_> = self.0.lock().values().cloned().collect();
        all.sort_by(|a, b| a.id.cmp(&b.id));
        all
    }
}

fn forget_one(streams: &mut HashMap<StreamId, Arc<Stream>>) {
    let oldest = streams
        .values()
        .filter(|stream| Arc::strong_count(stream) == 1)
        .min_by_key(|stream| (stream.heard(), stream.id.clone()))
        .map(|stream| stream.id.clone());
    if let Some(id) = oldest {
        streams.remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream() -> Arc<Stream> {
        Streams::default().get("p", 1, 0)
    }

    fn store(stream: &Stream, seq: u64) {
        for output in Output::ALL {
            stream.raise(output, seq);
        }
    }

    fn accept(stream: &Stream, seq: u64) -> u64 {
        match stream.offer(seq, 0) {
            Offer::Accept { attempt } => attempt,
            other => panic!("{seq}: {other:?}"),
        }
    }

    #[tokio::test]
    async fn only_what_is_in_both_files_is_acknowledged() {
        let stream = stream();
        accept(&stream, 1);
        accept(&stream, 2);
        stream.raise(Output::Details, 2);
        assert_eq!(stream.replies(0).0, None);
        stream.raise(Output::Records, 1);
        assert_eq!(stream.replies(0).0, Some(1));
        assert_eq!(stream.replies(1).0, None);
        assert!(!stream.is_settled());
        stream.raise(Output::Records, 2);
        assert!(stream.is_settled());
    }

    #[tokio::test]
    async fn a_frame_that_comes_twice_is_acknowledged_twice() {
        let stream = stream();
        accept(&stream, 1);
        store(&stream, 1);
        assert_eq!(stream.replies(0).0, Some(1));
        assert_eq!(stream.offer(1, 0), Offer::Duplicate);
        assert_eq!(stream.replies(1).0, Some(1));
        assert_eq!(stream.replies(1).0, None);
    }

    #[tokio::test]
    async fn a_skipped_sequence_is_a_gap_unless_it_is_declared_lost() {
        let stream = stream();
        accept(&stream, 1);
        assert_eq!(stream.offer(5, 0), Offer::Gap);
        stream.skip_to(5);
        accept(&stream, 5);
    }

    #[tokio::test]
    async fn what_follows_a_refused_frame_is_ignored_until_it_comes_again() {
        let stream = stream();
        let attempt = accept(&stream, 1);
        accept(&stream, 2);
        accept(&stream, 3);
        stream.raise(Output::Details, 3);
        stream.raise(Output::Records, 1);
        stream.refuse(attempt, NackCode::DiskFull, "full");
        assert_ne!(stream.standing(Output::Records).attempt, attempt);
        let (_, nacks) = stream.replies(1);
        assert_eq!((nacks.len(), nacks[0].seq), (1, 2));
        // The other file fails for the same frames: one refusal is enough.
        stream.refuse(attempt, NackCode::DiskFull, "full");
        assert!(stream.replies(1).1.is_empty());
        assert_eq!(stream.offer(4, 0), Offer::Ignore);
        accept(&stream, 2);
        assert_eq!(stream.offer(4, 0), Offer::Gap);
    }

    #[tokio::test]
    async fn a_broken_frame_is_asked_for_once() {
        let stream = stream();
        accept(&stream, 1);
        stream.ask_again(2, "crc");
        stream.ask_again(1, "an old one");
        assert_eq!(stream.replies(0).1.len(), 1);
        assert_eq!(stream.offer(3, 0), Offer::Ignore);
        accept(&stream, 2);
    }

    #[tokio::test]
    async fn a_second_connection_takes_over_once_the_first_ones_frames_are_dealt_with() {
        let streams = Streams::default();
        let first = streams.get("p", 1, 0).claim(1, 0).await;
        let in_flight = Arc::clone(&first.claim);
        accept(first.claim.stream(), 1);
        let mut second = Box::pin(streams.get("p", 1, 0).claim(1, 0));
        assert!(futures_util::poll!(&mut second).is_pending());
        assert!(first.displaced.is_cancelled());
        drop(first);
        assert!(futures_util::poll!(&mut second).is_pending());
        store(in_flight.stream(), 1);
        drop(in_flight);
        let second = second.await;
        assert_eq!((second.durable, second.has_gap), (1, false));
    }

    #[tokio::test]
    async fn a_refusal_for_good_that_was_not_heard_is_told_to_the_next_connection() {
        let stream = stream();
        let first = Arc::clone(&stream).claim(1, 0).await;
        accept(&stream, 1);
        stream.reject(1, NackCode::Schema, "later");
        stream.ask_again(2, "crc");
        store(&stream, 1);
        drop(first);
        let second = stream.claim(1, 0).await;
        assert_eq!(second.durable, 1);
        second.claim.stream().changed().await;
        let (ack, nacks) = second.claim.stream().replies(1);
        assert_eq!((ack, nacks.len()), (None, 1));
        assert_eq!((nacks[0].seq, nacks[0].code), (1, NackCode::Schema));
    }

    #[tokio::test]
    async fn the_sender_may_begin_behind_what_is_known() {
        let stream = stream();
        let claimed = Arc::clone(&stream).claim(8, 0).await;
        assert_eq!((claimed.durable, claimed.has_gap), (7, false));
        drop(claimed);
        let claimed = Arc::clone(&stream).claim(10, 0).await;
        assert_eq!((claimed.durable, claimed.has_gap), (9, true));
        accept(&stream, 10);
    }

    #[test]
    fn silent_runs_are_forgotten_and_their_number_is_bounded() {
        let streams = Streams::default();
        for n in 0..MAX_STREAMS as u64 {
            streams.get("p", n, n as i64);
        }
        streams.get("q", 0, 0);
        let all = streams.all();
        assert_eq!(all.len(), MAX_STREAMS);
        assert!(
            all.iter()
                .all(|stream| stream.id.epoch != 0 || &*stream.id.producer == "q")
        );
        drop(all);
        streams.expire(IDLE_SECONDS + 50);
        assert_eq!(streams.all().len(), MAX_STREAMS - 51);
    }
}
