//! A route's content rules, with a count of refusals per rule.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use router_core::rules::{Fact, Rule, Rules};

use crate::content::Wanted;

/// The content rules in one snapshot of a route.
#[derive(Debug)]
pub struct ContentRules {
    rules: Arc<Rules>,
    wanted: Wanted,
    /// Parallel to the rules.
    hits: Box<[Arc<AtomicU64>]>,
}

impl ContentRules {
    pub(super) fn new(rules: Arc<Rules>, hits: &RuleHits) -> Self {
        Self {
            wanted: Wanted::new(&rules),
            hits: hits.of(&rules),
            rules,
        }
    }

    /// What the rules need to know of a body; `None` without rules.
    pub fn wanted(&self) -> Option<&Wanted> {
        (!self.rules.is_empty()).then_some(&self.wanted)
    }

    /// The first rule that refuses a body, and its index. Counts nothing. Also `None` for a body
    /// that is not a JSON object or array in UTF-8. `facts` are known when the body was read for
    /// them.
    pub fn first_match(&self, body: &[u8], facts: Option<&[Fact<'_>]>) -> Option<(usize, &Rule)> {
        let wanted = self.wanted()?;
        match facts {
            Some(facts) => self.rules.first_match(facts),
            None => self.rules.first_match(&wanted.read(body)?),
        }
    }

    /// Counts a refusal by the rule at this index.
    pub fn hit(&self, index: usize) {
        self.hits[index].fetch_add(1, Ordering::Relaxed);
    }

    /// Every rule with the number of refusals under its name, in evaluation order.
    pub fn hits(&self) -> impl Iterator<Item = (&Rule, u64)> {
        let hits = self.hits.iter().map(|hits| hits.load(Ordering::Relaxed));
        self.rules.iter().zip(hits)
    }

    /// Resets the counts.
    pub fn reset_hits(&self) {
        for hits in &self.hits {
            hits.store(0, Ordering::Relaxed);
        }
    }
}

/// Refusals by rule name; they outlive a reload. Rules with the same name share a counter. A name
/// that no snapshot has any more is forgotten when the next one is attached.
#[derive(Debug, Default)]
pub struct RuleHits(Mutex<BTreeMap<Arc<str>, Arc<AtomicU64>>>);

impl RuleHits {
    fn of(&self, rules: &Rules) -> Box<[Arc<AtomicU64>]> {
        let mut by_name = self.0.lock();
        // Done first, so that an unused name starts again at zero.
        by_name.retain(|_, hits| Arc::strong_count(hits) > 1);
        rules
            .iter()
            .map(|rule| Arc::clone(by_name.entry(Arc::clone(&rule.name)).or_default()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use router_core::rules::{Condition, Field, RuleSpec, Test};

    use super::*;

    /// Rules of these names; each refuses a body with a member of its name.
    fn rules(hits: &RuleHits, names: &[&str]) -> ContentRules {
        let spec = |name: &&str| RuleSpec {
            name: (*name).into(),
            status: None,
            message: None,
            when: Condition::Leaf(Field::parse(name).unwrap(), Test::Exists),
        };
        ContentRules::new(Arc::new(Rules::new(names.iter().map(spec))), hits)
    }

    fn shown(rules: &ContentRules) -> Vec<(&str, u64)> {
        rules
            .hits()
            .map(|(rule, hits)| (&*rule.name, hits))
            .collect()
    }

    #[test]
    fn hits_belong_to_names_and_outlive_a_reload() {
        let hits = RuleHits::default();
        let first = rules(&hits, &["a", "b", "b"]);
        let (index, rule) = first.first_match(b"{\"b\":1}", None).unwrap();
        assert_eq!((index, &*rule.name), (1, "b"));
        first.hit(index);
        first.hit(2);
        assert_eq!(shown(&first), [("a", 0), ("b", 2), ("b", 2)]);
        let second = rules(&hits, &["b", "c"]);
        drop(first);
        assert_eq!(shown(&second), [("b", 2), ("c", 0)]);
        let third = rules(&hits, &["c"]);
        drop(second);
        third.reset_hits();
        assert_eq!(shown(&rules(&hits, &["b", "c"])), [("b", 0), ("c", 0)]);
    }

    #[test]
    fn without_rules_nothing_is_refused() {
        let none = rules(&RuleHits::default(), &[]);
        assert!(none.first_match(b"{}", None).is_none());
    }
}
