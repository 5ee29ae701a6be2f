//! An engine that answers from memory, with each part in one write.

use std::net::SocketAddr;
use std::sync::Arc;

use system_tests::wire::find;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// Number of chunks in a stream.
pub(crate) const CHUNKS: usize = 64;

const EVENT: &str = r#"data: {"id":"chatcmpl-bench","object":"chat.completion.chunk","created":1700000000,"model":"bench","choices":[{"index":0,"delta":{"content":" to\nken"},"logprobs":null,"finish_reason":null}]}

"#;
const REPLY: &str = r#"{"id":"chatcmpl-bench","object":"chat.completion","created":1700000000,"model":"bench","choices":[{"index":0,"message":{"role":"assistant","content":"It says \"ok\".\n"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}"#;

/// A running engine.
pub(crate) struct Engine {
    pub(crate) address: SocketAddr,
    /// One permit releases the next chunk of a stepwise stream.
    pub(crate) steps: Arc<Semaphore>,
    _tasks: JoinSet<()>,
}

/// Starts the engine in this process.
pub(crate) async fn spawn() -> Engine {
    let listener = TcpListener::bind("127.0.0.1:0")
        .await
        .expect("loopback has free ports");
    let address = listener.local_addr().expect("it is bound");
    let steps = Arc::new(Semaphore::new(0));
    let mut tasks = JoinSet::new();
    let given = Arc::clone(&steps);
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            connections.spawn(serve(stream, Arc::clone(&given)));
        }
    });
    Engine {
        address,
        steps,
        _tasks: tasks,
    }
}

/// Answers until the other side closes.
async fn serve(mut stream: TcpStream, steps: Arc<Semaphore>) {
    stream
        .set_nodelay(true)
        .expect("a TCP socket takes TCP_NODELAY");
    let mut request = Vec::new();
    while let Some(kind) = read(&mut stream, &mut request).await {
        let sent = match kind {
            Kind::Reply => stream.write_all(&reply()).await,
            Kind::Burst => stream.write_all(&burst()).await,
            Kind::Steps => step_by_step(&mut stream, &steps).await,
        };
        if sent.is_err() {
            return;
        }
    }
}

/// The kind of answer that a request wants.
enum Kind {
    Reply,
    Burst,
    Steps,
}

/// Reads one request. `None` when the connection ends.
async fn read(stream: &mut TcpStream, request: &mut Vec<u8>) -> Option<Kind> {
    request.clear();
    loop {
        if stream.read_buf(request).await.ok()? == 0 {
            return None;
        }
        let Some(end) = find(request, b"\r\n\r\n") else {
            continue;
        };
        let head = String::from_utf8_lossy(&request[..end]).to_ascii_lowercase();
        let value = |name: &str| {
            let mut lines = head.lines().filter_map(|line| line.split_once(": "));
            lines.find_map(|(of, value)| (of == name).then_some(value))
        };
        let length: usize = value("content-length").map_or(Some(0), |text| text.parse().ok())?;
        if request.len() < end + 4 + length {
            continue;
        }
        return Some(match value("x-bench") {
            Some("burst") => Kind::Burst,
            Some("steps") => Kind::Steps,
            _ => Kind::Reply,
        });
    }
}

fn reply() -> Vec<u8> {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ndate: Tue, 01 Dec 2026 00:00:00 GMT\r\n";
    format!("{head}content-length: {}\r\n\r\n{REPLY}", REPLY.len()).into_bytes()
}

fn stream_head() -> String {
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        .to_owned()
}

fn chunk() -> String {
    format!("{:x}\r\n{EVENT}\r\n", EVENT.len())
}

fn burst() -> Vec<u8> {
    [
        stream_head(),
        chunk().repeat(CHUNKS),
        "0\r\n\r\n".to_owned(),
    ]
    .concat()
    .into_bytes()
}

async fn step_by_step(stream: &mut TcpStream, steps: &Semaphore) -> std::io::Result<()> {
    stream
        .write_all((stream_head() + &chunk()).as_bytes())
        .await?;
    for sent in 1..=CHUNKS {
        steps.acquire().await.expect("it stays open").forget();
        let part = match sent == CHUNKS {
            true => "0\r\n\r\n".to_owned(),
            false => chunk(),
        };
        stream.write_all(part.as_bytes()).await?;
    }
    Ok(())
}
