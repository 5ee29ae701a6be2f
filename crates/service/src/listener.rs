//! Listening sockets: those that a supervisor passes to the process, else our own.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use listenfd::ListenFd;
use socket2::{Domain, SockRef, Socket, Type};
use tokio::net::TcpListener;

/// Connections that may wait to be accepted. The kernel caps this at `net.core.somaxconn`. With the
/// usual 128, a burst of connections overflows the queue and waits for a second or more.
const BACKLOG: i32 = 4096;

/// The program cannot listen on an address.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {source}")]
pub struct ListenError {
    /// The address.
    pub address: SocketAddr,
    /// The error of the system.
    pub source: io::Error,
}

/// The sockets that a supervisor opened for this process, in the order of its unit file.
pub struct Inherited(ListenFd);

impl fmt::Debug for Inherited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Inherited({})", self.0.len())
    }
}

impl Inherited {
    /// Takes the sockets that the environment names.
    pub fn from_env() -> Self {
        Self(ListenFd::from_env())
    }

    /// Listens on the inherited socket with this index, or on `address` if there is none.
    ///
    /// Needs a running Tokio runtime.
    ///
    /// # Errors
    /// When the inherited descriptor is not a TCP listener, or the address cannot be used.
    pub fn listen(
        &mut self,
        index: usize,
        address: SocketAddr,
    ) -> Result<TcpListener, ListenError> {
        let listener = match self.0.take_tcp_listener(index) {
            Ok(Some(socket)) => adopt(socket),
            Ok(None) => bind(address),
            Err(error) => Err(error),
        };
        listener.map_err(|source| ListenError { address, source })
    }
}

/// Listens on an address. Needs a running Tokio runtime.
///
/// # Errors
/// When the address cannot be used.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    // The standard library does the same: a restart must not wait for old connections.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

fn adopt(socket: std::net::TcpListener) -> io::Result<TcpListener> {
    socket.set_nonblocking(true)?;
    // A second `listen` only changes the backlog; the supervisor's default is often smaller.
    if let Err(error) = SockRef::from(&socket).listen(BACKLOG) {
        tracing::debug!(%error, "the backlog of an inherited socket stays as it is");
    }
    TcpListener::from_std(socket)
}
