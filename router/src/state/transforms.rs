//! Which transforms a request of a route meets, and counters of what each changed. The counters
//! outlive a reload.

use std::sync::atomic::{AtomicU64, Ordering};

use router_config::valid::{Engine, EngineDialect};

use super::{Route, Switch};
use crate::content::transform::{SystemHoist, Transformed, Wanted, is_kimi};

/// One counter per thing a transform does; since the start or the last reset.
#[derive(Debug, Default)]
pub struct Transforms {
    /// Streams asked for usage that the client had not asked for.
    injected: AtomicU64,
    /// Bodies looked at for billing headers.
    parsed: AtomicU64,
    /// Bodies that lost one.
    stripped: AtomicU64,
    /// Tool-call ids replaced.
    ids: AtomicU64,
    /// Bodies in which some were.
    renamed: AtomicU64,
    /// System messages moved.
    messages: AtomicU64,
    /// Bodies in which some were.
    hoisted: AtomicU64,
}

impl Transforms {
    /// A JSON object was looked at for billing headers.
    pub fn parsed(&self) {
        self.parsed.fetch_add(1, Ordering::Relaxed);
    }

    /// A body went through the transforms.
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

    /// What a switch's transform counted, by name; empty for a switch of another kind.
    pub fn counts(&self, switch: Switch) -> Vec<(&'static str, u64)> {
        self.of(switch)
            .map(|(name, counter)| (name, counter.load(Ordering::Relaxed)))
            .collect()
    }

    /// Zeroes what a switch's transform counted.
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
    /// The transforms that a request for `path`, below the route's prefix, meets when its body names
    /// `model`.
    pub fn transforms_for(&self, path: &str, model: Option<&str>) -> Wanted {
        let is_on = |switch| self.switch(switch).value;
        if self.options.transparent.value || !path.starts_with("/v1/") {
            return Wanted::NOTHING;
        }
        // A slash at the end means the same API.
        let path = path.strip_suffix('/').unwrap_or(path);
        let tells_usage_when_asked = matches!(path, "/v1/chat/completions" | "/v1/completions");
        // Counting a prompt's tokens takes the edits that the prompt itself gets.
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
    /// Every engine is a llama.cpp: its `timings` tell the same counts unasked, and stand on the usage
    /// chunk, hidden from the client, when asked.
    fn tells_timings(&self) -> bool {
        let mut peers = self.peers.iter().flatten().peekable();
        let llamacpp = Engine::Known(EngineDialect::LlamaCpp);
        peers.peek().is_some() && peers.all(|peer| peer.spec.engine == llamacpp)
    }
}

/// A switch that is turned on over `off` moves what is safe to move.
fn hoist_when_on(option: SystemHoist) -> SystemHoist {
    match option {
        SystemHoist::Off => SystemHoist::Leading,
        option => option,
    }
}
