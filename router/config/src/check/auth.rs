//! The keys of one route. No report shows a key or the text at a key's place.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::reader::Reader;
use super::scalar::{refuse, usable};
use crate::keys::is_bad_hash;
use crate::options::Meta;
use crate::tree::{Key, Node, Style, Value};

/// The value for a route whose callers need a key of the shared file.
pub(crate) const SHARED: &str = "shared";

/// Key → owner. `Some(empty)` is an open route. The caller checks for an absent option.
pub(crate) fn api_keys(
    reader: &mut Reader,
    node: &Node,
    meta: &Meta,
) -> Option<Option<Arc<BTreeMap<String, String>>>> {
    if usable(node).is_some_and(|scalar| scalar.text == SHARED) {
        return Some(None);
    }
    reader.mask_tree(node);
    let Value::Map(pairs) = &node.value else {
        if let Some(draft) = reader.unexpected(node, &meta.kind.allowed()) {
            draft.help("`{}` opens the route; `shared` uses the shared key file");
        }
        return None;
    };
    let mut keys = BTreeMap::new();
    let mut good = true;
    for (index, (key, owner)) in pairs.iter().enumerate() {
        if let Some((first, _)) = pairs[..index]
            .iter()
            .find(|(other, _)| other.text == key.text)
        {
            reader
                .error(key.span.clone(), "this key is here twice")
                .label(first.span.clone(), "first here");
            good = false;
        }
        match reader.secret_key(|reader| entry(reader, key, owner, meta)) {
            Some(owner) => {
                keys.insert(key.text.clone(), owner);
            }
            None => good = false,
        }
    }
    good.then(|| Some(Arc::new(keys)))
}

/// Reads the owner of one entry.
fn entry(reader: &mut Reader, key: &Key, owner: &Node, meta: &Meta) -> Option<String> {
    let flaw = if key.text.trim().is_empty() {
        Some("a key is empty")
    } else if key.text.contains("${") {
        Some("a key holds `${`, and keys are never expanded: this very text would open the route")
    } else if !key.text.bytes().all(|b| (0x21..=0x7e).contains(&b)) {
        Some("a key holds blanks or characters that no header may carry")
    } else if is_bad_hash(&key.text) {
        Some("a hashed key is `sha256:` and 64 hexadecimal digits")
    } else {
        None
    };
    if let Some(flaw) = flaw {
        reader.error(key.span.clone(), flaw);
        return None;
    }
    let Some(scalar) = usable(owner).filter(|s| s.style == Style::Expanded || !s.is_null()) else {
        return refuse_owner(reader, owner, meta);
    };
    let text = scalar.text.trim();
    if text.is_empty() || text.contains(char::is_control) {
        reader.error(key.span.clone(), "the owner is empty");
        return None;
    }
    Some(text.to_owned())
}

fn refuse_owner(reader: &mut Reader, owner: &Node, meta: &Meta) -> Option<String> {
    if owner.is_null() {
        reader
            .error(owner.span.clone(), "the owner is missing")
            .help("write `key: owner`");
        return None;
    }
    refuse(reader, owner, meta)
}
