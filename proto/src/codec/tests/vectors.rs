//! V1–V6 and V14.

use super::*;

const V2_META: &[u8] =
    br#"{"ts":"2026-01-02T23:59:59.900+08:00","request_id":"r1","status":200,"rt":0.2}"#;
const V2_REQ: &[u8] = br#"{"model":"m","stream":true}"#;
const V2_RESP: &[u8] = b"data: {\"id\":\"c1\",\"model\":\"m\",\"choices\":[{\"delta\":\
{\"content\":\"Hi\"},\"finish_reason\":\"stop\"}]}\n\ndata: {\"choices\":[],\"usage\":\
{\"prompt_tokens\":7,\"completion_tokens\":2,\"total_tokens\":9}}\n\ndata: [DONE]\n\n";

fn v1() -> Vec<u8> {
    hex("0000000c 0002 7b7d 00000000 00000000")
}

fn v2() -> Vec<u8> {
    let mut out = BytesMut::new();
    encode_v1(V2_META, V2_REQ, V2_RESP, &mut out).unwrap();
    out.to_vec()
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

fn is_v1(frame: &Decoded, meta: &[u8], req: &[u8], resp: &[u8]) -> bool {
    matches!(frame, Decoded::Frame(Frame::Data(data))
        if data.protocol == Protocol::V1 && data.meta == meta && data.req == req && data.resp == resp)
}

#[test]
fn the_smallest_useful_frame() {
    let (decoded, error) = decode_all(&v1(), &[]);
    assert!(error.is_none());
    assert!(is_v1(&decoded[0], b"{}", b"", b""), "{decoded:?}");
    let mut back = BytesMut::new();
    encode_v1(b"{}", b"", b"", &mut back).unwrap();
    assert_eq!(back, &v1()[..]);
}

#[test]
fn a_complete_stream() {
    let bytes = v2();
    assert_eq!((V2_META.len(), V2_REQ.len(), V2_RESP.len()), (78, 27, 196));
    assert_eq!(bytes.len(), 315);
    assert_eq!(bytes[..8], hex("00000137 004e 7b22"));
    assert_eq!(crc32fast::hash(&bytes), 0x5450_28b1);
    let (decoded, _) = decode_all(&bytes, &[]);
    assert!(is_v1(&decoded[0], V2_META, V2_REQ, V2_RESP), "{decoded:?}");
}

#[test]
fn a_wrapped_meta_length_costs_its_own_frame_only() {
    let mut meta = br#"{"h":""#.to_vec();
    meta.resize(65_538, b'a');
    meta.extend_from_slice(br#""}"#);
    assert_eq!(meta.len(), 65_540);
    let mut bytes = hex("0001000e 0004");
    bytes.extend_from_slice(&meta);
    bytes.extend_from_slice(&[0; 8]);
    assert_eq!(bytes.len(), 4 + 65_550);
    bytes.extend_from_slice(&v1());
    let (decoded, error) = decode_all(&bytes, &[]);
    assert!(error.is_none());
    let Decoded::Bad(bad) = &decoded[0] else {
        panic!("{decoded:?}");
    };
    assert_eq!(bad.fault.as_str(), "req_overrun");
    assert_eq!(bad.raw.len(), 4 + 65_550);
    assert!(is_v1(&decoded[1], b"{}", b"", b""));
}

#[test]
fn length_limits_of_frames() {
    assert_eq!(the_end(&[0, 0, 0, 0]).as_str(), "zero_len");
    assert_eq!(the_end(&[4, 0, 0, 1]).as_str(), "too_large");
    let mut codec = Codec::default();
    let mut buffer = BytesMut::from(&[4, 0, 0, 0][..]);
    assert!(codec.decode(&mut buffer).unwrap().is_none());
    assert!(buffer.capacity() < 1 << 20, "{}", buffer.capacity());
}

#[test]
fn a_trailing_byte_costs_its_own_frame_only() {
    let mut bytes = hex("0000000d 0002 7b7d 00000000 00000000 00");
    bytes.extend_from_slice(&v1());
    let (decoded, error) = decode_all(&bytes, &[]);
    assert!(error.is_none());
    assert!(matches!(&decoded[0], Decoded::Bad(bad) if bad.fault.as_str() == "resp_mismatch"));
    assert!(is_v1(&decoded[1], b"{}", b"", b""));
}

#[test]
fn three_such_frames_in_a_row_end_the_connection() {
    let bad = hex("0000000d 0002 7b7d 00000000 00000000 00");
    let two_then_good = [bad.clone(), bad.clone(), v1(), bad.clone(), bad.clone()].concat();
    let (decoded, error) = decode_all(&two_then_good, &[]);
    assert_eq!(decoded.len(), 5);
    assert!(error.is_none(), "{error:?}");
    let (decoded, error) = decode_all(&[bad.clone(), bad.clone(), bad, v1()].concat(), &[]);
    assert_eq!(decoded.len(), 3);
    assert_eq!(error.unwrap().fault().unwrap().as_str(), "lost_sync");
}

#[test]
fn splitting_and_coalescing() {
    let bytes = [v2(), v1()].concat();
    assert_eq!(bytes.len(), 331);
    for cuts in [vec![1; 331], vec![331], vec![3, 314]] {
        let (decoded, error) = decode_all(&bytes, &cuts);
        assert!(error.is_none());
        assert_eq!(decoded.len(), 2);
        assert!(is_v1(&decoded[0], V2_META, V2_REQ, V2_RESP));
        assert!(is_v1(&decoded[1], b"{}", b"", b""));
    }
    let (decoded, error) = decode_all(&bytes[..200], &[]);
    assert!(decoded.is_empty());
    assert!(
        matches!(
            error,
            Some(DecodeError::Truncated {
                have: 200,
                need: 315
            })
        ),
        "{error:?}"
    );
}

#[test]
fn frames_of_version_2() {
    assert_eq!(crc32fast::hash(b"123456789"), 0xcbf4_3926);
    let header = "4c424c32 02 03 0000 0000000000000001 00000027 00000027 093aa004 405345f9";
    let payload =
        "00000019 7b2276223a322c22726571756573745f6964223a227231227d 00000002 6162 00000000";
    let bytes = hex(&format!("{header}{payload}"));
    let frame = Frame::Data(Data {
        protocol: Protocol::V2,
        seq: 1,
        flags: Flags::default(),
        meta: Bytes::from_static(br#"{"v":2,"request_id":"r1"}"#),
        req: Bytes::from_static(b"ab"),
        resp: Bytes::new(),
    });
    assert_eq!(wire(std::slice::from_ref(&frame), Compression::None), bytes);
    assert_eq!(frames(&bytes), [frame]);

    let ack = hex(
        "4c424c32 02 04 0000 0000000000000000 00000010 00000010 fbc05f16 468c694f \
         0000000000000001 0000000000000000",
    );
    assert_eq!(wire(&[Frame::Ack(1)], Compression::None), ack);
    assert_eq!(frames(&ack), [Frame::Ack(1)]);

    let mut flipped = bytes;
    flipped[HEADER_LEN + 30] ^= 1;
    let bad = the_bad(&flipped);
    assert_eq!(bad.fault.as_str(), "payload_crc");
    assert_eq!((bad.seq, bad.fault.nack_code().code()), (1, 1));
}
