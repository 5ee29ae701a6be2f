//! Reads `owners:` of the main file.

use std::sync::Arc;

use super::eject::part;
use super::reader::{Reader, short};
use super::section::keys;
use crate::options::{OWNER, OWNER_MAX_CONCURRENCY, OWNER_REQUESTS_PER_MINUTE, OWNERS};
use crate::owners::{OwnerLimits, Owners};
use crate::tree::{Node, Value};

/// The most entries.
const OWNERS_MAX: usize = 10_000;

/// The longest name, bytes.
const NAME_MAX: usize = 256;

/// Reads the limits of all owners. After an error the result is not used.
pub(super) fn owners(reader: &mut Reader, root: &Node) -> Owners {
    let Some(node) = root.get(OWNERS.key) else {
        return Owners::default();
    };
    reader.key(OWNERS.key, |reader| {
        let pairs = match &node.value {
            Value::Map(pairs) if pairs.len() <= OWNERS_MAX => pairs,
            Value::Map(pairs) => {
                let message = format!("{} owners; at most {OWNERS_MAX} are allowed", pairs.len());
                reader.error(node.span.clone(), message);
                return Owners::default();
            }
            _ => {
                reader.unexpected(node, &OWNERS.kind.allowed());
                return Owners::default();
            }
        };
        let mut entries: Vec<(Arc<str>, OwnerLimits)> = Vec::with_capacity(pairs.len());
        for (index, (name, value)) in pairs.iter().enumerate() {
            let text = name.text.as_str();
            let stars = text.matches('*').count();
            if text.trim().is_empty() || text.len() > NAME_MAX {
                let message = format!("expected an owner's name of 1 to {NAME_MAX} bytes");
                reader.error(name.span.clone(), message);
            } else if stars > 1 || (stars == 1 && !text.ends_with('*')) {
                let message = format!("`{}`: a pattern has one `*`, at its end", short(text));
                reader.error(name.span.clone(), message);
            }
            if let Some((first, _)) = pairs[..index].iter().find(|(other, _)| other.text == text) {
                let label = first.span.clone();
                reader
                    .error(
                        name.span.clone(),
                        format!("the owner `{}` is here twice", short(text)),
                    )
                    .label(label, "first here");
            }
            let limits = reader.key(text, |reader| limits(reader, value));
            entries.push((text.into(), limits.unwrap_or_default()));
        }
        Owners::new(entries)
    })
}

fn limits(reader: &mut Reader, node: &Node) -> Option<OwnerLimits> {
    if !matches!(node.value, Value::Map(_)) {
        reader.unexpected(node, "a mapping such as `{max_concurrency: 8}`");
        return None;
    }
    keys(reader, node, OWNER, "a mapping");
    Some(OwnerLimits {
        max_concurrency: part(reader, node, &OWNER_MAX_CONCURRENCY)?,
        requests_per_minute: part(reader, node, &OWNER_REQUESTS_PER_MINUTE)?,
    })
}

#[cfg(test)]
mod tests {
    use crate::testing;

    #[test]
    fn limits_are_read_by_name_and_pattern() {
        let (main, problems) = testing::main(
            "owners: {alice: {max_concurrency: 8, requests_per_minute: 60}, 'team-*': {max_concurrency: off}, default: {max_concurrency: 2}}",
        );
        assert!(problems.is_empty(), "{problems:?}");
        let of = |owner: &str| {
            let limits = main.owners.of(owner);
            (limits.max_concurrency, limits.requests_per_minute)
        };
        assert_eq!(of("alice"), (Some(8), Some(60)));
        assert_eq!(of("team-x"), (None, None));
        assert_eq!(of("bob"), (Some(2), None));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_owner() {
        for (text, said) in [
            ("owners: 5", "owners: expected a mapping"),
            ("owners: {a: 5}", "owners.a: expected a mapping"),
            (
                "owners: {a: {max_concurrency: 0}}",
                "owners.a.max_concurrency: expected",
            ),
            ("owners: {a: {weight: 2}}", "unknown key `weight`"),
            ("owners: {'a*b': {}}", "a pattern has one `*`, at its end"),
            ("owners: {a: {}, a: {}}", "the owner `a` is here twice"),
        ] {
            let (_, problems) = testing::main(text);
            let titles: Vec<_> = problems.iter().map(|problem| problem.title()).collect();
            assert!(
                titles.iter().any(|title| title.contains(said)),
                "{text}: {titles:?}"
            );
        }
    }
}
