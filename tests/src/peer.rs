//! A scripted engine: an HTTP/1.1 server that records every request as it came over the wire. It
//! answers with the bytes that the test chooses, when the test chooses. It counts the requests that
//! run at once and notices when the other side closes. It answers probes (`GET /v1/models`, `GET
//! /health`) by itself, unless the script asks for them.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::wait::{until, within};
use crate::wire::{Headers, READ, find};

/// A request as it arrived.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The method.
    pub method: String,
    /// The target, raw.
    pub target: String,
    /// The header lines.
    pub headers: Headers,
    /// The body without its framing.
    pub body: Vec<u8>,
    /// The number of its connection, from 0.
    pub connection: usize,
    /// Its number on that connection, from 0.
    pub nth: usize,
}

impl Seen {
    /// Whether it is one of the router's probes.
    pub fn is_probe(&self) -> bool {
        self.method == "GET" && matches!(self.target.as_str(), "/v1/models" | "/health")
    }
}

/// The transport of a connection: TCP, or TLS over TCP.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// The script's access to one request.
pub struct Exchange {
    io: Option<Box<dyn Io>>,
    socket: Option<Arc<TcpStreamHandle>>,
    state: Arc<State>,
}

/// A duplicate of the socket, so that a script can reset it.
struct TcpStreamHandle(socket2::Socket);

impl Exchange {
    /// Sends bytes as they are. [`Exchange::gone`] notices a router that has closed its side.
    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        if let Some(io) = &mut self.io {
            let _router_may_be_gone = io.write_all(bytes.as_ref()).await;
            let _router_may_be_gone = io.flush().await;
        }
    }

    /// Sends a whole response with `content-length`.
    pub async fn reply(&mut self, status: u16, headers: &[(&str, &str)], body: impl AsRef<[u8]>) {
        let mut bytes = format!("HTTP/1.1 {status} Scripted\r\n");
        for (name, value) in headers {
            bytes += &format!("{name}: {value}\r\n");
        }
        bytes += &format!("content-length: {}\r\n\r\n", body.as_ref().len());
        self.send([bytes.as_bytes(), body.as_ref()].concat()).await;
    }

    /// Sends the head of a server-sent event stream.
    pub async fn open_stream(&mut self) {
        self.send("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n").await;
    }

    /// Sends one chunk of a chunked body.
    pub async fn chunk(&mut self, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        self.send([format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat())
            .await;
    }

    /// Ends a chunked body.
    pub async fn end_chunks(&mut self) {
        self.send("0\r\n\r\n").await;
    }

    /// Receives this many bytes after the request.
    ///
    /// # Panics
    ///
    /// When the router closes first.
    pub async fn receive(&mut self, bytes: usize) -> Vec<u8> {
        let mut received = vec![0; bytes];
        let io = self.io.as_mut().expect("the connection is open");
        io.read_exact(&mut received)
            .await
            .expect("the bytes arrive");
        received
    }

    /// Returns when the router has closed its side. The request then counts as cancelled.
    pub async fn gone(&mut self) {
        let Some(io) = &mut self.io else { return };
        let mut byte = [0];
        while matches!(io.read(&mut byte).await, Ok(n) if n > 0) {}
        self.state.tally.lock().cancelled += 1;
        self.io = None;
    }

    /// Waits until the gate lets one more step pass. Returns at once if the router closes first.
    pub async fn step(&mut self, gate: &Gate) {
        let passed = gate.0.clone();
        tokio::select! {
            permit = passed.acquire() => permit.expect("the gate is never closed").forget(),
            () = self.gone() => {}
        }
    }

    /// Closes the connection with FIN.
    pub fn close(&mut self) {
        if let Some(handle) = self.socket.take() {
            let _best_effort = handle.0.shutdown(std::net::Shutdown::Both);
        }
        self.io = None;
    }

    /// Breaks the connection with RST.
    pub fn reset(&mut self) {
        if let Some(handle) = self.socket.take() {
            let _best_effort = handle.0.set_linger(Some(std::time::Duration::ZERO));
        }
        self.io = None;
    }
}

/// Lets a test release a script step by step.
#[derive(Clone)]
pub struct Gate(Arc<Semaphore>);

impl Default for Gate {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(0)))
    }
}

impl Gate {
    /// Lets `n` more steps pass.
    pub fn open(&self, n: usize) {
        self.0.add_permits(n);
    }
}

/// The counts of a peer.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Requests in order of arrival, probes included.
    pub seen: Vec<Seen>,
    /// Connections accepted so far.
    pub connections: usize,
    /// Requests that are being answered now, without probes.
    pub running: usize,
    /// The most requests that ran at once.
    pub peak: usize,
    /// Requests whose other side closed while the script waited for that.
    pub cancelled: usize,
    /// Connections that sent something other than an HTTP request.
    pub malformed: usize,
}

type Script =
    dyn Fn(Seen, Exchange) -> Pin<Box<dyn Future<Output = Exchange> + Send>> + Send + Sync;

fn boxed<F>(script: impl Fn(Seen, Exchange) -> F + Send + Sync + 'static) -> Box<Script>
where
    F: Future<Output = Exchange> + Send + 'static,
{
    Box::new(move |seen, exchange| Box::pin(script(seen, exchange)))
}

struct State {
    tally: Mutex<Tally>,
    script: Box<Script>,
    probes: bool,
}

/// A running scripted engine. It stops when the value is dropped.
pub struct Peer {
    /// The address where it listens.
    pub address: SocketAddr,
    state: Arc<State>,
    _tasks: JoinSet<()>,
}

impl Peer {
    /// Starts an engine that answers every request except probes with `script`.
    pub async fn spawn<F>(script: impl Fn(Seen, Exchange) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Exchange> + Send + 'static,
    {
        Self::start(boxed(script), false, None).await
    }

    /// Like [`Peer::spawn`], but the script also gets the probes.
    pub async fn spawn_with_probes<F>(
        script: impl Fn(Seen, Exchange) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Exchange> + Send + 'static,
    {
        Self::start(boxed(script), true, None).await
    }

    /// Like [`Peer::spawn`], behind TLS.
    pub async fn spawn_tls<F>(
        acceptor: tokio_rustls::TlsAcceptor,
        script: impl Fn(Seen, Exchange) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Exchange> + Send + 'static,
    {
        Self::start(boxed(script), false, Some(acceptor)).await
    }

    /// An engine that answers every request with the same small chat completion.
    pub async fn plain() -> Self {
        Self::spawn(|_, mut exchange| async move {
            exchange
                .reply(200, &[("content-type", "application/json")], COMPLETION)
                .await;
            exchange
        })
        .await
    }

    /// An engine that answers every request with this status and body.
    pub async fn fixed(status: u16, body: &'static str) -> Self {
        Self::spawn(move |_, mut exchange| async move {
            exchange
                .reply(status, &[("content-type", "application/json")], body)
                .await;
            exchange
        })
        .await
    }

    /// An engine that holds every request until the gate opens, then answers as [`Peer::plain`].
    pub async fn gated(gate: &Gate) -> Self {
        let gate = gate.clone();
        Self::spawn(move |_, mut exchange| {
            let gate = gate.clone();
            async move {
                exchange.step(&gate).await;
                exchange
                    .reply(200, &[("content-type", "application/json")], COMPLETION)
                    .await;
                exchange
            }
        })
        .await
    }

    /// An engine that opens a stream, sends `first`, then one item of `rest` at each step of the
    /// gate, and ends the stream.
    pub async fn streaming(
        gate: &Gate,
        first: &'static str,
        rest: &'static [&'static str],
    ) -> Self {
        let gate = gate.clone();
        Self::spawn(move |_, mut exchange| {
            let gate = gate.clone();
            async move {
                exchange.open_stream().await;
                exchange.chunk(first).await;
                for chunk in rest {
                    exchange.step(&gate).await;
                    exchange.chunk(chunk).await;
                }
                exchange.end_chunks().await;
                exchange
            }
        })
        .await
    }

    async fn start(
        script: Box<Script>,
        probes: bool,
        tls: Option<tokio_rustls::TlsAcceptor>,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .expect("loopback has free ports");
        Self::on(listener, script, probes, tls)
    }

    fn on(
        listener: TcpListener,
        script: Box<Script>,
        probes: bool,
        tls: Option<tokio_rustls::TlsAcceptor>,
    ) -> Self {
        let address = listener
            .local_addr()
            .expect("a bound socket has an address");
        let state = Arc::new(State {
            tally: Mutex::default(),
            script,
            probes,
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, tls, state.clone()));
        Self {
            address,
            state,
            _tasks: tasks,
        }
    }

    /// A copy of the counts.
    pub fn tally(&self) -> Tally {
        self.state.tally.lock().clone()
    }

    /// The requests so far, without probes.
    pub fn requests(&self) -> Vec<Seen> {
        self.state
            .tally
            .lock()
            .seen
            .iter()
            .filter(|seen| !seen.is_probe())
            .cloned()
            .collect()
    }

    /// Waits until `n` requests (without probes) have arrived, and returns them.
    pub async fn arrived(&self, n: usize) -> Vec<Seen> {
        until(&format!("{n} requests at the engine"), || {
            self.requests().len() >= n
        })
        .await;
        self.requests()
    }

    /// Waits until `n` requests run at once.
    pub async fn running(&self, n: usize) {
        until(&format!("{n} requests running at the engine"), || {
            self.tally().running == n
        })
        .await;
    }

    /// Waits until `n` requests were cancelled.
    pub async fn cancelled(&self, n: usize) {
        until(&format!("{n} cancelled requests at the engine"), || {
            self.tally().cancelled >= n
        })
        .await;
    }

    /// `{address: 127.0.0.1:PORT}`, for a route file.
    pub fn yaml(&self) -> String {
        format!("{{address: {}}}", self.address)
    }
}

/// The answer of [`Peer::plain`].
pub const COMPLETION: &str = r#"{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"tiny","choices":[{"index":0,"message":{"role":"assistant","content":"hello"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":1,"total_tokens":4}}"#;

const MODELS: &str =
    r#"{"object":"list","data":[{"id":"tiny","object":"model","created":1,"owned_by":"test"}]}"#;

async fn accept(listener: TcpListener, tls: Option<tokio_rustls::TlsAcceptor>, state: Arc<State>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let number = {
            let mut tally = state.tally.lock();
            tally.connections += 1;
            tally.connections - 1
        };
        let (state, tls) = (state.clone(), tls.clone());
        connections.spawn(async move {
            let _best_effort = stream.set_nodelay(true);
            let socket = duplicate(&stream);
            let io: Box<dyn Io> = match tls {
                None => Box::new(stream),
                Some(acceptor) => match acceptor.accept(stream).await {
                    Ok(stream) => Box::new(stream),
                    Err(_) => return,
                },
            };
            serve(io, socket, number, state).await;
        });
    }
}

fn duplicate(stream: &TcpStream) -> Option<Arc<TcpStreamHandle>> {
    socket2::SockRef::from(stream)
        .try_clone()
        .ok()
        .map(|socket| Arc::new(TcpStreamHandle(socket)))
}

async fn serve(
    io: Box<dyn Io>,
    socket: Option<Arc<TcpStreamHandle>>,
    connection: usize,
    state: Arc<State>,
) {
    let (mut io, mut buffer, mut nth) = (io, Vec::new(), 0);
    loop {
        let seen = match read_request(&mut io, &mut buffer, connection, nth).await {
            Ok(Some(seen)) => seen,
            Ok(None) => return,
            Err(()) => {
                state.tally.lock().malformed += 1;
                return;
            }
        };
        nth += 1;
        state.tally.lock().seen.push(seen.clone());
        let mut exchange = Exchange {
            io: Some(io),
            socket: socket.clone(),
            state: state.clone(),
        };
        if seen.is_probe() && !state.probes {
            exchange
                .reply(200, &[("content-type", "application/json")], MODELS)
                .await;
        } else {
            let _running = Running::start(&state);
            exchange = (state.script)(seen, exchange).await;
        }
        match exchange.io {
            Some(rest) => io = rest,
            None => return,
        }
    }
}

/// Counts one running request until the script ends or is aborted.
struct Running(Arc<State>);

impl Running {
    fn start(state: &Arc<State>) -> Self {
        let mut tally = state.tally.lock();
        tally.running += 1;
        tally.peak = tally.peak.max(tally.running);
        Self(state.clone())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.tally.lock().running -= 1;
    }
}

/// Reads one request with `content-length` or chunked framing. `Ok(None)` when the connection ends,
/// also in the middle of a request.
async fn read_request(
    io: &mut Box<dyn Io>,
    buffer: &mut Vec<u8>,
    connection: usize,
    nth: usize,
) -> Result<Option<Seen>, ()> {
    let end = loop {
        if let Some(end) = find(buffer, b"\r\n\r\n") {
            break end;
        }
        if !more(io, buffer).await {
            return Ok(None);
        }
    };
    let head = String::from_utf8_lossy(&buffer[..end]).into_owned();
    buffer.drain(..end + 4);
    let mut lines = head.split("\r\n");
    let mut first = lines.next().unwrap_or_default().split(' ');
    let (Some(method), Some(target), Some("HTTP/1.1")) = (first.next(), first.next(), first.next())
    else {
        return Err(());
    };
    let headers = Headers::parse(lines);
    let mut seen = Seen {
        method: method.to_owned(),
        target: target.to_owned(),
        headers,
        body: Vec::new(),
        connection,
        nth,
    };
    if seen.headers.get("transfer-encoding").is_some() {
        return Ok(read_chunks(io, buffer, &mut seen).await.then_some(seen));
    }
    let length: usize = seen
        .headers
        .get("content-length")
        .map_or(Ok(0), str::parse)
        .map_err(|_| ())?;
    while buffer.len() < length {
        if !more(io, buffer).await {
            return Ok(None);
        }
    }
    seen.body = buffer.drain(..length).collect();
    Ok(Some(seen))
}

async fn read_chunks(io: &mut Box<dyn Io>, buffer: &mut Vec<u8>, seen: &mut Seen) -> bool {
    loop {
        let Some(line) = find(buffer, b"\r\n") else {
            if !more(io, buffer).await {
                return false;
            }
            continue;
        };
        let Ok(size) = usize::from_str_radix(String::from_utf8_lossy(&buffer[..line]).trim(), 16)
        else {
            return false;
        };
        while buffer.len() < line + size + 4 {
            if !more(io, buffer).await {
                return false;
            }
        }
        seen.body
            .extend_from_slice(&buffer[line + 2..line + 2 + size]);
        buffer.drain(..line + size + 4);
        if size == 0 {
            return true;
        }
    }
}

async fn more(io: &mut Box<dyn Io>, buffer: &mut Vec<u8>) -> bool {
    buffer.reserve(READ);
    matches!(io.read_buf(buffer).await, Ok(n) if n > 0)
}

/// An address that refuses connections while the value lives: it is bound, but nothing listens on
/// it.
pub struct Refusing {
    /// The address.
    pub address: SocketAddr,
    socket: socket2::Socket,
}

impl Refusing {
    /// Binds a port.
    pub fn bind() -> Self {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)
            .expect("a TCP socket");
        socket
            .bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into())
            .expect("loopback has free ports");
        let address = socket
            .local_addr()
            .expect("a bound socket has an address")
            .as_socket()
            .expect("an IP address");
        Self { address, socket }
    }

    /// Starts to listen, and answers like [`Peer::plain`].
    pub async fn recover(self) -> Peer {
        self.socket.listen(128).expect("a bound socket listens");
        self.socket
            .set_nonblocking(true)
            .expect("a TCP socket can be non-blocking");
        let listener = TcpListener::from_std(self.socket.into()).expect("inside the runtime");
        Peer::on(
            listener,
            boxed(|_, mut exchange| async move {
                exchange
                    .reply(200, &[("content-type", "application/json")], COMPLETION)
                    .await;
                exchange
            }),
            false,
            None,
        )
    }
}

/// An address that never completes a connection: its backlog is full and nothing accepts.
pub struct Blackhole {
    /// The address.
    pub address: SocketAddr,
    _listener: socket2::Socket,
    _waiting: JoinSet<std::io::Result<TcpStream>>,
}

impl Blackhole {
    /// Binds a port and fills its backlog.
    pub async fn open() -> Self {
        let listener = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)
            .expect("a TCP socket");
        listener
            .bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into())
            .expect("loopback has free ports");
        listener.listen(0).expect("a bound socket listens");
        let address = listener
            .local_addr()
            .expect("a bound socket has an address")
            .as_socket()
            .expect("an IP address");
        let mut waiting = JoinSet::new();
        for _ in 0..8 {
            waiting.spawn(TcpStream::connect(address));
        }
        // One connection fits into a backlog of zero. The others hang, as every later one will.
        let first = within("the backlog to fill", waiting.join_next())
            .await
            .expect("eight were started");
        waiting.spawn(async move { first.expect("connecting does not panic") });
        Self {
            address,
            _listener: listener,
            _waiting: waiting,
        }
    }
}
