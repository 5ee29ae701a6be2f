//! Parses YAML text to a tree. The only module that uses the YAML crate.
//!
//! serde stops at the first error, so nothing is typed here. Every file becomes a tree, and the
//! check reports all of its problems at once.

use std::fmt;

use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::options::{DuplicateKeyPolicy, NonFiniteFloatPolicy};
use serde_saphyr::{Location, Spanned};

use super::tree::{Key, Node, Scalar, Span, Style, Value};

/// Why a text is not YAML.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SyntaxError {
    /// The parser's message, without an excerpt.
    pub message: String,
    /// The place, if the parser knows it.
    pub at: Option<Span>,
}

/// Reads one YAML document. An empty one is a null scalar.
///
/// The parser's budget bounds depth, nodes and alias expansion.
///
/// # Errors
/// The first place where the text is not valid YAML, or has more than one document.
pub(super) fn parse(text: &str) -> Result<Node, SyntaxError> {
    let options = serde_saphyr::options! {
        // Both pairs of a duplicate key reach the tree, so that the check can name both places.
        duplicate_keys: DuplicateKeyPolicy::PassThrough,
        // `yes` stays a text: our reader accepts it, with the documented warning.
        strict_booleans: true,
        non_finite_float_policy: NonFiniteFloatPolicy::AsString,
        // A tenth of the default, which takes seconds to reach. None of our files consists only of
        // aliases.
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: 100_000 },
        // The deepest valid file, a rule in a rule, has 34 levels. In a build without optimisation,
        // fifty levels fill the stack of the reading thread.
        budget: serde_saphyr::budget! { max_depth: 40 },
        with_snippet: false,
    };
    match serde_saphyr::from_str_with_options::<Spanned<Raw>>(text, options) {
        Ok(root) => Ok(node(root, text)),
        Err(error) => Err(SyntaxError {
            message: message(&error),
            at: error
                .location()
                .and_then(|location| error_span(&location, text)),
        }),
    }
}

/// The parser's result. Numbers and booleans lose their spelling here and get it back from the
/// source.
enum Raw {
    Text(String),
    Typed(String),
    Seq(Vec<Spanned<Raw>>),
    Map(Vec<(Spanned<Raw>, Spanned<Raw>)>),
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RawVisitor)
    }
}

struct RawVisitor;

impl<'de> Visitor<'de> for RawVisitor {
    type Value = Raw;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value, a list or a mapping")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Raw, E> {
        Ok(Raw::Text(text.to_owned()))
    }

    fn visit_string<E: de::Error>(self, text: String) -> Result<Raw, E> {
        Ok(Raw::Text(text))
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Raw, E> {
        Ok(Raw::Typed(value.to_string()))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Raw, E> {
        Ok(Raw::Typed(value.to_string()))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Raw, E> {
        Ok(Raw::Typed(value.to_string()))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Raw, E> {
        Ok(Raw::Typed(value.to_string()))
    }

    fn visit_unit<E: de::Error>(self) -> Result<Raw, E> {
        Ok(Raw::Typed("null".to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Raw, A::Error> {
        let mut seq = Vec::new();
        while let Some(item) = items.next_element()? {
            seq.push(item);
        }
        Ok(Raw::Seq(seq))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut pairs: A) -> Result<Raw, A::Error> {
        let mut map = Vec::new();
        while let Some(key) = pairs.next_key::<Spanned<Raw>>()? {
            if matches!(key.value, Raw::Seq(_) | Raw::Map(_)) {
                return Err(de::Error::custom("a key must be a text"));
            }
            map.push((key, pairs.next_value()?));
        }
        Ok(Raw::Map(map))
    }
}

fn node(raw: Spanned<Raw>, text: &str) -> Node {
    let defined = span(&raw.defined, text).unwrap_or(0..0);
    let used = span(&raw.referenced, text).unwrap_or_else(|| defined.clone());
    let value = match raw.value {
        Raw::Seq(items) => Value::Seq(items.into_iter().map(|item| node(item, text)).collect()),
        Raw::Map(pairs) => Value::Map(
            pairs
                .into_iter()
                .map(|(k, v)| (key(k, text), node(v, text)))
                .collect(),
        ),
        Raw::Text(parsed) => {
            let quoted =
                source_of(text, &defined).starts_with(['"', '\'', '!']) || is_block(text, &defined);
            let style = if quoted { Style::Quoted } else { Style::Plain };
            Value::Scalar(Scalar {
                text: parsed,
                style,
            })
        }
        Raw::Typed(parsed) => {
            let written = source_of(text, &defined);
            // After a tag (`!!int 5`) the span may begin with the tag; in this case the parsed
            // value is used.
            let text = if written.starts_with('!') {
                parsed
            } else {
                written.to_owned()
            };
            Value::Scalar(Scalar {
                text,
                style: Style::Plain,
            })
        }
    };
    Node {
        value,
        span: used,
        defined,
    }
}

fn key(raw: Spanned<Raw>, text: &str) -> Key {
    let node = node(raw, text);
    let name = node.as_scalar().map(|s| s.text.clone()).unwrap_or_default();
    Key {
        text: name,
        span: node.span,
    }
}

/// Byte offsets, because the crate's plain offsets count characters.
fn span(location: &Location, text: &str) -> Option<Span> {
    let span = location.span();
    let start = usize::try_from(span.byte_offset()?).ok()?;
    let end = start
        .saturating_add(usize::try_from(span.byte_len()?).ok()?)
        .min(text.len());
    let written = text.get(start..end)?;
    Some(start..start + written.trim_end().len())
}

/// The span of a block scalar begins after its `|` or `>`, which ends the line before.
fn is_block(text: &str, span: &Span) -> bool {
    let before = text.get(..span.start).unwrap_or_default();
    let header = before.trim_end();
    before[header.len()..].contains('\n')
        && header
            .trim_end_matches(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-'))
            .ends_with(['|', '>'])
}

/// The place of a parser error. The parser may know only line and column.
fn error_span(location: &Location, text: &str) -> Option<Span> {
    span(location, text).or_else(|| {
        let line = usize::try_from(location.line()).ok()?.checked_sub(1)?;
        let column = usize::try_from(location.column()).ok()?.saturating_sub(1);
        let start: usize = text.split_inclusive('\n').take(line).map(str::len).sum();
        let on_line = text.get(start..)?.lines().next().unwrap_or_default();
        let offset = on_line
            .char_indices()
            .nth(column)
            .map_or(on_line.len(), |(at, _)| at);
        Some(start + offset..start + offset)
    })
}

fn source_of<'a>(text: &'a str, span: &Span) -> &'a str {
    text.get(span.clone()).unwrap_or_default().trim()
}

/// The parser's message on one line. It leaves out the place, which the report adds itself, and
/// advice that is meant for callers of the parser, not for the author of the file.
fn message(error: &serde_saphyr::Error) -> String {
    match error.without_snippet() {
        serde_saphyr::Error::MultipleDocuments { .. } => {
            return "more than one YAML document: a file holds one, without `---` in its middle"
                .to_owned();
        }
        serde_saphyr::Error::RecursiveReferencesRequireWeakTypes { .. } => {
            return "an alias that refers to the value it stands in".to_owned();
        }
        _ => {}
    }
    let text = error.without_snippet().to_string();
    let line = text.lines().next().unwrap_or_default();
    line.split_once(" at line ")
        .map_or(line, |(before, _)| before)
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scalar<'a>(node: &'a Node, key: &str) -> &'a Scalar {
        node.get(key).and_then(Node::as_scalar).unwrap()
    }

    #[test]
    fn scalars_keep_their_spelling() {
        let text = "a: 007\nb: '007'\nc: 1.50\nd: Yes\ne: TRUE\nf: ~\ng:\nh: 0x1F\ni: .nan\nj: \"x\\ty\"\nk: |\n  two\n  lines\n";
        let tree = parse(text).unwrap();
        let written: Vec<_> = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k"]
            .map(|k| (scalar(&tree, k).text.clone(), scalar(&tree, k).style))
            .into();
        let expected = [
            ("007", Style::Plain),
            ("007", Style::Quoted),
            ("1.50", Style::Plain),
            ("Yes", Style::Plain),
            ("TRUE", Style::Plain),
            ("~", Style::Plain),
            ("", Style::Plain),
            ("0x1F", Style::Plain),
            (".nan", Style::Plain),
            ("x\ty", Style::Quoted),
            ("two\nlines\n", Style::Quoted),
        ];
        assert_eq!(written, expected.map(|(t, s)| (t.to_owned(), s)));
    }

    #[test]
    fn spans_count_bytes_and_cover_the_quotes() {
        let text = "name: \"gpü\"\nother: äß\nlist: [1, 22]\n";
        let tree = parse(text).unwrap();
        let at = |n: &Node| text[n.span.clone()].to_owned();
        assert_eq!(at(tree.get("name").unwrap()), "\"gpü\"");
        assert_eq!(at(tree.get("other").unwrap()), "äß");
        let Value::Seq(items) = &tree.get("list").unwrap().value else {
            panic!("a list")
        };
        assert_eq!(at(&items[1]), "22");
    }

    #[test]
    fn both_pairs_of_a_duplicate_survive() {
        let tree = parse("a: 1\nb: 2\na: 3\n").unwrap();
        let Value::Map(pairs) = &tree.value else {
            panic!("a mapping")
        };
        let keys: Vec<_> = pairs
            .iter()
            .map(|(k, _)| (k.text.as_str(), k.span.start))
            .collect();
        assert_eq!(keys, [("a", 0), ("b", 5), ("a", 10)]);
    }

    #[test]
    fn an_alias_knows_both_its_places() {
        let text = "a: &x 5\nb: *x\n";
        let tree = parse(text).unwrap();
        let b = tree.get("b").unwrap();
        assert_eq!(&text[b.span.clone()], "*x");
        assert!(text[b.defined.clone()].ends_with('5'));
        assert_eq!(b.as_scalar().unwrap().text, "5");
    }

    #[test]
    fn what_is_not_yaml_says_where() {
        let error = parse("a: 1\nb: [1, 2\nc: 3\n").unwrap_err();
        assert!(error.at.is_some(), "{error:?}");
        assert!(parse("a: 1\n---\nb: 2\n").is_err());
        assert!(parse("? [a]\n: 1\n").is_err());
        assert!(parse("a: *nowhere\n").is_err());
    }

    #[test]
    fn an_empty_document_is_null() {
        for text in ["", "\n", "# only a comment\n", "---\n"] {
            assert!(parse(text).unwrap().is_null(), "{text:?}");
        }
    }

    #[test]
    fn an_alias_bomb_is_refused() {
        let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
        for i in 1..9 {
            let refs = vec![format!("*a{}", i - 1); 9].join(", ");
            text.push_str(&format!("a{i}: &a{i} [{refs}]\n"));
        }
        assert!(parse(&text).is_err());
        for depth in [21, 28, 10_000] {
            let deep = format!("{}1{}", "[{a: ".repeat(depth), "}]".repeat(depth));
            assert!(parse(&deep).is_err());
        }
    }

    #[test]
    fn syntax_errors_speak_to_whoever_wrote_the_file() {
        for (text, expected) in [
            ("a: 1\n---\na: 2\n", "more than one YAML document"),
            (
                "a: &x [*x]\n",
                "an alias that refers to the value it stands in",
            ),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.message.contains(expected), "{error:?}");
            assert!(error.at.is_some(), "{error:?}");
        }
    }
}
