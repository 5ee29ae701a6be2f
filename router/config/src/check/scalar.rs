//! Reads one value as one type. A value of another type is reported with what was found and what is
//! allowed, and read as `None`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::reader::Reader;
use crate::options::{Bounds, Kind, Meta};
use crate::tree::{Node, Scalar, Style, Value};
use crate::units;
use crate::valid::Secret;

/// Words that users of older YAML write for booleans. They are accepted with a warning.
const LOOSE_BOOLEANS: [(&str, bool); 6] = [
    ("yes", true),
    ("on", true),
    ("1", true),
    ("no", false),
    ("off", false),
    ("0", false),
];

/// Reads `true` or `false`. Any other value is an invalid boolean, which a running router
/// tolerates.
pub(crate) fn boolean(reader: &mut Reader, node: &Node, meta: &Meta) -> Option<bool> {
    let Some(scalar) = node.as_scalar() else {
        let found = reader.found(node);
        reader.tolerated(
            node.span.clone(),
            format!("expected {}, found {found}", meta.kind.allowed()),
        );
        return None;
    };
    let word = scalar.text.to_ascii_lowercase();
    match word.as_str() {
        "true" => return Some(true),
        "false" => return Some(false),
        _ if scalar.style == Style::Unusable => return None,
        _ => {}
    }
    if let Some((_, value)) = LOOSE_BOOLEANS.iter().find(|(loose, _)| *loose == word) {
        reader.warning(
            "loose-boolean",
            node.span.clone(),
            format!("`{}` is read as `{value}`; write `{value}`", scalar.text),
        );
        return Some(*value);
    }
    let found = reader.found(node);
    reader.tolerated(
        node.span.clone(),
        format!("expected {}, found {found}", meta.kind.allowed()),
    );
    None
}

/// Reads a whole number within the kind's range.
pub(crate) fn whole(reader: &mut Reader, node: &Node, meta: &Meta) -> Option<u32> {
    let (Kind::Whole { min, max } | Kind::WholeOrOff { min, max } | Kind::WholeOrAuto { min, max }) =
        meta.kind
    else {
        return mismatch(meta);
    };
    let value = as_number(node)
        .and_then(|s| units::whole(&s.text))
        .and_then(|n| u32::try_from(n).ok());
    match value.filter(|n| (min..=max).contains(n)) {
        Some(value) => Some(value),
        None => refuse(reader, node, meta),
    }
}

/// Reads a whole number with an optional sign.
pub(crate) fn integer(reader: &mut Reader, node: &Node, meta: &Meta) -> Option<i64> {
    match as_number(node).and_then(|s| s.text.parse().ok()) {
        Some(value) => Some(value),
        None => refuse(reader, node, meta),
    }
}

/// Reads a number within the kind's bounds.
pub(crate) fn number(reader: &mut Reader, node: &Node, meta: &Meta) -> Option<f64> {
    let (Kind::Number(bounds) | Kind::NumberOrOff(bounds)) = meta.kind else {
        return mismatch(meta);
    };
    match bounded(node, &bounds) {
        Some(value) => Some(value),
        None => refuse(reader, node, meta),
    }
}

/// Reads a number within the kind's bounds, or `off`.
pub(crate) fn number_or_off(reader: &mut Reader, node: &Node, meta: &Meta) -> Option<Option<f64>> {
    or_off(reader, node, meta, number)
}

/// Reads a whole number within the kind's range, or `auto`, which is `None`.
pub(crate) fn whole_or_auto(reader: &mut Reader, node: &Node, meta: &Meta) -> Option<Option<u32>> {
    if node.as_scalar().is_some_and(|scalar| scalar.text == "auto") {
        return Some(None);
    }
    whole(reader, node, meta).map(Some)
}

/// Reads a whole number within the kind's range, or `off`.
pub(crate) fn whole_or_off(reader: &mut Reader, node: &Node, meta: &Meta) -> Option<Option<u32>> {
    or_off(reader, node, meta, whole)
}

/// Reads a number between two bounds.
pub(super) fn bounded(node: &Node, bounds: &Bounds) -> Option<f64> {
    as_number(node)
        .and_then(|s| units::decimal(&s.text))
        .filter(|number| bounds.contain(*number))
}

fn or_off<T>(
    reader: &mut Reader,
    node: &Node,
    meta: &Meta,
    read: fn(&mut Reader, &Node, &Meta) -> Option<T>,
) -> Option<Option<T>> {
    if is_off(node) {
        Some(None)
    } else {
        read(reader, node, meta).map(Some)
    }
}

/// Whether a value is `off`. Older YAML reads `off` as a boolean, so people also write `false`.
pub(super) fn is_off(node: &Node) -> bool {
    node.as_scalar()
        .is_some_and(|scalar| matches!(scalar.text.as_str(), "off" | "false"))
}

/// Reads one of the kind's status codes, or one within its range.
pub(crate) fn status(reader: &mut Reader, node: &Node, meta: &Meta) -> Option<u16> {
    if let Kind::Whole { .. } = meta.kind {
        return whole(reader, node, meta).and_then(|code| u16::try_from(code).ok());
    }
    let Kind::Status(codes) = meta.kind else {
        return mismatch(meta);
    };
    match as_number(node)
        .and_then(|s| s.text.parse().ok())
        .filter(|code| codes.contains(code))
    {
        Some(code) => Some(code),
        None => refuse(reader, node, meta),
    }
}

/// Reads a duration within the kind's range.
pub(crate) fn duration(reader: &mut Reader, node: &Node, meta: &Meta) -> Option<Duration> {
    let Kind::Duration { min, max, .. } = meta.kind else {
        return mismatch(meta);
    };
    let value = usable(node).and_then(|s| units::duration(&s.text));
    match value.filter(|d| (min..=max).contains(d)) {
        Some(value) => Some(value),
        None => refuse(reader, node, meta),
    }
}

/// Reads a duration within the kind's range, or `off`.
pub(crate) fn duration_or_off(
    reader: &mut Reader,
    node: &Node,
    meta: &Meta,
) -> Option<Option<Duration>> {
    or_off(reader, node, meta, duration)
}

/// Reads a size of at least the kind's minimum.
pub(crate) fn size(reader: &mut Reader, node: &Node, meta: &Meta) -> Option<u64> {
    let Kind::Size { min, max } = meta.kind else {
        return mismatch(meta);
    };
    let value = usable(node).and_then(|s| units::size(&s.text));
    match value.filter(|bytes| (min..=max).contains(bytes)) {
        Some(value) => Some(value),
        None => refuse(reader, node, meta),
    }
}

/// A type that is written as one of a few words.
pub trait Choice: Copy + 'static {
    /// Every word with its value, in display order.
    const WORDS: &'static [(&'static str, Self)];

    /// The words without their values.
    fn words() -> Vec<&'static str> {
        Self::WORDS.iter().map(|(word, _)| *word).collect()
    }
}

/// Reads one of the words of `T`, with exact spelling.
pub(crate) fn choice<T: Choice>(reader: &mut Reader, node: &Node, meta: &Meta) -> Option<T> {
    let find = |text: &str| T::WORDS.iter().find(|(word, _)| *word == text);
    let found = word(reader, node, meta, find, T::words)?;
    Some(found.1)
}

/// Reads a word with the function `find`; `words` lists the valid ones.
fn word<T>(
    reader: &mut Reader,
    node: &Node,
    meta: &Meta,
    find: impl FnOnce(&str) -> Option<T>,
    words: fn() -> Vec<&'static str>,
) -> Option<T> {
    let text = usable(node).map(|s| s.text.as_str());
    if let Some(found) = text.and_then(find) {
        return Some(found);
    }
    let words = words();
    let near = text.and_then(|text| nearest(text, words.iter().copied()));
    if let Some(draft) = reader.unexpected(node, &meta.kind.allowed())
        && let Some(near) = near
    {
        draft.help(format!("did you mean `{near}`?"));
    }
    None
}

/// Reads a text that is not blank and has no control characters. Numbers count as written, because
/// a name may be `4090`.
pub(crate) fn text(reader: &mut Reader, node: &Node, meta: &Meta) -> Option<Arc<str>> {
    let text = usable(node)
        .filter(|s| s.style != Style::Plain || !(s.is_null() || s.is_bool()))
        .map(|s| s.text.as_str())
        .filter(|text| !text.trim().is_empty() && !text.contains(char::is_control));
    match text {
        Some(text) if text.chars().count() <= TEXT_MAX => Some(text.into()),
        Some(_) => {
            reader.error(
                node.span.clone(),
                format!("longer than {TEXT_MAX} characters"),
            );
            None
        }
        None => refuse(reader, node, meta),
    }
}

/// Maximum length of a name, a label or a path, in characters.
const TEXT_MAX: usize = 1024;

/// Reads a file system path.
pub(crate) fn file(reader: &mut Reader, node: &Node, meta: &Meta) -> Option<PathBuf> {
    text(reader, node, meta).map(|path| PathBuf::from(&*path))
}

/// Reads a credential: not blank, and valid in a header. Never shown.
pub(crate) fn secret(reader: &mut Reader, node: &Node, meta: &Meta) -> Option<Secret> {
    reader.mask_tree(node);
    let scalar = usable(node).filter(|s| s.style != Style::Plain || !(s.is_null() || s.is_bool()));
    match scalar {
        None => refuse(reader, node, meta),
        Some(s) if s.text.trim().is_empty() => {
            reader.error(node.span.clone(), "is empty");
            None
        }
        Some(s) if !s.text.bytes().all(|b| (0x21..=0x7e).contains(&b)) => {
            reader.error(
                node.span.clone(),
                "holds blanks or characters that no header may carry",
            );
            None
        }
        Some(s) => Some(Secret::new(s.text.as_str())),
    }
}

/// The scalar, unless its expansion failed.
pub(super) fn usable(node: &Node) -> Option<&Scalar> {
    node.as_scalar().filter(|s| s.style != Style::Unusable)
}

/// A scalar that may be read as a number. A quoted scalar is a text.
fn as_number(node: &Node) -> Option<&Scalar> {
    usable(node).filter(|s| s.style != Style::Quoted)
}

/// Reports a value of the wrong type.
pub(super) fn refuse<T>(reader: &mut Reader, node: &Node, meta: &Meta) -> Option<T> {
    let quoted_number = node
        .as_scalar()
        .is_some_and(|s| s.style == Style::Quoted && s.text.parse::<f64>().is_ok());
    let wants_number = matches!(
        meta.kind,
        Kind::Whole { .. }
            | Kind::WholeOrOff { .. }
            | Kind::WholeOrAuto { .. }
            | Kind::Integer
            | Kind::Number(_)
            | Kind::NumberOrOff(_)
            | Kind::Status(_)
    );
    if let Some(draft) = reader.unexpected(node, &meta.kind.allowed())
        && quoted_number
        && wants_number
    {
        draft.help("remove the quotes");
    }
    None
}

/// A key whose reader does not fit its kind is a bug that the catalogue's test finds.
fn mismatch<T>(meta: &Meta) -> Option<T> {
    debug_assert!(false, "`{}` has a reader of another kind", meta.key);
    None
}

/// The items of a list. Reports a value that is not a list.
pub(super) fn items<'n>(reader: &mut Reader, node: &'n Node, meta: &Meta) -> Option<&'n [Node]> {
    match &node.value {
        Value::Seq(items) => Some(items),
        _ => refuse(reader, node, meta),
    }
}

/// The candidate that a mistyped word most probably means.
pub(crate) fn nearest<'a>(
    word: &str,
    candidates: impl Iterator<Item = &'a str>,
) -> Option<&'a str> {
    closest(word, candidates)
        .filter(|(alike, _)| is_likely(*alike))
        .map(|(_, candidate)| candidate)
}

/// Whether the similarity makes a typo probable. Below 0.6 a suggestion is wrong more often than
/// right.
pub(super) fn is_likely(alike: f64) -> bool {
    alike >= 0.6
}

/// The candidate most similar to a word, and the similarity: 1 means equal.
pub(super) fn closest<'a>(
    word: &str,
    candidates: impl Iterator<Item = &'a str>,
) -> Option<(f64, &'a str)> {
    // Prevents the comparison of a key of a megabyte with every candidate.
    const WORD_MAX: usize = 64;
    if word.len() > WORD_MAX {
        return None;
    }
    let word = word.to_lowercase();
    candidates
        .map(|candidate| {
            let alike = strsim::normalized_damerau_levenshtein(&word, candidate);
            (alike, candidate)
        })
        .max_by(|a, b| a.0.total_cmp(&b.0))
}
