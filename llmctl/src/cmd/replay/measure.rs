//! Sends one streamed request and measures it from the client's side: the time to the first token,
//! and the cached part of the prompt.

use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderMap};
use reqwest::Url;
use serde_json::Value;
use tokio::time::Instant;

use crate::client::root_cause;
use crate::exit::Failure;

/// Maximum size of one event line, bytes. A longer one is no chat stream.
const LINE_BYTES_MAX: usize = 1 << 20;
/// Maximum size of an error body that is searched for its message, bytes.
const ERROR_BYTES_MAX: usize = 64 * 1024;

/// The measurement of one turn.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Sample {
    /// Time from sending the request to the first chunk with content.
    pub ttft: Duration,
    /// `usage.prompt_tokens`.
    pub prompt_tokens: u64,
    /// `usage.prompt_tokens_details.cached_tokens`; `None` when the engine does not report it.
    pub cached_tokens: Option<u64>,
    /// The engine's answer.
    pub content: String,
}

/// Sends one streaming chat request and reads it to its end.
///
/// # Errors
/// [`Failure::Unreachable`] when nothing answers, [`Failure::Refused`] for an error answer or a
/// broken stream.
///
/// # Cancel safety
/// Dropping the future ends the request.
pub(super) async fn turn(
    http: &reqwest::Client,
    url: &Url,
    headers: HeaderMap,
    body: &Value,
) -> Result<Sample, Failure> {
    let begun = Instant::now();
    let request = http
        .post(url.clone())
        .headers(headers)
        .header(CONTENT_TYPE, "application/json");
    let mut response = request
        .body(body.to_string())
        .send()
        .await
        .map_err(|error| unreachable(url, &error))?;
    if !response.status().is_success() {
        return Err(refused(url, &refusal(response).await));
    }
    let mut stream = ChatStream::default();
    while let Some(chunk) = response
        .chunk()
        .await
        .map_err(|error| refused(url, &root_cause(&error)))?
    {
        stream
            .feed(&chunk, || Instant::now().duration_since(begun))
            .map_err(|why| refused(url, &why))?;
    }
    stream.finish().map_err(|why| refused(url, &why))
}

/// Reads a model list.
///
/// # Errors
/// As [`turn`].
pub(super) async fn models(
    http: &reqwest::Client,
    url: &Url,
    headers: HeaderMap,
) -> Result<Value, Failure> {
    let response = http
        .get(url.clone())
        .headers(headers)
        .send()
        .await
        .map_err(|error| unreachable(url, &error))?;
    if !response.status().is_success() {
        return Err(refused(url, &refusal(response).await));
    }
    response
        .json()
        .await
        .map_err(|error| refused(url, &root_cause(&error)))
}

fn unreachable(url: &Url, error: &reqwest::Error) -> Failure {
    Failure::Unreachable {
        router: url.to_string(),
        reason: root_cause(error),
    }
}

fn refused(url: &Url, reason: &str) -> Failure {
    Failure::Refused {
        router: url.to_string(),
        reason: reason.to_owned(),
    }
}

/// The message of an error answer, and its remedy.
async fn refusal(response: reqwest::Response) -> String {
    let status = response.status();
    let advice = match status {
        StatusCode::UNAUTHORIZED => "; pass --api-key-file with a key of the route",
        _ => "",
    };
    format!(
        "{} (HTTP {}){advice}",
        message_of(response).await,
        status.as_u16()
    )
}

async fn message_of(mut response: reqwest::Response) -> String {
    let mut body = Vec::new();
    while body.len() < ERROR_BYTES_MAX
        && let Ok(Some(chunk)) = response.chunk().await
    {
        body.extend_from_slice(&chunk);
    }
    let said: Option<Value> = serde_json::from_slice(&body).ok();
    let message = said
        .as_ref()
        .and_then(|said| said["error"]["message"].as_str());
    message.unwrap_or("no message").to_owned()
}

/// The state of a chat stream so far.
#[derive(Debug, Default)]
struct ChatStream {
    partial: Vec<u8>,
    sample: Sample,
    started: bool,
    done: bool,
}

impl ChatStream {
    /// Takes the next bytes, split anywhere. Calls `since_begin` when content first appears.
    fn feed(&mut self, bytes: &Bytes, since_begin: impl Fn() -> Duration) -> Result<(), String> {
        let mut rest = &bytes[..];
        while let Some(end) = rest.iter().position(|&b| b == b'\n') {
            self.partial.extend_from_slice(&rest[..end]);
            rest = &rest[end + 1..];
            let line = std::mem::take(&mut self.partial);
            self.line(&line, &since_begin)?;
        }
        self.partial.extend_from_slice(rest);
        if self.partial.len() > LINE_BYTES_MAX {
            return Err(format!("an event line longer than {LINE_BYTES_MAX} bytes"));
        }
        Ok(())
    }

    fn line(&mut self, line: &[u8], since_begin: impl Fn() -> Duration) -> Result<(), String> {
        let Some(data) = line.strip_prefix(b"data:") else {
            return Ok(());
        };
        let data = data.trim_ascii();
        if data == b"[DONE]" {
            self.done = true;
            return Ok(());
        }
        let chunk: Value = serde_json::from_slice(data)
            .map_err(|error| format!("a chunk is not JSON: {error}"))?;
        if let Some(error) = chunk.get("error") {
            return Err(error["message"]
                .as_str()
                .unwrap_or("an error in the stream")
                .to_owned());
        }
        if let Some(content) = chunk["choices"][0]["delta"]["content"]
            .as_str()
            .filter(|text| !text.is_empty())
        {
            if !self.started {
                self.started = true;
                self.sample.ttft = since_begin();
            }
            self.sample.content.push_str(content);
        }
        if let Some(prompt) = chunk["usage"]["prompt_tokens"].as_u64() {
            self.sample.prompt_tokens = prompt;
            self.sample.cached_tokens =
                chunk["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64();
        }
        Ok(())
    }

    fn finish(self) -> Result<Sample, String> {
        match (self.done, self.started) {
            (false, _) => Err("the stream ended before its [DONE]".to_owned()),
            (true, false) => Err("the stream held no content".to_owned()),
            (true, true) => Ok(self.sample),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &str = "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n\
        : comment\n\n\
        data: {\"choices\":[{\"delta\":{\"content\":\"hé\"}}]}\r\n\r\n\
        data: {\"choices\":[{\"delta\":{\"content\":\"llo\"}}]}\n\n\
        data: {\"choices\":[],\"usage\":{\"prompt_tokens\":64,\"prompt_tokens_details\":{\"cached_tokens\":48}}}\n\n\
        data: [DONE]\n\n";

    fn read(chunks: &[&[u8]]) -> Result<Sample, String> {
        let mut stream = ChatStream::default();
        for (index, chunk) in chunks.iter().enumerate() {
            stream.feed(&Bytes::copy_from_slice(chunk), || {
                Duration::from_millis(index as u64)
            })?;
        }
        stream.finish()
    }

    #[test]
    fn the_sample_is_the_same_wherever_the_stream_is_split() {
        for at in 0..=STREAM.len() {
            let (one, two) = STREAM.as_bytes().split_at(at);
            let sample = read(&[one, two]).unwrap();
            assert_eq!(
                (
                    sample.content.as_str(),
                    sample.prompt_tokens,
                    sample.cached_tokens
                ),
                ("héllo", 64, Some(48)),
                "{at}"
            );
        }
    }

    #[test]
    fn the_first_token_is_the_first_chunk_with_content() {
        let events: Vec<&[u8]> = STREAM.as_bytes().split_inclusive(|&b| b == b'\n').collect();
        let content = events
            .iter()
            .position(|line| line.windows(3).any(|w| w == "hé".as_bytes()))
            .unwrap();
        assert_eq!(
            read(&events).unwrap().ttft,
            Duration::from_millis(content as u64)
        );
    }

    #[test]
    fn a_stream_that_breaks_or_reports_an_error_is_no_sample() {
        assert!(
            read(&[&STREAM.as_bytes()[..STREAM.len() - 10]])
                .unwrap_err()
                .contains("[DONE]")
        );
        let error = read(&[b"data: {\"error\":{\"message\":\"engine died\"}}\n\n"]).unwrap_err();
        assert_eq!(error, "engine died");
    }
}
