//! What a cluster's API server said last, for the page and for polling, and how well it answers.
//! Filled by `kubernetes`, a feature; without it, and outside a cluster, there is none.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// What is shown of the cluster.
#[derive(Clone, Debug, Default)]
pub struct Resolver {
    /// By service and route.
    pub services: Vec<Replicas>,
    /// Routes that routers can be asked about, in order.
    pub routes: Arc<[Box<str>]>,
    /// How well the API server answers.
    pub health: Arc<Health>,
}

/// How many pods a service has on one of its routes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replicas {
    /// The service, as the label shows it.
    pub service: Arc<str>,
    /// The route.
    pub route: Arc<str>,
    /// Its endpoints.
    pub endpoints: u64,
    /// Those of them that are ready.
    pub ready: u64,
    /// As many as there should be; none where the owner of its pods does not tell.
    pub desired: Option<u64>,
}

/// What the API server is asked for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// The routes.
    Routes,
    /// The endpoint slices of a namespace.
    Slices(Box<str>),
    /// Pods and those who own them.
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

/// How well the API server answers: what fails, and how often anything did. A failure is logged
/// when it begins, when its cause changes, and when it ends.
#[derive(Debug, Default)]
pub struct Health {
    sources: Mutex<BTreeMap<Source, Answer>>,
    errors: AtomicU64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Answer {
    /// None yet.
    Awaited,
    Good,
    /// Why not.
    Bad(String),
}

impl Health {
    /// A source is asked from here on.
    pub fn asked(&self, source: &Source) {
        let mut sources = self.sources.lock();
        sources.entry(source.clone()).or_insert(Answer::Awaited);
    }

    /// It is not asked any more.
    pub fn dismissed(&self, source: &Source) {
        self.sources.lock().remove(source);
    }

    /// It answered. What is not asked any more changes nothing.
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

    /// It did not answer as it should. `why` holds nothing of the answer's text.
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

    /// Whether everything that rows need is answered. Owners of pods are not.
    pub fn is_up(&self) -> bool {
        let sources = self.sources.lock();
        let mut needed = sources
            .iter()
            .filter(|(source, _)| **source != Source::Owners)
            .peekable();
        needed.peek().is_some() && needed.all(|(_, answer)| *answer == Answer::Good)
    }

    /// Answers that were not as they should be, since the start.
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
