//! Faults on demand: which of them strike a request. Carrying them out is the server's.
//!
//! A fault set is changed as a whole while the engine runs; one request may bring more of its own
//! in the header [`HEADER`]. Chance is drawn from a seeded generator: the same seed and the same
//! requests in the same order meet the same faults.

mod spec;

use std::time::Duration;

use http::{Method, StatusCode};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::sync::watch;

pub use spec::{Fault, Kind, SpecError};

/// The request header that brings faults for that request alone, separated by commas.
pub const HEADER: &str = "x-sim-fault";

/// The faults in force.
#[derive(Debug)]
pub(crate) struct Faults {
    armed: Mutex<Armed>,
    close_idle: watch::Sender<Option<Duration>>,
    refuse: watch::Sender<Option<Refusal>>,
}

/// How long new connections are refused; `None` inside = until the faults are replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal(pub(crate) Option<Duration>);

#[derive(Debug)]
struct Armed {
    /// Each with how often it may still strike; `None` = for ever.
    faults: Vec<(Fault, Option<u64>)>,
    rng: StdRng,
}

/// What a fault's conditions look at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts<'a> {
    pub(crate) method: &'a Method,
    pub(crate) path: &'a str,
    /// The connection has carried a request before this one.
    pub(crate) reused: bool,
}

/// What strikes one request. The first fault of a kind wins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Effects {
    pub(crate) status: Option<StatusCode>,
    pub(crate) slow_header: Option<Duration>,
    pub(crate) cut_before_headers: bool,
    pub(crate) reset: bool,
    /// Added to the time to the first token.
    pub(crate) slow_ttft: Duration,
    /// End the connection after so many chunks of the answer.
    pub(crate) cut_stream: Option<u32>,
    /// Fall silent after so many chunks; `None` inside = before the headers.
    pub(crate) hang: Option<Option<u32>>,
    /// Pause once after so many chunks.
    pub(crate) stall: Option<(u32, Duration)>,
    /// End the answer after so many chunks as if it were whole.
    pub(crate) end_stream: Option<u32>,
    /// Bytes of the first piece of text.
    pub(crate) big_chunk: Option<usize>,
}

impl Faults {
    pub(crate) fn new(faults: Vec<Fault>, seed: u64) -> Self {
        let new = Self {
            armed: Mutex::new(Armed {
                faults: Vec::new(),
                rng: StdRng::seed_from_u64(seed),
            }),
            close_idle: watch::Sender::new(None),
            refuse: watch::Sender::new(None),
        };
        new.replace(faults);
        new
    }

    /// Puts a new set in the place of the old one; counts begin anew.
    pub(crate) fn replace(&self, faults: Vec<Fault>) {
        let idle = faults.iter().find_map(|fault| match fault.kind {
            Kind::CloseIdle(limit) => Some(limit),
            _ => None,
        });
        let refuse = faults.iter().find_map(|fault| match fault.kind {
            Kind::Refuse(period) => Some(Refusal(period)),
            _ => None,
        });
        let armed = faults.into_iter().map(|fault| {
            let times = fault.times();
            (fault, times)
        });
        self.armed.lock().faults = armed.collect();
        self.close_idle.send_replace(idle);
        self.refuse.send_replace(refuse);
    }

    /// Takes the refusals of connections out of the set: their time is over.
    pub(crate) fn accept_again(&self) {
        let is_other = |(fault, _): &(Fault, _)| !matches!(fault.kind, Kind::Refuse(_));
        self.armed.lock().faults.retain(is_other);
        self.refuse.send_replace(None);
    }

    /// Whether new connections are refused, now and later.
    pub(crate) fn refuse(&self) -> watch::Receiver<Option<Refusal>> {
        self.refuse.subscribe()
    }

    /// The set in force, each as it is written.
    pub(crate) fn list(&self) -> Vec<String> {
        self.armed
            .lock()
            .faults
            .iter()
            .map(|(fault, _)| fault.to_string())
            .collect()
    }

    /// How long an idle connection may live, now and later.
    pub(crate) fn close_idle(&self) -> watch::Receiver<Option<Duration>> {
        self.close_idle.subscribe()
    }

    /// Draws what strikes this request, from its own faults first, then from the set.
    pub(crate) fn draw(&self, own: &[Fault], facts: Facts<'_>) -> Effects {
        let mut armed = self.armed.lock();
        let Armed { faults, rng } = &mut *armed;
        let mut effects = Effects::default();
        for fault in own {
            // A header already names its request: its path and method need no match.
            if fault.strikes_connection(facts.reused) && rng.random_bool(fault.probability()) {
                effects.add(&fault.kind);
            }
        }
        for (fault, left) in faults {
            if *left != Some(0) && fault.matches(facts) && rng.random_bool(fault.probability()) {
                *left = left.map(|n| n - 1);
                effects.add(&fault.kind);
            }
        }
        effects
    }
}

impl Effects {
    fn add(&mut self, kind: &Kind) {
        match *kind {
            Kind::Status(status) => self.status = self.status.or(Some(status)),
            Kind::SlowHeader(delay) => self.slow_header = self.slow_header.or(Some(delay)),
            Kind::CutBeforeHeaders => self.cut_before_headers = true,
            Kind::CutStream(after) => self.cut_stream = self.cut_stream.or(Some(after)),
            Kind::Hang(after) => self.hang = self.hang.or(Some(after)),
            Kind::BigChunk(bytes) => self.big_chunk = self.big_chunk.or(Some(bytes)),
            Kind::Reset => self.reset = true,
            Kind::SlowTtft(delay) => self.slow_ttft = self.slow_ttft.max(delay),
            Kind::Stall(after, pause) => self.stall = self.stall.or(Some((after, pause))),
            Kind::EndStream(after) => self.end_stream = self.end_stream.or(Some(after)),
            Kind::CloseIdle(_) | Kind::Refuse(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(specs: &[&str]) -> Faults {
        Faults::new(specs.iter().map(|spec| spec.parse().unwrap()).collect(), 7)
    }

    fn post(path: &str) -> Facts<'_> {
        Facts {
            method: &Method::POST,
            path,
            reused: false,
        }
    }

    #[test]
    fn by_default_a_fault_strikes_every_api_post_and_nothing_else() {
        let faults = faults(&["503"]);
        let hit = |facts| faults.draw(&[], facts).status.is_some();
        assert!(hit(post("/v1/chat/completions")));
        assert!(!hit(post("/sim/faults")));
        assert!(!hit(Facts {
            method: &Method::GET,
            ..post("/v1/models")
        }));
    }

    #[test]
    fn a_path_condition_reaches_any_method() {
        let faults = faults(&["503@/v1/models"]);
        let get = Facts {
            method: &Method::GET,
            ..post("/v1/models")
        };
        assert_eq!(
            faults.draw(&[], get).status,
            Some(StatusCode::SERVICE_UNAVAILABLE)
        );
        assert_eq!(
            faults.draw(&[], post("/v1/completions")),
            Effects::default()
        );
    }

    #[test]
    fn a_count_runs_out() {
        let faults = faults(&["429@x2"]);
        let hits: Vec<bool> = (0..4)
            .map(|_| faults.draw(&[], post("/v1/messages")).status.is_some())
            .collect();
        assert_eq!(hits, [true, true, false, false]);
    }

    #[test]
    fn a_probability_is_a_share_and_the_seed_decides_which() {
        let draw = || {
            let faults = faults(&["429=0.25"]);
            (0..1000)
                .map(|_| faults.draw(&[], post("/v1/messages")).status.is_some())
                .collect::<Vec<_>>()
        };
        let hits = draw();
        assert!((150..350).contains(&hits.iter().filter(|hit| **hit).count()));
        assert_eq!(hits, draw());
    }

    #[test]
    fn a_reused_condition_spares_the_first_request_of_a_connection() {
        let faults = faults(&["cut-before-headers@reused"]);
        assert!(!faults.draw(&[], post("/v1/messages")).cut_before_headers);
        assert!(
            faults
                .draw(
                    &[],
                    Facts {
                        reused: true,
                        ..post("/v1/messages")
                    }
                )
                .cut_before_headers
        );
    }

    #[test]
    fn a_requests_own_faults_come_before_the_set() {
        let faults = faults(&["503", "slow-header=1s"]);
        let drawn = faults.draw(&["429".parse().unwrap()], post("/v1/messages"));
        assert_eq!(drawn.status, Some(StatusCode::TOO_MANY_REQUESTS));
        assert_eq!(drawn.slow_header, Some(Duration::from_secs(1)));
    }

    #[test]
    fn idle_closing_follows_the_set() {
        let faults = faults(&["close-idle=50ms"]);
        let idle = faults.close_idle();
        assert_eq!(*idle.borrow(), Some(Duration::from_millis(50)));
        faults.replace(Vec::new());
        assert_eq!(*idle.borrow(), None);
        assert_eq!(faults.list(), [] as [&str; 0]);
    }
}
