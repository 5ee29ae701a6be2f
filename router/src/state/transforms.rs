//! Selects the transforms for a request of a route, and counts the changes of each. The counters
//! outlive a reload.

use std::sync::atomic::{AtomicU64, Ordering};

use router_config::valid::{Engine, EngineDialect};

use super::{Route, Switch};
use crate::content::transform::{SystemHoist, Transformed, Wanted, is_kimi};

/// One counter per kind of change, since the start or the last reset.
#[derive(Debug, Default)]
pub struct Transforms {
    /// Streams for which the router asked for usage and the client had not.
    injected: AtomicU64,
    /// Bodies searched for billing headers.
    parsed: AtomicU64,
    /// Bodies from which a billing header was removed.
    stripped: AtomicU64,
    /// Tool-call ids replaced.
    ids: AtomicU64,
    /// Bodies with replaced tool-call ids.
    renamed: AtomicU64,
    /// System messages moved.
    messages: AtomicU64,
    /// Bodies with moved system messages.
    hoisted: AtomicU64,
}

impl Transforms {
    /// Counts a JSON object that was searched for billing headers.
    pub fn parsed(&self) {
        self.parsed.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the changes of one body.
    pub fn done(&self, done: &Transformed) {
        let add = |counter: &AtomicU64, count: usize| {
            if count > 0 {
                counter.fetch_add(count as u64, Ordering::Relaxed);
            }
        };
        add(&self.injected, usize::from(done.asked_for_usage));
        add(&self.stripped, usize::from(done.headers_stripped > 0));
        add(&self.ids, done.ids_renamed);
        add(&self.renamed, usize::from(done.ids_renamed > 0));
        add(&self.messages, done.messages_hoisted);
        add(&self.hoisted, usize::from(done.messages_hoisted > 0));
    }

    /// The counters of a switch's transform, by name; empty for other switches.
    pub fn counts(&self, switch: Switch) -> Vec<(&'static str, u64)> {
        self.of(switch)
            .map(|(name, counter)| (name, counter.load(Ordering::Relaxed)))
            .collect()
    }

    /// Zeroes the counters of a switch's transform.
    pub fn reset(&self, switch: Switch) {
        for (_, counter) in self.of(switch) {
            counter.store(0, Ordering::Relaxed);
        }
    }

    fn of(&self, switch: Switch) -> impl Iterator<Item = (&'static str, &AtomicU64)> {
        [
            (Switch::IncludeUsage, "injected_total", &self.injected),
            (Switch::CchStrip, "parsed_total", &self.parsed),
            (Switch::CchStrip, "stripped_total", &self.stripped),
            (Switch::KimiNormalize, "changes_total", &self.ids),
            (Switch::KimiNormalize, "req_count", &self.renamed),
            (Switch::SystemHoist, "hoisted_total", &self.messages),
            (Switch::SystemHoist, "req_count", &self.hoisted),
        ]
        .into_iter()
        .filter(move |(of, ..)| *of == switch)
        .map(|(_, name, counter)| (name, counter))
    }
}

impl Route {
    /// The transforms for a request for `path`, without the route's prefix, if its body names
    /// `model`.
    pub fn transforms_for(&self, path: &str, model: Option<&str>) -> Wanted {
        let is_on = |switch| self.switch(switch).value;
        if self.options.transparent.value || !path.starts_with("/v1/") {
            return Wanted::NOTHING;
        }
        // A trailing slash means the same API.
        let path = path.strip_suffix('/').unwrap_or(path);
        let tells_usage_when_asked = matches!(path, "/v1/chat/completions" | "/v1/completions");
        // For a correct count, token counting applies the same edits as the request itself.
        let is_messages = matches!(path, "/v1/messages" | "/v1/messages/count_tokens");
        let strategy = &self.options.kimi_normalize_strategy;
        Wanted {
            include_usage: tells_usage_when_asked
                && !self.tells_timings()
                && is_on(Switch::IncludeUsage),
            cch_strip: is_on(Switch::CchStrip),
            kimi_normalize: (model.is_some_and(is_kimi) && is_on(Switch::KimiNormalize))
                .then_some(strategy.value),
            system_hoist: match is_messages && is_on(Switch::SystemHoist) {
                true => hoist_when_on(self.options.system_hoist.value),
                false => SystemHoist::Off,
            },
        }
    }
}

impl Route {
    /// Whether every engine is llama.cpp. Its `timings` report the same counts without being asked.
    /// If usage is requested, they are on the usage chunk, which is hidden from the client.
    fn tells_timings(&self) -> bool {
        let mut peers = self.peers.iter().flatten().peekable();
        let llamacpp = Engine::Known(EngineDialect::LlamaCpp);
        peers.peek().is_some() && peers.all(|peer| peer.spec.engine == llamacpp)
    }
}

/// If the option is `off` and the switch is on, only the messages that are safe to move are moved.
fn hoist_when_on(option: SystemHoist) -> SystemHoist {
    match option {
        SystemHoist::Off => SystemHoist::Leading,
        option => option,
    }
}
