//! Fault injection: decides which faults apply to a request. The server carries them out.
//!
//! A test replaces the whole fault set while the engine runs. One request may bring additional
//! faults in the header [`HEADER`]. A seeded generator decides about probabilities: the same seed
//! and the same requests in the same order get the same faults.

mod spec;

use std::time::Duration;

use http::{Method, StatusCode};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::sync::watch;

pub use spec::{Fault, Kind, SpecError};

/// The request header with faults for this request only, separated by commas.
pub const HEADER: &str = "x-sim-fault";

/// The current faults.
#[derive(Debug)]
pub(crate) struct Faults {
    armed: Mutex<Armed>,
    close_idle: watch::Sender<Option<Duration>>,
    refuse: watch::Sender<Option<Refusal>>,
}

/// How long new connections are refused; the inner `None` means until the faults are replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal(pub(crate) Option<Duration>);

#[derive(Debug)]
struct Armed {
    /// Each fault with the number of times it still applies; `None` = unlimited.
    faults: Vec<(Fault, Option<u64>)>,
    rng: StdRng,
}

/// The facts that the conditions of a fault check.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts<'a> {
    pub(crate) method: &'a Method,
    pub(crate) path: &'a str,
    /// Whether the connection has carried an earlier request.
    pub(crate) reused: bool,
}

/// The faults that apply to one request. The first fault of a kind wins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Effects {
    pub(crate) status: Option<StatusCode>,
    pub(crate) slow_header: Option<Duration>,
    pub(crate) cut_before_headers: bool,
    pub(crate) reset: bool,
    /// Added to the time to the first token.
    pub(crate) slow_ttft: Duration,
    /// Close the connection after this number of chunks.
    pub(crate) cut_stream: Option<u32>,
    /// Stop sending after this number of chunks; the inner `None` means before the headers.
    pub(crate) hang: Option<Option<u32>>,
    /// Pause once after this number of chunks.
    pub(crate) stall: Option<(u32, Duration)>,
    /// End the answer after this number of chunks as if it were complete.
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

    /// Replaces the set; counts start again.
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

    /// Removes the expired refusals of connections from the set.
    pub(crate) fn accept_again(&self) {
        let is_other = |(fault, _): &(Fault, _)| !matches!(fault.kind, Kind::Refuse(_));
        self.armed.lock().faults.retain(is_other);
        self.refuse.send_replace(None);
    }

    /// Whether new connections are refused: the current value and its changes.
    pub(crate) fn refuse(&self) -> watch::Receiver<Option<Refusal>> {
        self.refuse.subscribe()
    }

    /// The current set, each fault in its original notation.
    pub(crate) fn list(&self) -> Vec<String> {
        self.armed
            .lock()
            .faults
            .iter()
            .map(|(fault, _)| fault.to_string())
            .collect()
    }

    /// The idle time-out of connections: the current value and its changes.
    pub(crate) fn close_idle(&self) -> watch::Receiver<Option<Duration>> {
        self.close_idle.subscribe()
    }

    /// Selects the faults for this request, from its own faults first, then from the set.
    pub(crate) fn draw(&self, own: &[Fault], facts: Facts<'_>) -> Effects {
        let mut armed = self.armed.lock();
        let Armed { faults, rng } = &mut *armed;
        let mut effects = Effects::default();
        for fault in own {
            // Faults from the header already concern this request, so path and method are not
            // checked.
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
