//! Reads the routes that take over from a route.

use std::sync::Arc;

use super::names::name_flaw;
use super::reader::Reader;
use super::scalar::{items, usable};
use crate::options::{Kind, Meta};
use crate::tree::Node;
use crate::valid::Fallback;

/// The largest number of fallbacks of one route.
const ROUTES_MAX: usize = 8;

/// Reads a list of route names, in the order of trial.
pub(crate) fn fallback(reader: &mut Reader, node: &Node, meta: &Meta) -> Option<Fallback> {
    let items = items(reader, node, meta)?;
    if items.len() > ROUTES_MAX {
        let message = format!("{} routes; at most {ROUTES_MAX} are allowed", items.len());
        reader.error(node.span.clone(), message);
        return None;
    }
    let mut names: Vec<Arc<str>> = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        let text = usable(item).map(|s| s.text.as_str()).unwrap_or_default();
        if name_flaw(text).is_none() && !names.iter().any(|known| **known == *text) {
            names.push(text.into());
            continue;
        }
        reader.item(index, |reader| {
            reader.unexpected(item, &format!("{}, once", Kind::RouteName.allowed()));
        });
    }
    (names.len() == items.len()).then(|| Fallback(names.into()))
}
