//! The keys of content rules.

use std::sync::Arc;

use super::{Kind, Meta, OptionDef};
use crate::check::{self, Choice, RuleOp};

/// The statuses that a rule may refuse with.
pub(super) const REFUSAL: Kind = Kind::Whole { min: 400, max: 599 };

/// The keys of one rule.
pub(crate) static RULE: &[&Meta] = &[
    &RULE_NAME.meta,
    &RULE_STATUS.meta,
    &RULE_MESSAGE.meta,
    &ALL,
    &ANY,
    &FIELD.meta,
    &OP.meta,
    &VALUE,
];

/// Number of keys at the start of [`RULE`] that belong to a whole rule only.
const RULE_ONLY: usize = 3;

/// The keys of a condition inside `all` or `any`.
pub(crate) static CONDITION: &[&Meta] = RULE.split_at(RULE_ONLY).1;

/// `reject_rules[].name`.
pub(crate) static RULE_NAME: OptionDef<Arc<str>> = OptionDef::new(
    "rule",
    "name",
    Kind::Text,
    check::text,
)
.default("`rule` and its place in the list")
.doc(
    "What the rule is called in answers, counters and receipts. Rules of one name share a counter.",
);
/// `reject_rules[].status`.
pub(crate) static RULE_STATUS: OptionDef<u32> =
    OptionDef::new("rule", "status", REFUSAL, check::whole)
        .default("`reject_rules_status`")
        .doc("The status of its refusals.");
/// `reject_rules[].message`.
pub(crate) static RULE_MESSAGE: OptionDef<Arc<str>> =
    OptionDef::new("rule", "message", Kind::Text, check::text)
        .default("a sentence with its name")
        .doc("The text of the error that the client gets.");
/// `all`.
pub(crate) static ALL: Meta = Meta {
    key: "all",
    group: "rule",
    kind: Kind::Conditions,
    default: "unset",
    doc: "Holds when every condition of the list does. They may nest, 16 deep.",
    secret: false,
    advanced: false,
};
/// `any`.
pub(crate) static ANY: Meta = Meta {
    key: "any",
    group: "rule",
    kind: Kind::Conditions,
    default: "unset",
    doc: "Holds when at least one condition of the list does.",
    secret: false,
    advanced: false,
};
/// `field`.
pub(crate) static FIELD: OptionDef<Arc<str>> =
    OptionDef::new("rule", "field", Kind::Text, check::text)
        .default("required, unless `all` or `any` is there")
        .doc("A dotted path into the body, through lists too (`messages.0.role`, `messages.-1.role`); or `input_bytes`, `messages_count`, `tools_count`, or `input_chars`: the characters in the text of `messages[].content`.");
/// `op`.
pub(crate) static OP: OptionDef<RuleOp> = OptionDef::new(
    "rule",
    "op",
    Kind::Choice(RuleOp::words),
    check::choice,
)
.default("required with `field`")
.doc("`gt`, `ge`, `lt`, `le` compare numbers; `eq`, `ne`, `in`, `nin` any value, without converting it; `match` (a Rust regular expression, found anywhere), `contains` and `prefix` look at texts; `exists` and `absent` take no `value`. A missing field passes `ne`, `nin` and `absent` alone; `null` is not missing.");
/// `value`.
pub(crate) static VALUE: Meta = Meta {
    key: "value",
    group: "rule",
    kind: Kind::Literal,
    default: "required, unless `op` is `exists` or `absent`",
    doc: "What the field is compared with; a list for `in` and `nin`. In a pattern write `$$` where `${` would be read as a variable.",
    secret: false,
    advanced: false,
};
