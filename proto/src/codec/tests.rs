//! Each vector of the format is a test under its number; the checksums are CRC-32 (IEEE).

use proptest::prelude::*;

use std::io;

use super::*;
use crate::control::{GoAway, GoAwayCode, Hello, Nack, NackCode, Welcome};
use crate::frame::{Data, EncodeError, Flags, MAX_META, Outgoing, encode_v1};

mod vectors;

/// Decodes the bytes of a connection, fed in pieces of the given sizes (the last piece takes the
/// rest). Returns all results and how the connection ends.
fn decode_all(bytes: &[u8], cuts: &[usize]) -> (Vec<Decoded>, Option<DecodeError>) {
    let mut codec = Codec::default();
    let mut buffer = BytesMut::new();
    let mut out = Vec::new();
    let mut rest = bytes;
    let mut cuts = cuts.iter().copied();
    while !rest.is_empty() {
        let take = cuts.next().unwrap_or(rest.len()).clamp(1, rest.len());
        buffer.extend_from_slice(&rest[..take]);
        rest = &rest[take..];
        loop {
            match codec.decode(&mut buffer) {
                Ok(Some(decoded)) => out.push(decoded),
                Ok(None) => break,
                Err(error) => return (out, Some(error)),
            }
        }
    }
    loop {
        match codec.decode_eof(&mut buffer) {
            Ok(Some(decoded)) => out.push(decoded),
            Ok(None) => return (out, None),
            Err(error) => return (out, Some(error)),
        }
    }
}

fn frames(bytes: &[u8]) -> Vec<Frame> {
    let (decoded, error) = decode_all(bytes, &[]);
    assert!(error.is_none(), "{error:?}");
    decoded
        .into_iter()
        .map(|decoded| match decoded {
            Decoded::Frame(frame) => frame,
            Decoded::Bad(bad) => panic!("{bad:?}"),
        })
        .collect()
}

fn wire(frames: &[Frame], compression: Compression) -> Vec<u8> {
    let mut out = BytesMut::new();
    for frame in frames {
        encode(frame, compression, &mut out).unwrap();
    }
    out.to_vec()
}

fn data(seq: u64, req: &[u8], resp: &[u8]) -> Data {
    Data {
        protocol: Protocol::V2,
        seq,
        flags: Flags::default(),
        meta: Bytes::from_static(br#"{"v":2}"#),
        req: Bytes::copy_from_slice(req),
        resp: Bytes::copy_from_slice(resp),
    }
}

fn the_bad(bytes: &[u8]) -> Bad {
    match decode_all(bytes, &[]) {
        (decoded, None) => match &decoded[..] {
            [Decoded::Bad(bad)] => bad.clone(),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

fn the_end(bytes: &[u8]) -> Fault {
    let (decoded, error) = decode_all(bytes, &[]);
    assert!(decoded.is_empty(), "{decoded:?}");
    error.expect("an error").fault().expect("a fault")
}

/// A version 2 frame with any header and payload, and valid checksums.
fn raw_v2(kind: u8, flags: u16, raw_len: u32, payload: &[u8]) -> Vec<u8> {
    let header = Header {
        kind,
        flags: Flags(flags),
        seq: 7,
        payload_len: payload.len() as u32,
        raw_len,
        payload_crc: crc32fast::hash(payload),
    };
    [&header.to_bytes()[..], payload].concat()
}

#[test]
fn a_header_that_is_not_to_be_trusted_ends_the_connection() {
    let good = wire(&[Frame::Ping], Compression::None);
    for (at, fault) in [
        (1, Fault::BadMagic),
        (4, Fault::BadVersion),
        (5, Fault::HeaderCrc),
        (17, Fault::HeaderCrc),
        (31, Fault::HeaderCrc),
    ] {
        let mut bytes = good.clone();
        bytes[at] ^= 0x40;
        assert_eq!(the_end(&bytes), fault, "byte {at}");
    }
}

#[test]
fn a_connection_keeps_the_version_it_started_with() {
    let v1 = wire(
        &[Frame::Data(Data {
            protocol: Protocol::V1,
            seq: 0,
            ..data(0, b"", b"")
        })],
        Compression::None,
    );
    let v2 = wire(&[Frame::Ping], Compression::None);
    let (decoded, error) = decode_all(&[v2.clone(), v1.clone()].concat(), &[]);
    assert_eq!(decoded, [Decoded::Frame(Frame::Ping)]);
    assert_eq!(error.unwrap().fault(), Some(Fault::BadMagic));
    let (decoded, error) = decode_all(&[v1, v2].concat(), &[]);
    assert_eq!(decoded.len(), 1);
    assert_eq!(error.unwrap().fault(), Some(Fault::TooLarge));
}

#[test]
fn other_protocols_are_turned_away_at_their_first_bytes() {
    for bytes in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        b"\x16\x03\x01\x02\x00",
        b"PRI * HTTP/2.0",
    ] {
        assert_eq!(the_end(bytes), Fault::TooLarge);
    }
    assert_eq!(the_end(b"LOGIN"), Fault::BadMagic);
}

#[test]
fn a_frame_too_large_is_skipped_without_being_kept() {
    let large = raw_v2(3, 0, 200_000, &vec![b'x'; 200_000]);
    let bytes = [large, wire(&[Frame::Pong], Compression::None)].concat();
    let mut codec = Codec::new(MAX_CONTROL);
    let mut buffer = BytesMut::new();
    let mut out = Vec::new();
    for piece in bytes.chunks(1000) {
        buffer.extend_from_slice(piece);
        while let Some(decoded) = codec.decode(&mut buffer).unwrap() {
            out.push(decoded);
        }
        assert!(buffer.len() < 1100, "{} bytes kept", buffer.len());
        assert_eq!(codec.pending_bytes(), None);
    }
    let [Decoded::Bad(bad), Decoded::Frame(Frame::Pong)] = &out[..] else {
        panic!("{out:?}");
    };
    assert_eq!((bad.fault, bad.seq, bad.raw.len()), (Fault::TooLarge, 7, 0));
    assert_eq!(bad.fault.nack_code(), NackCode::TooLarge);
}

#[test]
fn a_control_frame_has_a_limit_of_its_own() {
    let large = raw_v2(1, 0, MAX_CONTROL + 1, &vec![b' '; MAX_CONTROL as usize + 1]);
    let bad = the_bad(&large);
    assert_eq!(
        (bad.fault, bad.seq, bad.is_data()),
        (Fault::TooLarge, 0, false)
    );
}

#[test]
fn a_kind_of_a_later_version_is_passed_over() {
    let bytes = [
        raw_v2(99, 0, 3, b"new"),
        wire(&[Frame::Ping], Compression::None),
    ]
    .concat();
    assert_eq!(frames(&bytes), [Frame::Unknown(99), Frame::Ping]);
}

#[test]
fn control_frames_must_say_what_their_kind_says() {
    for (kind, payload) in [
        (1, &b"{}"[..]),
        (1, b"not json"),
        (2, b"[]"),
        (4, b"\0\0\0\0\0\0\0\x01"),
        (5, b"\0\0\0\0\0\0\0\x01\0\x01\0\x09short"),
        (8, b"\0"),
    ] {
        let bad = the_bad(&raw_v2(kind, 0, payload.len() as u32, payload));
        assert_eq!(bad.fault, Fault::BadControl, "kind {kind}");
    }
}

#[test]
fn a_packed_payload_must_unpack_to_what_it_declares() {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    io::Write::write_all(&mut gzip, &vec![0; 1 << 20]).unwrap();
    let bomb = gzip.finish().unwrap();
    assert!(bomb.len() * 200 < 1 << 20);
    for (what, flags, raw_len) in [
        ("beyond the ratio", 1, 1 << 20),
        ("less than it holds", 1, 1000),
        ("more than it holds", 1, bomb.len() as u32 * 199),
        ("a packing nobody knows", 2, 1000),
        ("a length, though not packed", 0, 1000),
    ] {
        let bad = the_bad(&raw_v2(3, flags, raw_len, &bomb));
        assert_eq!((bad.fault, bad.seq), (Fault::Decompress, 7), "{what}");
    }
    let bad = the_bad(&raw_v2(3, 1, 100, b"no gzip at all"));
    assert_eq!(bad.fault, Fault::Decompress);
}

#[test]
fn a_payload_that_would_fail_the_ratio_guard_is_sent_as_it_is() {
    let frame = Frame::Data(data(1, &vec![b'a'; 4 << 20], b""));
    let bytes = wire(std::slice::from_ref(&frame), Compression::Gzip);
    assert!(bytes.len() > 4 << 20);
    assert_eq!(frames(&bytes), [frame]);
}

#[test]
fn repetitive_text_is_packed() {
    let text: String = (0..5000)
        .map(|n| format!("data: {{\"n\":{n}}}\n\n"))
        .collect();
    let frame = Frame::Data(data(1, b"", text.as_bytes()));
    let bytes = wire(std::slice::from_ref(&frame), Compression::Gzip);
    assert!(bytes.len() < text.len() / 2);
    assert_eq!(frames(&bytes), [frame]);
}

#[test]
fn a_length_that_lies_costs_no_memory() {
    let mut codec = Codec::default();
    let mut buffer = BytesMut::new();
    buffer.extend_from_slice(&[0x04, 0, 0, 0]);
    let mut received = 4;
    for _ in 0..200 {
        assert!(codec.decode(&mut buffer).unwrap().is_none());
        assert!(
            buffer.capacity() <= 4 * received + STEP,
            "{} bytes for {received} received",
            buffer.capacity()
        );
        buffer.extend_from_slice(&[b'x'; 1000]);
        received += 1000;
    }
    assert_eq!(codec.pending_bytes(), Some(4 + (64 << 20)));
}

#[test]
fn pieces_are_the_frame() {
    let (req, resp) = (
        [Bytes::from_static(b"head"), Bytes::from_static(b"tail")],
        [
            Bytes::from_static(b"a"),
            Bytes::new(),
            Bytes::from_static(b"b"),
        ],
    );
    let outgoing = Outgoing {
        seq: 9,
        flags: Flags::default().with_bodies_shed().with_replay(),
        meta: b"{}",
        req: &req,
        resp: &resp,
    };
    let pieces = outgoing.pieces().unwrap().concat();
    let mut whole = BytesMut::new();
    outgoing.encode(Compression::None, &mut whole).unwrap();
    assert_eq!(pieces, whole);
    assert_eq!(pieces.len(), outgoing.frame_len());
    let [Frame::Data(data)] = &frames(&pieces)[..] else {
        panic!();
    };
    assert_eq!(
        (&data.req[..], &data.resp[..], data.seq),
        (&b"headtail"[..], &b"ab"[..], 9)
    );
    assert!(data.flags.is_bodies_shed() && data.flags.is_replay());
}

#[test]
fn a_length_is_never_wrapped() {
    let mut out = BytesMut::new();
    let meta = vec![b' '; 65_536];
    assert_eq!(
        encode_v1(&meta, b"", b"", &mut out),
        Err(EncodeError::Meta(65_536))
    );
    let meta = vec![b' '; MAX_META + 1];
    let outgoing = Outgoing {
        seq: 1,
        flags: Flags::default(),
        meta: &meta,
        req: &[],
        resp: &[],
    };
    assert_eq!(
        outgoing.encode(Compression::Gzip, &mut out),
        Err(EncodeError::Meta(MAX_META + 1))
    );
    let body = vec![Bytes::from(vec![0; 1 << 20]); 64];
    let outgoing = Outgoing {
        seq: 1,
        flags: Flags::default(),
        meta: b"{}",
        req: &body,
        resp: &[],
    };
    assert_eq!(
        outgoing.pieces(),
        Err(EncodeError::TooLarge((64 << 20) + 14))
    );
    assert!(out.is_empty());
}

#[test]
fn neither_a_token_nor_a_body_is_shown() {
    let hello = Hello {
        proto: vec![2],
        producer: "p".into(),
        epoch: 1,
        next_seq: 1,
        codecs: vec![],
        max_frame: 0,
        token: Some("sesame".into()),
        router: String::new(),
        version: String::new(),
    };
    let frame = Frame::Data(data(1, b"prompt", b"answer"));
    let bad = Bad {
        fault: Fault::Short,
        protocol: Protocol::V1,
        kind: 0,
        seq: 0,
        raw: Bytes::from_static(b"prompt"),
    };
    let shown = format!("{hello:?} {frame:?} {bad:?}");
    for secret in ["sesame", "prompt", "answer"] {
        assert!(!shown.contains(secret), "{shown}");
    }
}

#[path = "../../fuzz/check.rs"]
mod check;

#[test]
fn the_corpus_of_the_fuzzer_passes_its_check() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus/decode");
    let mut seen = 0;
    for entry in std::fs::read_dir(corpus).unwrap() {
        check::decode(&std::fs::read(entry.unwrap().path()).unwrap());
        seen += 1;
    }
    assert!(seen >= 10, "{seen} files in {corpus}");
}

fn any_bytes(max: usize) -> impl Strategy<Value = Bytes> {
    prop::collection::vec(any::<u8>(), 0..max).prop_map(Bytes::from)
}

fn any_data(protocol: Protocol) -> impl Strategy<Value = Frame> {
    let body = prop_oneof![
        any_bytes(300),
        (any_bytes(8), 0..2000_usize).prop_map(|(unit, times)| Bytes::from(unit.repeat(times))),
    ];
    (
        any_bytes(300),
        body.clone(),
        body,
        1..u64::MAX,
        any::<bool>(),
    )
        .prop_map(move |(meta, req, resp, seq, shed)| {
            let v2 = protocol == Protocol::V2;
            let flags = Flags::default();
            Frame::Data(Data {
                protocol,
                seq: if v2 { seq } else { 0 },
                flags: if v2 && shed {
                    flags.with_bodies_shed()
                } else {
                    flags
                },
                meta,
                req,
                resp,
            })
        })
}

fn any_v2() -> impl Strategy<Value = Frame> {
    prop_oneof![
        4 => any_data(Protocol::V2),
        1 => (any::<u64>(), any::<u64>(), "[a-f0-9-]{36}", any::<Option<String>>()).prop_map(
            |(epoch, next_seq, producer, token)| Frame::Hello(Hello {
                proto: vec![1, 2],
                producer,
                epoch,
                next_seq,
                codecs: vec!["gzip".into()],
                max_frame: 5,
                token,
                router: "r".into(),
                version: String::new(),
            })
        ),
        1 => (any::<u32>(), any::<u64>()).prop_map(|(window_frames, last)| Frame::Welcome(Welcome {
            proto: 2,
            codec: "none".into(),
            max_frame: 9,
            window_bytes: last ^ 5,
            window_frames,
            last_durable_seq: last,
            server_epoch: 3,
        })),
        1 => any::<u64>().prop_map(Frame::Ack),
        1 => (any::<u64>(), any::<u16>(), any::<String>()).prop_map(|(seq, code, text)| {
            Frame::Nack(Nack { seq, code: NackCode::from_code(code), text })
        }),
        1 => (any::<u16>(), any::<String>()).prop_map(|(code, text)| {
            Frame::GoAway(GoAway { code: GoAwayCode::from_code(code), text })
        }),
        1 => prop_oneof![Just(Frame::Ping), Just(Frame::Pong)],
    ]
}

fn any_connection() -> impl Strategy<Value = (Vec<Frame>, Compression)> {
    prop_oneof![
        (
            prop::collection::vec(any_v2(), 0..8),
            prop_oneof![Just(Compression::None), Just(Compression::Gzip)]
        ),
        (
            prop::collection::vec(any_data(Protocol::V1), 0..8),
            Just(Compression::None)
        ),
    ]
}

proptest! {
    #[test]
    fn decoding_what_was_encoded_gives_it_back_however_it_is_split(
        (sent, compression) in any_connection(),
        cuts in prop::collection::vec(1..500_usize, 0..200),
    ) {
        let bytes = wire(&sent, compression);
        let (decoded, error) = decode_all(&bytes, &cuts);
        prop_assert!(error.is_none());
        let expected: Vec<Decoded> = sent.into_iter().map(Decoded::Frame).collect();
        prop_assert_eq!(decoded, expected);
    }

    #[test]
    fn any_bytes_give_the_same_however_they_are_split(
        (sent, compression) in any_connection(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in any::<prop::sample::Index>(),
        cuts in prop::collection::vec(1..200_usize, 0..200),
    ) {
        let mut bytes = wire(&sent, compression);
        for (at, byte) in damage {
            if !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
        }
        bytes.truncate(cut.index(bytes.len() + 1));
        let (whole, end) = decode_all(&bytes, &[]);
        let (split, split_end) = decode_all(&bytes, &cuts);
        prop_assert_eq!(whole, split);
        prop_assert_eq!(format!("{end:?}"), format!("{split_end:?}"));
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        check::decode(&bytes);
        check::decode(&[&MAGIC[..], &[2], &bytes].concat());
    }
}
