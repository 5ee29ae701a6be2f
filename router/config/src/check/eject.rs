//! `eject`: `off`, or a mapping whose keys all have defaults.

use router_core::health::EjectSpec;

use super::reader::Reader;
use super::scalar::is_off;
use super::section::keys;
use crate::options::{
    EJECT, EJECT_CONSECUTIVE, EJECT_MAX_SHARE, EJECT_MINIMUM, EJECT_SHARE, EJECT_TIME,
    EJECT_TIME_MAX, EJECT_WINDOW, Meta, OptionDef,
};
use crate::tree::{Node, Value};

/// The value of `eject`. `None` where any part of it is unusable: an operator who reads half of what
/// they wrote would be misled.
pub(crate) fn eject(reader: &mut Reader, node: &Node, meta: &Meta) -> Option<Option<EjectSpec>> {
    if is_off(node) {
        return Some(None);
    }
    if !matches!(node.value, Value::Map(_)) {
        reader.unexpected(node, &meta.kind.allowed());
        return None;
    }
    keys(reader, node, EJECT, "a mapping");
    let spec = EjectSpec {
        consecutive: part(reader, node, &EJECT_CONSECUTIVE)?,
        share: part(reader, node, &EJECT_SHARE)?,
        minimum: part(reader, node, &EJECT_MINIMUM)?,
        window: part(reader, node, &EJECT_WINDOW)?,
        time: part(reader, node, &EJECT_TIME)?,
        time_max: part(reader, node, &EJECT_TIME_MAX)?,
        max_share: part(reader, node, &EJECT_MAX_SHARE)?,
    };
    Some(Some(spec))
}

pub(super) fn part<T>(reader: &mut Reader, node: &Node, option: &OptionDef<T>) -> Option<T> {
    match node.get(option.meta.key) {
        Some(value) => reader.key(option.meta.key, |reader| option.read(reader, value)),
        None => option.builtin(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::testing;

    fn eject_of(text: &str) -> Option<EjectSpec> {
        let (route, problems) = testing::route(text);
        assert!(problems.is_empty(), "{problems:?}");
        route.options.health.eject.value
    }

    #[test]
    fn every_part_has_the_default_of_the_state_machine() {
        let default = Some(EjectSpec::default());
        assert_eq!(eject_of("peers: []"), default);
        assert_eq!(eject_of("peers: []\neject: {}"), default);
    }

    #[test]
    fn a_part_changes_alone() {
        let eject = eject_of("peers: []\neject: {time: 10s}");
        let changed = EjectSpec {
            time: Duration::from_secs(10),
            ..EjectSpec::default()
        };
        assert_eq!(eject, Some(changed));
    }

    #[test]
    fn off_is_no_ejection() {
        assert_eq!(eject_of("peers: []\neject: off"), None);
    }
}
