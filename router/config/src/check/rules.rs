//! Content rules. A bad rule is an error for a check. A running router drops only that rule.

use std::sync::Arc;

use router_core::rules::{
    Condition, DEPTH_MAX, Field, Literal, Order, Pattern, RuleSpec, Rules, STEPS_MAX,
    TEXT_BYTES_MAX, Test,
};

use super::peers::{first_key, optional};
use super::reader::{Reader, short};
use super::scalar::{Choice, items, usable};
use super::section::keys;
use crate::options::{
    ALL, ANY, CONDITION, FIELD, Meta, OP, RULE, RULE_MESSAGE, RULE_NAME, RULE_STATUS, VALUE,
};
use crate::tree::{Node, Style, Value};

/// Maximum number of rules per route, because every request tries each of them.
const RULES_MAX: usize = 256;

/// The words of `op`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RuleOp {
    Gt,
    Ge,
    Lt,
    Le,
    Eq,
    Ne,
    In,
    Nin,
    Match,
    Contains,
    Prefix,
    Exists,
    Absent,
}

impl Choice for RuleOp {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("gt", Self::Gt),
        ("ge", Self::Ge),
        ("lt", Self::Lt),
        ("le", Self::Le),
        ("eq", Self::Eq),
        ("ne", Self::Ne),
        ("in", Self::In),
        ("nin", Self::Nin),
        ("match", Self::Match),
        ("contains", Self::Contains),
        ("prefix", Self::Prefix),
        ("exists", Self::Exists),
        ("absent", Self::Absent),
    ];
}

/// Reads the usable rules. A bad rule is reported and left out.
pub(crate) fn reject_rules(reader: &mut Reader, node: &Node, meta: &Meta) -> Option<Arc<Rules>> {
    reader.tolerating(|reader| {
        let items = items(reader, node, meta)?;
        if let Some(first) = items.get(RULES_MAX) {
            let message = format!("more than {RULES_MAX} rules");
            reader.error(first.span.clone(), message);
        }
        let rules = items.iter().take(RULES_MAX).enumerate();
        let rules = rules
            .filter_map(|(index, item)| reader.item(index, |reader| rule(reader, item, index + 1)));
        Some(Arc::new(Rules::new(rules)))
    })
}

/// Reads one rule; `place` counts from 1. A rule with a flaw outside its condition is reported and
/// kept.
fn rule(reader: &mut Reader, node: &Node, place: usize) -> Option<RuleSpec> {
    if !is_mapping(reader, node, "a rule") {
        return None;
    }
    keys(reader, node, RULE, "a rule");
    let name = optional(reader, node, &RULE_NAME);
    let status = optional(reader, node, &RULE_STATUS);
    let message = optional(reader, node, &RULE_MESSAGE);
    Some(RuleSpec {
        when: condition(reader, node, 1)?,
        name: name.unwrap_or_else(|| format!("rule{place}").into()),
        status: status.and_then(|status| u16::try_from(status).ok()),
        message,
    })
}

fn is_mapping(reader: &mut Reader, node: &Node, what: &str) -> bool {
    let is_mapping = matches!(node.value, Value::Map(_));
    if !is_mapping && let Some(draft) = reader.unexpected(node, what) {
        draft.help("write `{field: max_tokens, op: gt, value: 4096}`");
    }
    is_mapping
}

/// Reads the condition of a mapping whose keys have been checked.
fn condition(reader: &mut Reader, node: &Node, depth: usize) -> Option<Condition<Field>> {
    if depth > DEPTH_MAX {
        let message = format!("conditions nest deeper than {DEPTH_MAX}");
        reader.error(node.span.clone(), message);
        return None;
    }
    let forms = [ALL.key, ANY.key, FIELD.meta.key].map(|key| node.get(key));
    let mut present = forms.iter().flatten();
    if let (Some(first), Some(second)) = (present.next(), present.next()) {
        let label = first.span.clone();
        reader
            .error(
                second.span.clone(),
                "a condition is one of `all`, `any` and `field`",
            )
            .label(label, "this one counts");
    }
    match forms {
        [Some(all), _, _] => conditions(reader, all, &ALL, depth).map(Condition::All),
        [None, Some(any), _] => conditions(reader, any, &ANY, depth).map(Condition::Any),
        [None, None, Some(field)] => leaf(reader, node, field),
        [None, None, None] => {
            reader
                .error(first_key(node), "`field` is missing")
                .help("a condition has `field` and `op`, or a list under `all` or `any`");
            None
        }
    }
}

fn conditions(
    reader: &mut Reader,
    node: &Node,
    meta: &Meta,
    depth: usize,
) -> Option<Vec<Condition<Field>>> {
    reader.key(meta.key, |reader| {
        let items = items(reader, node, meta)?;
        if items.is_empty() {
            reader.error(node.span.clone(), "the list is empty");
            return None;
        }
        let mut all = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            let one = reader.item(index, |reader| {
                if !is_mapping(reader, item, "a condition") {
                    return None;
                }
                keys(reader, item, CONDITION, "a condition");
                condition(reader, item, depth + 1)
            });
            all.extend(one);
        }
        (all.len() == items.len()).then_some(all)
    })
}

fn leaf(reader: &mut Reader, node: &Node, field: &Node) -> Option<Condition<Field>> {
    let field = reader.key(FIELD.meta.key, |reader| {
        let text = FIELD.read(reader, field)?;
        let parsed = Field::parse(&text);
        if parsed.is_none() {
            let found = reader.found(field);
            let message = format!("expected a path of 1 to {STEPS_MAX} steps, found {found}");
            reader.error(field.span.clone(), message);
        }
        parsed
    });
    let op = match node.get(OP.meta.key) {
        Some(op) => reader.key(OP.meta.key, |reader| OP.read(reader, op)),
        None => {
            reader
                .error(first_key(node), "`op` is missing")
                .help(format!("write {}", OP.meta.kind.allowed()));
            None
        }
    };
    let test = test(reader, node, op?);
    Some(Condition::Leaf(field?, test?))
}

fn test(reader: &mut Reader, node: &Node, op: RuleOp) -> Option<Test> {
    let value = node.get(VALUE.key);
    let test = match op {
        RuleOp::Exists => Some(Test::Exists),
        RuleOp::Absent => Some(Test::Absent),
        _ => None,
    };
    match (test, value) {
        (Some(test), None) => Some(test),
        (Some(test), Some(value)) => {
            let message = format!("`{test}` takes no `value`");
            reader.key(VALUE.key, |reader| {
                reader.error(value.span.clone(), message);
            });
            Some(test)
        }
        (None, None) => {
            reader.error(first_key(node), "`value` is missing");
            None
        }
        (None, Some(value)) => reader.key(VALUE.key, |reader| test_with(reader, value, op)),
    }
}

fn test_with(reader: &mut Reader, value: &Node, op: RuleOp) -> Option<Test> {
    Some(match op {
        RuleOp::Gt => Test::Number(Order::Gt, number(reader, value)?),
        RuleOp::Ge => Test::Number(Order::Ge, number(reader, value)?),
        RuleOp::Lt => Test::Number(Order::Lt, number(reader, value)?),
        RuleOp::Le => Test::Number(Order::Le, number(reader, value)?),
        RuleOp::Eq => Test::Equals(literal(reader, value)?),
        RuleOp::Ne => Test::Differs(literal(reader, value)?),
        RuleOp::In => Test::In(literals(reader, value)?),
        RuleOp::Nin => Test::NotIn(literals(reader, value)?),
        RuleOp::Match => Test::Matches(pattern(reader, value, Pattern::regex)?),
        RuleOp::Contains => Test::Contains(pattern(reader, value, Pattern::literal)?),
        RuleOp::Prefix => Test::Prefix(text(reader, value)?.into()),
        RuleOp::Exists => Test::Exists,
        RuleOp::Absent => Test::Absent,
    })
}

fn number(reader: &mut Reader, node: &Node) -> Option<f64> {
    match read(node) {
        Some(Literal::Number(number)) => Some(number),
        _ => refuse(reader, node, "a number"),
    }
}

fn text<'n>(reader: &mut Reader, node: &'n Node) -> Option<&'n str> {
    let text = match (read(node), usable(node)) {
        (Some(Literal::Text(_)), Some(scalar)) => &scalar.text,
        // A variable may hold any value. Where a text is wanted, it counts as a text.
        (Some(_), Some(scalar)) if scalar.style == Style::Expanded => &scalar.text,
        _ => {
            refuse::<()>(reader, node, "a text");
            return None;
        }
    };
    if text.len() > TEXT_BYTES_MAX {
        let message = format!("longer than {TEXT_BYTES_MAX} bytes");
        reader.error(node.span.clone(), message);
        return None;
    }
    Some(text)
}

fn pattern<E: std::fmt::Display>(
    reader: &mut Reader,
    node: &Node,
    compile: fn(&str) -> Result<Pattern, E>,
) -> Option<Pattern> {
    let text = text(reader, node)?;
    match compile(text) {
        Ok(pattern) => Some(pattern),
        Err(error) => {
            let message = format!("`{}` is no regular expression: {error}", short(text));
            reader.error(node.span.clone(), message);
            None
        }
    }
}

fn literal(reader: &mut Reader, node: &Node) -> Option<Literal> {
    match read(node) {
        Some(Literal::Text(_)) => text(reader, node).map(|text| Literal::Text(text.into())),
        Some(literal) => Some(literal),
        None => refuse(reader, node, "a text, a number or a boolean"),
    }
}

fn literals(reader: &mut Reader, node: &Node) -> Option<Vec<Literal>> {
    let Value::Seq(items) = &node.value else {
        return refuse(reader, node, "a list of texts, numbers and booleans");
    };
    let mut all = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        all.extend(reader.item(index, |reader| literal(reader, item)));
    }
    (all.len() == items.len()).then_some(all)
}

/// Reads a scalar by the rules of YAML. `None` for `null`, because no value equals it.
fn read(node: &Node) -> Option<Literal> {
    let scalar = usable(node)?;
    let text = scalar.text.as_str();
    if scalar.style == Style::Quoted {
        return Some(Literal::Text(text.into()));
    }
    if scalar.is_null() {
        return None;
    }
    if text.eq_ignore_ascii_case("true") || text.eq_ignore_ascii_case("false") {
        return Some(Literal::Bool(text.eq_ignore_ascii_case("true")));
    }
    // `inf` and `nan` count as texts.
    let is_number = text.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c));
    let number = text
        .parse()
        .ok()
        .filter(|number: &f64| is_number && number.is_finite());
    Some(number.map_or_else(|| Literal::Text(text.into()), Literal::Number))
}

fn refuse<T>(reader: &mut Reader, node: &Node, allowed: &str) -> Option<T> {
    let is_null = node.is_null();
    if let Some(draft) = reader.unexpected(node, allowed)
        && is_null
    {
        draft.help("`null` equals nothing; ask with `exists` or `absent`");
    }
    None
}
