//! Errors that the router itself makes: one type, and one place that turns it into a response in
//! the client's dialect. The public text is for the client; causes go to the log.

mod refused;

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use router_core::rules::Rule;
use serde::Serialize;
use serde_json::Value;

use crate::content::{FormError, Unreadable};
use crate::state::OwnerRefusal;

/// Which API the client speaks. The path decides it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// OpenAI, for every path that is not listed below.
    OpenAi,
    /// OpenAI with named events: `/v1/responses` and paths below it.
    Responses,
    /// Anthropic: `/v1/messages` and paths below it.
    Anthropic,
}

impl Dialect {
    /// The dialect of a path without its route prefix.
    pub fn of(path: &str) -> Self {
        let is = |api: &str| {
            let rest = path.strip_prefix(api);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        if is("/v1/messages") {
            Self::Anthropic
        } else if is("/v1/responses") {
            Self::Responses
        } else {
            Self::OpenAi
        }
    }
}

/// Whether the client should retry. Without advice, the OpenAI and Anthropic SDKs retry 408, 409,
/// 429 and 5xx twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// No advice: the SDK's own rule applies.
    Unsaid,
    /// A retry cannot help.
    Useless,
    /// Retry after this time at the earliest.
    After(Duration),
}

/// One error made by the router.
#[derive(Clone, Debug)]
pub struct ApiError {
    status: StatusCode,
    code: &'static str,
    message: Cow<'static, str>,
    /// In the order of the body. No key occurs twice.
    details: Vec<(Cow<'static, str>, Value)>,
    /// More details, as members of a JSON object: the core writes its numbers itself.
    numbers: Box<str>,
    retry: Retry,
    closes: bool,
    allow: Option<&'static str>,
    /// Another route may take the request: no peer of this one has taken it.
    may_fall_back: bool,
}

/// When an owner with all its places taken may ask again; when one of its requests ends is not
/// known.
const OWNER_RETRY: Duration = Duration::from_secs(1);

/// Maximum number of models listed in an error.
const MODELS_MAX: usize = 50;

impl ApiError {
    fn new(
        status: StatusCode,
        code: &'static str,
        message: impl Into<Cow<'static, str>>,
        retry: Retry,
    ) -> Self {
        Self {
            status,
            code,
            message: message.into(),
            details: Vec::new(),
            numbers: Box::default(),
            retry,
            closes: false,
            allow: None,
            may_fall_back: false,
        }
    }

    fn with(mut self, key: impl Into<Cow<'static, str>>, value: impl Into<Value>) -> Self {
        let (key, value) = (key.into(), value.into());
        match self.details.iter_mut().find(|(known, _)| *known == key) {
            Some((_, known)) => *known = value,
            None => self.details.push((key, value)),
        }
        self
    }

    /// Adds the route to the details.
    #[must_use]
    pub fn on_route(self, route: &str) -> Self {
        self.with("route", route)
    }

    /// Lets another route take the request.
    pub(super) fn falling_back(mut self) -> Self {
        self.may_fall_back = true;
        self
    }

    /// Whether another route may take the request.
    pub(super) fn may_fall_back(&self) -> bool {
        self.may_fall_back
    }

    /// Closes the connection with this answer, because the rest of the request is not worth
    /// reading.
    pub(super) fn closing(mut self) -> Self {
        self.closes = true;
        self
    }

    /// 400: the request itself is malformed; `message` says how.
    pub fn bad_request(code: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, code, message, Retry::Useless)
    }

    /// 400 for bytes that are not an HTTP request.
    pub fn not_http() -> Self {
        Self::bad_request("bad_request", "the request is not valid HTTP").closing()
    }

    /// 400 for framing that another hop may read differently.
    pub fn ambiguous_framing() -> Self {
        Self::bad_request(
            "ambiguous_framing",
            "the message's length is given in more than one way",
        )
        .closing()
    }

    /// 400 on a by-model route: the model is missing or not configured.
    pub fn model_not_supported<'a>(
        model: Option<&str>,
        supported: impl Iterator<Item = &'a str>,
    ) -> Self {
        let message = match model {
            Some(model) => format!("model '{}' is not configured on this route", clip(model)),
            None => "this route needs a 'model': a string in JSON, or a field of a form".to_owned(),
        };
        let supported: Vec<&str> = supported.collect();
        Self::bad_request("model_not_supported", message).with("supported_models", supported)
    }

    /// 401. Missing and wrong keys get identical bytes.
    pub fn invalid_api_key() -> Self {
        let message = "missing or invalid API key; send it as 'Authorization: Bearer <key>' or 'x-api-key: <key>'";
        Self::new(
            StatusCode::UNAUTHORIZED,
            "invalid_api_key",
            message,
            Retry::Useless,
        )
    }

    /// 429: the owner of the key uses as much as it may.
    pub fn owner_refused(owner: &str, why: OwnerRefusal) -> Self {
        let status = StatusCode::TOO_MANY_REQUESTS;
        let owner = clip(owner);
        match why {
            OwnerRefusal::Concurrency { in_flight, limit } => {
                let message = format!(
                    "the limit of '{owner}' is reached: {in_flight} requests are running or waiting, at most {limit} may"
                );
                let retry = Retry::After(OWNER_RETRY);
                Self::new(status, "owner_limit", message, retry)
                    .with("owner", owner)
                    .with("in_flight", in_flight)
                    .with("limit", limit)
            }
            OwnerRefusal::Rate { limit, after } => {
                let message =
                    format!("requests of '{owner}' come too fast: {limit} may begin in a minute");
                Self::new(status, "owner_rate_limit", message, Retry::After(after))
                    .with("owner", owner)
                    .with("limit", limit)
            }
        }
    }

    /// 403: a web page of this origin may not call the router.
    pub fn origin_not_allowed(origin: &str) -> Self {
        let message = format!(
            "pages of the origin '{}' may not call this router; `server.cors.origins` lists those that may",
            clip(origin)
        );
        let status = StatusCode::FORBIDDEN;
        Self::new(status, "origin_not_allowed", message, Retry::Useless)
    }

    /// 404: no such route. Lists the routes if the caller may know them.
    pub fn route_not_found(
        message: impl Into<Cow<'static, str>>,
        routes: Option<Vec<&str>>,
    ) -> Self {
        let error = Self::new(
            StatusCode::NOT_FOUND,
            "route_not_found",
            message,
            Retry::Useless,
        );
        match routes {
            Some(routes) => error.listing(routes),
            None => error,
        }
    }

    /// 404: no peer serves this model.
    pub fn model_not_found(model: &str) -> Self {
        let message = format!("model '{}' is not served here", clip(model));
        Self::new(
            StatusCode::NOT_FOUND,
            "model_not_found",
            message,
            Retry::Useless,
        )
    }

    /// 404: no peer is known to store the object that the path names.
    pub fn stored_not_known() -> Self {
        let message = "no peer is known to store this id; ids are remembered for 24 hours by the router that saw them made. \
                       Use the path of the route, /<route>/v1/…, on which it was made";
        let status = StatusCode::NOT_FOUND;
        Self::new(status, "id_not_found", message, Retry::Useless)
    }

    /// 405 with the allowed methods.
    pub fn method_not_allowed(allow: &'static str) -> Self {
        let message = format!("this path takes {allow}");
        let status = StatusCode::METHOD_NOT_ALLOWED;
        let error = Self::new(status, "method_not_allowed", message, Retry::Useless);
        Self {
            allow: Some(allow),
            ..error
        }
    }

    /// 408: the client stopped sending its body, or sends it too slowly.
    pub fn body_timeout(message: String) -> Self {
        Self::new(
            StatusCode::REQUEST_TIMEOUT,
            "request_timeout",
            message,
            Retry::Useless,
        )
        .closing()
    }

    /// 408: a body that is sent on as it arrives paused for this long.
    pub fn body_paused(limit: Duration) -> Self {
        Self::body_timeout(format!("the request body paused for {} s", limit.as_secs()))
    }

    /// 400: the client's framing broke.
    pub fn body_broke_off() -> Self {
        Self::bad_request("bad_body", "the request body broke off")
    }

    /// 413 with the limit in bytes.
    pub fn body_too_large(limit: u64) -> Self {
        let message = format!("the request body is larger than {limit} bytes");
        Self::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "body_too_large",
            message,
            Retry::Useless,
        )
        .with("limit", limit)
        .closing()
    }

    /// 414 with the limit in bytes.
    pub fn uri_too_long(limit: usize) -> Self {
        let message = format!("the request line is longer than {limit} bytes");
        Self::new(
            StatusCode::URI_TOO_LONG,
            "uri_too_long",
            message,
            Retry::Useless,
        )
        .with("limit", limit)
        .closing()
    }

    /// Adds the list of served models, at most `MODELS_MAX`.
    #[must_use]
    pub fn listing_models(self, models: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let models = models.into_iter().take(MODELS_MAX);
        let models: Vec<String> = models
            .map(|model| clip(model.as_ref()).to_owned())
            .collect();
        self.with("supported_models", models)
    }

    /// Adds the list of existing routes.
    #[must_use]
    pub fn listing(self, routes: Vec<&str>) -> Self {
        self.with("routes", routes)
    }

    /// 431 with both limits.
    pub fn headers_too_large(bytes: usize, count: usize) -> Self {
        let message = format!("the header block exceeds {bytes} bytes or {count} headers");
        Self::new(
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            "headers_too_large",
            message,
            Retry::Useless,
        )
        .with("limit_bytes", bytes)
        .with("limit_headers", count)
        .closing()
    }

    /// The refusal of a content rule. `status` applies to rules without a status of their own.
    pub fn rejected_by_rule(rule: &Rule, status: u16) -> Self {
        let status = StatusCode::from_u16(rule.status.unwrap_or(status));
        let message = match &rule.message {
            Some(message) => message.to_string(),
            None => format!("request rejected by rule '{}'", rule.name),
        };
        let status = status.unwrap_or(StatusCode::TOO_MANY_REQUESTS);
        Self::new(status, "rejected_by_rule", message, Retry::Useless).with("rule", &*rule.name)
    }

    /// The router has to read the body and cannot. 415 when the client itself says that the body is
    /// something else than JSON in UTF-8, else 400.
    pub fn unreadable_body(why: Unreadable, content_type: Option<&HeaderValue>) -> Self {
        const ALLOWED: &str = "this route judges what a request contains; send JSON in UTF-8";
        match content_type.filter(|declared| !is_utf8_json(declared.as_bytes())) {
            None => Self::bad_request("unreadable_body", format!("the body is {why}; {ALLOWED}")),
            Some(declared) => {
                let declared = String::from_utf8_lossy(declared.as_bytes());
                let declared = clip(&declared);
                let message =
                    format!("the body is {why}, with content-type '{declared}'; {ALLOWED}");
                Self::new(
                    StatusCode::UNSUPPORTED_MEDIA_TYPE,
                    "unreadable_body",
                    message,
                    Retry::Useless,
                )
            }
        }
    }

    /// 400: a form that the router cannot read.
    pub fn unreadable_form(why: FormError) -> Self {
        Self::bad_request("unreadable_body", why.to_string())
    }

    /// 500: a fault of the router itself.
    pub fn internal(message: &'static str) -> Self {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "internal_error",
            message,
            Retry::Unsaid,
        )
    }

    /// 501: the route forbids a change of the protocol.
    pub fn upgrade_not_allowed() -> Self {
        let message = "this route takes no WebSockets (`websockets: false`); send the request without 'Upgrade'";
        let status = StatusCode::NOT_IMPLEMENTED;
        Self::new(status, "upgrade_not_allowed", message, Retry::Useless)
    }

    /// 502: no peer could be reached, or the peer failed before its headers.
    pub fn upstream(message: &'static str, attempts: usize) -> Self {
        Self::new(
            StatusCode::BAD_GATEWAY,
            "upstream_error",
            message,
            Retry::Unsaid,
        )
        .with("attempts", attempts)
    }

    /// 503: the route's file was invalid when the router started.
    pub fn route_invalid(route: &str) -> Self {
        let message = "this route's configuration is invalid; `llmctl route check` says why";
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "route_invalid",
            message,
            Retry::Useless,
        )
        .on_route(route)
    }

    /// 503: the process is shutting down.
    pub fn draining() -> Self {
        let retry = Retry::After(Duration::from_secs(1));
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "draining",
            "this router is shutting down",
            retry,
        )
        .closing()
    }

    /// 503: request bodies in memory have reached their limit.
    pub fn overloaded(limit: u64) -> Self {
        let retry = Retry::After(Duration::from_secs(1));
        let message = "too many request bytes are in memory";
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "overloaded",
            message,
            retry,
        )
        .with("max_buffered_bytes", limit)
        .closing()
    }

    /// 503: this host has no file descriptor or no memory left for a connection to a peer.
    pub fn no_descriptors() -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "overloaded",
            "the router has no file descriptor left for a connection to a peer",
            Retry::After(Duration::from_secs(1)),
        )
    }

    /// 503: the public port has as many connections as it may, in all or from this address.
    pub fn too_many_connections() -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "overloaded",
            "too many connections",
            Retry::After(Duration::from_secs(1)),
        )
        .closing()
    }

    /// 504: the peer sent no headers in time.
    pub fn upstream_timeout(which: &'static str, limit: Duration) -> Self {
        Self::new(
            StatusCode::GATEWAY_TIMEOUT,
            "upstream_timeout",
            "the peer did not answer in time",
            Retry::Unsaid,
        )
        .with("timeout", which)
        .with("limit_s", limit.as_secs_f64())
    }

    /// 504: no slot became free within the time limit of the whole request.
    pub fn queue_timeout(limit: Duration) -> Self {
        let message = "no slot became free within the route's request_timeout";
        Self::new(
            StatusCode::GATEWAY_TIMEOUT,
            "upstream_timeout",
            message,
            Retry::Unsaid,
        )
        .with("timeout", "request_timeout")
        .with("limit_s", limit.as_secs_f64())
    }

    /// 504: the body was still arriving when the time limit of the whole request ended.
    pub fn upload_timeout(limit: Duration) -> Self {
        let message = "the request body did not arrive within the route's request_timeout";
        Self::new(
            StatusCode::GATEWAY_TIMEOUT,
            "upstream_timeout",
            message,
            Retry::Unsaid,
        )
        .with("timeout", "request_timeout")
        .with("limit_s", limit.as_secs_f64())
        .closing()
    }

    /// The machine-readable cause.
    pub fn code(&self) -> &'static str {
        self.code
    }

    /// The status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The error as one JSON object in a dialect.
    #[cfg(test)]
    pub fn body(&self, dialect: Dialect) -> Value {
        serde_json::from_slice(&self.text(dialect)).expect("a body is JSON")
    }

    /// The error as one JSON object in a dialect. A router that refuses half of what it gets is
    /// under load, so the text is written without a tree.
    fn text(&self, dialect: Dialect) -> Vec<u8> {
        const USUAL: usize = 1 << 10;
        let mut text = Vec::with_capacity(USUAL);
        match dialect {
            Dialect::OpenAi | Dialect::Responses => {
                text.extend_from_slice(br#"{"error":{"message":"#);
                write_json(&mut text, &*self.message);
                write_word(&mut text, r#","type":"#, self.openai_type());
                write_word(&mut text, r#","code":"#, self.code);
                text.extend_from_slice(br#","param":null"#);
                self.write_details(&mut text);
            }
            Dialect::Anthropic => {
                write_word(
                    &mut text,
                    r#"{"type":"error","error":{"type":"#,
                    self.anthropic_type(),
                );
                text.extend_from_slice(br#","message":"#);
                write_json(&mut text, &*self.message);
                write_word(&mut text, r#"},"details":{"code":"#, self.code);
                self.write_details(&mut text);
            }
        }
        text.extend_from_slice(b"}}");
        text
    }

    /// Each detail after a comma.
    fn write_details(&self, text: &mut Vec<u8>) {
        for (key, value) in &self.details {
            text.push(b',');
            write_json(text, key);
            text.push(b':');
            write_json(text, value);
        }
        if !self.numbers.is_empty() {
            text.push(b',');
            text.extend_from_slice(self.numbers.as_bytes());
        }
    }

    /// The error as the last event of a broken stream, after `events` other events. For the
    /// Responses API this is its `error` event, which contains the error object of the other OpenAI
    /// streams, because the SDKs recognise an error by that object.
    pub fn event(&self, dialect: Dialect, events: u64) -> String {
        let mut text = self.text(dialect);
        if dialect == Dialect::Responses {
            text.pop();
            write_word(&mut text, r#","type":"error","code":"#, self.code);
            text.extend_from_slice(br#","message":"#);
            write_json(&mut text, &*self.message);
            text.extend_from_slice(br#","param":null,"sequence_number":"#);
            write_json(&mut text, &events);
            text.push(b'}');
        }
        let text = String::from_utf8_lossy(&text);
        match dialect {
            Dialect::OpenAi => format!("data: {text}\n\n"),
            Dialect::Anthropic | Dialect::Responses => format!("event: error\ndata: {text}\n\n"),
        }
    }

    /// The whole response.
    pub fn response(&self, dialect: Dialect) -> Response<Bytes> {
        let mut body = self.text(dialect);
        body.push(b'\n');
        let mut response = Response::new(Bytes::from(body));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/json"),
        );
        self.retry_headers(headers);
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(allow) = self.allow {
            headers.insert(header::ALLOW, HeaderValue::from_static(allow));
        }
        if self.closes {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }

    fn retry_headers(&self, headers: &mut HeaderMap) {
        match self.retry {
            Retry::Unsaid => {}
            Retry::Useless => {
                headers.insert(
                    HeaderName::from_static("x-should-retry"),
                    HeaderValue::from_static("false"),
                );
            }
            Retry::After(wait) => {
                headers.insert(
                    header::RETRY_AFTER,
                    HeaderValue::from((wait.as_secs_f64().ceil() as u64).max(1)),
                );
                let millis = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).max(1);
                headers.insert(
                    HeaderName::from_static("retry-after-ms"),
                    HeaderValue::from(millis),
                );
            }
        }
    }

    fn openai_type(&self) -> &'static str {
        match self.status.as_u16() {
            401 => "authentication_error",
            404 => "not_found_error",
            429 => "rate_limit_error",
            400..500 => "invalid_request_error",
            502 => "bad_gateway",
            503 => "unavailable_error",
            504 => "timeout_error",
            _ => "server_error",
        }
    }

    fn anthropic_type(&self) -> &'static str {
        match self.status.as_u16() {
            401 => "authentication_error",
            404 => "not_found_error",
            413 => "request_too_large",
            429 => "rate_limit_error",
            400..500 => "invalid_request_error",
            503 => "overloaded_error",
            504 => "timeout_error",
            _ => "api_error",
        }
    }
}

fn write_json(text: &mut Vec<u8>, value: &(impl Serialize + ?Sized)) {
    serde_json::to_writer(text, value).expect("a vector takes every byte, and every key is a text");
}

/// Writes a word that needs no escapes, with the text before it.
fn write_word(text: &mut Vec<u8>, before: &str, word: &'static str) {
    for part in [before, "\"", word, "\""] {
        text.extend_from_slice(part.as_bytes());
    }
}

/// A client's text in a form that is safe to repeat or to store: at most 128 bytes, cut at a
/// character boundary.
pub(super) fn clip(text: &str) -> &str {
    const SHOWN_MAX: usize = 128;
    let mut end = text.len().min(SHOWN_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Whether a `Content-Type` declares JSON, and no charset but UTF-8.
fn is_utf8_json(content_type: &[u8]) -> bool {
    let text = content_type.to_ascii_lowercase();
    let mut parts = text.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
    let kind = parts.next().unwrap_or_default();
    let charset = parts.find_map(|part| part.strip_prefix(b"charset="));
    let is_utf8 = |name: &[u8]| matches!(name, b"utf-8" | b"utf8" | b"\"utf-8\"");
    (kind == b"application/json" || kind.ends_with(b"+json")) && charset.is_none_or(is_utf8)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_path_says_the_dialect() {
        assert_eq!(Dialect::of("/v1/messages"), Dialect::Anthropic);
        assert_eq!(Dialect::of("/v1/messages/count_tokens"), Dialect::Anthropic);
        assert_eq!(Dialect::of("/v1/messages_x"), Dialect::OpenAi);
        assert_eq!(Dialect::of("/v1/responses"), Dialect::Responses);
        assert_eq!(Dialect::of("/v1/responses/r_1"), Dialect::Responses);
        assert_eq!(Dialect::of("/v1/response"), Dialect::OpenAi);
        assert_eq!(Dialect::of("/v1/chat/completions"), Dialect::OpenAi);
    }

    #[test]
    fn a_refusal_a_retry_cannot_help_says_so() {
        let error = ApiError::model_not_supported(Some("nope"), ["a", "b"].into_iter());
        let response = error.response(Dialect::OpenAi);
        assert_eq!(response.headers()["x-should-retry"], "false");
        assert!(!response.headers().contains_key("retry-after"));
        assert_eq!(
            error.body(Dialect::OpenAi)["error"]["supported_models"],
            json!(["a", "b"])
        );
    }

    #[test]
    fn a_long_model_name_is_cut_at_a_character() {
        let name = "模".repeat(100);
        let body = ApiError::model_not_found(&name)
            .body(Dialect::OpenAi)
            .to_string();
        assert!(body.len() < 400, "{body}");
    }
}
