//! `health_check`: `off`, or a mapping whose keys all have defaults.

use super::eject::part;
use super::reader::Reader;
use super::scalar::is_off;
use super::section::keys;
use crate::options::{
    HEALTH_CHECK, HEALTH_CHECK_API, HEALTH_CHECK_IDLE, HEALTH_CHECK_KIND, HEALTH_CHECK_MODEL,
    HEALTH_CHECK_TIMEOUT, Meta,
};
use crate::tree::{Node, Value};
use crate::valid::{CheckKind, GenerateCheck};

/// The value of `health_check`. `None` where any part of it is unusable.
pub(crate) fn health_check(
    reader: &mut Reader,
    node: &Node,
    meta: &Meta,
) -> Option<Option<GenerateCheck>> {
    if is_off(node) {
        return Some(None);
    }
    if !matches!(node.value, Value::Map(_)) {
        reader.unexpected(node, &meta.kind.allowed());
        return None;
    }
    keys(reader, node, HEALTH_CHECK, "a mapping");
    match part(reader, node, &HEALTH_CHECK_KIND)? {
        CheckKind::Generate => {}
    }
    let model = match node.get(HEALTH_CHECK_MODEL.meta.key) {
        Some(_) => Some(part(reader, node, &HEALTH_CHECK_MODEL)?),
        None => None,
    };
    Some(Some(GenerateCheck {
        idle: part(reader, node, &HEALTH_CHECK_IDLE)?,
        timeout: part(reader, node, &HEALTH_CHECK_TIMEOUT)?,
        api: part(reader, node, &HEALTH_CHECK_API)?,
        model,
    }))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::testing;
    use crate::valid::GenerateApi;

    #[test]
    fn it_is_off_unless_asked_for_and_every_part_has_a_default() {
        let check_of = |text: &str| {
            let (route, problems) = testing::route(text);
            assert!(problems.is_empty(), "{problems:?}");
            route.options.health.health_check.value
        };
        assert_eq!(check_of("peers: []"), None);
        assert_eq!(check_of("peers: []\nhealth_check: off"), None);
        let default = GenerateCheck {
            idle: Duration::from_secs(60),
            timeout: Duration::from_secs(30),
            api: GenerateApi::Chat,
            model: None,
        };
        let found = check_of("peers: []\nhealth_check: {kind: generate}");
        assert_eq!(found.as_ref(), Some(&default));
        let found = check_of("peers: []\nhealth_check: {api: messages, model: m}");
        let changed = GenerateCheck {
            api: GenerateApi::Messages,
            model: Some("m".into()),
            ..default
        };
        assert_eq!(found, Some(changed));
    }
}
