//! A cache of the peers that list a model: searching the lists of hundreds of peers takes longer
//! than the rest of a placement.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;

/// Maximum number of remembered models. Clients choose the names, and models that no peer lists
/// count too. At this bound the cache is emptied.
const MODELS_MAX: usize = 1024;

/// Longest cached model name in bytes. Longer names are searched each time.
const NAME_MAX: usize = 256;

/// Results for one edition of a route's lists.
#[derive(Debug, Default)]
pub(super) struct Pins(RwLock<Found>);

#[derive(Debug, Default)]
struct Found {
    /// The edition of the lists that these results come from.
    edition: u64,
    by_model: HashMap<Box<str>, Listed>,
}

/// Indices of peers, ascending; `None` if no peer lists the model.
pub(super) type Listed = Option<Arc<[usize]>>;

impl Pins {
    /// The peers that list `model` in this edition of the lists. Calls `look` if the cache has no
    /// result.
    pub(super) fn of(&self, edition: u64, model: &str, look: impl FnOnce() -> Listed) -> Listed {
        {
            let found = self.0.read();
            if found.edition == edition
                && let Some(listed) = found.by_model.get(model)
            {
                return listed.clone();
            }
        }
        let listed = look();
        if model.len() <= NAME_MAX {
            let mut found = self.0.write();
            if found.edition != edition || found.by_model.len() >= MODELS_MAX {
                found.by_model.clear();
                found.edition = edition;
            }
            found.by_model.insert(Box::from(model), listed.clone());
        }
        listed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(indices: &[usize]) -> Listed {
        (!indices.is_empty()).then(|| Arc::from(indices))
    }

    #[test]
    fn a_model_is_looked_for_once_an_edition_whoever_lists_it() {
        let pins = Pins::default();
        for (model, lists) in [("m", &[0, 2][..]), ("nobody's", &[])] {
            assert_eq!(pins.of(1, model, || listed(lists)), listed(lists));
            let again = pins.of(1, model, || unreachable!("it is known"));
            assert_eq!(again, listed(lists));
        }
        assert_eq!(pins.of(2, "m", || listed(&[1])), listed(&[1]));
        assert_eq!(pins.of(2, "nobody's", || listed(&[0])), listed(&[0]));
    }

    #[test]
    fn names_that_clients_make_up_take_bounded_memory() {
        let pins = Pins::default();
        for n in 0..3 * MODELS_MAX {
            pins.of(1, &format!("m{n}"), || None);
        }
        pins.of(1, &"m".repeat(NAME_MAX + 1), || None);
        let found = pins.0.read();
        assert!(found.by_model.len() <= MODELS_MAX);
        assert!(found.by_model.keys().all(|name| name.len() <= NAME_MAX));
    }
}
