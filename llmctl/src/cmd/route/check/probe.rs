//! `--probe`: sends each peer the router's health probe and judges the answer by the same rule: 2xx
//! is healthy, 429 or no answer in time is busy, anything else fails.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{HeaderValue, StatusCode};
use reqwest::Url;
use router::Target;
use router_config::load::Loaded;
use router_config::report::annotation;
use router_config::valid::{Peer, Route};
use serde::Serialize;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::client::{plain_client, root_cause};
use crate::exit::Failure;
use crate::render::{Paint, Screen, Table};

/// Peers probed at the same time: a check must not look like an attack on the fleet.
const PROBES_AT_ONCE: usize = 32;

/// The result of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
enum Outcome {
    Healthy,
    Busy,
    Failed,
}

/// One probed peer; its JSON form is stable.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) struct Probed {
    route: String,
    peer: String,
    name: String,
    url: String,
    outcome: Outcome,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    answer: String,
    ms: u64,
    /// The route's file.
    file: PathBuf,
}

impl Probed {
    /// Whether the router would ban the peer.
    pub(super) fn failed(&self) -> bool {
        self.outcome == Outcome::Failed
    }

    /// Whether the peer counts as alive but busy.
    pub(super) fn is_busy(&self) -> bool {
        self.outcome == Outcome::Busy
    }

    /// Prints the workflow command of a peer that is busy or fails.
    pub(super) fn annotate(&self, screen: &mut Screen) {
        let level = match self.outcome {
            Outcome::Healthy => return,
            Outcome::Busy => "warning",
            Outcome::Failed => "error",
        };
        let properties = [
            ("file", self.file.display().to_string()),
            ("title", format!("peer {}", self.name)),
        ];
        let text = format!("route {}: {}: {}", self.route, self.url, self.answer);
        screen.line(&annotation(level, &properties, &text));
    }
}

/// One probe.
struct Question {
    route: String,
    file: PathBuf,
    peer: Peer,
    url: Url,
    authorization: Option<HeaderValue>,
    timeout: Duration,
}

/// Probes every enabled peer of every valid route, each once per route.
///
/// # Errors
/// When the HTTP client cannot be built.
pub(super) async fn peers(loaded: &Loaded) -> Result<Vec<Probed>, Failure> {
    let mut waiting = questions(loaded)?.into_iter();
    let mut asking = JoinSet::new();
    let mut probed = Vec::new();
    loop {
        while asking.len() < PROBES_AT_ONCE
            && let Some(question) = waiting.next()
        {
            asking.spawn(ask(question));
        }
        let Some(asked) = asking.join_next().await else {
            break;
        };
        probed.push(
            asked.map_err(|error| Failure::Wrong(format!("a probe ended badly: {error}")))??,
        );
    }
    probed.sort();
    Ok(probed)
}

fn questions(loaded: &Loaded) -> Result<Vec<Question>, Failure> {
    let mut questions = Vec::new();
    for route in loaded
        .routes
        .iter()
        .filter_map(|route| route.result.as_ref().ok())
    {
        let mut seen = BTreeSet::new();
        for peer in route.pools.iter().flat_map(|pool| &pool.peers) {
            if peer.enabled && seen.insert(peer.key.clone()) {
                questions.push(question(route, peer)?);
            }
        }
    }
    Ok(questions)
}

fn question(route: &Route, peer: &Peer) -> Result<Question, Failure> {
    let target = Target::of(peer);
    let path = peer
        .probe
        .as_ref()
        .unwrap_or(&route.options.health_probe_path.value);
    let wrong = |why: String| {
        Failure::Wrong(format!(
            "cannot probe {} of route {}: {why}",
            peer.key, route.name
        ))
    };
    let uri = target.uri(path).map_err(|error| wrong(error.to_string()))?;
    Ok(Question {
        route: route.name.to_string(),
        file: route.path.clone(),
        peer: peer.clone(),
        url: Url::parse(&uri.to_string()).map_err(|error| wrong(error.to_string()))?,
        authorization: target.authorization,
        timeout: route.options.health_timeout.value,
    })
}

async fn ask(question: Question) -> Result<Probed, Failure> {
    let http = plain_client(&question.url)?
        .timeout(question.timeout)
        .build()
        .map_err(|error| Failure::Wrong(format!("cannot set up HTTP: {}", root_cause(&error))))?;
    let mut request = http.get(question.url.clone());
    if let Some(authorization) = question.authorization {
        request = request.header(AUTHORIZATION, authorization);
    }
    let begun = Instant::now();
    let answered = request.send().await;
    let ms = u64::try_from(Instant::now().duration_since(begun).as_millis()).unwrap_or(u64::MAX);
    let (outcome, status, answer) = match answered {
        Ok(response) => {
            let status = response.status();
            (
                judge(status),
                Some(status.as_u16()),
                format!("answered {status}"),
            )
        }
        Err(error) if error.is_timeout() && !error.is_connect() => (
            Outcome::Busy,
            None,
            format!("did not answer within {:?}", question.timeout),
        ),
        Err(error) => (Outcome::Failed, None, root_cause(&error)),
    };
    Ok(Probed {
        route: question.route,
        peer: question.peer.key.to_string(),
        name: question.peer.name.to_string(),
        url: question.url.to_string(),
        outcome,
        status,
        answer,
        ms,
        file: question.file,
    })
}

fn judge(status: StatusCode) -> Outcome {
    match status {
        status if status.is_success() => Outcome::Healthy,
        StatusCode::TOO_MANY_REQUESTS => Outcome::Busy,
        _ => Outcome::Failed,
    }
}

/// Prints the probes as a table.
pub(super) fn show(probes: &[Probed], screen: &mut Screen) {
    let mut table = Table::new(&["route", "peer", "asked", "outcome", "answer", "took"]);
    for probed in probes {
        let (outcome, paint) = match probed.outcome {
            Outcome::Healthy => ("healthy", Paint::Green),
            Outcome::Busy => ("busy", Paint::Yellow),
            Outcome::Failed => ("failed", Paint::Red),
        };
        let plain = |text: &str| (text.to_owned(), Paint::Plain);
        table.painted_row(vec![
            plain(&probed.route),
            plain(&probed.name),
            plain(&probed.url),
            (outcome.to_owned(), paint),
            plain(&probed.answer),
            plain(&format!("{} ms", probed.ms)),
        ]);
    }
    if !table.is_empty() {
        screen.table(&table);
        screen.line("");
    }
}
