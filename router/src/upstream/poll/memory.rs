//! What the poller remembers of one peer between polls.

use std::time::Duration;

use http::HeaderValue;
use tokio::time::Instant;

use crate::upstream::probe_client::{Endpoint, KeptConnection};
use router_config::valid::EngineDialect;

/// Interval of asking llama.cpp for its slots and whether it sleeps.
const PROPS_EVERY: Duration = Duration::from_secs(30);

/// Interval after a request without an answer, which does not tell whether the page exists.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// Interval of looking again for a page that an engine does not have. An operator may restart the
/// engine with other options between two polls.
const MISSING_FOR: Duration = Duration::from_secs(300);

/// What the poller remembers of one peer between polls.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// The page with its load.
    pub(super) load_page: Option<Endpoint>,
    pub(super) dialect: Option<EngineDialect>,
    /// Whether it has no load page. llama.cpp is one of the engines whose options may turn it off.
    pub(super) pageless: bool,
    pub(super) props: Asked,
    pub(super) sleeping: bool,
    /// The start time of the engine, from its load page.
    started: Option<HeaderValue>,
    /// Since when it has had neither metrics nor slots, so that only its health is checked.
    blind: Option<Instant>,
    /// The connection to a load page at another address.
    pub(super) elsewhere: KeptConnection,
}

/// The result of the last request for `/props`, and its time.
#[derive(Debug, Default)]
pub(super) struct Asked(Option<(Instant, Props)>);

/// The result of a request for `/props`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Props {
    /// A page of llama.cpp.
    Told,
    /// No page, or a page of another program.
    Missing,
    /// No answer, or one that does not show whether the page exists.
    Silent,
}

impl Memory {
    /// Whether looking for its load is paused, because it would fail at every poll.
    pub(super) fn is_blind(&self, now: Instant) -> bool {
        self.blind
            .is_some_and(|since| now.duration_since(since) < MISSING_FOR)
    }

    pub(super) fn go_blind(&mut self, now: Instant) {
        self.blind = Some(now);
    }

    /// A load page with another start time counts as that of another engine.
    pub(super) fn saw_start(&mut self, started: Option<HeaderValue>) {
        if self.started != started && self.started.is_some() {
            self.props = Asked::default();
        }
        self.started = started;
    }
}

impl Asked {
    pub(super) fn is_first(&self) -> bool {
        self.0.is_none()
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.0.is_none_or(|(at, came)| {
            let pause = match came {
                Props::Told => PROPS_EVERY,
                Props::Missing => MISSING_FOR,
                Props::Silent => RETRY_AFTER,
            };
            now.duration_since(at) >= pause
        })
    }

    /// Whether the last answer was llama.cpp's.
    pub(super) fn told(&self) -> bool {
        matches!(self.0, Some((_, Props::Told)))
    }

    pub(super) fn came(&mut self, props: Props, now: Instant) {
        self.0 = Some((now, props));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_is_missing_is_asked_for_seldom_and_one_that_hangs_soon() {
        let now = Instant::now();
        let mut asked = Asked::default();
        assert!(asked.is_first() && asked.is_due(now));
        for (came, pause) in [
            (Props::Told, PROPS_EVERY),
            (Props::Missing, MISSING_FOR),
            (Props::Silent, RETRY_AFTER),
        ] {
            asked.came(came, now);
            assert!(
                !asked.is_due(now + pause - Duration::from_millis(1)),
                "{came:?}"
            );
            assert!(asked.is_due(now + pause), "{came:?}");
        }
        assert!(!asked.is_first());
    }

    #[test]
    fn props_are_due_at_once_when_the_process_is_another() {
        let now = Instant::now();
        let mut memory = Memory::default();
        for (started, due) in [("7", false), ("7", false), ("9", true)] {
            memory.props.came(Props::Missing, now);
            memory.saw_start(Some(HeaderValue::from_static(started)));
            assert_eq!(memory.props.is_due(now), due, "{started}");
        }
    }

    #[test]
    fn an_engine_without_a_load_page_is_looked_at_again_in_the_end() {
        let now = Instant::now();
        let mut memory = Memory::default();
        assert!(!memory.is_blind(now));
        memory.go_blind(now);
        assert!(memory.is_blind(now + PROPS_EVERY) && !memory.is_blind(now + MISSING_FOR));
    }
}
