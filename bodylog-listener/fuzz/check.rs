//! The invariants for any frame, shared by the fuzzer and the tests of `bodylog-listener`.

use bodylog_listener::prepare::{Sender, lines};
use bytes::Bytes;
use proto::frame::{Data, Flags, Protocol};
use proto::row::DetailRow;

/// Largest row, bytes.
const ROW_MAX: usize = 64 << 10;

/// The input is meta, request and response, separated by zero bytes. Whatever the bytes are, each
/// output gets one line of JSON that names its origin, and the row stays small. Invalid frames are
/// refused.
pub(super) fn record(bytes: &[u8]) {
    let mut parts = bytes.splitn(3, |byte| *byte == 0);
    let mut part = || Bytes::copy_from_slice(parts.next().unwrap_or_default());
    let data = Data {
        protocol: Protocol::V2,
        seq: 7,
        flags: Flags::default(),
        meta: part(),
        req: part(),
        resp: part(),
    };
    let sender = Sender::new([127, 0, 0, 1].into(), Some(("p".into(), 3)));
    for without_bodies in [false, true] {
        let Ok(made) = lines(&data, &sender, without_bodies) else {
            return;
        };
        for line in [&made.record, &made.row] {
            assert_eq!(
                line.iter().position(|byte| *byte == b'\n'),
                Some(line.len() - 1)
            );
            let value: serde_json::Value = serde_json::from_slice(line).expect("a line is JSON");
            assert_eq!(
                (&value["pid"], &value["epoch"], &value["seq"]),
                (&"p".into(), &3.into(), &7.into())
            );
        }
        let row: DetailRow<'_> = serde_json::from_slice(&made.row).expect("a row is read as one");
        assert!(row.is_readable());
        assert!(
            made.row.len() <= ROW_MAX,
            "a row of {} bytes",
            made.row.len()
        );
    }
}
