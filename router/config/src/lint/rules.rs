//! Advice on content rules.

use super::{place, warn};
use crate::check::Reader;
use crate::tree::{Node, Span, Value};
use crate::valid::RouteOptions;

/// Reports warnings for the rules of this file.
pub(super) fn rules(reader: &mut Reader, root: &Node, options: &RouteOptions) {
    let rules = &options.reject_rules.value;
    if !rules.is_empty()
        && !options.reject_rules_enabled.value
        && let Some(at) =
            place(root, "reject_rules_enabled").or_else(|| place(root, "reject_rules"))
    {
        let message = match rules.len() {
            1 => "there is a rule, and it refuses nothing".to_owned(),
            count => format!("there are {count} rules, and they refuse nothing"),
        };
        warn(reader, "reject_rules_enabled", at, "rules-off", message);
    }
    let Some(Value::Seq(nodes)) = root.get("reject_rules").map(|node| &node.value) else {
        return;
    };
    // Each rule has a node, because the file has no error.
    if nodes.len() != rules.len() {
        return;
    }
    let impossible = rules.impossible();
    reader.key("reject_rules", |reader| {
        for index in &impossible {
            reader.item(*index, |reader| {
                let message = "nothing can match this rule: its conditions contradict each other";
                reader.warning("rule-never-matches", head(&nodes[*index]), message);
            });
        }
        for (index, by) in rules.shadowed() {
            if impossible.contains(&index) {
                continue;
            }
            reader.item(index, |reader| {
                let message = "this rule never gets its turn: an earlier one refuses every request that it would";
                reader
                    .warning("rule-shadowed", head(&nodes[index]), message)
                    .label(head(&nodes[by]), "the earlier one");
            });
        }
    });
}

/// The place of a rule in reports: its name, or else its first key.
fn head(node: &Node) -> Span {
    let first = || match &node.value {
        Value::Map(pairs) => pairs.first().map(|(key, _)| key.span.clone()),
        _ => None,
    };
    place(node, "name")
        .or_else(first)
        .unwrap_or_else(|| node.span.clone())
}
