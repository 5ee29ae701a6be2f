//! Clients, engines and the book between them, processed event by event.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use router_core::admission::{Gate, Refusal};
use router_core::affinity::Affinity;
use router_core::affinity::prefix::Prefix;
use router_core::aimd::Bounds;
use router_core::balance::{Balance, Normalize};
use router_core::book::{
    Book, PeerChange, PlacementRequest, PoolId, ResolvedRoute, Switches, Ticket, Verdict,
};
use router_core::health::{AttemptEnd, Failure, HealthSpec, HealthState};
use router_core::layered::Source;
use router_core::pool::{
    Evidence, FullPolicy, GuardSpec, MemorySpec, PeerKey, PeerSpec, PoolSpec, Role, RouteSpec,
    Slots, Weight,
};
use router_core::signal::{Limit, Sample};

use crate::engine::{Engine, Happened, Job, Make};
use crate::report::{Asked, Report, Served};

const POOL: PoolId = PoolId(0);

pub(crate) const MINUTE: Duration = Duration::from_secs(60);

/// A number that changes at given times; the first time is 0.
pub(crate) type Course = Vec<(Duration, f64)>;

/// One simulation.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) length: Duration,
    pub(crate) engines: usize,
    pub(crate) make: Make,
    /// `max_concurrency` of each engine.
    pub(crate) slots: u32,
    pub(crate) affinity: Affinity,
    pub(crate) balance: Balance,
    pub(crate) memory: MemorySpec,
    /// Whether requests carry a session id.
    pub(crate) names_sessions: bool,
    pub(crate) fault: Option<Fault>,
    pub(crate) health: HealthSpec,
    pub(crate) guard: GuardSpec,
    pub(crate) switches: Switches,
    /// New sessions per second, a Poisson process.
    pub(crate) arrivals: Course,
    /// Speed of all engines; 1 is healthy.
    pub(crate) pace: Course,
    /// Probability that a session continues after a turn. A refused session ends.
    pub(crate) goes_on: f64,
}

impl Plan {
    /// Four healthy engines of 16 slots, requests of one turn, no threshold.
    pub(crate) fn new(seed: u64, length: Duration, arrivals: Course) -> Self {
        Self {
            seed,
            length,
            engines: 4,
            make: Make {
                batch: 16,
                knee: 8.0,
                decode_rate: 60.0,
                prefill_rate: 2_000.0,
                cache_tokens: 200_000,
            },
            slots: 16,
            affinity: Affinity::None,
            balance: Balance::LeastConn,
            memory: MemorySpec::default(),
            names_sessions: true,
            fault: None,
            health: HealthSpec::default(),
            guard: GuardSpec::default(),
            switches: Switches::DEFAULT,
            arrivals,
            pace: vec![(Duration::ZERO, 1.0)],
            goes_on: 0.0,
        }
    }

    pub(crate) fn run(&self) -> Report {
        World::new(self).run()
    }
}

/// A fault of the first engine.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// The engine runs at this share of its speed from the beginning.
    Slow(f64),
    /// The engine is dead for a time. Its requests are repeated elsewhere, and its cache is empty
    /// when it returns.
    Lost { from: Duration, until: Duration },
    /// The engine hangs, then answers each request with 500, then restarts with an empty cache. Its
    /// probes succeed all the time.
    Ill {
        hangs: Duration,
        fails: Duration,
        recovers: Duration,
    },
}

/// How the first engine treats its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Illness {
    None,
    Hangs,
    Fails,
}

/// A client waits this long for a first byte.
const PATIENCE: Duration = Duration::from_secs(20);

/// A client repeats a lost request after this time.
const ASKS_AGAIN: Duration = Duration::from_secs(2);

pub(crate) fn limit(value: f64) -> Option<Limit> {
    Some(Limit {
        value,
        source: Source::Route,
    })
}

/// `normal`, with `between` during the given period.
pub(crate) fn bump(normal: f64, between: f64, from: Duration, until: Duration) -> Course {
    vec![(Duration::ZERO, normal), (from, between), (until, normal)]
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A new session. `false`: none came before the rate changed.
    Arrival(bool),
    /// The next turn of a session.
    Turn(u64),
    /// An engine's next change, unless another event changed the engine before.
    Engine { index: usize, version: u64 },
    /// The speed of the engines changes.
    Pace(usize),
    /// The first engine dies or returns.
    Lost(bool),
    /// The first engine's illness changes.
    Ill(Illness),
    /// The client of a hanging request gives up.
    GivesUp(u64),
    /// The check for hanging peers.
    Watch,
    /// A tick that the book requested.
    Tick,
}

/// A conversation. It draws its own random numbers, so that it behaves the same whatever the router
/// does.
#[derive(Debug)]
struct Talk {
    draws: Draws,
    turn: u32,
    /// Tokens so far.
    context: u32,
    /// The tokens of the current question and its answer, while it is not answered.
    asked: Option<(u32, u32)>,
    /// The prefixes that identify the conversation without its id.
    prefix: Vec<Prefix>,
    /// Engine of the previous turn.
    engine: Option<usize>,
}

/// Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators" (2014): cheap to seed
/// for each of many conversations, even in an unoptimised build.
#[derive(Debug)]
struct Draws(u64);

impl Draws {
    /// At least 0 and below 1.
    fn share(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn between(&mut self, least: u32, most: u32) -> u32 {
        least + (f64::from(most - least + 1) * self.share()) as u32
    }
}

struct World<'a> {
    plan: &'a Plan,
    book: Book,
    resolved: ResolvedRoute,
    start: Instant,
    now: Duration,
    events: BinaryHeap<Reverse<(Duration, u64, Event)>>,
    events_made: u64,
    engines: Vec<(Engine, u64)>,
    talks: BTreeMap<u64, Talk>,
    talks_begun: u64,
    arrivals: StdRng,
    /// Randomness of the book's choices.
    choices: StdRng,
    asked: Vec<Asked>,
    served: Vec<Served>,
    limits: Vec<(Duration, f64)>,
    illness: Illness,
    /// Requests that hang on the first engine, by session.
    hanging: BTreeMap<u64, Ticket>,
    lost: Vec<Duration>,
    states: Vec<(Duration, HealthState)>,
}

impl<'a> World<'a> {
    fn new(plan: &'a Plan) -> Self {
        let mut book = Book::default();
        let resolved = book.attach(spec(plan));
        let mut world = Self {
            plan,
            book,
            resolved,
            start: start(),
            now: Duration::ZERO,
            events: BinaryHeap::new(),
            events_made: 0,
            engines: (0..plan.engines)
                .map(|_| (Engine::new(plan.make), 0))
                .collect(),
            talks: BTreeMap::new(),
            talks_begun: 0,
            arrivals: StdRng::seed_from_u64(plan.seed),
            choices: StdRng::seed_from_u64(!plan.seed),
            asked: Vec::new(),
            served: Vec::new(),
            limits: Vec::new(),
            illness: Illness::None,
            hanging: BTreeMap::new(),
            lost: Vec::new(),
            states: Vec::new(),
        };
        for (index, (at, _)) in plan.pace.iter().enumerate() {
            world.at(*at, Event::Pace(index));
        }
        match plan.fault {
            Some(Fault::Slow(pace)) => world.engines[0].0.set_pace(pace),
            Some(Fault::Lost { from, until }) => {
                world.at(from, Event::Lost(true));
                world.at(until, Event::Lost(false));
            }
            Some(Fault::Ill {
                hangs,
                fails,
                recovers,
            }) => {
                world.at(hangs, Event::Ill(Illness::Hangs));
                world.at(fails, Event::Ill(Illness::Fails));
                world.at(recovers, Event::Ill(Illness::None));
                world.at(Duration::ZERO, Event::Watch);
            }
            None => {}
        }
        world.at(Duration::ZERO, Event::Tick);
        world.expect_arrival();
        world
    }

    fn run(mut self) -> Report {
        while let Some(Reverse((at, _, event))) = self.events.pop() {
            if at >= self.plan.length {
                break;
            }
            assert!(at >= self.now, "time goes forward");
            self.now = at;
            self.handle(event);
        }
        self.book.check();
        let max = u64::from(self.plan.slots) * self.plan.engines as u64;
        let adaptive = self.plan.guard.adaptive.as_ref();
        Report {
            asked: self.asked,
            served: self.served,
            limits: self.limits,
            lost: self.lost,
            states: self.states,
            bounds: adaptive.map(|spec| Bounds::new(spec, max)),
            priority: self.book.priority(&self.resolved),
        }
    }

    fn at(&mut self, at: Duration, event: Event) {
        self.events_made += 1;
        self.events.push(Reverse((at, self.events_made, event)));
    }

    fn instant(&self) -> Instant {
        self.start + self.now
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Arrival(came) => {
                if came {
                    self.begin();
                }
                self.expect_arrival();
            }
            Event::Turn(session) => self.request(session),
            Event::Engine { index, version } => {
                if self.engines[index].1 == version {
                    self.run_engine(index);
                    self.expect_engine(index);
                }
            }
            Event::Pace(index) => {
                for engine in 0..self.engines.len() {
                    self.run_engine(engine);
                    let own = match self.plan.fault {
                        Some(Fault::Slow(pace)) if engine == 0 => pace,
                        _ => 1.0,
                    };
                    let pace = self.plan.pace[index].1 * own;
                    self.engines[engine].0.set_pace(pace);
                    self.expect_engine(engine);
                }
            }
            Event::Lost(is_lost) => self.lose(is_lost),
            Event::Ill(illness) => self.fall_ill(illness),
            Event::GivesUp(session) => {
                if let Some(ticket) = self.hanging.remove(&session) {
                    self.lose_request(session, ticket, AttemptEnd::Abandoned);
                }
            }
            Event::Watch => {
                let watched = self.book.watch(&self.resolved, self.instant());
                for PeerChange { change, .. } in watched.changes {
                    self.states.push((self.now, change.to));
                }
                self.at(self.now + Duration::from_secs(1), Event::Watch);
            }
            Event::Tick => {
                let now = self.instant();
                let next = self.book.tick(&self.resolved, self.plan.switches, now);
                if self.plan.guard.adaptive.is_some() {
                    let switches = self.plan.switches;
                    let protection = self.book.protection(&self.resolved, POOL, switches, now);
                    self.limits.push((self.now, protection.limit));
                }
                self.at(next - self.start, Event::Tick);
            }
        }
    }

    fn lose(&mut self, is_lost: bool) {
        let now = self.instant();
        let evidence = match is_lost {
            true => Evidence::Failed,
            false => Evidence::Healthy,
        };
        let key = self.resolved.peer(POOL, 0).key.clone();
        self.book.observe(&self.resolved, &key, evidence, now);
        if is_lost {
            self.run_engine(0);
            for job in self.engines[0].0.lose_all() {
                self.book.release(job.ticket, now);
                self.at(self.now, Event::Turn(job.session));
            }
            self.expect_engine(0);
        }
    }

    fn fall_ill(&mut self, illness: Illness) {
        self.run_engine(0);
        self.illness = illness;
        let before = std::mem::take(&mut self.hanging);
        let now = self.instant();
        for job in self.engines[0].0.lose_all() {
            // Current streams break off or stall with the engine; they give no new information.
            self.book.release(job.ticket, now);
            self.at(self.now + ASKS_AGAIN, Event::Turn(job.session));
        }
        for (session, ticket) in before {
            self.lose_request(session, ticket, AttemptEnd::Failed(Failure::Reset));
        }
        self.expect_engine(0);
    }

    /// A request ends without an answer, and its client repeats it.
    fn lose_request(&mut self, session: u64, mut ticket: Ticket, end: AttemptEnd) {
        let now = self.instant();
        self.ended(&mut ticket, end);
        self.book.release(ticket, now);
        self.lost.push(self.now);
        self.at(self.now + ASKS_AGAIN, Event::Turn(session));
    }

    fn ended(&mut self, ticket: &mut Ticket, end: AttemptEnd) {
        let now = self.instant();
        let changes = self.book.attempt_ended(&self.resolved, ticket, end, now);
        self.states
            .extend(changes.iter().map(|change| (self.now, change.to)));
    }

    /// A Poisson process, so a wait that crosses a change of the rate may start anew there.
    fn expect_arrival(&mut self) {
        let course = &self.plan.arrivals;
        let rate = course.iter().rev().find(|(from, _)| *from <= self.now);
        let rate = rate.expect("a course begins at 0").1;
        let change = course.iter().find(|(from, _)| *from > self.now);
        let change = change.map_or(Duration::MAX, |(from, _)| *from);
        let next = if rate > 0.0 {
            self.now + exponential(self.arrivals.random_range(0.0..1.0), 1.0 / rate)
        } else {
            Duration::MAX
        };
        if next < change {
            self.at(next, Event::Arrival(true));
        } else if change < Duration::MAX {
            self.at(change, Event::Arrival(false));
        }
    }

    fn begin(&mut self) {
        let session = self.talks_begun;
        self.talks_begun += 1;
        let mut draws = Draws(self.plan.seed ^ (session << 20));
        let talk = Talk {
            context: draws.between(500, 1_500),
            draws,
            turn: 1,
            engine: None,
            asked: None,
            // The system prompt at the beginning of all conversations.
            prefix: vec![Prefix {
                hash: 0,
                bytes: 400,
            }],
        };
        self.talks.insert(session, talk);
        self.request(session);
    }

    fn request(&mut self, session: u64) {
        let (now, switches) = (self.instant(), self.plan.switches);
        let talk = self.talks.get_mut(&session).expect("it goes on");
        let id = format!("session-{session}");
        let is_new = talk.asked.is_none();
        let draws = &mut talk.draws;
        let (output, _) = *talk
            .asked
            .get_or_insert_with(|| (draws.between(100, 300), draws.between(50, 250)));
        if is_new {
            // Four bytes per token, as a rule of thumb.
            let bytes = u64::from(talk.context) * 4;
            let hash = (session + 1) << 32 | u64::from(talk.turn);
            talk.prefix.push(Prefix { hash, bytes });
        }
        let named = self.plan.names_sessions.then_some(id.as_bytes());
        let request = PlacementRequest {
            turn: Some(talk.turn),
            switches,
            prefix: if self.plan.memory.prefixes {
                &talk.prefix
            } else {
                &[]
            },
            ..PlacementRequest::new(POOL, named)
        };
        let verdict = self
            .book
            .reserve(&self.resolved, request, now, &mut self.choices);
        let mut asked = Asked {
            at: self.now,
            turn: talk.turn,
            refused: None,
            kept: false,
        };
        match verdict {
            Verdict::Send(placement) => {
                asked.kept = talk.engine.replace(placement.peer) == Some(placement.peer);
                let size = (talk.context, output);
                let (ticket, facts) = (placement.ticket, placement.facts);
                match self.illness {
                    Illness::Hangs if placement.peer == 0 => {
                        self.hanging.insert(session, ticket);
                        self.at(self.now + PATIENCE, Event::GivesUp(session));
                    }
                    Illness::Fails if placement.peer == 0 => {
                        let end = AttemptEnd::Failed(Failure::ServerError);
                        self.lose_request(session, ticket, end);
                    }
                    _ => {
                        let job = Job::new(ticket, facts, session, self.now, size);
                        self.run_engine(placement.peer);
                        self.engines[placement.peer].0.accept(job);
                        self.expect_engine(placement.peer);
                    }
                }
            }
            Verdict::Wait(_) => unreachable!("no route here lets requests wait"),
            Verdict::Refuse(refusal) => {
                asked.refused = Some(gate(&refusal));
                self.talks.remove(&session);
            }
        }
        self.asked.push(asked);
    }

    fn run_engine(&mut self, index: usize) {
        let now = self.instant();
        let Happened {
            first_tokens,
            ended,
        } = self.engines[index].0.run(self.now);
        for job in self.engines[index].0.begun() {
            let changes = self.book.first_byte(&self.resolved, &mut job.ticket, now);
            self.states
                .extend(changes.iter().map(|change| (self.now, change.to)));
        }
        for seconds in first_tokens {
            let sample = Sample::Ttft(seconds * 1e3);
            self.book.sample(&self.resolved, POOL, sample, now);
        }
        for mut job in ended {
            self.ended(&mut job.ticket, AttemptEnd::Served);
            let first = job.first.expect("it had a first token");
            let seconds = (self.now - first).as_secs_f64();
            let sample = Sample::Tps(f64::from(job.output) / seconds);
            self.book.sample(&self.resolved, POOL, sample, now);
            let (prompt, cached) = (job.prompt, job.cached);
            self.book.tokens(&job.facts, prompt.into(), cached.into());
            self.book.release(job.ticket, now);
            self.served.push(Served {
                at: job.arrived,
                prompt,
                cached,
                ttft: (first - job.arrived).as_secs_f64(),
            });
            self.go_on(job.session);
        }
    }

    fn go_on(&mut self, session: u64) {
        let talk = self.talks.get_mut(&session).expect("it was served");
        let (output, follows) = talk.asked.take().expect("it was asked");
        talk.context += output + follows;
        if talk.draws.share() < self.plan.goes_on {
            talk.turn += 1;
            let pause = exponential(talk.draws.share(), 5.0);
            self.at(self.now + pause, Event::Turn(session));
        } else {
            self.talks.remove(&session);
        }
    }

    fn expect_engine(&mut self, index: usize) {
        let (engine, version) = &mut self.engines[index];
        *version += 1;
        let version = *version;
        if let Some(next) = engine.next() {
            self.at(next, Event::Engine { index, version });
        }
    }
}

fn spec(plan: &Plan) -> RouteSpec {
    let peer = |number: usize| {
        let key = format!("10.0.0.{}:8000", number + 1);
        PeerSpec {
            name: key.as_str().into(),
            url: format!("http://{key}").into(),
            key: PeerKey::new(key),
            priority: 0,
            slots: Slots(plan.slots),
            enabled: true,
            weight: Weight::default(),
            role: Role::Regular,
            draining: false,
            learns_slots: false,
        }
    };
    RouteSpec {
        pools: vec![PoolSpec {
            model: None,
            peers: (0..plan.engines).map(peer).collect(),
        }],
        affinity: plan.affinity,
        balance: plan.balance,
        full_policy: FullPolicy::Reject,
        rt_limit_factor: 1.0,
        cross_tier_fallback: false,
        ban_ttl: Duration::from_secs(300),
        guard: plan.guard.clone(),
        load: None,
        health: plan.health,
        normalize: Normalize::Off,
        memory: plan.memory,
    }
}

fn gate(refusal: &Refusal) -> Gate {
    match refusal {
        Refusal::ConcurrencyLimit(_) => Gate::Concurrency,
        Refusal::TtftLimit(_) => Gate::Ttft,
        Refusal::TpsLimit(_) => Gate::Tps,
        Refusal::NoHealthyPeer { .. } => unreachable!("three of four peers are never banned"),
    }
}

fn exponential(uniform: f64, mean: f64) -> Duration {
    Duration::from_secs_f64(-(1.0 - uniform).ln() * mean)
}

#[expect(
    clippy::disallowed_methods,
    reason = "there is no other way to obtain a first instant"
)]
fn start() -> Instant {
    Instant::now()
}
