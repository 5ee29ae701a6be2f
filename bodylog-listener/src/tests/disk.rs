//! Tests of a listener whose disk fails on command.

use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use proto::control::{Nack, NackCode};
use proto::frame::Frame;

use super::harness::{Home, data, eventually};
use crate::space::Room;
use crate::storage::{Disk, Opened, SegmentFile, Storage};
use crate::stream::Output;

/// The injected failures, per output.
#[derive(Clone, Debug, Default)]
pub(super) struct Faults(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// Bytes that still fit before the disk is full.
    room: [Option<usize>; 2],
    fails_to_sync: [bool; 2],
    fails_to_truncate: [bool; 2],
    /// Opened files, in order.
    opened: Vec<PathBuf>,
}

fn index(output: Output) -> usize {
    match output {
        Output::Records => 0,
        Output::Details => 1,
    }
}

impl Faults {
    pub(super) fn storage(&self, output: Output) -> Faulty {
        Faulty {
            faults: self.clone(),
            output,
        }
    }

    fn set_room(&self, output: Output, room: Option<usize>) {
        self.0.lock().room[index(output)] = room;
    }

    pub(super) fn opened(&self) -> Vec<PathBuf> {
        self.0.lock().opened.clone()
    }
}

pub(super) struct Faulty {
    faults: Faults,
    output: Output,
}

struct FaultyFile {
    file: Box<dyn SegmentFile>,
    faults: Faults,
    output: Output,
}

impl Storage for Faulty {
    fn open(&self, root: &Path, path: &Path) -> io::Result<Opened> {
        self.faults
            .0
            .lock()
            .opened
            .push(path.strip_prefix(root).unwrap().to_owned());
        let opened = Disk.open(root, path)?;
        Ok(Opened {
            file: Box::new(FaultyFile {
                file: opened.file,
                faults: self.faults.clone(),
                output: self.output,
            }),
            ..opened
        })
    }
}

impl SegmentFile for FaultyFile {
    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut state = self.faults.0.lock();
        let Some(room) = &mut state.room[index(self.output)] else {
            drop(state);
            return self.file.write_vectored(slices);
        };
        let first = slices.first().map_or(&[][..], |slice| slice);
        let fits = first.len().min(*room);
        if fits == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        *room -= fits;
        drop(state);
        self.file.write_vectored(&[IoSlice::new(&first[..fits])])
    }

    fn sync(&mut self) -> io::Result<()> {
        if self.faults.0.lock().fails_to_sync[index(self.output)] {
            return Err(io::Error::other("the disk is gone"));
        }
        self.file.sync()
    }

    fn is_in_place(&self) -> io::Result<bool> {
        self.file.is_in_place()
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        if self.faults.0.lock().fails_to_truncate[index(self.output)] {
            return Err(io::Error::other("the disk is gone"));
        }
        self.file.truncate(len)
    }
}

async fn nack(wire: &mut super::harness::Wire) -> Nack {
    loop {
        match wire.next().await {
            Some(Frame::Nack(nack)) => return nack,
            Some(Frame::Ack(_)) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_batch_that_does_not_fit_leaves_no_trace_and_comes_again() {
    for full in Output::ALL {
        let home = Home::new();
        let listener = home.start().await;
        let mut wire = listener.sender("p", 1, 1).await;
        wire.data(1..=2).await;
        wire.acked(2).await;
        home.faults.set_room(full, Some(100));
        wire.data(3..=5).await;
        let nack = nack(&mut wire).await;
        assert_eq!((nack.seq, nack.code), (3, NackCode::DiskFull));
        assert_eq!(listener.local("/readyz").await.0, 503);
        // Later frames are skipped until the refused one arrives again.
        wire.data(6..=6).await;
        home.faults.set_room(full, None);
        wire.data(3..=6).await;
        wire.acked(6).await;
        assert_eq!(listener.local("/readyz").await.0, 200);
        listener.stop().await;
        for output in Output::ALL {
            assert_eq!(
                home.seqs(output),
                [1, 2, 3, 4, 5, 6],
                "{output:?} while {full:?} was full"
            );
        }
    }
}

#[tokio::test]
async fn a_failed_sync_is_a_failed_batch() {
    let home = Home::new();
    let listener = home.start().await;
    let mut wire = listener.sender("p", 1, 1).await;
    home.faults.0.lock().fails_to_sync[0] = true;
    wire.data(1..=3).await;
    assert_eq!(nack(&mut wire).await.seq, 1);
    home.faults.0.lock().fails_to_sync[0] = false;
    wire.data(1..=3).await;
    wire.acked(3).await;
    assert_eq!(home.seqs(Output::Records), [1, 2, 3]);
    assert_eq!(home.seqs(Output::Details), [1, 2, 3]);
}

#[tokio::test]
async fn a_file_that_cannot_be_cut_is_not_written_to_until_it_can() {
    let home = Home::new();
    let listener = home.start().await;
    let mut wire = listener.sender("p", 1, 1).await;
    wire.data(1..=1).await;
    wire.acked(1).await;
    {
        let mut state = home.faults.0.lock();
        state.fails_to_sync[0] = true;
        state.fails_to_truncate[0] = true;
    }
    wire.data(2..=2).await;
    assert_eq!(nack(&mut wire).await.seq, 2);
    home.faults.0.lock().fails_to_sync[0] = false;
    home.hands.set("2026-01-02T11:00:00Z");
    wire.data(2..=2).await;
    assert_eq!(nack(&mut wire).await.seq, 2);
    home.faults.0.lock().fails_to_truncate[0] = false;
    wire.data(2..=2).await;
    wire.acked(2).await;
    listener.stop().await;
    assert_eq!(home.seqs(Output::Records), [1, 2]);
}

#[tokio::test]
async fn a_disk_that_fills_costs_bodies_then_frames_and_tells_the_sender() {
    let home = Home::new();
    let listener = home.start().await;
    let mut wire = listener.sender("p", 1, 1).await;
    let set = async |free, level: &str| {
        *home.room.lock() = Room { free, total: 1000 };
        eventually(level, async || {
            let stats = listener.local("/stats").await.1;
            serde_json::from_str::<serde_json::Value>(&stats).unwrap()["disk"] == level
        })
        .await;
    };
    set(40, "no_bodies").await;
    wire.data(1..=1).await;
    wire.acked(1).await;
    set(5, "full").await;
    assert_eq!(listener.local("/readyz").await.0, 503);
    wire.data(2..=2).await;
    let nack = nack(&mut wire).await;
    assert_eq!((nack.seq, nack.code), (2, NackCode::DiskFull));
    let mut old = listener.connect().await;
    old.raw(&super::harness::v1(r#"{"request_id":"v1"}"#, b""))
        .await;
    listener
        .metric_becomes(
            r#"bodylog_listener_frames_total{proto="v1",result="lost"}"#,
            1.0,
        )
        .await;
    set(500, "normal").await;
    assert_eq!(listener.local("/readyz").await.0, 200);
    wire.data(2..=2).await;
    wire.acked(2).await;
    listener.stop().await;
    let records: Vec<_> = home
        .stored(Output::Records)
        .into_values()
        .flatten()
        .collect();
    assert_eq!(
        (&records[0]["shed"], &records[0]["resp_body"]),
        (&"disk".into(), &"".into())
    );
    assert_eq!(records[1]["resp_body"], "Hi");
    assert_eq!(home.seqs(Output::Details), [1, 2]);
}

#[tokio::test]
async fn a_disk_that_fills_costs_the_oldest_hours_first() {
    let home = Home::new();
    for name in ["2026-01-01/10.jsonl.gz", "2026-01-01/11.jsonl.gz"] {
        let path = home.root().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, [0; 50]).unwrap();
    }
    *home.room.lock() = Room {
        free: 60,
        total: 1000,
    };
    let listener = home.start().await;
    assert_eq!(
        home.files(Output::Records),
        [home.root().join("2026-01-01/11.jsonl.gz")]
    );
    listener.stop().await;
}

#[tokio::test]
async fn a_frame_is_stored_once_however_often_the_disk_was_full() {
    let home = Home::new();
    let listener = home.start().await;
    let mut wire = listener.sender("p", 1, 1).await;
    for _ in 0..5 {
        home.faults.set_room(Output::Details, Some(10));
        wire.send(&Frame::Data(data(1))).await;
        assert_eq!(nack(&mut wire).await.seq, 1);
    }
    home.faults.set_room(Output::Details, None);
    wire.data(1..=1).await;
    wire.acked(1).await;
    assert_eq!(
        (home.seqs(Output::Records), home.seqs(Output::Details)),
        (vec![1], vec![1])
    );
}
