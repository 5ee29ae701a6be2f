//! `bodylog-listener healthcheck`: asks the HTTP port of this machine, for images that have no curl.
//!
//! One request over a plain socket, blocking: the process lives for this question alone.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;

/// Most time to connect, and between two reads.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Largest answer that is read, bytes. Real ones are a line.
const ANSWER_MAX: u64 = 16 << 10;

/// Why the light is red.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Sick {
    /// Nobody answers.
    #[error("no answer from {address}: {source}")]
    Unreachable {
        /// Who was asked.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// It answers, and not with 200.
    #[error("not ready: {0}")]
    Unready(String),
}

/// Asks `path` of the port at `address`; an unspecified address means this machine.
pub(crate) fn run(mut address: SocketAddr, path: &str) -> Result<(), Sick> {
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
            SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        });
    }
    let answer = ask(address, path).map_err(|source| Sick::Unreachable { address, source })?;
    verdict(&answer)
}

fn ask(address: SocketAddr, path: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    )?;
    let mut answer = Vec::new();
    stream.take(ANSWER_MAX).read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// 200 is health; anything else is shown with its first line of text.
fn verdict(answer: &str) -> Result<(), Sick> {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((answer, ""));
    let status = head.lines().next().unwrap_or_default();
    match status.split_ascii_whitespace().nth(1) {
        Some("200") => Ok(()),
        Some(code) => {
            let said = body.trim().lines().next().unwrap_or_default();
            Err(Sick::Unready(format!("{code} {said}")))
        }
        None => Err(Sick::Unready("the answer is not HTTP".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn the_reason_of_a_refusal_is_shown() {
        let refused =
            "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 5\r\n\r\nthe disk is full\n";
        for (answer, expected) in [
            ("HTTP/1.1 200 OK\r\n\r\nok\n", None),
            (refused, Some("not ready: 503 the disk is full")),
            ("", Some("not ready: the answer is not HTTP")),
        ] {
            let said = verdict(answer).err().map(|sick| sick.to_string());
            assert_eq!(said.as_deref(), expected);
        }
    }

    #[test]
    fn a_port_nobody_listens_on_is_named() {
        let closed = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = closed.local_addr().unwrap();
        drop(closed);
        let error = run(address, "/healthz").unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("no answer from {address}: ")),
            "{error}"
        );
    }
}
