//! A sender with prepared frames. It costs little compared to the listener.

use std::io::{IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::RangeInclusive;

use bytes::{Bytes, BytesMut};
use proto::codec::{Codec, Decoded, encode};
use proto::control::Hello;
use proto::frame::{Compression, Data, Flags, Frame, HEADER_LEN, Header, Protocol};
use proto::meta::Meta;
use serde_json::json;
use tokio_util::codec::Decoder;

/// The most slices per write that Linux accepts.
const SLICES_MAX: usize = 1024;

/// An exchange as a payload that is sent repeatedly under ascending sequences.
#[derive(Clone)]
pub(crate) struct Exchange {
    header: Header,
    payload: Bytes,
}

impl Exchange {
    /// Bodies of typical sizes: a chat request, and a stream of events.
    pub(crate) fn new(request: usize, response: usize) -> Self {
        let words = |size: usize| "lorem ipsum dolor sit amet ".repeat(size / 27 + 1);
        let request = json!({"model": "m", "stream": true, "messages": [{"role": "user", "content": words(request)}]});
        let chunk = |delta: serde_json::Value| {
            let chunk = json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_700_000_000, "model": "m",
                "choices": [{"index": 0, "delta": delta, "logprobs": null, "finish_reason": null}]});
            format!("data: {chunk}\n\n")
        };
        let one = chunk(json!({"content": " lorem"}));
        let mut events = one.repeat(response / one.len() + 1);
        events += "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":9,\"total_tokens\":16}}\n\ndata: [DONE]\n\n";
        let meta = json!({"v": 2, "ts": "2026-01-02T03:04:05.678Z", "ts_unix_ms": 1_767_323_045_678_u64, "request_id": "0198c5f0-0000-7000-8000-000000000000",
            "client_ip": "10.0.0.1", "method": "POST", "uri": "/v1/chat/completions", "route": "chat", "tenant": "team", "model_req": "m", "model": "m",
            "req_headers": {"content-type": "application/json", "user-agent": "bench", "accept": "*/*"}, "peer": "10.0.0.2:8000", "peer_name": "gpu-a",
            "mode": "hash", "session_src": "body.user", "session_id": "session-1", "status": 200, "stream": true, "attempts": 1, "complete": true,
            "finish_reason": "stop", "usage": {"prompt": 7, "completion": 9, "cached": 0, "reasoning": 0, "total": 16}, "first_chunk_t": 0.1,
            "last_chunk_t": 1.5, "rt": 1.6, "chunk_count": 100, "resp_bytes": events.len(), "req_bytes": 100, "sampled_by": "all",
            "req_body_truncated": false, "resp_body_truncated": false});
        // In the order in which a router writes the members.
        let meta = Meta::from_json(meta.to_string().as_bytes()).expect("it is an object");
        let meta = serde_json::to_vec(&meta).expect("so is this");
        let data = Data {
            protocol: Protocol::V2,
            seq: 1,
            flags: Flags::default(),
            meta: meta.into(),
            req: request.to_string().into(),
            resp: events.into(),
        };
        let mut frame = BytesMut::new();
        encode(&Frame::Data(data), Compression::None, &mut frame).expect("it is small");
        let mut raw = [0; HEADER_LEN];
        raw.copy_from_slice(&frame[..HEADER_LEN]);
        Self {
            header: Header::from_bytes(&raw).expect("we made it"),
            payload: frame.freeze().slice(HEADER_LEN..),
        }
    }

    /// The size of its frame, in bytes.
    pub(crate) fn len(&self) -> u64 {
        (HEADER_LEN + self.payload.len()) as u64
    }

    /// The frame with this sequence, in its two parts.
    fn parts(&self, seq: u64) -> ([u8; HEADER_LEN], &[u8]) {
        let header = Header { seq, ..self.header };
        (header.to_bytes(), &self.payload)
    }

    /// The frame with this sequence.
    pub(crate) fn frame(&self, seq: u64) -> Vec<u8> {
        let (header, payload) = self.parts(seq);
        [&header[..], payload].concat()
    }
}

/// Sends `count` exchanges as `producer`, and returns after all are acknowledged. Blocks the
/// thread.
pub(crate) fn send(listener: SocketAddr, producer: &str, exchange: &Exchange, count: u64) {
    let mut stream = TcpStream::connect(listener).expect("the listener listens");
    stream.set_nodelay(true).expect("it is TCP");
    let mut hello = BytesMut::new();
    let introduction = Hello {
        proto: vec![2],
        producer: producer.to_owned(),
        epoch: 1,
        next_seq: 1,
        codecs: Vec::new(),
        max_frame: 0,
        token: None,
        router: String::new(),
        version: String::new(),
    };
    encode(&Frame::Hello(introduction), Compression::None, &mut hello).expect("it is small");
    stream.write_all(&hello).expect("the listener reads");
    let mut answers = Answers {
        stream: stream.try_clone().expect("a socket can be shared"),
        codec: Codec::default(),
        buffer: BytesMut::new(),
    };
    let Frame::Welcome(welcome) = answers.next() else {
        panic!("no welcome");
    };
    let window = (welcome.window_bytes / exchange.len()).clamp(1, welcome.window_frames.into());
    let (mut sent, mut acked) = (0, 0);
    while acked < count {
        let may = count.min(acked + window);
        write(&mut stream, exchange, sent + 1..=may);
        sent = sent.max(may);
        match answers.next() {
            Frame::Ack(seq) => acked = seq,
            Frame::Ping => {}
            other => panic!("{other:?}"),
        }
    }
}

/// Writes frames as a router does: as many at once as are ready.
fn write(stream: &mut TcpStream, exchange: &Exchange, seqs: RangeInclusive<u64>) {
    let parts: Vec<_> = seqs.map(|seq| exchange.parts(seq)).collect();
    for parts in parts.chunks(SLICES_MAX / 2) {
        let mut slices: Vec<_> = parts
            .iter()
            .flat_map(|(header, payload)| [IoSlice::new(header), IoSlice::new(payload)])
            .collect();
        let mut rest = &mut slices[..];
        while !rest.is_empty() {
            let written = stream.write_vectored(rest).expect("the listener reads");
            IoSlice::advance_slices(&mut rest, written);
        }
    }
}

struct Answers {
    stream: TcpStream,
    codec: Codec,
    buffer: BytesMut,
}

impl Answers {
    fn next(&mut self) -> Frame {
        loop {
            if let Some(Decoded::Frame(frame)) =
                self.codec.decode(&mut self.buffer).expect("frames")
            {
                return frame;
            }
            let mut piece = [0; 4096];
            let read = self.stream.read(&mut piece).expect("the listener answers");
            assert!(read > 0, "the listener closed");
            self.buffer.extend_from_slice(&piece[..read]);
        }
    }
}
