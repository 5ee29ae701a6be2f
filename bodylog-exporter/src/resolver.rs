//! The last state from a cluster's API server, for the metrics page and for polling, and the health
//! of the API server. The feature `kubernetes` fills it. Without the feature or outside a cluster
//! there is no such state.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// The shown state of the cluster.
#[derive(Clone, Debug, Default)]
pub struct Resolver {
    /// Pod counts by service and route.
    pub services: Vec<Replicas>,
    /// Routes to poll at routers, in order.
    pub routes: Arc<[Box<str>]>,
    /// The health of the API server.
    pub health: Arc<Health>,
}

/// The number of pods of a service on one of its routes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replicas {
    /// The service, as the label shows it.
    pub service: Arc<str>,
    /// The route.
    pub route: Arc<str>,
    /// Number of endpoints.
    pub endpoints: u64,
    /// Number of ready endpoints.
    pub ready: u64,
    /// Number of pods that should exist; `None` if the owner of the pods does not say.
    pub desired: Option<u64>,
}

/// A source of data at the API server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// The routes.
    Routes,
    /// The endpoint slices of a namespace.
    Slices(Box<str>),
    /// Pods and their owners.
    Owners,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Routes => f.write_str("routes"),
            Self::Slices(namespace) => write!(f, "endpoint slices of {namespace}"),
            Self::Owners => f.write_str("owners of pods"),
        }
    }
}

/// The health of the API server: current failures and the number of all failures. A failure is
/// logged when it begins, when its cause changes, and when it ends.
#[derive(Debug, Default)]
pub struct Health {
    sources: Mutex<BTreeMap<Source, Answer>>,
    errors: AtomicU64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Answer {
    /// No answer yet.
    Awaited,
    Good,
    /// The cause of the failure.
    Bad(String),
}

impl Health {
    /// Starts tracking a source.
    pub fn asked(&self, source: &Source) {
        let mut sources = self.sources.lock();
        sources.entry(source.clone()).or_insert(Answer::Awaited);
    }

    /// Stops tracking a source.
    pub fn dismissed(&self, source: &Source) {
        self.sources.lock().remove(source);
    }

    /// Records an answer. Ignored for a source that is not tracked.
    pub fn answered(&self, source: &Source) {
        let mut sources = self.sources.lock();
        let Some(answer) = sources.get_mut(source) else {
            return;
        };
        let before = std::mem::replace(answer, Answer::Good);
        drop(sources);
        if matches!(before, Answer::Bad(_)) {
            tracing::info!(asked_for = %source, "the cluster's API server answers again");
        }
    }

    /// Records a failure. `why` contains none of the answer's text.
    pub fn failed(&self, source: &Source, why: &str) {
        self.errors.fetch_add(1, Ordering::Relaxed);
        let mut sources = self.sources.lock();
        let Some(answer) = sources.get_mut(source) else {
            return;
        };
        let new = Answer::Bad(why.to_owned());
        let before = std::mem::replace(answer, new.clone());
        drop(sources);
        if before != new {
            tracing::warn!(asked_for = %source, why, "the cluster's API server does not answer as it should; what is known stays");
        }
    }

    /// Whether all sources that rows need have answered. The owners of pods are not needed.
    pub fn is_up(&self) -> bool {
        let sources = self.sources.lock();
        let mut needed = sources
            .iter()
            .filter(|(source, _)| **source != Source::Owners)
            .peekable();
        needed.peek().is_some() && needed.all(|(_, answer)| *answer == Answer::Good)
    }

    /// Number of failures since the start.
    pub fn errors(&self) -> u64 {
        self.errors.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn up_is_when_everything_asked_for_was_answered_last() {
        let health = Health::default();
        let slices = Source::Slices("ns".into());
        assert!(!health.is_up(), "nothing is asked yet");
        health.asked(&Source::Routes);
        assert!(!health.is_up(), "nor answered");
        health.answered(&Source::Routes);
        assert!(health.is_up());
        health.asked(&slices);
        health.failed(&slices, "status 403");
        health.failed(&slices, "status 403");
        assert!(!health.is_up());
        assert_eq!(health.errors(), 2);
        health.answered(&slices);
        assert!(health.is_up());
        health.asked(&slices);
        assert!(health.is_up(), "asking again takes nothing back");
        health.failed(&slices, "status 500");
        health.dismissed(&slices);
        health.failed(&slices, "late");
        assert!(health.is_up(), "it is not asked any more");
    }

    #[test]
    fn owners_are_counted_but_not_needed() {
        let health = Health::default();
        health.asked(&Source::Routes);
        health.answered(&Source::Routes);
        health.asked(&Source::Owners);
        health.failed(&Source::Owners, "status 403");
        assert!(health.is_up());
        assert_eq!(health.errors(), 1);
    }
}
