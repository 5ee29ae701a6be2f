//! Content rules: requests that a route refuses for what they say.
//!
//! A route's rules are compiled once. Their fields are numbered, so that the edge looks every field
//! up at most once per request, in one go, and only those that some rule names. Evaluating the
//! rules over what was found touches neither JSON nor an allocation.

mod condition;
mod field;
mod logic;

use std::sync::Arc;

pub use condition::{Condition, Literal, Order, Pattern, PatternError, TEXT_BYTES_MAX, Test};
pub use field::{Fact, Field, STEPS_MAX, Step};

/// How deep conditions may nest: far beyond what a person can read, and no load for a stack.
pub const DEPTH_MAX: usize = 16;

/// A rule as configured.
#[derive(Clone, Debug)]
pub struct RuleSpec {
    /// What it is called in answers, counters and receipts. Need not be unique.
    pub name: Arc<str>,
    /// The status of its refusals; the route's where it has none.
    pub status: Option<u16>,
    /// What the client is told, in place of a sentence with the name.
    pub message: Option<Arc<str>>,
    /// When it refuses; nested at most [`DEPTH_MAX`] deep.
    pub when: Condition<Field>,
}

/// One compiled rule.
#[derive(Clone, Debug)]
pub struct Rule {
    /// As in [`RuleSpec`].
    pub name: Arc<str>,
    /// As in [`RuleSpec`].
    pub status: Option<u16>,
    /// As in [`RuleSpec`].
    pub message: Option<Arc<str>>,
    /// The condition as people read it: `ALL(model eq m1 & max_tokens gt 8)`.
    pub condition: Arc<str>,
    when: Condition<usize>,
}

/// A route's rules, compiled, in the order they are tried.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    rules: Box<[Rule]>,
    fields: Box<[Field]>,
}

impl Rules {
    /// Compiles rules.
    pub fn new(specs: impl IntoIterator<Item = RuleSpec>) -> Self {
        let mut fields: Vec<Field> = Vec::new();
        let mut number = |field: Field| {
            let known = fields.iter().position(|known| *known == field);
            known.unwrap_or_else(|| {
                fields.push(field);
                fields.len() - 1
            })
        };
        let rules = specs.into_iter().map(|spec| Rule {
            name: spec.name,
            status: spec.status,
            message: spec.message,
            condition: spec.when.to_string().into(),
            when: spec.when.map(&mut number),
        });
        let rules = rules.collect();
        Self {
            rules,
            fields: fields.into(),
        }
    }

    /// The rules, in the order they are tried.
    pub fn iter(&self) -> std::slice::Iter<'_, Rule> {
        self.rules.iter()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Every field that some rule reads, once each.
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// The first rule that refuses, and its index. `facts` are parallel to
    /// [`fields`](Self::fields).
    pub fn first_match(&self, facts: &[Fact<'_>]) -> Option<(usize, &Rule)> {
        debug_assert_eq!(facts.len(), self.fields.len());
        let mut rules = self.rules.iter().enumerate();
        rules.find(|(_, rule)| rule.when.holds(facts))
    }
}

#[cfg(test)]
mod tests;
