//! The sender against a receiver that keeps the protocol's promises and breaks its connections.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use http::HeaderMap;
use proto::codec::{self, Codec, Decoded};
use proto::control::{GoAway, GoAwayCode, Hello, Nack, NackCode, Welcome};
use proto::frame::{Compression, Frame, MAX_PAYLOAD};
use proto::meta::Meta;
use tokio::io::AsyncWriteExt;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::codec::FramedRead;

use super::*;
use crate::capture::Capture;
use crate::counters::Reason;
use crate::exchange::RecordedRoute;
use crate::pipe::Pipe;
use crate::sampling::Sampler;
use crate::spool::Progress;
use crate::testing::{ALL, Ending, begun, route};

/// How long any wait may take; nothing waits for it unless something is broken.
const PATIENCE: Duration = Duration::from_secs(30);

async fn until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A receiver: stores in order, acknowledges, never stores twice.
struct Receiver {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    connections: JoinSet<()>,
}

#[derive(Default)]
struct State {
    last: BTreeMap<(String, u64), u64>,
    stored: Vec<(u64, u64, String)>,
    hellos: Vec<Hello>,
    /// What to do instead of storing a sequence, each once.
    instead: VecDeque<(u64, Trick)>,
}

#[derive(Clone, Copy)]
enum Trick {
    /// Cut the connection.
    Cut,
    /// Store, and cut the connection before the acknowledgement.
    StoreAndCut,
    Nack(NackCode),
    GoAway(GoAwayCode),
}

impl Receiver {
    async fn start() -> Self {
        Self::at("127.0.0.1:0".parse().unwrap(), Arc::default()).await
    }

    async fn at(address: SocketAddr, state: Arc<Mutex<State>>) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut connections = JoinSet::new();
        let shared = Arc::clone(&state);
        connections.spawn(async move {
            let mut open = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let state = Arc::clone(&shared);
                open.spawn(async move { serve(stream, &state).await.unwrap_or_default() });
            }
        });
        Self {
            address,
            state,
            connections,
        }
    }

    /// Ends, as by SIGKILL, and keeps what was stored.
    async fn kill(mut self) -> (SocketAddr, Arc<Mutex<State>>) {
        self.connections.shutdown().await;
        (self.address, self.state)
    }

    fn trick(&self, seq: u64, trick: Trick) {
        self.state.lock().instead.push_back((seq, trick));
    }

    fn stored(&self) -> Vec<(u64, u64)> {
        let state = self.state.lock();
        state
            .stored
            .iter()
            .map(|(epoch, seq, _)| (*epoch, *seq))
            .collect()
    }

    async fn has(&self, count: usize) {
        until(&format!("{count} records"), || {
            self.state.lock().stored.len() >= count
        })
        .await;
    }
}

/// Serves one connection; `None` at its end.
async fn serve(stream: TcpStream, state: &Mutex<State>) -> Option<()> {
    let (read, mut write) = stream.into_split();
    let mut read = FramedRead::new(read, Codec::default());
    let Decoded::Frame(Frame::Hello(hello)) = read.next().await?.ok()? else {
        return None;
    };
    let name = (hello.producer.clone(), hello.epoch);
    let last = {
        let mut state = state.lock();
        let last = state.last.get(&name).copied().unwrap_or(0);
        state
            .last
            .insert(name.clone(), last.max(hello.next_seq - 1));
        state.hellos.push(hello.clone());
        last.max(hello.next_seq - 1)
    };
    let welcome = Welcome {
        proto: 2,
        codec: Compression::Gzip.as_str().into(),
        max_frame: MAX_PAYLOAD,
        window_bytes: 1 << 20,
        window_frames: 64,
        last_durable_seq: last,
        server_epoch: 1,
    };
    send(&mut write, &Frame::Welcome(welcome)).await?;
    let mut ignoring = None;
    loop {
        let Decoded::Frame(frame) = read.next().await?.ok()? else {
            return None;
        };
        let data = match frame {
            Frame::Ping => {
                send(&mut write, &Frame::Pong).await?;
                continue;
            }
            Frame::Data(data) => data,
            _ => return None,
        };
        if ignoring.is_some_and(|seq| seq != data.seq) {
            continue;
        }
        ignoring = None;
        let trick = {
            let mut state = state.lock();
            let at = state.instead.iter().position(|(seq, _)| *seq == data.seq);
            at.and_then(|at| state.instead.remove(at))
                .map(|(_, trick)| trick)
        };
        match trick {
            Some(Trick::Cut) => return None,
            Some(Trick::GoAway(code)) => {
                let text = "test".to_owned();
                send(&mut write, &Frame::GoAway(GoAway { code, text })).await?;
                return None;
            }
            Some(Trick::Nack(code)) => {
                let (seq, text) = (data.seq, "test".to_owned());
                send(&mut write, &Frame::Nack(Nack { seq, code, text })).await?;
                if code.is_transient() {
                    ignoring = Some(data.seq);
                } else {
                    state.lock().last.insert(name.clone(), data.seq);
                    send(&mut write, &Frame::Ack(data.seq)).await?;
                }
                continue;
            }
            Some(Trick::StoreAndCut) | None => {}
        }
        let known = state.lock().last[&name];
        if data.seq > known + 1 {
            let (code, text) = (GoAwayCode::Gap, "test".to_owned());
            send(&mut write, &Frame::GoAway(GoAway { code, text })).await?;
            return None;
        }
        if data.seq == known + 1 {
            let rid = Meta::from_json(&data.meta).unwrap().request_id.unwrap();
            let mut state = state.lock();
            state.last.insert(name.clone(), data.seq);
            state.stored.push((name.1, data.seq, rid));
        }
        if matches!(trick, Some(Trick::StoreAndCut)) {
            return None;
        }
        let known = state.lock().last[&name];
        send(&mut write, &Frame::Ack(known)).await?;
    }
}

async fn send(write: &mut OwnedWriteHalf, frame: &Frame) -> Option<()> {
    let mut bytes = BytesMut::new();
    codec::encode(frame, Compression::None, &mut bytes).unwrap();
    write.write_all(&bytes).await.ok()
}

/// A sender under test, with a route whose exchanges it is given.
struct Bench {
    sender: Sender,
    pipe: Arc<Pipe>,
    route: Arc<RecordedRoute>,
    target: watch::Sender<Option<Target>>,
    sent: std::cell::Cell<usize>,
}

impl Bench {
    fn start(address: SocketAddr, spool: Option<(&Path, u64)>) -> Self {
        Self::with(address, spool, 64 << 20)
    }

    fn with(address: SocketAddr, spool: Option<(&Path, u64)>, memory: u64) -> Self {
        let (spool, identity, left) = match spool {
            Some((dir, max)) => {
                let opened = Spool::open(dir, max).unwrap();
                let left = Earlier::of(&opened);
                (Some(opened.spool), opened.identity, left)
            }
            None => (None, Identity::fresh(), Vec::new()),
        };
        let counters = Arc::default();
        let budget = MemoryBudget::new(memory);
        let shared = Shared::new(counters, budget, spool, identity, Buffers::default());
        let target = watch::Sender::new(Some(Target {
            address: address.to_string().into(),
            token_file: None,
            tls: None,
        }));
        let sender = Sender::start(shared, left, &target.subscribe());
        let pipe = Arc::new(Pipe {
            records: sender.records.clone(),
            shared: Arc::clone(&sender.shared),
            sampler: Sampler::new(1),
        });
        Self {
            sender,
            pipe,
            route: route(&[]),
            target,
            sent: std::cell::Cell::new(0),
        }
    }

    /// Records `count` exchanges whose request bodies have `len` bytes.
    fn record(&self, count: usize, len: usize) {
        for _ in 0..count {
            let headers = HeaderMap::new();
            let Some(mut capture) = Capture::begin(&self.pipe, &begun(&self.route, ALL, &headers))
            else {
                continue;
            };
            self.sent.set(self.sent.get() + 1);
            capture.request(&Bytes::from(vec![b'q'; len]));
            capture.local(&Bytes::from_static(b"{}"));
            capture.settle(Box::new(Ending {
                rid: format!("r{}", self.sent.get()),
                ..Ending::default()
            }));
        }
    }

    /// Ends the sender and lets go of the spool's lock.
    async fn stop(self, limit: Duration) {
        drop(self.pipe);
        self.sender.stop(limit).await;
    }

    fn dropped(&self, reason: Reason) -> u64 {
        self.sender.shared.counters.read().dropped[reason as usize]
    }

    fn acked(&self) -> u64 {
        self.sender.shared.counters.read().acked
    }

    fn spool(&self) -> u64 {
        self.sender.shared.spool().unwrap().used()
    }

    /// Everything is delivered and nothing is held any more.
    async fn settled(&self) {
        let counters = &self.sender.shared.counters;
        let is_empty =
            || self.sender.outbox.unacked() == 0 && self.sender.shared.budget.used() == 0;
        let is_taken = || {
            let counts = counters.read();
            counts.queued + counts.dropped.iter().sum::<u64>() >= self.sent.get() as u64
        };
        until("everything to be delivered", || is_taken() && is_empty()).await;
    }
}

fn nowhere() -> SocketAddr {
    // A port that was free a moment ago: nobody listens there.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

fn seqs(epoch: u64, count: u64) -> Vec<(u64, u64)> {
    (1..=count).map(|seq| (epoch, seq)).collect()
}

fn files(dir: &Path, suffix: &str) -> usize {
    let names = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    names
        .filter(|name| name.to_str().unwrap().ends_with(suffix))
        .count()
}

#[tokio::test]
async fn records_arrive_in_order_and_memory_is_given_back() {
    let receiver = Receiver::start().await;
    let bench = Bench::start(receiver.address, None);
    bench.record(500, 100);
    bench.record(20, 300_000);
    bench.settled().await;
    assert_eq!(receiver.stored(), seqs(1, 520));
    assert_eq!(bench.acked(), 520);
    let state = receiver.state.lock();
    assert!(
        state
            .stored
            .iter()
            .enumerate()
            .all(|(n, stored)| stored.2 == format!("r{}", n + 1))
    );
}

#[tokio::test]
async fn a_cut_connection_loses_nothing_and_stores_nothing_twice() {
    let receiver = Receiver::start().await;
    let bench = Bench::start(receiver.address, None);
    for (seq, trick) in [
        (3, Trick::Cut),
        (40, Trick::StoreAndCut),
        (41, Trick::Cut),
        (90, Trick::StoreAndCut),
    ] {
        receiver.trick(seq, trick);
    }
    bench.record(100, 1000);
    bench.settled().await;
    assert_eq!(receiver.stored(), seqs(1, 100));
    let counts = bench.sender.shared.counters.read();
    assert_eq!((counts.acked, counts.reconnects), (100, 4));
}

#[tokio::test]
async fn while_nobody_listens_records_wait_on_disk_and_follow_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let address = nowhere();
    let bench = Bench::start(address, Some((dir.path(), 1 << 30)));
    bench.record(200, 500);
    until("frames to leave memory", || {
        bench.spool() > 0 && bench.sender.shared.budget.used() == 0
    })
    .await;
    bench.record(200, 500);
    until("all frames on disk", || {
        bench.sender.outbox.unacked() == 400
    })
    .await;
    let receiver = Receiver::at(address, Arc::default()).await;
    receiver.has(400).await;
    bench.record(50, 500);
    bench.settled().await;
    assert_eq!(receiver.stored(), seqs(1, 450));
    until("the segments to be removed", || bench.spool() == 0).await;
    assert_eq!(files(dir.path(), ".seg"), 0);
}

#[tokio::test]
async fn what_one_run_leaves_the_next_one_delivers_under_its_old_numbers() {
    let dir = tempfile::tempdir().unwrap();
    let first = Bench::start(nowhere(), Some((dir.path(), 1 << 30)));
    first.record(30, 500);
    first.stop(Duration::ZERO).await;
    assert_eq!(files(dir.path(), ".seg"), 1);
    let receiver = Receiver::start().await;
    let second = Bench::start(receiver.address, Some((dir.path(), 1 << 30)));
    second.record(10, 500);
    receiver.has(40).await;
    second.settled().await;
    let mut stored = receiver.stored();
    stored.sort_unstable();
    assert_eq!(stored, [seqs(1, 30), seqs(2, 10)].concat());
    until("the segment to be removed", || {
        files(dir.path(), ".seg") == 0
    })
    .await;
    assert_eq!(second.acked(), 40);
    let state = receiver.state.lock();
    assert!(
        state
            .hellos
            .iter()
            .all(|hello| hello.producer == state.hellos[0].producer)
    );
}

#[tokio::test]
async fn what_a_killed_run_had_only_in_memory_is_counted_by_the_next_one() {
    let dir = tempfile::tempdir().unwrap();
    let first = Bench::start(nowhere(), Some((dir.path(), 1 << 30)));
    first.record(30, 500);
    first.stop(Duration::ZERO).await;
    // As after a kill: three frames more were numbered, and nobody has them.
    let killed = Spool::open(dir.path(), 1 << 30).unwrap();
    let progress = Progress {
        epoch: 1,
        begun: 33,
        acked: 0,
    };
    killed.spool.note(progress).unwrap();
    drop(killed);
    let receiver = Receiver::start().await;
    let next = Bench::start(receiver.address, Some((dir.path(), 1 << 30)));
    receiver.has(30).await;
    until("the loss to be counted", || {
        next.dropped(Reason::Shutdown) == 3
    })
    .await;
    until("the segment to be removed", || {
        files(dir.path(), ".seg") == 0
    })
    .await;
    assert_eq!(next.dropped(Reason::Disk), 0);
}

#[tokio::test]
async fn what_a_killed_run_had_delivered_before_is_no_loss() {
    let dir = tempfile::tempdir().unwrap();
    let opened = Spool::open(dir.path(), 1 << 30).unwrap();
    let (producer, epoch) = (opened.identity.producer.clone(), opened.identity.epoch);
    let progress = Progress {
        epoch,
        begun: 9,
        acked: 2,
    };
    opened.spool.note(progress).unwrap();
    drop(opened);
    let receiver = Receiver::start().await;
    // The receiver has more than the killed process had heard of.
    receiver.state.lock().last.insert((producer, epoch), 8);
    let next = Bench::start(receiver.address, Some((dir.path(), 1 << 30)));
    until("the loss to be counted", || {
        next.dropped(Reason::Shutdown) > 0
    })
    .await;
    next.settled().await;
    assert_eq!(next.dropped(Reason::Shutdown), 1);
}

#[tokio::test]
async fn bytes_that_are_no_frames_are_counted_and_kept_aside() {
    let dir = tempfile::tempdir().unwrap();
    let first = Bench::start(nowhere(), Some((dir.path(), 1 << 30)));
    first.record(31, 500);
    first.stop(Duration::ZERO).await;
    let mut segments = std::fs::read_dir(dir.path()).unwrap().map(Result::unwrap);
    let segment = segments
        .find(|entry| entry.file_name().to_string_lossy().ends_with(".seg"))
        .unwrap()
        .path();
    // A disk that gives back zeros: the last third of the file, and nothing says how far it went.
    std::fs::remove_file(dir.path().join("progress")).unwrap();
    let mut bytes = std::fs::read(&segment).unwrap();
    let zeroed = bytes.len() / 3;
    let from = bytes.len() - zeroed;
    bytes[from..].fill(0);
    std::fs::write(&segment, &bytes).unwrap();
    let receiver = Receiver::start().await;
    let next = Bench::start(receiver.address, Some((dir.path(), 1 << 30)));
    until("the damage to be counted", || {
        next.dropped(Reason::Disk) > 0 && files(dir.path(), ".corrupt") == 1
    })
    .await;
    let stored = receiver.stored().len() as u64;
    assert_eq!(stored + next.dropped(Reason::Disk), 31);
    let damaged = next.sender.shared.counters.read().damaged_bytes;
    let frame = bytes.len() as u64 / 31;
    let zeroed = zeroed as u64;
    assert!(
        (zeroed - frame..=zeroed + frame).contains(&damaged),
        "{damaged}"
    );
}

#[tokio::test]
async fn a_damaged_frame_is_counted_and_the_rest_of_its_segment_delivered() {
    let dir = tempfile::tempdir().unwrap();
    let first = Bench::start(nowhere(), Some((dir.path(), 1 << 30)));
    first.record(30, 500);
    first.stop(Duration::ZERO).await;
    let segment = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.to_str().unwrap().ends_with(".seg"))
        .unwrap();
    let mut bytes = std::fs::read(&segment).unwrap();
    let middle = bytes.len() / 2;
    // Within a run of the body's letters, so a payload and no header.
    let at = middle
        + bytes[middle..]
            .windows(64)
            .position(|w| w.iter().all(|b| *b == b'q'))
            .unwrap();
    bytes[at] ^= 1;
    std::fs::write(&segment, bytes).unwrap();
    let receiver = Receiver::start().await;
    let second = Bench::start(receiver.address, Some((dir.path(), 1 << 30)));
    receiver.has(29).await;
    until("the segment to be put aside", || {
        files(dir.path(), ".corrupt") == 1
    })
    .await;
    assert_eq!(
        (files(dir.path(), ".seg"), second.dropped(Reason::Disk)),
        (0, 1)
    );
    let stored = receiver.stored();
    assert_eq!(
        (stored.len(), stored.first(), stored.last()),
        (29, Some(&(1, 1)), Some(&(1, 30)))
    );
}

#[tokio::test]
async fn a_frame_that_may_be_sent_again_is() {
    let receiver = Receiver::start().await;
    let bench = Bench::start(receiver.address, None);
    for (seq, code) in [
        (1, NackCode::Crc),
        (5, NackCode::Crc),
        (9, NackCode::DiskFull),
    ] {
        receiver.trick(seq, Trick::Nack(code));
    }
    bench.record(20, 100);
    bench.settled().await;
    assert_eq!(receiver.stored(), seqs(1, 20));
    assert_eq!(bench.sender.shared.counters.read().reconnects, 0);
}

#[tokio::test]
async fn a_frame_that_will_never_be_taken_is_set_aside_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = Receiver::start().await;
    let bench = Bench::start(receiver.address, Some((dir.path(), 1 << 30)));
    receiver.trick(2, Trick::Nack(NackCode::Schema));
    // One that always arrives damaged is damaged here.
    for _ in 0..5 {
        receiver.trick(5, Trick::Nack(NackCode::Crc));
    }
    bench.record(10, 100);
    bench.settled().await;
    let stored: Vec<u64> = receiver.stored().iter().map(|(_, seq)| *seq).collect();
    assert_eq!(stored, [1, 3, 4, 6, 7, 8, 9, 10]);
    assert_eq!((bench.acked(), bench.dropped(Reason::Rejected)), (8, 2));
    until("the frames in the spool", || {
        files(dir.path(), ".frame") == 2
    })
    .await;
}

#[tokio::test]
async fn a_gap_the_receiver_complains_of_is_no_loss() {
    let receiver = Receiver::start().await;
    let bench = Bench::start(receiver.address, None);
    receiver.trick(4, Trick::GoAway(GoAwayCode::Gap));
    bench.record(10, 100);
    bench.settled().await;
    assert_eq!(receiver.stored(), seqs(1, 10));
}

#[tokio::test]
async fn a_receiver_that_dies_and_returns_gets_every_record_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut receiver = Receiver::start().await;
    let bench = Bench::start(receiver.address, Some((dir.path(), 1 << 30)));
    for round in 1..=5 {
        bench.record(100, 2000);
        receiver.has(round * 100 - 50).await;
        let (address, state) = receiver.kill().await;
        bench.record(20, 2000);
        receiver = Receiver::at(address, state).await;
        bench.settled().await;
    }
    let stored = receiver.stored();
    assert_eq!((stored.len(), stored), (600, seqs(1, 600)));
}

#[tokio::test]
async fn another_address_takes_over_where_the_first_one_was() {
    let (first, second) = (Receiver::start().await, Receiver::start().await);
    let bench = Bench::start(first.address, None);
    bench.record(10, 100);
    bench.settled().await;
    bench.target.send_replace(Some(Target {
        address: second.address.to_string().into(),
        token_file: None,
        tls: None,
    }));
    bench.record(10, 100);
    bench.settled().await;
    assert_eq!(first.stored(), seqs(1, 10));
    let second: Vec<u64> = second.stored().iter().map(|(_, seq)| *seq).collect();
    assert_eq!(second, (11..=20).collect::<Vec<u64>>());
}

#[tokio::test]
async fn a_name_that_somebody_else_sends_under_is_given_up() {
    let receiver = Receiver::start().await;
    let bench = Bench::start(nowhere(), None);
    let producer = |bench: &Bench| {
        let sender = &bench.sender;
        sender.shared.identity_of(&sender.outbox).producer
    };
    let before = producer(&bench);
    receiver.state.lock().last.insert((before.clone(), 1), 1000);
    bench.record(5, 100);
    bench.target.send_replace(Some(Target {
        address: receiver.address.to_string().into(),
        token_file: None,
        tls: None,
    }));
    bench.settled().await;
    assert_eq!(receiver.stored(), seqs(1, 5));
    assert_ne!(producer(&bench), before);
}

#[tokio::test]
async fn without_a_spool_what_cannot_be_delivered_at_the_end_is_counted() {
    let bench = Bench::start(nowhere(), None);
    bench.record(7, 100);
    let counters = Arc::clone(&bench.sender.shared.counters);
    bench.stop(Duration::ZERO).await;
    let counts = counters.read();
    assert_eq!(
        (counts.queued, counts.dropped[Reason::Shutdown as usize]),
        (7, 7)
    );
}

#[tokio::test]
async fn what_is_queued_at_the_end_is_delivered_first() {
    let receiver = Receiver::start().await;
    let bench = Bench::start(receiver.address, None);
    bench.record(300, 1000);
    bench.stop(PATIENCE).await;
    assert_eq!(receiver.stored(), seqs(1, 300));
}

#[tokio::test]
async fn a_full_spool_costs_bodies_first_and_then_counts_what_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let address = nowhere();
    let bench = Bench::with(address, Some((dir.path(), 200_000)), 100_000);
    let mut offered = 0;
    while bench.dropped(Reason::SpoolFull) == 0 {
        bench.record(5, 2000);
        offered += 5;
        let taken = || {
            let counts = bench.sender.shared.counters.read();
            counts.queued + counts.dropped.iter().sum::<u64>()
        };
        until("the records to be taken", || taken() >= offered).await;
        assert!(offered < 10_000, "the spool never fills");
    }
    let counts = bench.sender.shared.counters.read();
    assert!(counts.shed > 0 && counts.shed < counts.queued, "{counts:?}");
    assert!(bench.spool() <= 200_000);
    let lost: u64 = counts.dropped.iter().sum();
    assert_eq!(counts.queued + lost, offered);
    let receiver = Receiver::at(address, Arc::default()).await;
    bench.settled().await;
    assert_eq!(receiver.stored(), seqs(1, counts.queued));
}

#[tokio::test]
async fn large_records_are_packed_where_the_receiver_can_unpack_them() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = Receiver::start().await;
    let bench = Bench::start(receiver.address, Some((dir.path(), 1 << 30)));
    // The first connection tells that packing is possible.
    bench.record(1, 10);
    bench.settled().await;
    let (address, state) = receiver.kill().await;
    until("the connection to be gone", || {
        !bench.sender.shared.counters.read().is_connected
    })
    .await;
    bench.record(1, 100_000);
    until("the record on disk", || bench.spool() > 0).await;
    assert!(bench.spool() < 10_000, "{} bytes", bench.spool());
    let receiver = Receiver::at(address, state).await;
    bench.settled().await;
    assert_eq!(receiver.stored(), seqs(1, 2));
}
