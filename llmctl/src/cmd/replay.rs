//! `llmctl replay`: measures the benefit of affinity. The same small workload goes through a
//! running router twice, with affinity on and with affinity off, and the report compares both.
//!
//! The router's own `_affinity_toggle` sets the switch. `replay` always restores the previous
//! state: at the end, after an error, and on Ctrl-C.

mod measure;
mod report;
mod switch;
mod workload;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use http::header::{AUTHORIZATION, HeaderMap};
use parking_lot::Mutex;
use reqwest::Url;
use tokio::task::JoinSet;

use self::measure::Sample;
use self::report::{Arm, Report};
use self::switch::Switch;
use self::workload::Conversation;
use crate::client::{Router, Token, plain_client};
use crate::exit::{Ended, Failure};
use crate::nonce::nonce;
use crate::render::Screen;
use crate::settings::Settings;

/// Prompts of the workload are short; an engine that needs longer is stuck.
const TURN_TIMEOUT: Duration = Duration::from_secs(120);

/// Maximum number of requests in flight. It is lower than the number of conversations; otherwise
/// the replay would measure the queue of a full fleet.
const AT_ONCE: usize = 4;

/// What `llmctl replay` takes.
#[derive(Debug, Args)]
#[command(
    after_help = "The second half runs with affinity switched off for the route. The switch is
put back at the end, also after an error or Ctrl-C. The halves use different
prompts, so that neither profits from the other's caches. The route must serve
streamed chat completions. The hit rate needs engines that report
cached_tokens.

Examples:
  llmctl replay
  llmctl replay --sessions 24 --turns 6
  llmctl replay --url http://10.0.0.5:8080 --router http://10.0.0.5:8090 --route chat --output json"
)]
pub struct ReplayArgs {
    /// The router's public URL
    #[arg(
        long,
        value_name = "URL",
        default_value = "http://127.0.0.1:8080",
        env = "LLMCTL_URL",
        hide_env_values = true
    )]
    pub url: Url,
    /// The route to replay through; may be left out when there is only one
    #[arg(long, value_name = "NAME")]
    pub route: Option<String>,
    /// The model to ask for [default: the first one the route lists]
    #[arg(long, value_name = "MODEL")]
    pub model: Option<String>,
    /// Conversations, of which four at a time have a turn under way
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub sessions: u16,
    /// Requests per conversation, one after the other
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub turns: u16,
    /// File with an API key of the route, if it wants one
    #[arg(
        long,
        value_name = "FILE",
        env = "LLMCTL_API_KEY_FILE",
        hide_env_values = true
    )]
    pub api_key_file: Option<PathBuf>,
}

/// Runs both passes and prints the report.
///
/// # Errors
/// When the router cannot be reached, refuses a request or the switch, or the run is interrupted.
pub async fn run(
    args: &ReplayArgs,
    settings: &Settings,
    screen: &mut Screen,
) -> Result<Ended, Failure> {
    let admin = Router::new(settings.one_router()?, settings.token.clone())?;
    let route = match &args.route {
        Some(route) => route.clone(),
        None => only_route(&admin).await?,
    };
    let mut replay = Replay::new(args, &route)?;
    if replay.model.is_empty() {
        replay.model = replay.first_model().await?;
    }
    let switch = Switch::read(&admin, &route).await?;
    let replay = Arc::new(replay);
    let replayed = tokio::select! {
        replayed = both_arms(&replay, &switch, screen) => replayed,
        () = crate::signals::interrupted() => Err(Failure::Wrong("interrupted".to_owned())),
    };
    switch.restore().await?;
    replayed?.show(screen)?;
    Ok(Ended::Fine)
}

async fn both_arms(
    replay: &Arc<Replay>,
    switch: &Switch<'_>,
    screen: &mut Screen,
) -> Result<Report, Failure> {
    let mut arms = Vec::new();
    for affinity in [true, false] {
        let (sessions, turns) = (replay.sessions, replay.turns);
        let word = if affinity { "on" } else { "off" };
        screen.note(&format!(
            "affinity {word}: {sessions} sessions of {turns} turns each …"
        ));
        switch.set(affinity).await?;
        arms.push(Arm::of(affinity, &replay.arm().await?));
    }
    Ok(Report {
        route: replay.route.clone(),
        model: replay.model.clone(),
        sessions: replay.sessions,
        turns: replay.turns,
        arms,
    })
}

/// The inputs of one pass.
struct Replay {
    http: reqwest::Client,
    base: Url,
    headers: HeaderMap,
    route: String,
    model: String,
    sessions: usize,
    turns: usize,
}

impl Replay {
    fn new(args: &ReplayArgs, route: &str) -> Result<Self, Failure> {
        let http = plain_client(&args.url)?
            .timeout(TURN_TIMEOUT)
            .build()
            .map_err(|error| {
                Failure::Wrong(format!(
                    "cannot set up HTTP: {}",
                    crate::client::root_cause(&error)
                ))
            })?;
        let mut headers = HeaderMap::new();
        if let Some(file) = &args.api_key_file {
            headers.insert(AUTHORIZATION, Token::read(file)?.into());
        }
        Ok(Self {
            http,
            base: args.url.clone(),
            headers,
            route: route.to_owned(),
            model: args.model.clone().unwrap_or_default(),
            sessions: args.sessions.into(),
            turns: args.turns.into(),
        })
    }

    fn address(&self, path: &[&str]) -> Url {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().push(&self.route).extend(path);
        }
        url
    }

    async fn first_model(&self) -> Result<String, Failure> {
        let models = measure::models(
            &self.http,
            &self.address(&["v1", "models"]),
            self.headers.clone(),
        )
        .await?;
        let first = models["data"][0]["id"].as_str().map(str::to_owned);
        first.ok_or_else(|| {
            Failure::Wrong(format!(
                "route {} lists no model yet: pass --model",
                self.route
            ))
        })
    }

    /// Runs every conversation to its end; the first failure stops all of them.
    ///
    /// A few workers take the conversations in turn. So turns of other conversations lie between
    /// two turns of one conversation, as with people who think before they answer. If each
    /// conversation sent its next turn at once, the peer that just answered would be the least
    /// loaded one, and balancing alone would look like affinity.
    async fn arm(self: &Arc<Self>) -> Result<Vec<Sample>, Failure> {
        let mark = nonce()?;
        let conversations = (0..self.sessions).map(|index| Conversation::new(&mark, index));
        let waiting = Arc::new(Mutex::new(conversations.collect::<VecDeque<_>>()));
        let mut workers = JoinSet::new();
        for _ in 0..self.sessions.min(AT_ONCE) {
            let (replay, waiting) = (Arc::clone(self), Arc::clone(&waiting));
            workers.spawn(async move { replay.work(&waiting).await });
        }
        let mut samples = Vec::with_capacity(self.sessions * self.turns);
        while let Some(ended) = workers.join_next().await {
            let worked =
                ended.map_err(|error| Failure::Wrong(format!("a worker ended badly: {error}")))?;
            samples.extend(worked?);
        }
        Ok(samples)
    }

    /// Takes the conversation that has waited longest, runs one turn of it, and puts it back.
    async fn work(&self, waiting: &Mutex<VecDeque<Conversation>>) -> Result<Vec<Sample>, Failure> {
        let url = self.address(&["v1", "chat", "completions"]);
        let mut samples = Vec::new();
        loop {
            // A separate statement, so that the lock is released before the request.
            let next = waiting.lock().pop_front();
            let Some(mut conversation) = next else {
                return Ok(samples);
            };
            let body = conversation.ask(&self.model);
            let mut headers = self.headers.clone();
            headers.insert("x-session-id", conversation.session.clone());
            let sample = measure::turn(&self.http, &url, headers, &body).await?;
            conversation.answer(&sample.content);
            samples.push(sample);
            if conversation.turns() < self.turns {
                waiting.lock().push_back(conversation);
            }
        }
    }
}

/// The route to use when the operator named none.
async fn only_route(admin: &Router) -> Result<String, Failure> {
    let routes: serde_json::Value = admin.get(&["_routes"], &[]).await?;
    let names: Vec<&str> = routes["routes"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|r| r["name"].as_str())
        .collect();
    match names.as_slice() {
        [one] => Ok((*one).to_owned()),
        [] => Err(Failure::Wrong(format!("{} has no route", admin.url()))),
        several => Err(Failure::Usage(format!(
            "which route? pass --route with one of: {}",
            several.join(", ")
        ))),
    }
}
