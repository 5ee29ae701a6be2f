//! `llmctl route explain`: explains where a request would go and why, or where a past request went.
//!
//! Answers from files describe an idle fleet in which every peer is up; the router's own code
//! decides. A running router gives its own answer.

mod gates;
mod live;
mod offline;
mod past;
mod receipt;
mod story;
#[cfg(test)]
mod tests;
mod words;

use std::io::Read as _;
use std::path::{Path, PathBuf};

use clap::Args;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde::de::IgnoredAny;
use serde_json::json;

pub(in crate::cmd) use self::words::refusal_line;
use crate::exit::{Ended, Failure};
use crate::render::{Format, Screen};
use crate::settings::{Settings, Subject};

/// Maximum size of a body, bytes. The router's own limit is 200 MiB by default.
const BODY_BYTES_MAX: u64 = 256 << 20;

/// The header with the turn of the session.
const TURN_HEADER: HeaderName = HeaderName::from_static("x-phanrouter-session");

/// The session ID for a turn without `--session`: only the turn counts, so any ID works.
const NAMELESS: &str = "llmctl";

/// What `llmctl route explain` takes.
#[derive(Debug, Args)]
#[command(
    after_help = "Without --router, the answer is computed from the files, for an idle fleet in
which every peer is up. --last and --request-id ask a running router about a
request that has ended.

Examples:
  llmctl route explain chat --session user-42
  llmctl route explain chat --session user-42 --turn 3
  llmctl route explain chat --body request.json -H 'x-session-id: user-42'
  llmctl route explain chat --session user-42 --router http://127.0.0.1:8090
  llmctl route explain chat --last --router http://127.0.0.1:8090"
)]
pub struct ExplainArgs {
    /// The route
    #[arg(value_name = "NAME")]
    pub name: String,
    /// The session id, wherever the request would carry it
    #[arg(long, value_name = "ID")]
    pub session: Option<String>,
    /// The session's turn, as x-phanrouter-session would carry it (session_prio)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000_000))]
    pub turn: Option<u32>,
    /// The model the request asks for
    #[arg(long, value_name = "MODEL", conflicts_with = "body")]
    pub model: Option<String>,
    /// File with the request's body; - for standard input
    #[arg(long, value_name = "FILE")]
    pub body: Option<PathBuf>,
    /// A header of the request, 'name: value'; repeat for more
    #[arg(short = 'H', long = "header", value_name = "HEADER")]
    pub headers: Vec<String>,
    /// What happened to the route's last request
    #[arg(long, conflicts_with_all = ["session", "turn", "model", "body", "headers", "request_id"])]
    pub last: bool,
    /// What happened to the request with this x-request-id
    #[arg(long, value_name = "ID", conflicts_with_all = ["session", "turn", "model", "body", "headers"])]
    pub request_id: Option<String>,
}

/// Runs the command.
///
/// # Errors
/// When the arguments or files are invalid, or the router cannot be reached.
pub async fn run(
    args: &ExplainArgs,
    settings: &Settings,
    screen: &mut Screen,
) -> Result<Ended, Failure> {
    if args.last || args.request_id.is_some() {
        return past::run(args, settings, screen).await;
    }
    let request = Request::of(args)?;
    if let Some(why) = request.broken_body() {
        screen.warn(&format!(
            "the body is not JSON, so neither session nor model is read from it: {why}"
        ));
    }
    let case = match settings.subject()? {
        Subject::Files => offline::explain(args, &request, settings)?,
        Subject::Live => live::explain(args, request, settings).await?,
    };
    if screen.format() == Format::Json {
        screen.json(&case)?;
    } else {
        case.show(screen);
    }
    Ok(Ended::Fine)
}

/// The request to explain, as a client would send it.
#[derive(Debug, Default)]
struct Request {
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Request {
    fn of(args: &ExplainArgs) -> Result<Self, Failure> {
        let mut request = Self::default();
        for header in &args.headers {
            let (name, value) = parse_header(header)?;
            request.headers.append(name, value);
        }
        if let Some(turn) = args.turn {
            let id = args.session.as_deref().unwrap_or(NAMELESS);
            let value = json!({ "session_id": id, "turn": turn }).to_string();
            let value = HeaderValue::from_bytes(value.as_bytes())
                .map_err(|_| Failure::Usage("--session: no header may carry it".to_owned()))?;
            request.headers.insert(TURN_HEADER, value);
        }
        if let Some(file) = &args.body {
            request.body = read_body(file)?;
        } else if let Some(model) = &args.model {
            request.body = json!({ "model": model }).to_string().into_bytes();
        }
        Ok(request)
    }

    /// The parse error of the body, when there is a body and it is not JSON.
    fn broken_body(&self) -> Option<serde_json::Error> {
        if self.body.is_empty() {
            return None;
        }
        serde_json::from_slice::<IgnoredAny>(&self.body).err()
    }
}

/// Parses `name: value`, as curl takes it.
fn parse_header(text: &str) -> Result<(HeaderName, HeaderValue), Failure> {
    let wrong = || Failure::Usage(format!("-H {text:?}: expected 'name: value'"));
    let (name, value) = text.split_once(':').ok_or_else(wrong)?;
    let name = HeaderName::try_from(name.trim()).map_err(|_| wrong())?;
    let value = HeaderValue::from_bytes(value.trim_ascii().as_bytes()).map_err(|_| wrong())?;
    Ok((name, value))
}

fn read_body(file: &Path) -> Result<Vec<u8>, Failure> {
    let mut body = Vec::new();
    let read = if file == Path::new("-") {
        std::io::stdin()
            .lock()
            .take(BODY_BYTES_MAX + 1)
            .read_to_end(&mut body)
    } else {
        std::fs::File::open(file)
            .and_then(|open| open.take(BODY_BYTES_MAX + 1).read_to_end(&mut body))
    };
    read.map_err(|error| Failure::file("read", file, &error))?;
    if body.len() as u64 > BODY_BYTES_MAX {
        return Err(Failure::Wrong(format!(
            "{}: larger than {BODY_BYTES_MAX} bytes",
            file.display()
        )));
    }
    Ok(body)
}

/// The failure for a model that a by-model route does not have.
fn model_not_supported<S: AsRef<str>>(route: &str, asked: &str, models: &[S]) -> Failure {
    let models: Vec<&str> = models.iter().map(AsRef::as_ref).collect();
    Failure::Wrong(format!(
        "route {route} does not serve {asked}, the router answers 400 model_not_supported; it serves: {}",
        models.join(", ")
    ))
}
