//! Content rules: they refuse requests because of the body's content.
//!
//! A route's rules are compiled once. Their fields are numbered, so that the edge looks up each
//! field that a rule names at most once per request, in one pass. Evaluating the rules over the
//! found values neither parses JSON nor allocates.

mod condition;
mod field;
mod logic;

use std::sync::Arc;

pub use condition::{Condition, Literal, Order, Pattern, PatternError, TEXT_BYTES_MAX, Test};
pub use field::{Fact, Field, STEPS_MAX, Step};

/// Maximum nesting of conditions: far more than a person can read, and harmless for the stack.
pub const DEPTH_MAX: usize = 16;

/// A rule as configured.
#[derive(Clone, Debug)]
pub struct RuleSpec {
    /// The name in answers, counters and receipts. Need not be unique.
    pub name: Arc<str>,
    /// The status of its refusals. Without one, the route's status applies.
    pub status: Option<u16>,
    /// The message to the client. It replaces the default sentence with the name.
    pub message: Option<Arc<str>>,
    /// The condition for a refusal; nested at most [`DEPTH_MAX`] deep.
    pub when: Condition<Field>,
}

/// One compiled rule.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Same as in [`RuleSpec`].
    pub name: Arc<str>,
    /// Same as in [`RuleSpec`].
    pub status: Option<u16>,
    /// Same as in [`RuleSpec`].
    pub message: Option<Arc<str>>,
    /// The condition in readable form: `ALL(model eq m1 & max_tokens gt 8)`.
    pub condition: Arc<str>,
    when: Condition<usize>,
}

/// The compiled rules of a route, in evaluation order.
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

    /// The rules, in evaluation order.
    pub fn iter(&self) -> std::slice::Iter<'_, Rule> {
        self.rules.iter()
    }

    /// Number of rules.
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// All fields that the rules read, without duplicates.
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
