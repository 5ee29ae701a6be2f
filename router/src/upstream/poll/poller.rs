//! One poll: fetch the load page, tell its dialect, report.

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use http::{StatusCode, header};
use reqwest::{Client, Response};
use router_core::load::{Report, Sample};
use tokio::time::Instant;

use super::llamacpp::{self, Props};
use crate::config::valid::Engine;
use crate::telemetry::events::{Events, PeerRef};
use crate::upstream::engine::Dialect;
use crate::upstream::probe::Assignment;

/// Largest page read, bytes. A fleet of adapters makes long pages; nothing wanted is that far down.
const PAGE_MAX: usize = 8 << 20;

/// How often llama.cpp is asked for its slots and its sleep.
const PROPS_EVERY: Duration = Duration::from_secs(30);

/// A kept connection must be dropped before the engine drops it: llama.cpp's goes after 5 s.
const KEEP_IDLE: Duration = Duration::from_secs(4);

/// Asks engines and reports what they say.
#[derive(Debug)]
pub(in crate::upstream) struct Poller {
    client: Client,
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
}

/// An answer to one fetch.
enum Fetched {
    Page(StatusCode, BytesMut),
    /// It accepted the connection and did not answer in time.
    Hung,
    /// It refused, reset, does not resolve or fails TLS.
    Dead,
    /// No connection in time, or a page longer than any is.
    Nothing,
}

/// What asking for the load page came to.
enum Load {
    Told(Fetched),
    /// Nothing in time, from an engine that takes connections.
    Silent {
        answers_health: bool,
    },
}

impl Poller {
    pub(in crate::upstream) fn new(events: Arc<Events>) -> Self {
        let client = super::super::probe::client_with(|builder| {
            builder
                .pool_max_idle_per_host(1)
                .pool_idle_timeout(KEEP_IDLE)
        });
        Self { client, events }
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
        let url = match &at.peer.spec.metrics_url {
            Some(url) => Some(url.to_string()),
            None => url_of(at, "/metrics"),
        };
        match self.fetch_load(at, url).await {
            Load::Silent { answers_health } => Report::Hung { answers_health },
            Load::Told(fetched) => self.told(at, dialect, fetched, memory).await,
        }
    }

    /// What the load page, or its absence, says.
    async fn told(
        &self,
        at: &Assignment,
        dialect: Option<Dialect>,
        fetched: Fetched,
        memory: &mut Memory,
    ) -> Report {
        match fetched {
            Fetched::Page(StatusCode::OK, page) => {
                self.understand(at, dialect, &page, memory).await
            }
            Fetched::Page(StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, _) => {
                Report::Misconfigured
            }
            Fetched::Page(StatusCode::SERVICE_UNAVAILABLE, page) if llamacpp::is_loading(&page) => {
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
    async fn fetch_load(&self, at: &Assignment, url: Option<String>) -> Load {
        let key = &at.peer.spec.key;
        let fetch = self.fetch(at, url);
        tokio::pin!(fetch);
        let slow = at.route.options.load.poll_timeout.value / 2;
        if let Ok(fetched) = tokio::time::timeout(slow, &mut fetch).await {
            return Load::Told(fetched);
        }
        let health = self.answers(at, "/health");
        tokio::pin!(health);
        tokio::select! {
            answers_health = &mut health => {
                at.route.report_load(key, Report::Hung { answers_health });
                match fetch.await {
                    Fetched::Hung => Load::Silent { answers_health },
                    fetched => Load::Told(fetched),
                }
            }
            fetched = &mut fetch => match fetched {
                Fetched::Hung => {
                    at.route.report_load(key, Report::Hung { answers_health: false });
                    Load::Silent { answers_health: health.await }
                }
                fetched => Load::Told(fetched),
            }
        }
    }

    /// A page of a dialect that is known, or told by its first families.
    async fn understand(
        &self,
        at: &Assignment,
        dialect: Option<Dialect>,
        page: &[u8],
        memory: &mut Memory,
    ) -> Report {
        let known = dialect.or(memory.dialect);
        if let Some(sample) = known.and_then(|dialect| dialect.sample(page).ok()) {
            return Report::Sampled(sample);
        }
        memory.dialect = None;
        if dialect.is_some() {
            return Report::Unusable;
        }
        match Dialect::detect(page) {
            Some(dialect) => {
                memory.dialect = Some(dialect);
                dialect
                    .sample(page)
                    .map_or(Report::Unusable, Report::Sampled)
            }
            None => self.go_blind(at, memory).await,
        }
    }

    /// A llama.cpp without `--metrics`.
    async fn by_slots(&self, at: &Assignment, memory: &mut Memory) -> Report {
        match self.fetch(at, url_of(at, "/slots")).await {
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
        match self.fetch(at, url_of(at, path)).await {
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
        match self.fetch(at, url_of(at, path)).await {
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
        if let Fetched::Page(StatusCode::OK, page) = self.fetch(at, url_of(at, "/props")).await
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

    async fn fetch(&self, at: &Assignment, url: Option<String>) -> Fetched {
        let Some(url) = url else {
            return Fetched::Nothing;
        };
        let timeout = at.route.options.load.poll_timeout.value;
        let mut request = self.client.get(url).timeout(timeout);
        if let Some(authorization) = &at.peer.target.authorization {
            request = request.header(header::AUTHORIZATION, authorization.clone());
        }
        let failed = |error: &reqwest::Error| match (error.is_timeout(), error.is_connect()) {
            (true, true) => Fetched::Nothing,
            (true, false) => Fetched::Hung,
            (false, _) => Fetched::Dead,
        };
        match request.send().await {
            Ok(response) => match body(response).await {
                Ok(Some((status, page))) => Fetched::Page(status, page),
                Ok(None) => Fetched::Nothing,
                Err(error) => failed(&error),
            },
            Err(error) => failed(&error),
        }
    }
}

fn url_of(at: &Assignment, path: &str) -> Option<String> {
    Some(at.peer.target.uri(path).ok()?.to_string())
}

/// The whole page; `None` when it is longer than any may be.
async fn body(mut response: Response) -> Result<Option<(StatusCode, BytesMut)>, reqwest::Error> {
    let status = response.status();
    let mut page = BytesMut::new();
    while let Some(chunk) = response.chunk().await? {
        if page.len() + chunk.len() > PAGE_MAX {
            return Ok(None);
        }
        page.extend_from_slice(&chunk);
    }
    Ok(Some((status, page)))
}
