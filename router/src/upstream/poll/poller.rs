//! One poll: fetches the load page, detects its dialect, and reports.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::{HeaderMap, HeaderValue, StatusCode};
use router_core::load::{Report, Sample};
use tokio::time::Instant;

use super::llamacpp::{self, Props};
use super::memory::{self, Memory};
use super::turns::Turns;
use crate::telemetry::events::{Events, PeerRef};
use crate::upstream::engine::Scan;
use crate::upstream::here::is_exhausted;
use crate::upstream::probe::Assignment;
use crate::upstream::probe_client::{
    AskError, Endpoint, KeptConnection, ProbeClient, Question, Read,
};
use router_config::valid::{Engine, EngineDialect};

/// Largest page read, in bytes. A fleet of adapters makes long pages, but no wanted number comes
/// that late.
const PAGE_MAX: usize = 8 << 20;

/// Polls engines and reports their answers.
#[derive(Debug)]
pub(in crate::upstream) struct Poller {
    asker: ProbeClient,
    events: Arc<Events>,
    turns: Turns,
    epoch: Instant,
}

/// The answer to one fetch.
enum Fetched<P = Vec<u8>> {
    Page(StatusCode, P),
    /// The peer accepted the connection and did not answer in time.
    Hung,
    /// The peer refused, reset, does not resolve, or fails TLS.
    Dead,
    /// No connection in time, none could be opened, or the page is too long.
    Nothing,
}

/// A header of llama.cpp's load page: when its process was started.
const STARTED: &str = "process-start-time-unix";

/// Reads a page chunk by chunk.
trait Page {
    /// Takes the head, before the body.
    fn begin(&mut self, _headers: &HeaderMap) {}

    fn take(&mut self, status: StatusCode, chunk: &[u8]);
}

impl Page for Vec<u8> {
    fn take(&mut self, _: StatusCode, chunk: &[u8]) {
        self.extend_from_slice(chunk);
    }
}

/// A load page that is parsed while it arrives, or another answer in its place.
struct LoadPage {
    scan: Scan,
    refusal: Vec<u8>,
    started: Option<HeaderValue>,
}

impl Page for LoadPage {
    fn begin(&mut self, headers: &HeaderMap) {
        self.started = headers.get(STARTED).cloned();
    }

    fn take(&mut self, status: StatusCode, chunk: &[u8]) {
        if status == StatusCode::OK {
            self.scan.take(chunk);
        } else {
            self.refusal.take(status, chunk);
        }
    }
}

/// No answer in time from an engine that accepts connections.
struct Silent {
    answers_health: bool,
}

impl Poller {
    pub(in crate::upstream) fn new(asker: ProbeClient, events: Arc<Events>) -> Self {
        Self {
            asker,
            events,
            turns: Turns::new(),
            epoch: Instant::now(),
        }
    }

    /// The origin from which all peers count the steps of their polls.
    pub(super) fn epoch(&self) -> Instant {
        self.epoch
    }

    /// Polls a peer for the first time, when its turn comes. Cancel safe.
    pub(super) async fn poll_first(&self, at: &Assignment, memory: &mut Memory) {
        self.turns.take(Box::pin(self.poll(at, memory))).await;
    }

    /// Polls a peer once and reports the result to the route.
    pub(super) async fn poll(&self, at: &Assignment, memory: &mut Memory) {
        let report = match at.peer.spec.engine {
            Engine::None => Report::Blind,
            Engine::Ollama => self.by_health(at, "/api/version").await,
            Engine::Auto => self.read(at, None, memory).await,
            Engine::Known(dialect) => self.read(at, Some(dialect), memory).await,
        };
        if matches!(report, Report::Dead | Report::Loading) {
            // The program that comes back may be another one.
            *memory = Memory::default();
        }
        // The slots are fetched before the first sample, so that the sample is compared with the
        // right number. Later samples do not wait for another page.
        let is_first = memory.props.is_first();
        if is_first && matches!(report, Report::Sampled(_) | Report::Blind) {
            self.learn_props(at, memory).await;
        }
        let report = match report {
            // The sample is newer than what `/props` said about its sleep.
            Report::Sampled(sample) if sample.busy() > 0 => {
                memory.sleeping = false;
                report
            }
            Report::Sampled(_) | Report::Blind if memory.sleeping => Report::Sleeping,
            report => report,
        };
        let peer = PeerRef {
            route: &at.route.name,
            peer: &at.peer.spec.key,
            name: &at.peer.spec.name,
        };
        let polled = at.route.report_load(&at.peer.spec.key, report);
        if let Some(change) = polled.and_then(|polled| polled.change) {
            self.events
                .peer_changed(peer, change, &"its load page answers");
        }
        let freshness = polled.map(|polled| polled.freshness);
        self.events
            .peer_polled(peer, report, freshness, Instant::now().into_std());
        // An engine that hangs may still answer this.
        if matches!(
            report,
            Report::Sampled(_) | Report::Blind | Report::Sleeping | Report::Hung { .. }
        ) {
            self.learn_props(at, memory).await;
        }
    }

    async fn read(
        &self,
        at: &Assignment,
        dialect: Option<EngineDialect>,
        memory: &mut Memory,
    ) -> Report {
        if memory.is_blind(Instant::now()) {
            let report = self.by_health(at, "/health").await;
            if report != Report::Blind {
                // The program that comes back may be another one.
                *memory = Memory::default();
            }
            return report;
        }
        let scan = match dialect {
            Some(dialect) => Scan::of(dialect),
            None => Scan::guessing(memory.dialect),
        };
        if memory.load_page.is_none() {
            memory.load_page = load_page(at);
        }
        match self.fetch_load(at, memory, scan).await {
            Err(Silent { answers_health }) => Report::Hung { answers_health },
            Ok(fetched) => self.told(at, fetched, memory).await,
        }
    }

    /// The report for a load page or for its absence.
    async fn told(
        &self,
        at: &Assignment,
        fetched: Fetched<LoadPage>,
        memory: &mut Memory,
    ) -> Report {
        match fetched {
            Fetched::Page(StatusCode::OK, page) => self.understand(at, page, memory).await,
            Fetched::Page(StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, _) => {
                Report::Misconfigured
            }
            Fetched::Page(StatusCode::SERVICE_UNAVAILABLE, page)
                if llamacpp::is_loading(&page.refusal) =>
            {
                Report::Loading
            }
            // No such page: an engine without metrics, or a router of engines that needs a model
            // name.
            Fetched::Page(
                status @ (StatusCode::NOT_FOUND
                | StatusCode::BAD_REQUEST
                | StatusCode::NOT_IMPLEMENTED),
                _,
            ) => self.without_page(at, status, memory).await,
            Fetched::Page(..) | Fetched::Nothing => Report::Unusable,
            Fetched::Dead => Report::Dead,
            Fetched::Hung => Report::Hung {
                answers_health: false,
            },
        }
    }

    /// Fetches the load page. After half of the time-out the engine may be too busy to answer, so a
    /// health check runs beside the fetch and is reported at once. Otherwise the last sample would
    /// become too old before the poll timed out, and the busiest engine would briefly stop being a
    /// candidate.
    async fn fetch_load(
        &self,
        at: &Assignment,
        memory: &Memory,
        scan: Scan,
    ) -> Result<Fetched<LoadPage>, Silent> {
        let load = &at.route.options.load;
        let (line, next_within) = match &at.peer.spec.metrics_url {
            Some(_) => (&memory.elsewhere, load.poll_interval.value),
            None => (&*at.line, at.next_within()),
        };
        let Some(place) = &memory.load_page else {
            return Ok(Fetched::Nothing);
        };
        let question = Question { place, next_within };
        let page = LoadPage {
            scan,
            refusal: Vec::new(),
            started: None,
        };
        let connected = AtomicBool::default();
        let mut fetch = pin!(self.ask(line, question, &connected, page));
        let half = load.poll_timeout.value / 2;
        let mut clock = pin!(tokio::time::sleep(half));
        tokio::select! {
            biased;
            fetched = &mut fetch => return Ok(fetched),
            () = &mut clock => {}
        }
        let end = clock.deadline() + half;
        clock.as_mut().reset(end);
        let mut fetch = pin!(async {
            tokio::select! {
                biased;
                fetched = &mut fetch => fetched,
                () = &mut clock => silence(&connected),
            }
        });
        let key = &at.peer.spec.key;
        let mut health = pin!(self.answers(at, "/health"));
        tokio::select! {
            answers_health = &mut health => {
                at.route.report_load(key, Report::Hung { answers_health });
                match fetch.await {
                    Fetched::Hung => Err(Silent { answers_health }),
                    fetched => Ok(fetched),
                }
            }
            fetched = &mut fetch => match fetched {
                Fetched::Hung => {
                    at.route.report_load(key, Report::Hung { answers_health: false });
                    Err(Silent { answers_health: health.await })
                }
                fetched => Ok(fetched),
            }
        }
    }

    /// Reads a page whose dialect is known, or is detected by its first families.
    async fn understand(&self, at: &Assignment, page: LoadPage, memory: &mut Memory) -> Report {
        memory.saw_start(page.started);
        match page.scan.end() {
            Some((dialect, sample)) => {
                memory.dialect = Some(dialect);
                memory.pageless = false;
                sample.map_or(Report::Unusable, Report::Sampled)
            }
            None => {
                memory.dialect = None;
                self.go_blind(at, memory).await
            }
        }
    }

    /// Polls an engine without a load page. llama.cpp has the page only when its options say so,
    /// and offers other pages with part of its load.
    async fn without_page(
        &self,
        at: &Assignment,
        status: StatusCode,
        memory: &mut Memory,
    ) -> Report {
        memory.pageless = true;
        // This page comes first, because it does not wake the engine and tells whether the next one
        // would.
        self.learn_props(at, memory).await;
        if memory.sleeping {
            return self.by_health(at, "/health").await;
        }
        let is_llamacpp = at.peer.spec.engine == Engine::Known(EngineDialect::LlamaCpp);
        if status == StatusCode::NOT_IMPLEMENTED || is_llamacpp || memory.props.told() {
            self.by_slots(at, memory).await
        } else {
            self.go_blind(at, memory).await
        }
    }

    /// Polls a llama.cpp without `--metrics`.
    async fn by_slots(&self, at: &Assignment, memory: &mut Memory) -> Report {
        match self.fetch(at, "/slots").await {
            Fetched::Page(StatusCode::OK, page) => match llamacpp::slots(&page) {
                Some(slots) => {
                    if !memory.props.told() {
                        self.learn_slots(at, slots.total);
                    }
                    Report::Sampled(Sample {
                        running: slots.processing,
                        ..Sample::default()
                    })
                }
                None => self.go_blind(at, memory).await,
            },
            Fetched::Dead => Report::Dead,
            Fetched::Page(..) => self.go_blind(at, memory).await,
            Fetched::Hung | Fetched::Nothing => Report::Unusable,
        }
    }

    async fn go_blind(&self, at: &Assignment, memory: &mut Memory) -> Report {
        let report = self.by_health(at, "/health").await;
        if report == Report::Blind {
            memory.go_blind(Instant::now());
        }
        report
    }

    /// Polls an engine that reports no load.
    async fn by_health(&self, at: &Assignment, path: &str) -> Report {
        match self.fetch(at, path).await {
            Fetched::Page(status, _) if status.is_success() => Report::Blind,
            Fetched::Page(StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, _) => {
                Report::Misconfigured
            }
            Fetched::Page(StatusCode::SERVICE_UNAVAILABLE, page) if llamacpp::is_loading(&page) => {
                Report::Loading
            }
            // It speaks HTTP but does not know the path, so all we know is that it is alive.
            Fetched::Page(StatusCode::NOT_FOUND, _) => Report::Blind,
            Fetched::Dead => Report::Dead,
            Fetched::Hung => Report::Hung {
                answers_health: false,
            },
            Fetched::Page(..) | Fetched::Nothing => Report::Unusable,
        }
    }

    async fn answers(&self, at: &Assignment, path: &str) -> bool {
        match self.fetch(at, path).await {
            // It speaks HTTP but does not know the path, so all we know is that it is alive.
            Fetched::Page(status, _) => status.is_success() || status == StatusCode::NOT_FOUND,
            Fetched::Hung | Fetched::Dead | Fetched::Nothing => false,
        }
    }

    /// Asks a llama.cpp now and then for its slots and whether it sleeps; the page does not wake
    /// it. An engine that may be a llama.cpp is asked too.
    async fn learn_props(&self, at: &Assignment, memory: &mut Memory) {
        let may_be_llamacpp = match at.peer.spec.engine {
            Engine::Known(dialect) => dialect == EngineDialect::LlamaCpp,
            Engine::Auto => memory.pageless || memory.dialect == Some(EngineDialect::LlamaCpp),
            Engine::Ollama | Engine::None => false,
        };
        let now = Instant::now();
        if !may_be_llamacpp || !memory.props.is_due(now) {
            return;
        }
        let came = match self.fetch(at, "/props").await {
            Fetched::Page(StatusCode::OK, page) => match Props::parse(&page) {
                Some(props) => {
                    memory.sleeping = props.is_sleeping;
                    if let Some(slots) = props.total_slots {
                        self.learn_slots(at, slots);
                    }
                    memory::Props::Told
                }
                None => memory::Props::Missing,
            },
            Fetched::Page(status, _) if status.is_server_error() => match status {
                StatusCode::NOT_IMPLEMENTED => memory::Props::Missing,
                _ => memory::Props::Silent,
            },
            Fetched::Page(..) => memory::Props::Missing,
            Fetched::Hung | Fetched::Dead | Fetched::Nothing => memory::Props::Silent,
        };
        if came == memory::Props::Missing {
            memory.sleeping = false;
        }
        memory.props.came(came, now);
    }

    fn learn_slots(&self, at: &Assignment, slots: u32) {
        let spec = &at.peer.spec;
        let before = at.route.learn_slots(&spec.key, slots);
        if before != Some(slots) && !spec.learns_slots && slots != spec.max_concurrency {
            let peer = PeerRef {
                route: &at.route.name,
                peer: &spec.key,
                name: &spec.name,
            };
            self.events.slots_differ(peer, spec.max_concurrency, slots);
        }
    }

    /// Fetches a page from the peer itself.
    async fn fetch(&self, at: &Assignment, path: &str) -> Fetched {
        let Some(place) = place_of(at, path) else {
            return Fetched::Nothing;
        };
        let question = Question {
            place: &place,
            next_within: at.next_within(),
        };
        let connected = AtomicBool::default();
        let asked = self.ask(&at.line, question, &connected, Vec::new());
        let timeout = at.route.options.load.poll_timeout.value;
        match tokio::time::timeout(timeout, asked).await {
            Ok(fetched) => fetched,
            Err(_) => silence(&connected),
        }
    }

    async fn ask<P: Page>(
        &self,
        line: &KeptConnection,
        question: Question<'_>,
        connected: &AtomicBool,
        mut page: P,
    ) -> Fetched<P> {
        let failed = |error: AskError| match (error.is_time_out(), &error) {
            _ if is_exhausted(&error) => Fetched::Nothing,
            (true, AskError::Connect(_)) => Fetched::Nothing,
            (true, AskError::Broken(_)) => Fetched::Hung,
            (false, _) => Fetched::Dead,
        };
        let answer = match self.asker.ask(line, question, connected).await {
            Ok(answer) => answer,
            Err(error) => return failed(error),
        };
        let status = answer.status();
        page.begin(answer.headers());
        match answer
            .read(PAGE_MAX, |chunk| page.take(status, chunk))
            .await
        {
            Ok(Read::Whole) => Fetched::Page(status, page),
            Ok(Read::TooLong) => Fetched::Nothing,
            Err(error) => failed(error),
        }
    }
}

/// What a missing answer means.
fn silence<P>(connected: &AtomicBool) -> Fetched<P> {
    if connected.load(Ordering::Relaxed) {
        Fetched::Hung
    } else {
        Fetched::Nothing
    }
}

/// The endpoint of a page on the peer itself.
fn place_of(at: &Assignment, path: &str) -> Option<Endpoint> {
    let target = &at.peer.target;
    let uri = target.uri(path).ok()?;
    Some(Endpoint::new(uri, target.authorization.as_ref()))
}

/// The endpoint of the page with its load.
fn load_page(at: &Assignment) -> Option<Endpoint> {
    match &at.peer.spec.metrics_url {
        Some(url) => Some(Endpoint::new(
            url.parse().ok()?,
            at.peer.target.authorization.as_ref(),
        )),
        None => place_of(at, "/metrics"),
    }
}
