//! Statistics of one route's finished requests: counts, medians and hit rates over five minutes.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use proto::admin::{CacheHits, PromptTokens};
use router_core::health::Failure;

use crate::sessions::{Sighting, Sightings};
use crate::window::{At, Count, SPAN};

/// Maximum number of names of rules and of unknown models with separate counts.
const NAMES_MAX: usize = 16;

/// First-token times kept per peer and prompt length; the oldest is dropped first.
const TIMES_MAX: usize = 64;

const MINUTE: Duration = Duration::from_secs(60);

/// Upper bounds of the prompt-length classes, in tokens. Only prompts of one class are compared.
/// The last class has no bound.
const LENGTHS: [u64; 5] = [256, 1024, 4096, 16_384, 65_536];

/// The trouble in one attempt at a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The peer failed.
    Failed(Failure),
    /// The client left while it waited for the first byte.
    WaitedInVain,
    /// The peer itself answered 404.
    NotFound,
}

const TROUBLES: usize = 8;

impl Trouble {
    fn index(self) -> usize {
        match self {
            Self::Failed(failure) => match failure {
                Failure::NoConnection => 0,
                Failure::Reset => 1,
                Failure::NoFirstByte => 2,
                Failure::ServerError => 3,
                Failure::Cut => 4,
                Failure::Stall => 5,
            },
            Self::WaitedInVain => 6,
            Self::NotFound => 7,
        }
    }
}

/// Why the router itself refused a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused<'a> {
    /// The concurrency limit.
    Concurrency,
    /// The gate on time to first token.
    Ttft,
    /// The gate on decode rate.
    Tps,
    /// The queue was full, or waiting took too long.
    Waiting,
    /// No peer could take the request.
    NoPeer,
    /// Too many bytes or connections.
    Overloaded,
    /// Key missing or wrong.
    Unauthorized,
    /// A content rule, by name.
    Rule(&'a str),
    /// No peer serves this model.
    Model(&'a str),
}

impl Refused<'_> {
    fn index(self) -> usize {
        match self {
            Self::Concurrency => 0,
            Self::Ttft => 1,
            Self::Tps => 2,
            Self::Waiting => 3,
            Self::NoPeer => 4,
            Self::Overloaded => 5,
            Self::Unauthorized => 6,
            Self::Rule(_) => 7,
            Self::Model(_) => 8,
        }
    }
}

const REFUSALS: usize = 9;

/// One finished request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ended<'a> {
    /// Why the router refused it; `None` if a peer was tried.
    pub refused: Option<Refused<'a>>,
    /// How long the request had waited when the client left or the time ran out before the first
    /// byte.
    pub waited: Option<Duration>,
    /// Time from arrival to the first token.
    pub ttft: Option<Duration>,
    /// Tokens of the whole prompt, and how many of them came from a cache.
    pub prompt: Option<(u64, u64)>,
    /// A hash of the session id.
    pub session: Option<u64>,
    /// The model that the client asked for.
    pub model: Option<&'a str>,
}

/// Counts of one route. Memory is bounded by the number of peers: about 10 KiB each.
#[derive(Debug)]
pub struct RouteTraffic {
    epoch: Instant,
    requests: Count,
    refused: [Count; REFUSALS],
    rules: Names,
    models: Names,
    /// Models of requests that a peer answered with 404.
    absent: Names,
    /// Prompts of the first request of each session, and of the later ones.
    first: Prompts,
    again: Prompts,
    peers: BTreeMap<Box<str>, PeerTraffic>,
    sessions: Sightings,
}

/// Counts of one peer.
#[derive(Debug, Default)]
pub struct PeerTraffic {
    attempts: Count,
    troubles: [Count; TROUBLES],
    longest_wait: Option<(Instant, Duration)>,
    times: [VecDeque<(Instant, Duration)>; LENGTHS.len() + 1],
    prompts: Prompts,
    /// Whether the peer was judged slow, or cold, the last time.
    pub(crate) is_slow: bool,
    pub(crate) is_cold: bool,
}

/// Tokens of prompts, and those that came from a cache.
#[derive(Debug, Default)]
struct Prompts {
    number: Count,
    tokens: Count,
    cached: Count,
}

impl Prompts {
    fn add(&mut self, (tokens, cached): (u64, u64), at: At) {
        self.number.add(at, 1);
        self.tokens.add(at, saturated(tokens));
        self.cached.add(at, saturated(cached.min(tokens)));
    }

    fn sum(&self, at: At, span: Duration) -> PromptTokens {
        PromptTokens {
            prompts: self.number.sum(at, span),
            tokens: self.tokens.sum(at, span),
            cached: self.cached.sum(at, span),
        }
    }
}

/// The number of events, out of how many, and the first and last time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Events {
    /// Events of this kind in the requested span.
    pub count: u64,
    /// Events of every kind in the same span.
    pub of: u64,
    /// When they began.
    pub since: Option<Instant>,
    /// When the last one happened.
    pub last: Option<Instant>,
}

impl RouteTraffic {
    /// Empty counts; counting begins `now`.
    pub fn new(now: Instant) -> Self {
        Self {
            epoch: now,
            requests: Count::default(),
            refused: Default::default(),
            rules: Names::default(),
            models: Names::default(),
            absent: Names::default(),
            first: Prompts::default(),
            again: Prompts::default(),
            peers: BTreeMap::new(),
            sessions: Sightings::default(),
        }
    }

    /// Counts a finished request. `attempts` are in order: `host:port`, and the trouble.
    pub fn observe<'p>(
        &mut self,
        ended: &Ended<'_>,
        attempts: impl IntoIterator<Item = (&'p str, Option<Trouble>)>,
        now: Instant,
    ) {
        let at = At::new(self.epoch, now);
        self.requests.add(at, 1);
        if let Some(refused) = ended.refused {
            self.refused[refused.index()].add(at, 1);
            match refused {
                Refused::Rule(name) => self.rules.add(name, at),
                Refused::Model(name) => self.models.add(name, at),
                _ => {}
            }
        }
        if let Some(session) = ended.session {
            let sighting = self.sessions.see(session, now);
            if let Some(prompt) = ended.prompt {
                match sighting {
                    Sighting::First => self.first.add(prompt, at),
                    Sighting::Again => self.again.add(prompt, at),
                }
            }
        }
        let mut last = None;
        for (peer, trouble) in attempts {
            let counts = self.peer(peer);
            counts.attempts.add(at, 1);
            if let Some(trouble) = trouble {
                counts.troubles[trouble.index()].add(at, 1);
            }
            last = Some((peer, trouble));
        }
        if let (Some((_, Some(Trouble::NotFound))), Some(model)) = (last, ended.model) {
            self.absent.add(model, at);
        }
        if let Some((peer, trouble)) = last {
            self.peer(peer).served(ended, trouble, at);
        }
    }

    /// Drops the counts of peers that the route no longer has.
    pub fn retain_peers(&mut self, is_known: impl Fn(&str) -> bool) {
        self.peers.retain(|peer, _| is_known(peer));
    }

    fn peer(&mut self, peer: &str) -> &mut PeerTraffic {
        if !self.peers.contains_key(peer) {
            self.peers.insert(peer.into(), PeerTraffic::default());
        }
        self.peers.get_mut(peer).expect("it was inserted if absent")
    }

    /// Requests that ended in the last `span`.
    pub fn requests(&self, span: Duration, now: Instant) -> u64 {
        self.requests.sum(At::new(self.epoch, now), span)
    }

    /// Refusals of one kind. The name in a rule or model is ignored.
    pub fn refused(&self, kind: Refused<'_>, span: Duration, now: Instant) -> Events {
        let at = At::new(self.epoch, now);
        events(&self.refused[kind.index()], &self.requests, at, span)
    }

    /// Refusals of each content rule.
    pub fn rules(&self, span: Duration, now: Instant) -> Vec<(&str, Events)> {
        self.named(&self.rules, span, now)
    }

    /// Requests for each model that no peer serves.
    pub fn models(&self, span: Duration, now: Instant) -> Vec<(&str, Events)> {
        self.named(&self.models, span, now)
    }

    /// Requests for each model that a peer answered with 404.
    pub fn absent(&self, span: Duration, now: Instant) -> Vec<(&str, Events)> {
        self.named(&self.absent, span, now)
    }

    fn named<'n>(&self, names: &'n Names, span: Duration, now: Instant) -> Vec<(&'n str, Events)> {
        let at = At::new(self.epoch, now);
        let of = |count| events(count, &self.requests, at, span);
        let all = names.0.iter().map(|(name, count)| (&**name, of(count)));
        all.filter(|(_, events)| events.count > 0).collect()
    }

    /// Attempts at a peer that ended in this trouble.
    pub fn trouble(&self, peer: &str, kind: Trouble, span: Duration, now: Instant) -> Events {
        let Some(peer) = self.peers.get(peer) else {
            return Events::default();
        };
        let at = At::new(self.epoch, now);
        events(&peer.troubles[kind.index()], &peer.attempts, at, span)
    }

    /// The longest time that a request waited for this peer's first byte and did not get it.
    pub fn longest_wait(&self, peer: &str, now: Instant) -> Option<Duration> {
        let (when, waited) = self.peers.get(peer)?.longest_wait?;
        (now.saturating_duration_since(when) < SPAN).then_some(waited)
    }

    /// The prompts that a peer answered in the last `span`.
    pub fn hits(&self, peer: &str, span: Duration, now: Instant) -> PromptTokens {
        let at = At::new(self.epoch, now);
        let peer = self.peers.get(peer);
        peer.map_or_else(PromptTokens::default, |peer| peer.prompts.sum(at, span))
    }

    /// The hit rates of one peer; `None` without a prompt in five minutes.
    pub fn cache_hits(&self, peer: &str, now: Instant) -> Option<CacheHits> {
        let hits = CacheHits {
            last_1m: self.hits(peer, MINUTE, now),
            last_5m: self.hits(peer, SPAN, now),
            ..CacheHits::default()
        };
        (hits.last_5m.prompts > 0).then_some(hits)
    }

    /// The hit rates over all peers; `None` without a prompt in five minutes.
    pub fn route_hits(&self, now: Instant) -> Option<CacheHits> {
        let at = At::new(self.epoch, now);
        let all = |span| {
            let each = self.peers.values().map(|peer| peer.prompts.sum(at, span));
            each.fold(PromptTokens::default(), |sum, one| PromptTokens {
                prompts: sum.prompts + one.prompts,
                tokens: sum.tokens + one.tokens,
                cached: sum.cached + one.cached,
            })
        };
        let hits = CacheHits {
            last_1m: all(MINUTE),
            last_5m: all(SPAN),
            first_5m: Some(self.first.sum(at, SPAN)).filter(|sum| sum.prompts > 0),
            again_5m: Some(self.again.sum(at, SPAN)).filter(|sum| sum.prompts > 0),
        };
        (hits.last_5m.prompts > 0).then_some(hits)
    }

    /// Remembers for the next judgement whether a peer is slow and whether it is cold.
    pub(crate) fn verdict(&mut self, peer: &str, is_slow: bool, is_cold: bool) {
        if let Some(peer) = self.peers.get_mut(peer) {
            (peer.is_slow, peer.is_cold) = (is_slow, is_cold);
        }
    }

    /// The last verdict: slow, cold.
    pub(crate) fn last_verdict(&self, peer: &str) -> (bool, bool) {
        let peer = self.peers.get(peer);
        peer.map_or((false, false), |peer| (peer.is_slow, peer.is_cold))
    }

    /// Sessions seen once in the last five minutes, and sessions seen at all.
    pub fn sessions_once(&mut self, now: Instant) -> (usize, usize) {
        self.sessions.expire(now);
        self.sessions.once()
    }

    /// A peer's median time to first token beside its siblings', in the class of prompt lengths
    /// where it has most samples; `None` with fewer than `least` samples on either side.
    pub fn beside_siblings(&self, peer: &str, least: usize, now: Instant) -> Option<Medians> {
        let own = self.peers.get(peer)?;
        let recent = |times: &VecDeque<(Instant, Duration)>| {
            let fresh = times
                .iter()
                .filter(|(when, _)| now.saturating_duration_since(*when) < SPAN);
            fresh.map(|(_, ttft)| *ttft).collect::<Vec<_>>()
        };
        let class = (0..own.times.len()).max_by_key(|class| recent(&own.times[*class]).len())?;
        let mut mine = recent(&own.times[class]);
        let siblings = self.peers.iter().filter(|(other, _)| &***other != peer);
        let mut theirs: Vec<_> = siblings
            .flat_map(|(_, other)| recent(&other.times[class]))
            .collect();
        if mine.len() < least || theirs.len() < least {
            return None;
        }
        Some(Medians {
            own: median(&mut mine),
            siblings: median(&mut theirs),
            samples: mine.len(),
            prompt_below: LENGTHS.get(class).copied(),
        })
    }
}

/// Medians of the time to first token at like prompt length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Medians {
    /// Median of the peer.
    pub own: Duration,
    /// Median of all other peers of its route together.
    pub siblings: Duration,
    /// Number of the peer's own samples.
    pub samples: usize,
    /// The prompts compared are shorter than this many tokens; `None`: longer than every bound.
    pub prompt_below: Option<u64>,
}

impl PeerTraffic {
    fn served(&mut self, ended: &Ended<'_>, trouble: Option<Trouble>, at: At) {
        if let (Some(Trouble::Failed(Failure::NoFirstByte) | Trouble::WaitedInVain), Some(waited)) =
            (trouble, ended.waited)
        {
            let is_longer = self.longest_wait.is_none_or(|(when, longest)| {
                waited >= longest || at.now.saturating_duration_since(when) >= SPAN
            });
            if is_longer {
                self.longest_wait = Some((at.now, waited));
            }
        }
        let Some((prompt, cached)) = ended.prompt else {
            return;
        };
        self.prompts.add((prompt, cached), at);
        if let Some(ttft) = ended.ttft {
            let class = LENGTHS.partition_point(|bound| *bound <= prompt);
            let times = &mut self.times[class];
            if times.len() == TIMES_MAX {
                times.pop_front();
            }
            times.push_back((at.now, ttft));
        }
    }
}

/// Counts by a name that a client can invent: at most [`NAMES_MAX`] names. The name that was idle
/// longest is dropped first.
#[derive(Debug, Default)]
struct Names(BTreeMap<Box<str>, Count>);

impl Names {
    fn add(&mut self, name: &str, at: At) {
        if !self.0.contains_key(name) {
            if self.0.len() == NAMES_MAX {
                let idle = self.0.iter().min_by_key(|(_, count)| count.last());
                let idle = idle.map(|(name, _)| name.clone());
                idle.map(|name| self.0.remove(&name));
            }
            self.0.insert(name.into(), Count::default());
        }
        if let Some(count) = self.0.get_mut(name) {
            count.add(at, 1);
        }
    }
}

fn events(count: &Count, of: &Count, at: At, span: Duration) -> Events {
    Events {
        count: count.sum(at, span),
        of: of.sum(at, span),
        since: count.since(at),
        last: count.last(),
    }
}

fn median(times: &mut [Duration]) -> Duration {
    let middle = times.len() / 2;
    *times.select_nth_unstable(middle).1
}

fn saturated(tokens: u64) -> u32 {
    u32::try_from(tokens).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn troubles_count_against_the_peer_that_had_them() {
        let now = Instant::now();
        let mut traffic = RouteTraffic::new(now);
        let attempts = [
            ("a:1", Some(Trouble::Failed(Failure::NoConnection))),
            ("b:1", None),
        ];
        for _ in 0..6 {
            let ended = Ended { ..Ended::default() };
            traffic.observe(&ended, attempts, now);
        }
        let seen = |peer| {
            let events = traffic.trouble(peer, Trouble::Failed(Failure::NoConnection), MINUTE, now);
            (events.count, events.of)
        };
        assert_eq!(seen("a:1"), (6, 6));
        assert_eq!(seen("b:1"), (0, 6));
        assert_eq!(traffic.requests(MINUTE, now), 6);
    }

    #[test]
    fn medians_compare_prompts_of_like_length() {
        let now = Instant::now();
        let mut traffic = RouteTraffic::new(now);
        let mut answer = |peer: &str, prompt: u64, ms: u64| {
            let attempts = [(peer, None)];
            let ended = Ended {
                ttft: Some(Duration::from_millis(ms)),
                prompt: Some((prompt, 0)),
                ..Ended::default()
            };
            traffic.observe(&ended, attempts, now);
        };
        // The first peer gets the long prompts, so it is slower but not at fault.
        for _ in 0..20 {
            answer("a:1", 20_000, 900);
            answer("b:1", 100, 50);
            answer("c:1", 100, 400);
        }
        assert_eq!(traffic.beside_siblings("a:1", 20, now), None);
        let medians = traffic.beside_siblings("c:1", 20, now).unwrap();
        assert_eq!(medians.own, Duration::from_millis(400));
        assert_eq!(medians.siblings, Duration::from_millis(50));
        assert_eq!(medians.prompt_below, Some(256));
    }

    #[test]
    fn invented_names_push_out_the_idle_ones_only() {
        let epoch = Instant::now();
        let mut traffic = RouteTraffic::new(epoch);
        for second in 0..100 {
            let now = epoch + Duration::from_secs(second);
            let invented = format!("model-{second}");
            for name in ["wanted", &invented] {
                let ended = Ended {
                    refused: Some(Refused::Model(name)),
                    ..Ended::default()
                };
                traffic.observe(&ended, [], now);
            }
        }
        let now = epoch + Duration::from_secs(100);
        let models = traffic.models(SPAN, now);
        assert_eq!(models.len(), NAMES_MAX);
        let wanted = models.iter().find(|(name, _)| *name == "wanted").unwrap();
        assert_eq!(wanted.1.count, 100);
    }

    #[test]
    fn hits_are_sums_of_tokens() {
        let now = Instant::now();
        let mut traffic = RouteTraffic::new(now);
        let attempts = [("a:1", None)];
        for cached in [0, 80, 90] {
            let ended = Ended {
                prompt: Some((100, cached)),
                ..Ended::default()
            };
            traffic.observe(&ended, attempts, now);
        }
        let sum = PromptTokens {
            prompts: 3,
            tokens: 300,
            cached: 170,
        };
        assert_eq!(traffic.hits("a:1", MINUTE, now), sum);
        assert_eq!(traffic.route_hits(now).unwrap().last_5m, sum);
        assert_eq!(sum.percent(), Some(56));
    }

    #[test]
    fn hits_are_told_apart_by_first_and_later_requests_of_a_session() {
        let now = Instant::now();
        let mut traffic = RouteTraffic::new(now);
        for (session, cached) in [(1, 0), (2, 10), (1, 90)] {
            let ended = Ended {
                prompt: Some((100, cached)),
                session: Some(session),
                ..Ended::default()
            };
            traffic.observe(&ended, [("a:1", None)], now);
        }
        let hits = traffic.route_hits(now).unwrap();
        assert_eq!(hits.first_5m.unwrap().percent(), Some(5));
        assert_eq!(hits.again_5m.unwrap().percent(), Some(90));
    }
}
