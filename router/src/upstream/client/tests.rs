//! The client against engines that behave, misbehave and leave, over real sockets.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::uri::Scheme;
use http::{HeaderMap, Method, header};
use http_body_util::BodyExt;
use service::tls::install_crypto_provider;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;

/// Nothing here takes long; a test that hangs fails with a reason.
const PATIENCE: Duration = Duration::from_secs(20);

struct Rig {
    client: PeerClient,
    listener: TcpListener,
    address: SocketAddr,
}

struct Whole {
    status: u16,
    headers: HeaderMap,
    body: Vec<u8>,
    trailers: Option<HeaderMap>,
    /// Whether the body ended as its framing promised.
    is_clean: bool,
}

impl Rig {
    async fn new() -> Self {
        install_crypto_provider();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self {
            client: PeerClient::new(ConnectTimeout::new(Duration::from_secs(10))),
            address: listener.local_addr().unwrap(),
            listener,
        }
    }

    async fn accept(&self) -> TcpStream {
        let accepted = tokio::time::timeout(PATIENCE, self.listener.accept()).await;
        accepted.expect("a connection").unwrap().0
    }

    async fn send(&self, body: &[u8]) -> Result<Response<PeerBody>, SendError> {
        let request = Request::builder()
            .method(Method::POST)
            .uri("/v1/x?y=1")
            .header(header::HOST, self.address.to_string())
            .body(Bytes::copy_from_slice(body).into());
        let to = self.to();
        let sent = self.client.send(&to, request.unwrap(), false);
        tokio::time::timeout(PATIENCE, sent).await.expect("an end")
    }

    /// One exchange on a connection that the engine has accepted or will accept.
    async fn exchange(&self, stream: &mut Option<TcpStream>, answer: &[u8]) -> Whole {
        let engine = async {
            if stream.is_none() {
                *stream = Some(self.accept().await);
            }
            let stream = stream.as_mut().unwrap();
            read_request(stream).await;
            stream.write_all(answer).await.unwrap();
        };
        let (sent, ()) = tokio::join!(self.send(b"{}"), engine);
        whole(sent.unwrap()).await
    }

    fn to(&self) -> Address {
        Address {
            scheme: Scheme::HTTP,
            authority: self.address.to_string().parse().unwrap(),
        }
    }

    fn idle(&self) -> usize {
        self.client.pools.of(&self.to()).len()
    }
}

async fn read_request(stream: &mut TcpStream) -> String {
    let mut request = Vec::new();
    loop {
        let read = tokio::time::timeout(PATIENCE, stream.read_buf(&mut request)).await;
        assert!(read.expect("a request").unwrap() > 0, "the client left");
        let text = String::from_utf8_lossy(&request).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "))
                .map_or(0, |length| length.parse().unwrap());
            if body.len() >= length {
                return text;
            }
        }
    }
}

async fn whole(answer: Response<PeerBody>) -> Whole {
    let (head, mut body) = answer.into_parts();
    let mut whole = Whole {
        status: head.status.as_u16(),
        headers: head.headers,
        body: Vec::new(),
        trailers: None,
        is_clean: true,
    };
    while let Some(frame) = tokio::time::timeout(PATIENCE, body.frame())
        .await
        .expect("an end")
    {
        match frame.map(http_body::Frame::into_data) {
            Ok(Ok(data)) => whole.body.extend_from_slice(&data),
            Ok(Err(trailers)) => whole.trailers = trailers.into_trailers().ok(),
            Err(_) => {
                whole.is_clean = false;
                break;
            }
        }
    }
    whole
}

/// Waits for the other side to close.
async fn closed(stream: &mut TcpStream) {
    let mut rest = Vec::new();
    let end = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut rest)).await;
    // A reset counts as the end too.
    let _ = end.expect("the connection is closed");
}

const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

#[tokio::test]
async fn one_connection_serves_one_request_after_the_other() {
    let rig = Rig::new().await;
    let mut stream = None;
    for _ in 0..3 {
        let answer = rig.exchange(&mut stream, OK).await;
        assert_eq!((answer.status, &answer.body[..]), (200, &b"ok"[..]));
        assert_eq!(rig.idle(), 1);
    }
}

#[tokio::test]
async fn the_request_line_is_in_origin_form() {
    let rig = Rig::new().await;
    let engine = async {
        let mut stream = rig.accept().await;
        let request = read_request(&mut stream).await;
        stream.write_all(OK).await.unwrap();
        request
    };
    let (sent, request) = tokio::join!(rig.send(b"{}"), engine);
    sent.unwrap();
    assert!(
        request.starts_with("POST /v1/x?y=1 HTTP/1.1\r\n"),
        "{request}"
    );
}

#[tokio::test]
async fn chunks_and_trailers_pass_and_the_connection_is_kept() {
    let rig = Rig::new().await;
    let mut stream = None;
    let chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n2;e=1\r\nhe\r\n3\r\nllo\r\n0\r\nx-sum: 7\r\n\r\n";
    let answer = rig.exchange(&mut stream, chunked).await;
    assert!(answer.is_clean);
    assert_eq!(answer.body, b"hello");
    assert_eq!(answer.trailers.unwrap()["x-sum"], "7");
    assert_eq!(rig.idle(), 1);
    assert_eq!(rig.exchange(&mut stream, OK).await.body, b"ok");
}

#[tokio::test]
async fn answers_without_a_body_leave_the_connection_usable() {
    let rig = Rig::new().await;
    let mut stream = None;
    for answer in [
        &b"HTTP/1.1 204 No Content\r\n\r\n"[..],
        b"HTTP/1.1 304 Not Modified\r\netag: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
    ] {
        assert_eq!(rig.exchange(&mut stream, answer).await.body, b"");
        assert_eq!(rig.idle(), 1, "{}", String::from_utf8_lossy(answer));
    }
}

#[tokio::test]
async fn bytes_that_dribble_in_make_the_same_answer() {
    let rig = Rig::new().await;
    let engine = async {
        let mut stream = rig.accept().await;
        stream.set_nodelay(true).unwrap();
        read_request(&mut stream).await;
        for byte in b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
        {
            stream.write_all(&[*byte]).await.unwrap();
            tokio::task::yield_now().await;
        }
        stream
    };
    let client = async { whole(rig.send(b"{}").await.unwrap()).await };
    let (answer, _stream) = tokio::join!(client, engine);
    assert!(answer.is_clean);
    assert_eq!(answer.body, b"hello");
    assert_eq!(rig.idle(), 1);
}

#[tokio::test]
async fn what_must_not_be_used_again_is_closed() {
    for answer in [
        &b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok"[..],
        b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nokHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok\0rubbish",
    ] {
        let rig = Rig::new().await;
        let mut stream = None;
        let whole = rig.exchange(&mut stream, answer).await;
        assert_eq!(whole.body, b"ok");
        assert_eq!(rig.idle(), 0, "{}", String::from_utf8_lossy(answer));
        closed(&mut stream.unwrap()).await;
    }
}

#[tokio::test]
async fn a_body_that_is_cut_short_has_no_clean_end() {
    for answer in [
        &b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhel"[..],
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhel",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nhel\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nhel\r\n0\r\n",
    ] {
        let rig = Rig::new().await;
        let engine = async {
            let mut stream = rig.accept().await;
            read_request(&mut stream).await;
            stream.write_all(answer).await.unwrap();
        };
        let client = async { whole(rig.send(b"{}").await.unwrap()).await };
        let (whole, ()) = tokio::join!(client, engine);
        assert_eq!(whole.body, b"hel");
        assert!(!whole.is_clean, "{}", String::from_utf8_lossy(answer));
        assert_eq!(rig.idle(), 0);
    }
}

#[tokio::test]
async fn a_body_without_a_length_ends_with_the_connection() {
    let rig = Rig::new().await;
    let engine = async {
        let mut stream = rig.accept().await;
        read_request(&mut stream).await;
        stream
            .write_all(b"HTTP/1.1 200 OK\r\n\r\nhello")
            .await
            .unwrap();
    };
    let client = async { whole(rig.send(b"{}").await.unwrap()).await };
    let (whole, ()) = tokio::join!(client, engine);
    assert!(whole.is_clean);
    assert_eq!(whole.body, b"hello");
    assert_eq!(rig.idle(), 0);
}

#[tokio::test]
async fn a_length_beside_an_encoding_never_cuts_the_body() {
    let rig = Rig::new().await;
    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    let whole = rig.exchange(&mut None, answer).await;
    assert_eq!(whole.body, b"hello");
    assert!(!whole.headers.contains_key(CONTENT_LENGTH));
}

#[tokio::test]
async fn an_answer_may_have_256_headers() {
    for (count, fits) in [(ANSWER_HEADERS_MAX, true), (ANSWER_HEADERS_MAX + 1, false)] {
        let rig = Rig::new().await;
        let lines: String = (1..count).map(|n| format!("x-{n}: {n}\r\n")).collect();
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n{lines}\r\n");
        let engine = async {
            let mut stream = rig.accept().await;
            read_request(&mut stream).await;
            stream.write_all(answer.as_bytes()).await.unwrap();
        };
        let (sent, ()) = tokio::join!(rig.send(b"{}"), engine);
        assert_eq!(sent.is_ok(), fits, "{count}");
    }
}

#[tokio::test]
async fn an_early_refusal_arrives_although_the_upload_fails() {
    let upload = vec![b'x'; 9 << 20];
    for round in 0..5 {
        let rig = Rig::new().await;
        let engine = async {
            let mut stream = rig.accept().await;
            let mut some = [0; 1024];
            stream.read_exact(&mut some).await.unwrap();
            let refusal = b"HTTP/1.1 413 Payload Too Large\r\ncontent-length: 2\r\n\r\nno";
            stream.write_all(refusal).await.unwrap();
            // Unread bytes make this a reset.
        };
        let client = async { whole(rig.send(&upload).await.unwrap()).await };
        let (whole, ()) = tokio::join!(client, engine);
        assert_eq!(
            (whole.status, &whole.body[..]),
            (413, &b"no"[..]),
            "round {round}"
        );
        assert_eq!(rig.idle(), 0, "half a request lies on it");
    }
}

#[tokio::test]
async fn a_connection_that_the_peer_closed_while_idle_is_not_used() {
    let rig = Rig::new().await;
    let mut stream = None;
    rig.exchange(&mut stream, OK).await;
    drop(stream.take());
    // The close arrives with the next events of the runtime. A request before that meets a stale
    // connection.
    let answer = async {
        loop {
            match rig.send(b"{}").await {
                Ok(answer) => return whole(answer).await,
                Err(error) => assert!(matches!(error, SendError::Stale(_)), "{error:?}"),
            }
        }
    };
    let engine = async {
        let mut stream = rig.accept().await;
        read_request(&mut stream).await;
        stream.write_all(OK).await.unwrap();
    };
    let (answer, ()) = tokio::join!(answer, engine);
    assert_eq!(answer.body, b"ok");
}

#[tokio::test]
async fn a_reused_connection_that_dies_unanswered_is_stale_and_a_new_one_is_broken() {
    let rig = Rig::new().await;
    let mut stream = None;
    rig.exchange(&mut stream, OK).await;
    let engine = async {
        read_request(stream.as_mut().unwrap()).await;
        drop(stream);
    };
    let (sent, ()) = tokio::join!(rig.send(b"{}"), engine);
    assert!(matches!(sent, Err(SendError::Stale(_))), "{sent:?}");
    let engine = async {
        let mut stream = rig.accept().await;
        read_request(&mut stream).await;
    };
    let (sent, ()) = tokio::join!(rig.send(b"{}"), engine);
    assert!(matches!(sent, Err(SendError::Broken(_))), "{sent:?}");
}

#[tokio::test]
async fn half_a_head_on_a_reused_connection_is_not_stale() {
    let rig = Rig::new().await;
    let mut stream = None;
    rig.exchange(&mut stream, OK).await;
    let engine = async {
        let mut stream = stream.take().unwrap();
        read_request(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200").await.unwrap();
    };
    let (sent, ()) = tokio::join!(rig.send(b"{}"), engine);
    assert!(matches!(sent, Err(SendError::Broken(_))), "{sent:?}");
}

#[tokio::test]
async fn dropping_an_answer_in_mid_stream_closes_the_connection() {
    let rig = Rig::new().await;
    let engine = async {
        let mut stream = rig.accept().await;
        read_request(&mut stream).await;
        let head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n";
        stream.write_all(head).await.unwrap();
        stream
    };
    let (sent, mut stream) = tokio::join!(rig.send(b"{}"), engine);
    let mut body = sent.unwrap().into_body();
    body.frame().await.unwrap().unwrap();
    drop(body);
    closed(&mut stream).await;
    assert_eq!(rig.idle(), 0);
}

#[tokio::test]
async fn dropping_a_request_before_its_answer_closes_the_connection() {
    let rig = Rig::new().await;
    let mut stream = {
        let sent = rig.send(b"{}");
        let engine = async {
            let mut stream = rig.accept().await;
            read_request(&mut stream).await;
            stream
        };
        tokio::select! {
            _ = sent => panic!("nobody answered"),
            stream = engine => stream,
        }
    };
    closed(&mut stream).await;
}

#[tokio::test]
async fn a_sweep_closes_what_the_peer_closed_and_what_is_old() {
    let rig = Rig::new().await;
    let mut stream = None;
    rig.exchange(&mut stream, OK).await;
    rig.client.pools.sweep();
    assert_eq!(rig.idle(), 1);
    drop(stream.take());
    let gone = async {
        while rig.idle() > 0 {
            tokio::task::yield_now().await;
            rig.client.pools.sweep();
        }
    };
    tokio::time::timeout(PATIENCE, gone)
        .await
        .expect("closed connections are dropped");
    let mut stream = None;
    rig.exchange(&mut stream, OK).await;
    for _ in 0..3 {
        rig.client.pools.sweep();
        assert_eq!(rig.idle(), 1);
    }
    rig.client.pools.sweep();
    assert_eq!(rig.idle(), 0);
    closed(&mut stream.unwrap()).await;
}

#[tokio::test]
async fn a_changed_protocol_is_a_tunnel() {
    let rig = Rig::new().await;
    let engine = async {
        let mut stream = rig.accept().await;
        read_request(&mut stream).await;
        let head = b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\nhello";
        stream.write_all(head).await.unwrap();
        stream
    };
    let (sent, mut stream) = tokio::join!(rig.send(b""), engine);
    let mut tunnel = sent.unwrap().into_body().into_tunnel().expect("a tunnel");
    let mut heard = tunnel.read.to_vec();
    while heard.len() < 5 {
        tunnel.stream.read_buf(&mut heard).await.unwrap();
    }
    assert_eq!(heard, b"hello");
    tunnel.stream.write_all(b"echo").await.unwrap();
    let mut echo = [0; 4];
    stream.read_exact(&mut echo).await.unwrap();
    assert_eq!(&echo, b"echo");
    assert_eq!(rig.idle(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_exchanges_at_once_keep_their_bytes_apart() {
    let rig = Arc::new(Rig::new().await);
    let serving = Arc::clone(&rig);
    let mut tasks = tokio::task::JoinSet::new();
    let mut engine = tokio::task::JoinSet::new();
    engine.spawn(async move {
        let mut connections = tokio::task::JoinSet::new();
        loop {
            let mut stream = serving.accept().await;
            connections.spawn(async move {
                let mut request = Vec::new();
                while stream.read_buf(&mut request).await.unwrap_or(0) > 0 {
                    let text = String::from_utf8_lossy(&request).into_owned();
                    let Some((_, body)) = text.split_once("\r\n\r\n") else {
                        continue;
                    };
                    if body.len() < 8 {
                        continue;
                    }
                    let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
                    stream.write_all(head.as_bytes()).await.unwrap();
                    for _ in 0..20 {
                        let chunk = format!("{:x}\r\n{body}\r\n", body.len());
                        stream.write_all(chunk.as_bytes()).await.unwrap();
                        tokio::task::yield_now().await;
                    }
                    stream.write_all(b"0\r\n\r\n").await.unwrap();
                    request.clear();
                }
            });
        }
    });
    for task in 0..16 {
        let rig = Arc::clone(&rig);
        tasks.spawn(async move {
            for round in 0..20 {
                let name = format!("{task:04}{round:04}");
                let answer = whole(rig.send(name.as_bytes()).await.unwrap()).await;
                assert!(answer.is_clean);
                assert_eq!(answer.body, name.repeat(20).as_bytes());
            }
        });
    }
    tasks.join_all().await;
    engine.abort_all();
    assert!((1..=16).contains(&rig.idle()), "{}", rig.idle());
}
