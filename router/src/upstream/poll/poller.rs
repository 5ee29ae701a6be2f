//! One poll: fetch the load page, tell its dialect, report.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::{StatusCode, Uri};
use router_core::load::{Report, Sample};
use tokio::time::Instant;

use super::llamacpp::{self, Props};
use crate::config::valid::Engine;
use crate::telemetry::events::{Events, PeerRef};
use crate::upstream::ask::{AskError, Asker, Line, Question, Read};
use crate::upstream::engine::{Dialect, Scan};
use crate::upstream::here::is_exhausted;
use crate::upstream::probe::Assignment;

/// Largest page read, bytes. A fleet of adapters makes long pages; nothing wanted is that far down.
const PAGE_MAX: usize = 8 << 20;

/// How often llama.cpp is asked for its slots and its sleep.
const PROPS_EVERY: Duration = Duration::from_secs(30);

/// Asks engines and reports what they say.
#[derive(Debug)]
pub(in crate::upstream) struct Poller {
    asker: Asker,
    events: Arc<Events>,
}

/// What is remembered of one peer between polls.
#[derive(Debug, Default)]
pub(super) struct Memory {
    dialect: Option<Dialect>,
    props_at: Option<Instant>,
    sleeping: bool,
    /// Neither metrics nor slots: only its health is asked.
    blind: bool,
    /// The connection to a load page that is elsewhere.
    elsewhere: Line,
}

/// An answer to one fetch.
enum Fetched<P = Vec<u8>> {
    Page(StatusCode, P),
    /// It accepted the connection and did not answer in time.
    Hung,
    /// It refused, reset, does not resolve or fails TLS.
    Dead,
    /// No connection in time or none to be had, or a page longer than any is.
    Nothing,
}

/// Takes a page in as it comes.
trait Page {
    fn take(&mut self, status: StatusCode, chunk: &[u8]);
}

impl Page for Vec<u8> {
    fn take(&mut self, _: StatusCode, chunk: &[u8]) {
        self.extend_from_slice(chunk);
    }
}

/// A load page, which is read at once, or what came instead of one.
struct LoadPage {
    scan: Scan,
    refusal: Vec<u8>,
}

impl Page for LoadPage {
    fn take(&mut self, status: StatusCode, chunk: &[u8]) {
        if status == StatusCode::OK {
            self.scan.take(chunk);
        } else {
            self.refusal.take(status, chunk);
        }
    }
}

/// Nothing in time, from an engine that takes connections.
struct Silent {
    answers_health: bool,
}

impl Poller {
    pub(in crate::upstream) fn new(asker: Asker, events: Arc<Events>) -> Self {
        Self { asker, events }
    }

    /// Polls a peer once and tells the route what was found.
    pub(super) async fn poll(&self, at: &Assignment, memory: &mut Memory) {
        let report = match at.peer.spec.engine {
            Engine::None => Report::Blind,
            Engine::Ollama => self.by_health(at, "/api/version").await,
            Engine::Auto => self.read(at, None, memory).await,
            Engine::Known(dialect) => self.read(at, Some(dialect), memory).await,
        };
        // The slots come before the first sample, so that it is compared with the right number; later
        // samples do not wait for another page.
        let is_first = memory.props_at.is_none();
        if is_first {
            self.learn_props(at, memory).await;
        }
        let report = match report {
            Report::Sampled(_) | Report::Blind if memory.sleeping => Report::Sleeping,
            report => report,
        };
        let peer = PeerRef {
            route: &at.route.name,
            peer: &at.peer.spec.key,
            name: &at.peer.spec.name,
        };
        let standing = at.route.report_load(&at.peer.spec.key, report);
        self.events
            .peer_polled(peer, report, standing, Instant::now().into_std());
        if !is_first {
            self.learn_props(at, memory).await;
        }
    }

    async fn read(&self, at: &Assignment, dialect: Option<Dialect>, memory: &mut Memory) -> Report {
        if memory.blind {
            let report = self.by_health(at, "/health").await;
            // Whatever comes back may be another program.
            memory.blind = matches!(report, Report::Blind);
            return report;
        }
        let scan = match dialect {
            Some(dialect) => Scan::of(dialect),
            None => Scan::guessing(memory.dialect),
        };
        match self.fetch_load(at, &memory.elsewhere, scan).await {
            Err(Silent { answers_health }) => Report::Hung { answers_health },
            Ok(fetched) => self.told(at, fetched, memory).await,
        }
    }

    /// What the load page, or its absence, says.
    async fn told(
        &self,
        at: &Assignment,
        fetched: Fetched<LoadPage>,
        memory: &mut Memory,
    ) -> Report {
        match fetched {
            Fetched::Page(StatusCode::OK, page) => self.understand(at, page.scan, memory).await,
            Fetched::Page(StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, _) => {
                Report::Misconfigured
            }
            Fetched::Page(StatusCode::SERVICE_UNAVAILABLE, page)
                if llamacpp::is_loading(&page.refusal) =>
            {
                Report::Loading
            }
            Fetched::Page(StatusCode::NOT_IMPLEMENTED, _) if !memory.sleeping => {
                self.by_slots(at, memory).await
            }
            // No such page: an engine without metrics, or a router of engines that wants a model.
            Fetched::Page(
                StatusCode::NOT_FOUND | StatusCode::BAD_REQUEST | StatusCode::NOT_IMPLEMENTED,
                _,
            ) => self.go_blind(at, memory).await,
            Fetched::Page(..) | Fetched::Nothing => Report::Unusable,
            Fetched::Dead => Report::Dead,
            Fetched::Hung => Report::Hung {
                answers_health: false,
            },
        }
    }

    /// Fetches the load page. When half of its time is over the engine may be too busy to answer:
    /// whether it is alive is asked beside, and told at once. Otherwise the last sample would be too old
    /// before the poll has timed out, and the busiest engine out for a moment.
    async fn fetch_load(
        &self,
        at: &Assignment,
        elsewhere: &Line,
        scan: Scan,
    ) -> Result<Fetched<LoadPage>, Silent> {
        let load = &at.route.options.load;
        let (uri, line, next_within) = match &at.peer.spec.metrics_url {
            Some(url) => (url.parse().ok(), elsewhere, load.poll_interval.value),
            None => (uri_of(at, "/metrics"), &*at.line, at.next_within()),
        };
        let Some(uri) = uri else {
            return Ok(Fetched::Nothing);
        };
        let question = Question {
            uri: &uri,
            authorization: at.peer.target.authorization.as_ref(),
            next_within,
        };
        let page = LoadPage {
            scan,
            refusal: Vec::new(),
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

    /// A page of a dialect that is known, or told by its first families.
    async fn understand(&self, at: &Assignment, scan: Scan, memory: &mut Memory) -> Report {
        match scan.end() {
            Some((dialect, sample)) => {
                memory.dialect = Some(dialect);
                sample.map_or(Report::Unusable, Report::Sampled)
            }
            None => {
                memory.dialect = None;
                self.go_blind(at, memory).await
            }
        }
    }

    /// A llama.cpp without `--metrics`.
    async fn by_slots(&self, at: &Assignment, memory: &mut Memory) -> Report {
        match self.fetch(at, uri_of(at, "/slots")).await {
            Fetched::Page(StatusCode::OK, page) => match llamacpp::processing(&page) {
                Some(running) => Report::Sampled(Sample {
                    running,
                    ..Sample::default()
                }),
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
            memory.blind = true;
        }
        report
    }

    /// An engine that has no load to tell.
    async fn by_health(&self, at: &Assignment, path: &str) -> Report {
        match self.fetch(at, uri_of(at, path)).await {
            Fetched::Page(status, _) if status.is_success() => Report::Blind,
            Fetched::Page(StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, _) => {
                Report::Misconfigured
            }
            Fetched::Page(StatusCode::SERVICE_UNAVAILABLE, page) if llamacpp::is_loading(&page) => {
                Report::Loading
            }
            // It speaks HTTP and knows no such path: alive is all that there is to know.
            Fetched::Page(StatusCode::NOT_FOUND, _) => Report::Blind,
            Fetched::Dead => Report::Dead,
            Fetched::Hung => Report::Hung {
                answers_health: false,
            },
            Fetched::Page(..) | Fetched::Nothing => Report::Unusable,
        }
    }

    async fn answers(&self, at: &Assignment, path: &str) -> bool {
        match self.fetch(at, uri_of(at, path)).await {
            // It speaks HTTP and knows no such path: alive is all that there is to know.
            Fetched::Page(status, _) => status.is_success() || status == StatusCode::NOT_FOUND,
            Fetched::Hung | Fetched::Dead | Fetched::Nothing => false,
        }
    }

    /// Asks a llama.cpp for its slots and its sleep, now and then: the page wakes nobody.
    async fn learn_props(&self, at: &Assignment, memory: &mut Memory) {
        let is_llamacpp = match at.peer.spec.engine {
            Engine::Known(dialect) => dialect == Dialect::LlamaCpp,
            _ => memory.dialect == Some(Dialect::LlamaCpp),
        };
        let now = Instant::now();
        let is_due = memory
            .props_at
            .is_none_or(|asked| now.duration_since(asked) >= PROPS_EVERY);
        if !is_llamacpp || !is_due {
            return;
        }
        if let Fetched::Page(StatusCode::OK, page) = self.fetch(at, uri_of(at, "/props")).await
            && let Some(props) = Props::parse(&page)
        {
            memory.props_at = Some(now);
            memory.sleeping = props.is_sleeping;
            if let Some(slots) = props.total_slots {
                self.learn_slots(at, slots);
            }
        }
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

    /// Asks the peer itself.
    async fn fetch(&self, at: &Assignment, uri: Option<Uri>) -> Fetched {
        let Some(uri) = uri else {
            return Fetched::Nothing;
        };
        let question = Question {
            uri: &uri,
            authorization: at.peer.target.authorization.as_ref(),
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
        line: &Line,
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
        let answer = match self.asker.get(line, question, connected).await {
            Ok(answer) => answer,
            Err(error) => return failed(error),
        };
        let status = answer.status();
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

/// What no answer in time means.
fn silence<P>(connected: &AtomicBool) -> Fetched<P> {
    if connected.load(Ordering::Relaxed) {
        Fetched::Hung
    } else {
        Fetched::Nothing
    }
}

fn uri_of(at: &Assignment, path: &str) -> Option<Uri> {
    at.peer.target.uri(path).ok()
}
