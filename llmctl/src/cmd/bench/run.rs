//! Drives the load: a closed one, an open one, or the recorded one.

use std::io::IsTerminal as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use chrono::{SecondsFormat, Utc};
use http::header::{AUTHORIZATION, HeaderMap, HeaderName};
use indicatif::{ProgressBar, ProgressStyle};
use parking_lot::Mutex;
use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::BenchArgs;
use super::conversation::{Conversation, Shape};
use super::dist::Distribution;
use super::records::{self, Records, Wanted};
use super::report::{Report, Run, Tally};
use super::send::Target;
use super::stream::Api;
use crate::client::{Token, plain_client};
use crate::exit::Failure;
use crate::nonce::nonce;
use crate::render::{Format, Screen};

/// Conversations of an open load that may be open at once. One more is counted as not sent: a
/// thousand sockets that wait say nothing that ten thousand would not.
const OPEN_MAX: usize = 10_000;

/// How long a run with no answer at all looks for the reason: the first request's failure.
const FIRST_TIMEOUT: Duration = Duration::from_secs(10);

/// Everything that the conversations of a run share.
#[derive(Debug)]
struct Load {
    target: Target,
    api: Api,
    model: String,
    shape: Shape,
    think: Distribution,
    seed: u64,
    mark: String,
    begun: Instant,
    /// Requests that begin before this are not counted.
    counted_from: Instant,
    /// No request begins after this.
    stop_at: Instant,
    /// Requests that may still begin.
    left: AtomicU64,
    tally: Mutex<Tally>,
    last_end: Mutex<Instant>,
}

impl Load {
    /// Takes one of the requests that may still begin.
    fn may_begin(&self) -> bool {
        Instant::now() < self.stop_at
            && self
                .left
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                    left.checked_sub(1)
                })
                .is_ok()
    }

    /// Runs a conversation to its end, its failure, or the end of the run. Returns the pause that a
    /// failure asks for. Its first request stood ready at `ready`.
    async fn converse(&self, index: u64, mut ready: Instant) -> Option<Duration> {
        let mut conversation = Conversation::new(&self.shape, &self.mark, self.seed, index);
        let mut pauses = SmallRng::seed_from_u64(self.seed.wrapping_add(index));
        let path = match self.api {
            Api::Openai => "/v1/chat/completions",
            Api::Anthropic => "/v1/messages",
        };
        while let Some(turn) = conversation.next_turn() {
            if turn > 0 {
                let pause = self.think.sample(&mut pauses);
                tokio::time::sleep(Duration::from_secs_f64(pause)).await;
                ready = Instant::now();
            }
            if !self.may_begin() {
                return None;
            }
            let body = conversation.ask(&self.shape, self.api, &self.model);
            let began = Instant::now();
            let sent = self
                .target
                .send(path, self.api, &conversation.session, &body)
                .await;
            let text = self.count(turn, ready, began, sent);
            match text {
                Ok(text) => conversation.answer(&text),
                Err(pause) => return Some(pause),
            }
        }
        None
    }

    /// Counts the end of a request that stood ready at `ready` and began at `began`.
    fn count(
        &self,
        turn: usize,
        ready: Instant,
        began: Instant,
        sent: Result<(super::stream::Whole, Duration), super::send::Unanswered>,
    ) -> Result<String, Duration> {
        let counts = began >= self.counted_from;
        if counts {
            *self.last_end.lock() = Instant::now();
        }
        match sent {
            Ok((whole, took)) => {
                if counts {
                    let waited = began.saturating_duration_since(ready);
                    self.tally.lock().answered(turn, &whole, waited, took);
                }
                Ok(whole.text)
            }
            Err(why) => {
                if counts {
                    self.tally.lock().failed(why.class);
                }
                Err(why.pause)
            }
        }
    }
}

/// Runs the load that the arguments describe.
///
/// # Errors
/// When nothing can be sent: no model, a wrong key file or header name, or unreadable records.
pub(super) async fn load(args: &BenchArgs, screen: &mut Screen) -> Result<Report, Failure> {
    let records = match &args.from_records {
        Some(root) => {
            let wanted = Wanted {
                since: args.since,
                until: args.until,
                route: args.route.as_deref(),
            };
            Some(records::read(root, &wanted)?)
        }
        None => None,
    };
    let target = target(args)?;
    let model = match (&args.model, &records) {
        (Some(model), _) => model.clone(),
        (None, Some(_)) => String::new(),
        (None, None) => first_model(&target).await?,
    };
    let run = Run {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started: Utc::now().to_rfc3339_opts(SecondsFormat::Secs, true),
        url: target.base.to_string().trim_end_matches('/').to_owned(),
        api: format!("{:?}", args.api).to_lowercase(),
        model: match model.is_empty() {
            true => "as recorded".to_owned(),
            false => model.clone(),
        },
        load: describe_load(args, records.as_ref()),
        workload: describe_workload(args, records.as_ref()),
        seed: args.seed,
    };
    let begun = Instant::now();
    let load = Arc::new(Load {
        target,
        api: args.api,
        model,
        shape: args.shape(),
        think: args.think,
        seed: args.seed,
        mark: nonce()?[..8].to_owned(),
        begun,
        counted_from: begun + args.warmup,
        stop_at: begun + args.warmup + args.duration,
        left: AtomicU64::new(args.requests.unwrap_or(u64::MAX)),
        tally: Mutex::default(),
        last_end: Mutex::new(begun + args.warmup),
    });
    let bar = progress(screen, args.warmup + args.duration);
    tokio::select! {
        () = drive(args, &load, records) => {}
        () = show_progress(&bar, &load) => {}
        () = crate::signals::interrupted() => screen.note("interrupted; what was measured so far:"),
    }
    bar.finish_and_clear();
    let seconds = load
        .last_end
        .lock()
        .saturating_duration_since(load.counted_from);
    let report = load.tally.lock().report(run, seconds.as_secs_f64());
    Ok(report)
}

async fn drive(args: &BenchArgs, load: &Arc<Load>, records: Option<Records>) {
    match (records, args.rate) {
        (Some(records), _) => recorded(args, load, records).await,
        (None, Some(rate)) => open(args, load, rate).await,
        (None, None) => closed(args, load).await,
    }
}

async fn closed(args: &BenchArgs, load: &Arc<Load>) {
    let next = Arc::new(AtomicU64::new(0));
    let mut workers = JoinSet::new();
    for _ in 0..args.concurrency {
        let (load, next) = (Arc::clone(load), Arc::clone(&next));
        workers.spawn(async move {
            while Instant::now() < load.stop_at && load.left.load(Ordering::Relaxed) > 0 {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if let Some(pause) = load.converse(index, Instant::now()).await {
                    tokio::time::sleep(pause).await;
                }
            }
        });
    }
    while workers.join_next().await.is_some() {}
}

async fn open(args: &BenchArgs, load: &Arc<Load>, rate: f64) {
    let mut random = SmallRng::seed_from_u64(args.seed);
    let mut conversations = JoinSet::new();
    let mut at = load.begun;
    for index in 0.. {
        at += args.arrivals.pause(index, rate, &mut random);
        if at >= load.stop_at || load.left.load(Ordering::Relaxed) == 0 {
            break;
        }
        tokio::time::sleep_until(at).await;
        let load = Arc::clone(load);
        spawn(&mut conversations, &load.clone(), async move {
            load.converse(index, at).await;
        });
    }
    while conversations.join_next().await.is_some() {}
}

async fn recorded(args: &BenchArgs, load: &Arc<Load>, records: Records) {
    let mut requests = JoinSet::new();
    for request in records.requests {
        let at = load.begun + request.at.div_f64(args.speed);
        if at >= load.stop_at || !load.may_begin() {
            break;
        }
        tokio::time::sleep_until(at).await;
        let load = Arc::clone(load);
        spawn(&mut requests, &load.clone(), async move {
            let model = Some(load.model.as_str()).filter(|model| !model.is_empty());
            let body = request.body(model);
            let began = Instant::now();
            let sent = load
                .target
                .send(&request.path, request.api, &request.session, &body)
                .await;
            // Neither the text nor the pause matters: the next request is a recorded one too.
            let _ = load.count(0, at, began, sent);
        });
    }
    while requests.join_next().await.is_some() {}
}

/// Starts one more task of an open load, unless too many are open.
fn spawn(tasks: &mut JoinSet<()>, load: &Load, task: impl Future<Output = ()> + Send + 'static) {
    while tasks.try_join_next().is_some() {}
    if tasks.len() < OPEN_MAX {
        tasks.spawn(task);
    } else if Instant::now() >= load.counted_from {
        let class = format!("not sent: {OPEN_MAX} conversations were open");
        load.tally.lock().failed(class);
    }
}

fn target(args: &BenchArgs) -> Result<Target, Failure> {
    let base = args
        .url
        .clone()
        .ok_or_else(|| Failure::Usage("which URL?".to_owned()))?;
    if !matches!(base.scheme(), "http" | "https") {
        return Err(Failure::Usage(format!(
            "{base}: expected an http or https URL, found {}",
            base.scheme()
        )));
    }
    let http = plain_client(&base)?
        .pool_max_idle_per_host(usize::MAX)
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
    let session_header = match args.session_header.as_str() {
        "none" => None,
        name => Some(HeaderName::from_bytes(name.as_bytes()).map_err(|_| {
            Failure::Usage(format!(
                "--session-header: expected a header's name or none, found `{name}`"
            ))
        })?),
    };
    Ok(Target {
        http,
        base,
        headers,
        session_header,
        timeout: args.timeout,
    })
}

async fn first_model(target: &Target) -> Result<String, Failure> {
    let url = target.address("/v1/models");
    let unreachable = |error: &reqwest::Error| Failure::Unreachable {
        router: url.to_string(),
        reason: crate::client::root_cause(error),
    };
    let refused = |reason: String| Failure::Refused {
        router: url.to_string(),
        reason,
    };
    let request = target.http.get(url.clone()).headers(target.headers.clone());
    let response = request
        .timeout(FIRST_TIMEOUT)
        .send()
        .await
        .map_err(|error| unreachable(&error))?;
    let status = response.status();
    if !status.is_success() {
        let advice = match status.as_u16() {
            401 | 403 => "; pass --api-key-file",
            404 => "; pass --model, and for a router name the route in the URL",
            _ => "; pass --model",
        };
        return Err(refused(format!("HTTP {}{advice}", status.as_u16())));
    }
    let models: serde_json::Value = response.json().await.map_err(|error| {
        refused(format!(
            "no list of models: {}; pass --model",
            crate::client::root_cause(&error)
        ))
    })?;
    let first = models["data"][0]["id"].as_str().map(str::to_owned);
    first.ok_or_else(|| refused("it lists no model; pass --model".to_owned()))
}

fn describe_load(args: &BenchArgs, records: Option<&Records>) -> String {
    match (records, args.rate) {
        (Some(records), _) => format!(
            "{} recorded requests, {} x as fast",
            records.requests.len(),
            args.speed
        ),
        (None, Some(rate)) => format!("open, {rate} conversations a second, {}", args.arrivals),
        (None, None) => format!("closed, {} conversations at once", args.concurrency),
    }
}

fn describe_workload(args: &BenchArgs, records: Option<&Records>) -> String {
    if let Some(records) = records {
        let stored = records
            .requests
            .iter()
            .filter(|request| matches!(request.body, records::Body::Stored(_)));
        return format!(
            "{} stored bodies, the others made up, {} left out",
            stored.count(),
            records.left_out
        );
    }
    format!(
        "turns {}, think {}, tokens: shared {}, first {}, further {}, output {}",
        args.turns,
        args.think,
        args.shared_tokens,
        args.prompt_tokens,
        args.turn_tokens,
        args.output_tokens
    )
}

/// A bar on stderr, where a person looks at it.
fn progress(screen: &Screen, length: Duration) -> ProgressBar {
    if screen.format() != Format::Human || screen.is_quiet() || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(length.as_secs().max(1));
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} s  {msg}") {
        bar.set_style(style.progress_chars("##-"));
    }
    bar
}

/// Never ends.
async fn show_progress(bar: &ProgressBar, load: &Load) {
    let mut every = tokio::time::interval(Duration::from_millis(500));
    loop {
        every.tick().await;
        let (ok, failed) = {
            let tally = load.tally.lock();
            (tally.ok, tally.failures())
        };
        bar.set_position(Instant::now().duration_since(load.begun).as_secs());
        bar.set_message(format!("{ok} answered, {failed} failed"));
    }
}
