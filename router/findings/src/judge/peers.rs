//! Peers that fail, hang, are slow, or lost their cache.

use std::time::{Duration, Instant};

use proto::admin::{FindingCode, Peer, PeerState, Pool, Route, Severity};

use router_core::health::Failure;

use super::words::{clipped, percent, share, span};
use super::{Cause, Window};
use crate::traffic::{Events, RouteTraffic, Trouble};
use crate::window::SPAN;
use crate::{EVENTS_MIN, SAMPLES_MIN};

/// A peer is slow when its median is this many times that of its siblings,
const SLOW_FACTOR: f64 = 2.0;

/// and stays slow until it is below this factor, so that the finding does not flicker,
const SLOW_FACTOR_END: f64 = 1.5;

/// and at least this much above it: between two fast peers a factor alone means nothing.
const SLOW_BY: Duration = Duration::from_millis(50);

/// A busy engine answers its probes late; after this time the silence is a finding.
const PROBE_SILENT: Duration = Duration::from_secs(30);

/// The span of the newer of the two hit rates that are compared.
const MINUTE: Duration = Duration::from_secs(60);

/// A cache is cold when the hit rate of the last minute is below this share of the rate before, in
/// percent,
const COLD_PERCENT: u64 = 50;

/// and stays cold until it is above this share,
const COLD_PERCENT_END: u64 = 75;

/// if that earlier rate was at least this, in percent.
const WARM_PERCENT: u64 = 30;

pub(super) fn judge(route: &Route, traffic: &mut RouteTraffic, window: Window) -> Vec<Cause> {
    let mut found = Vec::new();
    for pool in &route.pools {
        let is_empty = pool.healthy_peers == 0 && pool.peers.iter().any(|peer| peer.enabled);
        if is_empty {
            found.push(empty(route, pool, traffic, window));
        }
        for peer in pool.peers.iter().filter(|peer| peer.enabled) {
            let look = Look {
                route,
                pool,
                peer,
                traffic,
                window,
            };
            // The finding about the pool says that its peers cannot be reached.
            let is_said = is_empty && peer.banned;
            let (slow, cold) = (look.slow(), look.cold());
            let verdict = (slow.is_some(), cold.is_some());
            let trouble = look.trouble().or_else(|| look.silent()).or(slow);
            let causes = [trouble.filter(|_| !is_said), cold];
            let named = |cause: Cause| cause.route(&route.name).peer(&peer.peer);
            found.extend(causes.into_iter().flatten().map(named));
            traffic.verdict(&peer.peer, verdict.0, verdict.1);
        }
    }
    found.extend(absent_model(route, traffic, window));
    found
}

fn empty(route: &Route, pool: &Pool, traffic: &RouteTraffic, window: Window) -> Cause {
    let of_model = pool
        .model
        .as_deref()
        .map_or(String::new(), |model| format!(" of model {model}"));
    let enabled = pool.peers.iter().filter(|peer| peer.enabled);
    let count = |is_in: fn(&Peer) -> bool| enabled.clone().filter(|peer| is_in(peer)).count();
    let all = enabled.clone().count();
    let states = [
        (count(|peer| peer.banned), "cannot be reached"),
        (
            count(|peer| matches!(peer.state, PeerState::Ejected | PeerState::Probing)),
            "failed and are ejected",
        ),
        (
            count(|peer| matches!(peer.state, PeerState::Held | PeerState::Stale)),
            "have silent metrics",
        ),
        (count(|peer| peer.draining), "are draining"),
    ];
    let named = states.iter().filter(|(count, _)| *count > 0);
    let why: Vec<_> = named
        .map(|(count, state)| format!("{count} of {all} {state}"))
        .collect();
    let refused = traffic.refused(crate::Refused::NoPeer, window.span, window.now);
    let text = format!(
        "no peer{of_model} can take a request: {}; {} requests got 503 in {}",
        why.join(", "),
        refused.count,
        window.name(),
    );
    Cause::new(FindingCode::NoPeer, Severity::Critical, text)
        .route(&route.name)
        .named(pool.model.as_deref().unwrap_or_default())
        .counted(refused)
        .look("llmctl route check --probe")
}

/// 404s of more than one peer, or of the only one, point at the model that clients ask for.
fn absent_model(route: &Route, traffic: &RouteTraffic, window: Window) -> Option<Cause> {
    let all = route.pools.iter().flat_map(|pool| &pool.peers);
    let each =
        all.map(|peer| traffic.trouble(&peer.peer, Trouble::NotFound, window.span, window.now));
    let tried: Vec<Events> = each.filter(|events| events.of > 0).collect();
    let is_all = tried.iter().all(|events| events.count > 0);
    let sum = |of: fn(&Events) -> u64| tried.iter().map(of).sum::<u64>();
    let events = Events {
        count: sum(|events| events.count),
        of: sum(|events| events.of),
        since: tried.iter().filter_map(|events| events.since).min(),
        last: tried.iter().filter_map(|events| events.last).max(),
    };
    if events.count < EVENTS_MIN || !is_all {
        return None;
    }
    let mut models = traffic.absent(window.span, window.now);
    models.sort_by_key(|(_, events)| std::cmp::Reverse(events.count));
    let named: Vec<_> = models
        .iter()
        .take(3)
        .map(|(model, _)| clipped(model))
        .collect();
    let asked = match named.as_slice() {
        [] => "no request named a model".to_owned(),
        named => format!("they asked for model {}", named.join(", ")),
    };
    let text = format!(
        "every peer answered 404, to {} requests in {}: {asked}",
        share(events),
        window.name()
    );
    let cause = Cause::new(FindingCode::ModelUnknown, Severity::Critical, text);
    let look = "GET /v1/models: the models that the engines serve";
    Some(cause.route(&route.name).counted(events).look(look))
}

struct Look<'l> {
    route: &'l Route,
    pool: &'l Pool,
    peer: &'l Peer,
    traffic: &'l RouteTraffic,
    window: Window,
}

impl Look<'_> {
    fn events(&self, trouble: Trouble) -> Events {
        self.traffic
            .trouble(&self.peer.peer, trouble, self.window.span, self.window.now)
    }

    fn who(&self) -> String {
        format!("peer {} ({})", self.peer.name, self.peer.peer)
    }

    /// The router's reaction.
    fn consequence(&self) -> &'static str {
        match self.peer.state {
            _ if self.peer.banned => "; it is banned until a probe succeeds",
            PeerState::Ejected => "; it is ejected, and one request will try it again",
            PeerState::Probing => "; one request tries it again",
            PeerState::Suspect => "; it gets no new sessions",
            _ => "",
        }
    }

    /// The worst trouble of the peer. One cause, even if it has several symptoms.
    fn trouble(&self) -> Option<Cause> {
        let unreachable = self.events(Trouble::Failed(Failure::NoConnection));
        if self.peer.banned || unreachable.count >= EVENTS_MIN {
            return Some(self.unreachable(unreachable));
        }
        if let Some(cause) = self.hung() {
            return Some(cause);
        }
        let kinds = [
            (
                Trouble::Failed(Failure::ServerError),
                FindingCode::PeerFailing,
                "answered 5xx to",
            ),
            (
                Trouble::Failed(Failure::Reset),
                FindingCode::PeerResetting,
                "closed the connection before the first byte of",
            ),
            (
                Trouble::Failed(Failure::Cut),
                FindingCode::PeerCutsStreams,
                "cut off",
            ),
            (
                Trouble::Failed(Failure::Stall),
                FindingCode::PeerStalls,
                "stalled in the middle of",
            ),
        ];
        let mut seen: Vec<_> = kinds
            .into_iter()
            .map(|(trouble, code, verb)| (self.events(trouble), code, verb))
            .filter(|(events, ..)| events.count >= EVENTS_MIN)
            .collect();
        seen.sort_by_key(|(events, ..)| std::cmp::Reverse(events.count));
        if let Some((worst, others)) = seen.split_first() {
            let (events, code, verb) = *worst;
            let others = others
                .iter()
                .map(|(events, _, verb)| format!(", {verb} {}", events.count));
            return Some(self.failing(events, code, verb, &others.collect::<String>()));
        }
        self.not_found()
    }

    fn unreachable(&self, events: Events) -> Cause {
        let tried = if events.count > 0 {
            format!(
                ": {} attempts failed in {}",
                share(events),
                self.window.name()
            )
        } else {
            String::new()
        };
        let text = format!(
            "{} cannot be reached{tried}{}",
            self.who(),
            self.consequence()
        );
        Cause::new(FindingCode::PeerUnreachable, self.severity(events), text)
            .counted(events)
            .look("llmctl route check --probe")
    }

    fn hung(&self) -> Option<Cause> {
        let (late, left) = (
            self.events(Trouble::Failed(Failure::NoFirstByte)),
            self.events(Trouble::WaitedInVain),
        );
        let events = Events {
            count: late.count + left.count,
            of: late.of,
            since: earliest(late.since, left.since),
            last: late.last.max(left.last),
        };
        if events.count < EVENTS_MIN {
            return None;
        }
        let waited = self.traffic.longest_wait(&self.peer.peer, self.window.now);
        let waited = waited.map_or(String::new(), |waited| {
            format!(", the longest waited {}", span(waited))
        });
        let text = format!(
            "{} hangs: {} requests in {} got no first byte{waited}{}",
            self.who(),
            share(events),
            self.window.name(),
            self.consequence()
        );
        let look = format!(
            "llmctl route explain {} --last, then the engine's own log",
            self.route.name
        );
        let cause = Cause::new(FindingCode::PeerHung, Severity::Critical, text);
        Some(cause.counted(events).look(look))
    }

    /// `others` are further kinds of trouble of the same peer.
    fn failing(&self, events: Events, code: FindingCode, verb: &str, others: &str) -> Cause {
        let text = format!(
            "{} {verb} {} requests in {}{others}{}",
            self.who(),
            share(events),
            self.window.name(),
            self.consequence()
        );
        Cause::new(code, self.severity(events), text)
            .counted(events)
            .look("the engine's own log; enabled: false at the peer takes it out")
    }

    /// A peer that answers 404 where its siblings do not lacks the model, or is another program.
    fn not_found(&self) -> Option<Cause> {
        let events = self.events(Trouble::NotFound);
        let siblings = self
            .pool
            .peers
            .iter()
            .filter(|peer| peer.peer != self.peer.peer);
        let others = siblings.map(|peer| {
            self.traffic.trouble(
                &peer.peer,
                Trouble::NotFound,
                self.window.span,
                self.window.now,
            )
        });
        let (others_404, others_all) =
            others.fold((0, 0), |sum, one| (sum.0 + one.count, sum.1 + one.of));
        if events.count < EVENTS_MIN || others_404 > 0 || others_all == 0 {
            return None;
        }
        let text = format!(
            "{} answered 404 to {} requests in {}; its siblings did not",
            self.who(),
            share(events),
            self.window.name()
        );
        let cause = Cause::new(FindingCode::PeerNotFound, self.severity(events), text);
        let look = format!("curl http://{}/v1/models", self.peer.peer);
        Some(cause.counted(events).look(look))
    }

    /// A peer without trouble among its requests whose state keeps requests away from it.
    fn silent(&self) -> Option<Cause> {
        let lasts = self.peer.state_s.map(Duration::from_secs);
        let since = lasts.map_or(String::new(), |lasts| format!(" for {}", span(lasts)));
        let who = self.who();
        let because = |otherwise: &str| {
            let why = self.peer.why.as_deref();
            why.map_or(otherwise.to_owned(), |why| format!(" ({})", clipped(why)))
        };
        let (code, text) = match self.peer.state {
            PeerState::Suspect => (
                FindingCode::PeerHung,
                format!(
                    "{who} is suspect{since}{}{}",
                    because(": requests wait for a first byte"),
                    self.consequence()
                ),
            ),
            // The cause of this state is that the time of the ejection is over.
            PeerState::Probing => (
                FindingCode::PeerFailing,
                format!("{who} was ejected{}", self.consequence()),
            ),
            PeerState::Ejected => (
                FindingCode::PeerFailing,
                format!(
                    "{who} is out{since}{}{}",
                    because(" because its answers failed"),
                    self.consequence()
                ),
            ),
            PeerState::Held => (
                FindingCode::PeerHeld,
                format!("{who} is held{since}: its metrics are silent, so it counts as full"),
            ),
            PeerState::Stale => (
                FindingCode::PeerStale,
                format!(
                    "{who} is stale: its metrics are silent or unusable, and it gets no requests"
                ),
            ),
            PeerState::Busy if lasts.is_some_and(|lasts| lasts >= PROBE_SILENT) => (
                FindingCode::PeerProbeSilent,
                format!("{who} has not answered its health probes{since}; it still gets requests"),
            ),
            PeerState::Healthy | PeerState::Returning | PeerState::Busy | PeerState::Unknown => {
                return None;
            }
        };
        let events = Events {
            since: lasts.and_then(|lasts| self.window.now.checked_sub(lasts)),
            ..Events::default()
        };
        let cause = Cause::new(code, Severity::Warning, text).counted(events);
        Some(cause.look("the engine's own log and its metrics page"))
    }

    fn slow(&self) -> Option<Cause> {
        let medians =
            self.traffic
                .beside_siblings(&self.peer.peer, SAMPLES_MIN, self.window.now)?;
        let (was_slow, _) = self.traffic.last_verdict(&self.peer.peer);
        let (factor, by) = if was_slow {
            (SLOW_FACTOR_END, SLOW_BY / 2)
        } else {
            (SLOW_FACTOR, SLOW_BY)
        };
        let is_slow =
            medians.own >= medians.siblings.mul_f64(factor) && medians.own >= medians.siblings + by;
        if !is_slow {
            return None;
        }
        let prompts = medians.prompt_below.map_or_else(
            || "long prompts".to_owned(),
            |below| format!("prompts below {below} tokens"),
        );
        let text = format!(
            "{} is slow: its median time to first token is {}, its siblings' {} (at {prompts})",
            self.who(),
            span(medians.own),
            span(medians.siblings)
        );
        let cause = Cause::new(FindingCode::PeerSlow, Severity::Warning, text);
        let events = Events {
            count: medians.samples as u64,
            ..Events::default()
        };
        Some(cause.counted(events).look(format!(
            "the engine's load and GPU clocks; draining: true at the peer in {} keeps new sessions off it",
            self.route.path
        )))
    }

    fn cold(&self) -> Option<Cause> {
        let peer = &self.peer.peer;
        let all = self.traffic.hits(peer, SPAN, self.window.now);
        let recent = self.traffic.hits(peer, MINUTE, self.window.now);
        let (tokens, cached) = (recent.tokens, recent.cached);
        let (before, before_cached) = (all.tokens - tokens, all.cached - cached);
        let least = SAMPLES_MIN as u64;
        if recent.prompts < least || all.prompts - recent.prompts < least {
            return None;
        }
        let (_, was_cold) = self.traffic.last_verdict(peer);
        let percent_max = if was_cold {
            COLD_PERCENT_END
        } else {
            COLD_PERCENT
        };
        let was_warm = before_cached.saturating_mul(100) >= before.saturating_mul(WARM_PERCENT);
        // cached / tokens < percent_max % of before_cached / before, without a division.
        let is_cold = u128::from(cached) * u128::from(before) * 100
            < u128::from(before_cached) * u128::from(tokens) * u128::from(percent_max);
        if !(was_warm && is_cold) {
            return None;
        }
        let text = format!(
            "{} lost its prefix cache: {} of the prompt tokens came from it in the last minute, {} before",
            self.who(),
            percent(cached, tokens),
            percent(before_cached, before)
        );
        let cause = Cause::new(FindingCode::CacheCold, Severity::Info, text);
        let events = Events {
            count: recent.prompts,
            ..Events::default()
        };
        let look = "the engine's log: a restart, an eviction, or other prompts?";
        Some(cause.counted(events).look(look))
    }

    /// Clients notice when a tenth of the peer's attempts fail.
    fn severity(&self, events: Events) -> Severity {
        if events.count * 10 >= events.of && events.count > 0 {
            Severity::Critical
        } else {
            Severity::Warning
        }
    }
}

fn earliest(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
