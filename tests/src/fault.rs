//! A TCP proxy that misbehaves on command. It sits between the router and an engine, and the engine
//! does not know about it.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::wire::{READ, reset};

/// What the proxy does to every connection, open ones included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No fault: bytes pass.
    None,
    /// Delays each piece by this time.
    Delay(Duration),
    /// Closes once this many response bytes have passed.
    CutAfter(usize),
    /// Closes with RST once this many response bytes have passed.
    ResetAfter(usize),
    /// Accepts, and passes nothing.
    Silent,
}

/// A running proxy. It ends with its value.
pub struct Proxy {
    /// The address where it listens.
    pub address: SocketAddr,
    fault: watch::Sender<Fault>,
    _tasks: JoinSet<()>,
}

impl Proxy {
    /// Starts a proxy in front of `upstream`.
    pub async fn spawn(upstream: SocketAddr, fault: Fault) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .expect("loopback has free ports");
        let address = listener
            .local_addr()
            .expect("a bound socket has an address");
        let (fault, faults) = watch::channel(fault);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                connections.spawn(carry(client, upstream, faults.clone()));
            }
        });
        Self {
            address,
            fault,
            _tasks: tasks,
        }
    }

    /// Changes the fault from now on.
    pub fn set(&self, fault: Fault) {
        self.fault.send_replace(fault);
    }
}

/// How a proxied connection ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ending {
    Close,
    Reset,
}

async fn carry(mut client: TcpStream, upstream: SocketAddr, faults: watch::Receiver<Fault>) {
    let Ok(mut server) = TcpStream::connect(upstream).await else {
        return;
    };
    let ending = {
        let (client_read, client_write) = client.split();
        let (server_read, server_write) = server.split();
        tokio::select! {
            ending = backward(server_read, client_write, faults.clone()) => ending,
            () = forward(client_read, server_write, faults) => Ending::Close,
        }
    };
    if ending == Ending::Reset {
        reset(client);
    }
}

/// Copies from client to engine until either side closes.
async fn forward(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    mut faults: watch::Receiver<Fault>,
) {
    let mut piece = vec![0; READ];
    while let Ok(n) = from.read(&mut piece).await {
        if n == 0 || !passes(&mut faults).await || to.write_all(&piece[..n]).await.is_err() {
            return;
        }
    }
}

/// Copies from engine to client until either side closes or the fault ends the connection.
async fn backward(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    mut faults: watch::Receiver<Fault>,
) -> Ending {
    let (mut piece, mut passed) = (vec![0; READ], 0);
    loop {
        let room = match *faults.borrow_and_update() {
            Fault::CutAfter(limit) if passed >= limit => return Ending::Close,
            Fault::ResetAfter(limit) if passed >= limit => return Ending::Reset,
            Fault::CutAfter(limit) | Fault::ResetAfter(limit) => piece.len().min(limit - passed),
            Fault::None | Fault::Delay(_) | Fault::Silent => piece.len(),
        };
        let read = tokio::select! {
            changed = faults.changed() => if changed.is_ok() { continue } else { return Ending::Close },
            read = from.read(&mut piece[..room]) => read,
        };
        match read {
            Ok(n)
                if n > 0
                    && passes(&mut faults).await
                    && to.write_all(&piece[..n]).await.is_ok() =>
            {
                passed += n;
            }
            _ => return Ending::Close,
        }
    }
}

/// Waits as the fault demands. Returns `false` when the piece must not pass.
async fn passes(faults: &mut watch::Receiver<Fault>) -> bool {
    let fault = *faults.borrow();
    match fault {
        Fault::Delay(delay) => sleep(delay).await,
        Fault::Silent => {}
        _ => return true,
    }
    faults
        .wait_for(|fault| *fault != Fault::Silent)
        .await
        .is_ok()
}
