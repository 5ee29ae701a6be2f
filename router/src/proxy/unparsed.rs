//! Answers to heads that hyper cannot parse.
//!
//! Such a request never reaches the handler: hyper writes a bare status and closes the connection.
//! This module replaces that bare head on its way out by an answer in the style of the router's
//! other errors, with a body that states the problem.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use tokio::io::AsyncWrite;

use super::error::{ApiError, Dialect};
use super::limits::{HEADER_BYTES_MAX, HEADERS_MAX, REQUEST_LINE_MAX};
use super::respond;

/// Longest bare head: its date has a fixed length, and the reason phrase is short.
const BARE_MAX: usize = 200;

/// The replacement answer if `written` is a bare error head of hyper. Each response of the router
/// itself carries a request id, so none is mistaken for a bare head.
pub(super) fn answer(written: &[u8]) -> Option<Bytes> {
    if written.len() > BARE_MAX || !written.starts_with(b"HTTP/1.") {
        return None;
    }
    let head = std::str::from_utf8(written).ok()?;
    let (status_line, rest) = head.split_once("\r\n")?;
    let date = rest.strip_prefix("connection: close\r\ncontent-length: 0\r\n")?;
    let date = date.strip_suffix("\r\n\r\n")?;
    if !date.starts_with("date: ") || date.contains('\r') {
        return None;
    }
    let error = match status_line.split(' ').nth(1)? {
        "400" => ApiError::not_http(),
        "414" => ApiError::uri_too_long(REQUEST_LINE_MAX),
        "431" => ApiError::headers_too_large(HEADER_BYTES_MAX, HEADERS_MAX),
        _ => return None,
    };
    Some(whole(status_line, date, &error))
}

/// The answer to a connection that is one too many.
pub(super) fn too_many_connections() -> Bytes {
    let status_line = "HTTP/1.1 503 Service Unavailable";
    let error = ApiError::too_many_connections();
    whole(status_line, "connection: close", &error)
}

fn whole(status_line: &str, date: &str, error: &ApiError) -> Bytes {
    let (head, body) = error.response(Dialect::OpenAi).into_parts();
    let mut text = format!("{status_line}\r\n").into_bytes();
    for (name, value) in &head.headers {
        text.extend_from_slice(name.as_str().as_bytes());
        text.extend_from_slice(b": ");
        text.extend_from_slice(value.as_bytes());
        text.extend_from_slice(b"\r\n");
    }
    let (id, rid) = (respond::REQUEST_ID, respond::new_request_id());
    let length = body.len();
    text.extend_from_slice(
        format!("{id}: {rid}\r\ncontent-length: {length}\r\n{date}\r\n\r\n").as_bytes(),
    );
    text.extend_from_slice(&body);
    text.into()
}

/// An answer that is written to the socket in place of another.
#[derive(Debug, Default)]
pub(super) struct Rewrite(Bytes);

impl Rewrite {
    /// Starts writing an answer.
    pub(super) fn begin(&mut self, answer: Bytes) {
        self.0 = answer;
    }

    /// Ready when everything is written.
    pub(super) fn poll<S>(&mut self, stream: &mut S, cx: &mut Context<'_>) -> Poll<io::Result<()>>
    where
        S: AsyncWrite + Unpin,
    {
        while self.0.has_remaining() {
            let written = ready!(Pin::new(&mut *stream).poll_write(cx, &self.0))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.0.advance(written);
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;

    use http::{Request, Response};
    use hyper::body::Incoming;
    use hyper::service::service_fn;
    use hyper_util::rt::TokioIo;

    use super::super::head::Watched;
    use super::super::serve::builder;
    use super::*;

    const BARE: &str = "HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\ndate: Sun, 29 Nov 2026 23:51:39 GMT\r\n\r\n";

    #[test]
    fn a_bare_head_becomes_an_error_with_a_body() {
        let text = answer(BARE.as_bytes()).unwrap();
        let text = std::str::from_utf8(&text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 431 ") && head.contains("\r\nx-request-id: "));
        assert!(head.contains(&format!("\r\ncontent-length: {}\r\n", body.len())));
        let json: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(json["error"]["code"], "headers_too_large");
    }

    /// The answer to an unparsable head, exactly as this version of hyper writes it.
    async fn answer_to(head: Vec<u8>) -> String {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};

        let (mut client, server) = tokio::io::duplex(1 << 20);
        let io = TokioIo::new(Watched::new(server, Arc::default()));
        let service = service_fn(|_: Request<Incoming>| async {
            Ok::<_, Infallible>(Response::new(String::new()))
        });
        let connection = builder().serve_connection(io, service).into_owned();
        let talk = async move {
            client.write_all(&head).await.unwrap();
            client.shutdown().await.unwrap();
            let mut answer = String::new();
            client.read_to_string(&mut answer).await.unwrap();
            answer
        };
        let (_, answer) = tokio::join!(connection, talk);
        answer
    }

    #[tokio::test]
    async fn hyper_writes_the_bare_heads_that_are_replaced() {
        let long = "a".repeat(70_000);
        let lengths = "content-length: 99999999999999999999";
        for (head, code) in [
            ("no http\r\n\r\n".to_owned(), "bad_request"),
            (
                format!("POST / HTTP/1.1\r\nhost: a\r\n{lengths}\r\n\r\n"),
                "bad_request",
            ),
            (format!("GET /{long} HTTP/1.1\r\n\r\n"), "uri_too_long"),
            (
                format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(300)),
                "headers_too_large",
            ),
        ] {
            let answer = answer_to(head.into_bytes()).await;
            let (_, body) = answer.split_once("\r\n\r\n").expect(code);
            let body: serde_json::Value = serde_json::from_str(body).expect(code);
            assert_eq!(body["error"]["code"], code, "{answer}");
        }
    }

    #[test]
    fn every_such_answer_says_that_the_connection_ends() {
        for status in ["400 Bad Request", "414 URI Too Long"] {
            let bare = BARE.replace("431 Request Header Fields Too Large", status);
            let text = answer(bare.as_bytes()).unwrap();
            let text = std::str::from_utf8(&text).unwrap();
            assert!(text.contains("\r\nconnection: close\r\n"), "{text}");
        }
    }

    #[test]
    fn no_other_response_is_touched() {
        let with_id = BARE.replace("date: ", "x-request-id: a\r\ndate: ");
        let with_body = BARE.replace("content-length: 0", "content-length: 1");
        let fine = BARE.replace("431", "200");
        for text in [with_id, with_body, fine, String::new(), BARE[..90].into()] {
            assert_eq!(answer(text.as_bytes()), None, "{text:?}");
        }
    }
}
