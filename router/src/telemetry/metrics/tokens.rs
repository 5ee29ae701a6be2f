//! Tokens by model and by owner of the key.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use answers::Usage;

use super::route::{NONE, OTHER};

/// Maximum number of separate owners per route; further ones are counted as [`OTHER`]. Key files
/// name the owners, so they are few. The bound is for a file of ten thousand keys with an owner
/// each.
const OWNERS_MAX: usize = 200;

/// The token usage of a route's answers. Every sum saturates: invalid numbers from a peer break no
/// page.
#[derive(Debug, Default)]
pub(super) struct TokenTally {
    by_model: BTreeMap<Arc<str>, BTreeMap<Arc<str>, Usage>>,
    /// Known owners, without [`NONE`] and [`OTHER`].
    owners: BTreeSet<Arc<str>>,
}

impl TokenTally {
    /// Adds one answer. `model` is a label, already capped.
    pub(super) fn add(&mut self, model: &str, owner: Option<&str>, usage: &Usage) {
        let owner = self.owner_label(owner);
        add(self.series(model, owner), usage);
    }

    /// Creates the series of a model if necessary.
    pub(super) fn register(&mut self, model: &str) {
        self.series(model, NONE);
    }

    /// Adds the series of `from` to those of `into`, and drops them.
    pub(super) fn merge(&mut self, from: &str, into: &str) {
        for (owner, usage) in self.by_model.remove(from).unwrap_or_default() {
            add(self.series(into, &owner), &usage);
        }
    }

    /// Drops the series of removed models.
    pub(super) fn retain(&mut self, is_kept: impl Fn(&Arc<str>) -> bool) {
        self.by_model.retain(|model, _| is_kept(model));
    }

    /// Every series: model, owner, kind and sum.
    pub(super) fn series_of_kinds(
        &self,
    ) -> impl Iterator<Item = (&str, &str, &'static str, u64)> + '_ {
        self.by_model.iter().flat_map(|(model, by_owner)| {
            by_owner.iter().flat_map(move |(owner, sums)| {
                [
                    ("prompt", sums.prompt),
                    ("completion", sums.completion),
                    ("cached", sums.cached),
                    ("reasoning", sums.reasoning),
                ]
                .map(|(kind, sum)| (&**model, &**owner, kind, sum))
            })
        })
    }

    fn owner_label<'a>(&mut self, owner: Option<&'a str>) -> &'a str {
        let Some(owner) = owner else { return NONE };
        if !self.owners.contains(owner) {
            if self.owners.len() >= OWNERS_MAX {
                return OTHER;
            }
            self.owners.insert(owner.into());
        }
        owner
    }

    fn series(&mut self, model: &str, owner: &str) -> &mut Usage {
        if !self.by_model.contains_key(model) {
            self.by_model.insert(model.into(), BTreeMap::new());
        }
        let by_owner = self.by_model.get_mut(model).expect("it was just made");
        if !by_owner.contains_key(owner) {
            by_owner.insert(owner.into(), Usage::default());
        }
        by_owner.get_mut(owner).expect("it was just made")
    }
}

fn add(sums: &mut Usage, usage: &Usage) {
    for (sum, more) in [
        (&mut sums.prompt, usage.prompt),
        (&mut sums.completion, usage.completion),
        (&mut sums.cached, usage.cached),
        (&mut sums.reasoning, usage.reasoning),
    ] {
        *sum = sum.saturating_add(more);
    }
}
