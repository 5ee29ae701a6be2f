//! Checks over a local port whether a program is healthy, for images without curl.
//!
//! Sends one request over a plain blocking socket, because the process does nothing else.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;

/// The longest time to connect, and between two reads.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Largest answer that is read, in bytes. A probe answers with one line; a listing grows with the
/// configuration.
const ANSWER_MAX: u64 = 16 << 20;

/// The reason why a check failed.
#[derive(Debug, thiserror::Error)]
pub enum Unhealthy {
    /// No answer, or not in HTTP.
    #[error("no answer from {address}: {source}")]
    Unreachable {
        /// The address that was checked.
        address: SocketAddr,
        /// The error of the system.
        source: io::Error,
    },
    /// The program answers that it is not healthy.
    #[error("not ready: {0}")]
    Unready(String),
}

/// An answer.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    /// Status code.
    pub status: u16,
    /// The body after the head.
    pub body: String,
}

impl Answer {
    /// 200 means healthy. Any other status is reported with the first line of its text.
    ///
    /// # Errors
    /// [`Unhealthy::Unready`].
    pub fn verdict(&self) -> Result<(), Unhealthy> {
        if self.status == 200 {
            return Ok(());
        }
        let said = self.body.trim().lines().next().unwrap_or_default();
        Err(Unhealthy::Unready(format!("{} {said}", self.status)))
    }
}

/// Checks whether the program that serves `path` at `address` is healthy.
///
/// # Errors
/// [`Unhealthy`], with the reason.
pub fn run(address: SocketAddr, path: &str) -> Result<(), Unhealthy> {
    ask(address, path)?.verdict()
}

/// Requests `path` from the port at `address`. An unspecified address means this machine.
///
/// # Errors
/// [`Unhealthy::Unreachable`].
pub fn ask(address: SocketAddr, path: &str) -> Result<Answer, Unhealthy> {
    let address = reachable(address);
    let answered = exchange(address, path).and_then(|answer| parse(&answer));
    answered.map_err(|source| Unhealthy::Unreachable { address, source })
}

fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
            SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        });
    }
    address
}

fn exchange(address: SocketAddr, path: &str) -> io::Result<String> {
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

fn parse(answer: &str) -> io::Result<Answer> {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((answer, ""));
    let status = head.strip_prefix("HTTP/1.");
    let status = status.and_then(|line| line.split_ascii_whitespace().nth(1)?.parse().ok());
    let not_http = || io::Error::new(io::ErrorKind::InvalidData, "the answer is not HTTP");
    Ok(Answer {
        status: status.ok_or_else(not_http)?,
        body: body.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn the_reason_of_a_refusal_is_shown() {
        let refused =
            "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 17\r\n\r\nthe disk is full\n";
        for (answer, expected) in [
            ("HTTP/1.1 200 OK\r\n\r\nok\n", None),
            (refused, Some("not ready: 503 the disk is full")),
        ] {
            let said = parse(answer).unwrap().verdict().err();
            assert_eq!(said.map(|sick| sick.to_string()).as_deref(), expected);
        }
    }

    #[test]
    fn what_is_not_http_is_no_answer() {
        for answer in ["", "SSH-2.0-x\r\n", "HTTP/1.1", "HTTP/1.1 fine\r\n\r\n"] {
            let error = parse(answer).unwrap_err();
            assert_eq!(error.to_string(), "the answer is not HTTP", "{answer:?}");
        }
    }

    #[test]
    fn an_unspecified_address_means_this_machine() {
        for (address, asked) in [
            ("0.0.0.0:9998", "127.0.0.1:9998"),
            ("[::]:9998", "[::1]:9998"),
            ("10.0.0.7:9998", "10.0.0.7:9998"),
        ] {
            assert_eq!(reachable(address.parse().unwrap()).to_string(), asked);
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
