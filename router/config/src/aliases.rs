//! Model aliases: the names that clients ask for, and the names that engines serve.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Longest name, bytes. Longer names of clients have no alias, because each event of a stream would
/// repeat them.
pub(crate) const NAME_MAX: usize = 256;

/// The aliases of a route, checked: no chain of names ends where it began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Aliases {
    /// As written, for listings.
    written: Vec<(Arc<str>, Arc<str>)>,
    /// Names without `*`, each with the end of its chain.
    exact: BTreeMap<Arc<str>, Arc<str>>,
    /// Names with one `*`, in file order.
    patterns: Vec<Pattern>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Pattern {
    before: Box<str>,
    after: Box<str>,
    served: Arc<str>,
}

/// Why a list of aliases is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AliasFlaw {
    /// The entry leads back to its own name through these names.
    Loop(Vec<Arc<str>>),
    /// More than one `*` in a name.
    Stars,
    /// The served name has a `*`, and the asked-for name has none.
    NothingToFill,
}

impl Aliases {
    /// Checks the pairs of asked-for and served names.
    ///
    /// # Errors
    /// The index of a bad pair, and what is wrong with it.
    pub(crate) fn new(written: Vec<(Arc<str>, Arc<str>)>) -> Result<Self, (usize, AliasFlaw)> {
        let stars = |name: &str| name.matches('*').count();
        let direct: BTreeMap<_, _> = written.iter().cloned().collect();
        let mut aliases = Self::default();
        for (index, (asked, served)) in written.iter().enumerate() {
            if stars(asked) > 1 || stars(served) > 1 {
                return Err((index, AliasFlaw::Stars));
            }
            if stars(served) > stars(asked) {
                return Err((index, AliasFlaw::NothingToFill));
            }
            let served =
                end_of(asked, served, &direct).map_err(|chain| (index, AliasFlaw::Loop(chain)))?;
            match asked.split_once('*') {
                None => {
                    aliases.exact.insert(Arc::clone(asked), served);
                }
                Some((before, after)) => aliases.patterns.push(Pattern {
                    before: before.into(),
                    after: after.into(),
                    served,
                }),
            }
        }
        aliases.written = written;
        Ok(aliases)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.written.is_empty()
    }

    /// The pairs as written.
    pub fn written(&self) -> impl Iterator<Item = (&str, &str)> {
        self.written
            .iter()
            .map(|(asked, served)| (&**asked, &**served))
    }

    /// The asked-for names that stand for one model each, with the model that is served.
    pub fn exact(&self) -> impl Iterator<Item = (&str, &str)> {
        self.exact
            .iter()
            .map(|(asked, served)| (&**asked, &**served))
    }

    /// The name to serve instead of `asked`. A pattern leaves names alone for which `is_served`
    /// says that the route serves them, and names that are served for another one.
    pub fn served(
        &self,
        asked: &str,
        is_served: impl FnOnce(&str) -> bool,
    ) -> Option<Cow<'_, str>> {
        if asked.len() > NAME_MAX {
            return None;
        }
        if let Some(served) = self.exact.get(asked) {
            return Some(Cow::Borrowed(served));
        }
        let (pattern, filled) = self
            .patterns
            .iter()
            .find_map(|pattern| Some((pattern, pattern.matched(asked)?)))?;
        let is_target = self.exact.values().any(|served| **served == *asked)
            || self.patterns.iter().any(|other| *other.served == *asked);
        if is_target || is_served(asked) {
            return None;
        }
        Some(match pattern.served.contains('*') {
            false => Cow::Borrowed(&*pattern.served),
            true => Cow::Owned(pattern.served.replacen('*', filled, 1)),
        })
    }
}

impl Pattern {
    /// The part of a name that the `*` stands for.
    fn matched<'n>(&self, name: &'n str) -> Option<&'n str> {
        name.strip_prefix(&*self.before)?.strip_suffix(&*self.after)
    }
}

/// The last name of a chain. A chain goes through names without `*`.
///
/// # Errors
/// The names of a loop.
fn end_of(
    asked: &Arc<str>,
    served: &Arc<str>,
    direct: &BTreeMap<Arc<str>, Arc<str>>,
) -> Result<Arc<str>, Vec<Arc<str>>> {
    let mut chain = vec![Arc::clone(asked)];
    let mut end = served;
    while !chain.contains(end) {
        match direct.get(end) {
            Some(next) => {
                chain.push(Arc::clone(end));
                end = next;
            }
            None => return Ok(Arc::clone(end)),
        }
    }
    chain.push(Arc::clone(end));
    Err(chain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(&str, &str)]) -> Result<Aliases, (usize, AliasFlaw)> {
        let pairs = pairs.iter().map(|(a, b)| (Arc::from(*a), Arc::from(*b)));
        Aliases::new(pairs.collect())
    }

    fn served(aliases: &Aliases, asked: &str) -> Option<String> {
        aliases.served(asked, |_| false).map(Cow::into_owned)
    }

    #[test]
    fn an_exact_name_beats_a_pattern_and_chains_have_one_end() {
        let aliases = of(&[
            ("gpt-*", "small"),
            ("gpt-4o", "best"),
            ("best", "qwen3-32b"),
        ])
        .unwrap();
        assert_eq!(served(&aliases, "gpt-4o").as_deref(), Some("qwen3-32b"));
        assert_eq!(served(&aliases, "best").as_deref(), Some("qwen3-32b"));
        assert_eq!(served(&aliases, "gpt-3.5").as_deref(), Some("small"));
        assert_eq!(served(&aliases, "llama"), None);
    }

    #[test]
    fn a_pattern_leaves_served_names_alone() {
        let aliases = of(&[("*", "qwen3"), ("fast", "tiny")]).unwrap();
        assert_eq!(served(&aliases, "anything").as_deref(), Some("qwen3"));
        assert_eq!(served(&aliases, "qwen3"), None);
        assert_eq!(served(&aliases, "tiny"), None);
        assert_eq!(
            aliases.served("adapter-7", |name| name == "adapter-7"),
            None
        );
    }

    #[test]
    fn the_star_of_a_served_name_is_what_the_asked_one_matched() {
        let aliases = of(&[("openai/*-latest", "local/*")]).unwrap();
        assert_eq!(
            served(&aliases, "openai/x-latest").as_deref(),
            Some("local/x")
        );
        assert_eq!(served(&aliases, "openai/-lates"), None);
    }

    #[test]
    fn loops_and_odd_stars_are_refused() {
        let flaw = |pairs| of(pairs).unwrap_err().1;
        assert!(matches!(flaw(&[("a", "a")]), AliasFlaw::Loop(_)));
        assert!(matches!(
            flaw(&[("a", "b"), ("b", "a")]),
            AliasFlaw::Loop(_)
        ));
        assert!(matches!(
            flaw(&[("p*", "a"), ("a", "b"), ("b", "a")]),
            AliasFlaw::Loop(_)
        ));
        assert_eq!(flaw(&[("a*b*", "x")]), AliasFlaw::Stars);
        assert_eq!(flaw(&[("a", "x*")]), AliasFlaw::NothingToFill);
    }
}
