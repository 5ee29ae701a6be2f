//! Sends one request and reads its answer.

use std::time::Duration;

use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::Url;
use serde_json::Value;
use tokio::time::Instant;

use super::stream::{Answer, Api, Whole};
use crate::client::root_cause;

/// Most bytes of an error body that are searched for its code.
const ERROR_BYTES_MAX: usize = 64 * 1024;

/// The longest pause that a refusal may ask of a closed load.
pub(super) const RETRY_MAX: Duration = Duration::from_secs(1);

/// Pause after a failure that names none.
const RETRY_DEFAULT: Duration = Duration::from_millis(100);

/// The API under load.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) http: reqwest::Client,
    /// Without a trailing slash.
    pub(super) base: Url,
    pub(super) headers: HeaderMap,
    pub(super) session_header: Option<HeaderName>,
    pub(super) timeout: Duration,
}

/// Why a request has no answer.
#[derive(Debug)]
pub(super) struct Unanswered {
    /// Few different texts, without anything of the request in them.
    pub(super) class: String,
    /// How long to wait before the next request.
    pub(super) pause: Duration,
}

impl Unanswered {
    fn of(class: impl Into<String>) -> Self {
        Self {
            class: class.into(),
            pause: RETRY_DEFAULT,
        }
    }
}

impl Target {
    /// The address of `path` below the base.
    pub(super) fn address(&self, path: &str) -> Url {
        let mut url = self.base.clone();
        let joined = format!(
            "{}/{}",
            url.path().trim_end_matches('/'),
            path.trim_start_matches('/')
        );
        url.set_path(&joined);
        url
    }

    /// Sends one request and reads the answer to its end. Also returns how long it took.
    ///
    /// # Cancel safety
    /// Dropping the future ends the request.
    pub(super) async fn send(
        &self,
        path: &str,
        api: Api,
        session: &str,
        body: &Value,
    ) -> Result<(Whole, Duration), Unanswered> {
        let begun = Instant::now();
        let answered =
            tokio::time::timeout(self.timeout, self.exchange(path, api, session, body, begun));
        match answered.await {
            Ok(answered) => Ok((answered?, Instant::now().duration_since(begun))),
            Err(_) => Err(Unanswered::of(format!(
                "timeout: no end within {} s",
                self.timeout.as_secs_f64()
            ))),
        }
    }

    async fn exchange(
        &self,
        path: &str,
        api: Api,
        session: &str,
        body: &Value,
        begun: Instant,
    ) -> Result<Whole, Unanswered> {
        let mut headers = self.headers.clone();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if api == Api::Anthropic {
            headers.insert("anthropic-version", HeaderValue::from_static("2023-06-01"));
        }
        if let (Some(name), Ok(session)) = (&self.session_header, HeaderValue::from_str(session)) {
            headers.insert(name.clone(), session);
        }
        let request = self
            .http
            .post(self.address(path))
            .headers(headers)
            .body(body.to_string());
        let mut response = request
            .send()
            .await
            .map_err(|error| Unanswered::of(format!("connection: {}", root_cause(&error))))?;
        if !response.status().is_success() {
            return Err(refusal(response).await);
        }
        let mut answer = Answer::default();
        loop {
            match response.chunk().await {
                Ok(Some(chunk)) => answer.feed(&chunk, Instant::now().duration_since(begun)),
                Ok(None) => return answer.finish().map_err(Unanswered::of),
                Err(error) => return Err(Unanswered::of(format!("cut: {}", root_cause(&error)))),
            }
        }
    }
}

/// The class of an error answer: its status and its code or type.
async fn refusal(mut response: reqwest::Response) -> Unanswered {
    let status = response.status().as_u16();
    let seconds = response
        .headers()
        .get(RETRY_AFTER)
        .and_then(|value| value.to_str().ok()?.parse().ok());
    let pause = seconds
        .map_or(RETRY_DEFAULT, Duration::from_secs)
        .min(RETRY_MAX);
    let mut body = Vec::new();
    while body.len() < ERROR_BYTES_MAX
        && let Ok(Some(chunk)) = response.chunk().await
    {
        body.extend_from_slice(&chunk);
    }
    let said: Value = serde_json::from_slice(&body).unwrap_or_default();
    let word = ["code", "type"]
        .iter()
        .find_map(|name| said["error"][*name].as_str());
    let word: String = word.unwrap_or_default().chars().take(60).collect();
    Unanswered {
        class: format!("{status} {word}").trim_end().to_owned(),
        pause,
    }
}
