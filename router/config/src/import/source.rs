//! Reads a foreign file: each value as written, together with its expanded form.

use crate::check::{Reader, nearest, short, sounds_secret};
use crate::options::OptionDef;
use crate::tree::{Key, Node, Value};

/// Code of every remark of an import: a setting is not converted, and the text says where it
/// belongs.
pub(super) const NOT_CARRIED_OVER: &str = "not-carried-over";

/// A value as written, and with its variables expanded. Both trees have the same shape.
#[derive(Clone, Copy)]
pub(super) struct Pair<'t> {
    /// As written.
    pub(super) written: &'t Node,
    /// Expanded.
    pub(super) node: &'t Node,
}

impl<'t> Pair<'t> {
    /// The last value of a key.
    pub(super) fn get(self, key: &str) -> Option<Self> {
        Some(Self {
            written: self.written.get(key)?,
            node: self.node.get(key)?,
        })
    }

    /// The items of a list.
    pub(super) fn items(self) -> Option<impl Iterator<Item = Self>> {
        match (&self.written.value, &self.node.value) {
            (Value::Seq(written), Value::Seq(nodes)) => {
                let pairs = written.iter().zip(nodes);
                Some(pairs.map(|(written, node)| Self { written, node }))
            }
            _ => None,
        }
    }

    fn pairs(self) -> Option<&'t [(Key, Node)]> {
        match &self.node.value {
            Value::Map(pairs) => Some(pairs),
            _ => None,
        }
    }

    /// Whether the value contains a variable.
    pub(super) fn is_variable(self) -> bool {
        self.written
            .as_scalar()
            .is_some_and(|scalar| scalar.text.contains("${"))
    }

    /// The expanded text.
    pub(super) fn text(self) -> &'t str {
        self.node
            .as_scalar()
            .map_or("", |scalar| scalar.text.as_str())
    }

    /// The text as a YAML string, before expansion. Both programs expand variables alike.
    pub(super) fn quoted(self) -> String {
        let written = self.written.as_scalar();
        let text = written.map_or("", |scalar| scalar.text.as_str());
        // Every JSON string is a YAML string.
        serde_json::Value::from(text).to_string()
    }
}

/// Checks the keys of a mapping: each at most once, and only keys that the other program knows.
/// Unknown keys are left out and reported.
pub(super) fn section(reader: &mut Reader, section: Pair<'_>, known: &[&str]) {
    let Some(pairs) = section.pairs() else {
        reader.unexpected(section.node, "a mapping");
        return;
    };
    for (index, (key, value)) in pairs.iter().enumerate() {
        let twice = pairs[..index].iter().find(|(one, _)| one.text == key.text);
        if let Some((first, _)) = twice {
            reader
                .error(key.span.clone(), "this key is here twice")
                .label(first.span.clone(), "first here");
        } else if !known.contains(&key.text.as_str()) {
            if sounds_secret(&key.text) {
                reader.mask_tree(value);
            }
            let near = nearest(&key.text, known.iter().copied());
            let near = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
            let message = format!(
                "llm-proxy has no key `{}` here: it is left out{near}",
                short(&key.text)
            );
            reader.warning(NOT_CARRIED_OVER, key.span.clone(), message);
        }
    }
}

/// The text of an option for the route file. `None` if the file does not set it, or sets it
/// wrongly, which is reported. `show` spells the value; variables stay variables.
pub(super) fn option<T>(
    reader: &mut Reader,
    section: Option<Pair<'_>>,
    key: &str,
    knob: &OptionDef<T>,
    show: impl FnOnce(T, Pair<'_>) -> String,
) -> Option<String> {
    let pair = section?.get(key)?;
    if pair.node.is_unusable() {
        // The variable is unset here, which was reported.
        return pair.is_variable().then(|| pair.quoted());
    }
    let value = reader.key(key, |reader| knob.read(reader, pair.node))?;
    Some(if pair.is_variable() {
        pair.quoted()
    } else {
        show(value, pair)
    })
}

/// Spells a number, a boolean or a word as written.
pub(super) fn as_written<T>(_: T, pair: Pair<'_>) -> String {
    pair.text().to_owned()
}

/// Spells a text.
pub(super) fn as_text<T>(_: T, pair: Pair<'_>) -> String {
    pair.quoted()
}

/// Reports where a setting belongs that no route file can hold.
pub(super) fn belongs(reader: &mut Reader, key: &str, at: Pair<'_>, where_to: &str) {
    reader.key(key, |reader| {
        reader.warning(
            NOT_CARRIED_OVER,
            at.node.span.clone(),
            format!("not part of a route: {where_to}"),
        );
    });
}
