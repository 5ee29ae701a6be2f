//! Derives causes from counts and state: one cause per trouble, worst first.

mod clients;
mod fold;
mod gates;
mod overrides;
mod peers;
mod process;
mod words;

use std::time::{Duration, Instant};

use proto::admin::{Auth, FindingCode, Route, Severity};

use crate::traffic::{Events, RouteTraffic};
use crate::window::SPAN;

pub use process::{BodylogFacts, Process, Undelivered, router};

/// The moment of a judgement, and how far back events count.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// The moment.
    pub now: Instant,
    /// Events younger than this count; at most [`SPAN`].
    pub span: Duration,
}

impl Window {
    /// `the last minute`, `the last 5 s`.
    fn name(self) -> String {
        match self.span.min(SPAN).as_secs() {
            60 => "the last minute".to_owned(),
            seconds @ 120.. => format!("the last {} min", seconds / 60),
            seconds => format!("the last {} s", seconds.max(5)),
        }
    }
}

/// Something that is wrong now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// The kind of trouble.
    pub code: FindingCode,
    /// The severity.
    pub severity: Severity,
    /// The subject.
    pub subject: Subject,
    /// One sentence with the numbers.
    pub text: String,
    /// A command, or a line for a file.
    pub look: String,
    /// The number of events, out of how many, and the first and last time; all empty for a state.
    pub events: Events,
}

/// The subject of a cause. Two causes with the same code and subject are the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    /// The route.
    pub route: Option<String>,
    /// `host:port` of the peer.
    pub peer: Option<String>,
    /// A name within the route: a rule, a model, a switch, a pool.
    pub name: Option<String>,
    /// `file:line`.
    pub file: Option<String>,
}

impl Cause {
    fn new(code: FindingCode, severity: Severity, text: String) -> Self {
        Self {
            code,
            severity,
            subject: Subject::default(),
            text,
            look: String::new(),
            events: Events::default(),
        }
    }

    fn route(mut self, route: &str) -> Self {
        self.subject.route = Some(route.to_owned());
        self
    }

    fn peer(mut self, peer: &str) -> Self {
        self.subject.peer = Some(peer.to_owned());
        self
    }

    fn named(mut self, name: &str) -> Self {
        self.subject.name = Some(name.to_owned());
        self
    }

    fn file(mut self, file: String) -> Self {
        self.subject.file = Some(file);
        self
    }

    fn look(mut self, look: impl Into<String>) -> Self {
        self.look = look.into();
        self
    }

    fn counted(mut self, events: Events) -> Self {
        self.events = events;
        self
    }
}

/// The causes on one route. `keys_age` is the time since the shared key set changed.
pub fn route(
    route: &Route,
    traffic: &mut RouteTraffic,
    keys_age: Option<Duration>,
    window: Window,
) -> Vec<Cause> {
    let peers = route.pools.iter().flat_map(|pool| &pool.peers);
    traffic.retain_peers(|known| peers.clone().any(|peer| peer.peer == known));
    let mut found = fold::fold(peers::judge(route, traffic, window));
    gates::judge(route, traffic, window, &mut found);
    let keys_age = keys_age.filter(|_| route.auth == Auth::Shared);
    clients::judge(route, traffic, keys_age, window, &mut found);
    overrides::judge(route, window.now, &mut found);
    found
}

#[cfg(test)]
mod tests;
