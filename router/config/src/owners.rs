//! `owners:`: what the holders of keys may use, by the owner's name.

use std::collections::BTreeMap;
use std::sync::Arc;

/// The name whose limits apply to owners without an entry.
pub const DEFAULT: &str = "default";

/// The limits of one owner, over all routes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnerLimits {
    /// Requests that run or wait at once; `None` for no limit.
    pub max_concurrency: Option<u32>,
    /// Requests that may begin in a minute, evenly spread; `None` for no limit.
    pub requests_per_minute: Option<u32>,
}

/// The limits of all owners.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owners {
    names: BTreeMap<Arc<str>, OwnerLimits>,
    /// What stands before the `*`, longest first.
    prefixes: Vec<(Arc<str>, OwnerLimits)>,
    others: OwnerLimits,
}

impl Owners {
    /// The limits by name; a name that ends in `*` stands for all that begin with the rest.
    pub fn new(entries: impl IntoIterator<Item = (Arc<str>, OwnerLimits)>) -> Self {
        let mut owners = Self::default();
        for (name, limits) in entries {
            match name.strip_suffix('*') {
                Some(prefix) => owners.prefixes.push((prefix.into(), limits)),
                None if &*name == DEFAULT => owners.others = limits,
                None => {
                    owners.names.insert(name, limits);
                }
            }
        }
        owners
            .prefixes
            .sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
        owners
    }

    /// Whether nobody is limited.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The owners with an entry of their own.
    pub fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.names.keys()
    }

    /// The limits of an owner: its own, else those of the longest pattern, else the default.
    pub fn of(&self, owner: &str) -> OwnerLimits {
        if let Some(limits) = self.names.get(owner) {
            return *limits;
        }
        let pattern = self
            .prefixes
            .iter()
            .find(|(prefix, _)| owner.starts_with(&**prefix));
        pattern.map_or(self.others, |(_, limits)| *limits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_has_its_own_limits_then_the_longest_pattern_then_the_default() {
        let at_once = |max| OwnerLimits {
            max_concurrency: Some(max),
            ..OwnerLimits::default()
        };
        let owners = Owners::new([
            ("alice".into(), at_once(1)),
            ("team-*".into(), at_once(2)),
            ("team-a-*".into(), at_once(3)),
            (DEFAULT.into(), at_once(4)),
        ]);
        for (owner, max) in [("alice", 1), ("team-b", 2), ("team-a-x", 3), ("bob", 4)] {
            assert_eq!(owners.of(owner), at_once(max), "{owner}");
        }
        assert!(Owners::default().is_empty() && !owners.is_empty());
        assert_eq!(Owners::default().of("bob"), OwnerLimits::default());
    }
}
