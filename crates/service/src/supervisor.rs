//! Reports the state of the process to the supervisor by systemd's notify protocol. Without a
//! notify socket this does nothing.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io;
use std::os::unix::ffi::OsStrExt as _;

use sd_notify::NotifyState;

/// Reports that every port listens.
pub fn ready() {
    tell(&[NotifyState::Ready]);
}

/// Reports that a reload begins; [`ready`] reports its end. systemd uses the time to match it with
/// the reload that it requested.
pub fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(error) => tracing::debug!(%error, "no monotonic clock for the supervisor"),
    }
}

/// Reports that the process drains and then ends.
pub fn stopping() {
    tell(&[NotifyState::Stopping]);
}

fn tell(state: &[NotifyState<'_>]) {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    if let Err(error) = send(&socket, state) {
        tracing::debug!(%error, "the supervisor was not notified");
    }
}

/// Sends `state` to the socket. `sd_notify` takes every name as a path, but a leading `@` means an
/// abstract socket.
fn send(socket: &OsStr, state: &[NotifyState<'_>]) -> io::Result<()> {
    match socket.as_bytes().strip_prefix(b"@") {
        Some(name) => {
            let mut text = String::new();
            for entry in state {
                let _ = writeln!(text, "{entry}");
            }
            send_abstract(name, text.as_bytes())
        }
        None => sd_notify::notify(state),
    }
}

#[cfg(target_os = "linux")]
fn send_abstract(name: &[u8], text: &[u8]) -> io::Result<()> {
    use std::os::linux::net::SocketAddrExt as _;
    use std::os::unix::net::{SocketAddr, UnixDatagram};

    let address = SocketAddr::from_abstract_name(name)?;
    UnixDatagram::unbound()?.send_to_addr(text, &address)?;
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn send_abstract(_name: &[u8], _text: &[u8]) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::os::linux::net::SocketAddrExt as _;
    use std::os::unix::net::{SocketAddr, UnixDatagram};

    use super::*;

    #[test]
    fn an_abstract_socket_is_notified() {
        let name = format!("llm-router-supervisor-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let supervisor = UnixDatagram::bind_addr(&address).unwrap();
        supervisor.set_nonblocking(true).unwrap();
        let socket = format!("@{name}");
        send(OsStr::new(&socket), &[NotifyState::Ready]).unwrap();
        let mut datagram = [0; 64];
        let length = supervisor.recv(&mut datagram).unwrap();
        assert_eq!(&datagram[..length], b"READY=1\n");
    }
}
