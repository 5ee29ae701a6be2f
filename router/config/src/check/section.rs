//! Mappings: their allowed keys, each at most once, and the layers in which an option is looked up.

use router_core::layered::{Layer, Layered, Setting, Source};

use super::reader::{Reader, short};
use super::scalar::{closest, is_likely};
use crate::options::{Meta, OptionDef, home};
use crate::tree::{Key, Node, Value};

/// Checks the keys of a mapping against the allowed keys, and masks secret values. Returns `false`
/// if the value is not a mapping. An empty value counts as an empty mapping.
pub(crate) fn keys(reader: &mut Reader, node: &Node, known: &[&'static Meta], what: &str) -> bool {
    let Value::Map(pairs) = &node.value else {
        if node.is_null() {
            return true;
        }
        if let Some(draft) = reader.unexpected(node, what) {
            draft.help(known_here(known));
        }
        return false;
    };
    for (index, (key, value)) in pairs.iter().enumerate() {
        let meta = known.iter().find(|meta| meta.key == key.text);
        match meta {
            Some(meta) if meta.secret => reader.mask_tree(value),
            Some(_) => {}
            None => unknown(reader, key, value, known),
        }
        duplicate(reader, key, &pairs[..index]);
    }
    true
}

fn unknown(reader: &mut Reader, key: &Key, value: &Node, known: &[&'static Meta]) {
    let closest = closest(&key.text, known.iter().map(|meta| meta.key));
    let meant = closest
        .filter(|(alike, _)| is_likely(*alike))
        .map(|(_, near)| near);
    let secret = meant
        .and_then(|near| known.iter().find(|meta| meta.key == near))
        .is_some_and(|meta| meta.secret);
    if secret || sounds_secret(&key.text) {
        reader.mask_tree(value);
    }
    let home = home(&key.text);
    let mut message = format!("unknown key `{}`", short(&key.text));
    match (meant, closest) {
        (Some(near), _) => message.push_str(&format!("; did you mean `{near}`?")),
        (None, Some((_, near))) if home.is_none() => {
            message.push_str(&format!("; the nearest known key is `{near}`"));
        }
        _ => {}
    }
    // When the intended key is known, a list of ninety keys does not help the reader.
    let is_long = meant.is_some() && known.len() > LISTED_MAX;
    let help = home.or_else(|| (!is_long).then(|| known_here(known)));
    let draft = reader.error(key.span.clone(), message);
    if let Some(help) = help {
        draft.help(help);
    }
}

/// Maximum number of known keys listed beside the nearest one.
const LISTED_MAX: usize = 30;

fn known_here(known: &[&'static Meta]) -> String {
    let keys: Vec<_> = known.iter().map(|meta| meta.key).collect();
    format!("known keys here: {}", keys.join(", "))
}

/// A secret under a misspelt key is still a secret.
pub(crate) fn sounds_secret(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    ["key", "token", "secret", "passw", "auth", "bearer"]
        .iter()
        .any(|word| key.contains(word))
}

fn duplicate(reader: &mut Reader, key: &Key, before: &[(Key, Node)]) {
    if let Some((first, _)) = before.iter().find(|(other, _)| other.text == key.text) {
        reader
            .error(
                key.span.clone(),
                format!("the key `{}` is here twice", short(&key.text)),
            )
            .label(first.span.clone(), "first here");
    }
}

/// The places where an option may be set, nearest first.
pub(crate) struct Layers<'n> {
    /// The mapping of this file.
    pub(crate) own: &'n Node,
    /// `defaults:`. Its problems belong to the main file and are reported there.
    pub(crate) global: Option<&'n Node>,
}

impl Layers<'_> {
    /// The value of an option in force. If a file sets an unusable value, the built-in default
    /// applies; if only a part of a value is usable, that part applies. Both cases are reported.
    /// A running router tolerates an unusable value of a load gate.
    ///
    /// # Panics
    /// When a built-in default is unreadable, which the catalogue's test excludes.
    pub(crate) fn setting<T>(&self, reader: &mut Reader, option: &OptionDef<T>) -> Setting<T> {
        let key = option.meta.key;
        let own = self.own.get(key);
        let before = reader.errors();
        let read = |reader: &mut Reader, node| reader.key(key, |reader| option.read(reader, node));
        let route = own.map(|node| match option.meta.is_of_a_gate() {
            true => reader.tolerating(|reader| read(reader, node)),
            false => read(reader, node),
        });
        let mut is_whole = reader.errors() == before;
        // The problems of `defaults:` are reported with the main file.
        let mut unheard = Reader::new();
        let global = self.global.and_then(|global| global.get(key));
        let global = global.map(|node| option.read(&mut unheard, node));
        if own.is_none() {
            is_whole = unheard.errors() == 0;
        }
        let mut setting = Layered {
            route: layer(route),
            global: layer(global),
            default: option.builtin().expect("a built-in default is readable"),
        }
        .resolve();
        if !is_whole {
            setting.source = Source::DefaultInvalid;
        }
        setting
    }

    /// The value of an option of the main file, which has no layers.
    pub(crate) fn value<T>(&self, reader: &mut Reader, option: &OptionDef<T>) -> T {
        self.setting(reader, option).value
    }
}

/// What a file says about an option: unset, a value, or an unusable value.
fn layer<T>(read: Option<Option<T>>) -> Layer<T> {
    match read {
        None => Layer::Unset,
        Some(None) => Layer::Invalid,
        Some(Some(value)) => Layer::Set(value),
    }
}
