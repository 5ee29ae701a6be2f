//! JSON Schema of the files, for editors. It is generated from the option catalogue that the check
//! uses.
//!
//! A schema cannot express everything that the check tests (unique names, variables that must be
//! set). The check rejects everything that the schema rejects.

use std::ops::Bound;

use router_core::session::Preset;
use schemars::{Schema, json_schema};
use serde_json::{Map, Value, json};

use super::check;
use super::options::{
    BUCKET, Bounds, CONDITION, EJECT, HEALTH_CHECK, Kind, MAIN, METRIC_ROW, Meta, OWNER, PEER,
    PEERS_FROM_DNS, PEERS_FROM_DNS_KEYS, PEERS_FROM_KEYS, ROUTE, RULE,
};
use super::tree;
use super::yaml;

/// The schema of `router.yaml`.
pub fn main() -> Schema {
    root("router.yaml", object(MAIN))
}

/// The schema of `routes/<name>.yaml`.
pub fn route() -> Schema {
    let mut route = object(&ROUTE);
    route.insert(
        "oneOf".into(),
        json!([{ "required": ["peers"] }, { "required": ["peers_by_model"] }]),
    );
    root("A route of llm-router", route)
}

fn root(title: &str, object: Map<String, Value>) -> Schema {
    let mut peer = self::object(PEER);
    peer.insert(
        "oneOf".into(),
        json!([{ "required": ["address"] }, { "required": ["url"] }]),
    );
    peer.insert(
        "not".into(),
        json!({ "required": ["max_concurrency", "slots"] }),
    );
    let mut schema = json_schema!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        "$defs": {
            "peer": peer,
            "rule": condition(RULE),
            "condition": condition(CONDITION),
            "variable": {
                "description": "`${VAR}` or `${VAR:-default}`",
                "type": "string",
                "pattern": r"\$\{[A-Za-z_][A-Za-z0-9_]*(:-[^}]*)?\}",
            },
        },
    });
    schema.ensure_object().extend(object);
    schema
}

/// A condition with these keys, in one of its three forms.
fn condition(keys: &[&Meta]) -> Map<String, Value> {
    let mut condition = object(keys);
    condition.insert(
        "oneOf".into(),
        json!([{ "required": ["all"] }, { "required": ["any"] }, { "required": ["field", "op"] }]),
    );
    condition
}

/// A mapping with only these keys.
fn object(keys: &[&Meta]) -> Map<String, Value> {
    let properties: Map<_, _> = keys
        .iter()
        .map(|meta| (meta.key.to_owned(), property(meta)))
        .collect();
    let mut object = Map::new();
    object.insert("type".into(), json!("object"));
    object.insert("additionalProperties".into(), json!(false));
    object.insert("properties".into(), properties.into());
    object
}

fn property(meta: &Meta) -> Value {
    let mut schema = match meta.kind {
        Kind::Section(keys) => {
            let mut section = object(keys());
            // A section with every line commented out is empty.
            section.insert("type".into(), json!(["object", "null"]));
            section
        }
        kind => any_of(alternatives(&kind, meta.default == "null")),
    };
    schema.insert("description".into(), json!(meta.doc));
    if let Some(default) = default(meta) {
        schema.insert("default".into(), default);
    }
    schema.into()
}

fn any_of(mut alternatives: Vec<Value>) -> Map<String, Value> {
    let single = if alternatives.len() == 1 {
        alternatives.pop()
    } else {
        None
    };
    match single {
        Some(Value::Object(only)) => only,
        _ => Map::from_iter([("anyOf".to_owned(), json!(alternatives))]),
    }
}

/// The forms of a value. A variable may replace any scalar.
fn alternatives(kind: &Kind, nullable: bool) -> Vec<Value> {
    let mut forms = match *kind {
        Kind::Peers
        | Kind::PeersByModel
        | Kind::ApiKeys
        | Kind::Cidrs
        | Kind::Origins
        | Kind::Routes
        | Kind::Prefixes
        | Kind::SessionSources
        | Kind::Aliases
        | Kind::Owners
        | Kind::Thresholds(_)
        | Kind::BodyPaths
        | Kind::Rules
        | Kind::Conditions
        | Kind::Section(_) => {
            return vec![collection(kind)];
        }
        _ => scalar(kind),
    };
    forms.push(json!({ "$ref": "#/$defs/variable" }));
    if nullable {
        forms.push(json!({ "type": "null" }));
    }
    forms
}

fn scalar(kind: &Kind) -> Vec<Value> {
    let text = |pattern: &str| json!({ "type": "string", "pattern": pattern });
    match *kind {
        Kind::Bool => vec![json!({ "type": "boolean" })],
        Kind::Whole { min, max } => {
            vec![json!({ "type": "integer", "minimum": min, "maximum": max })]
        }
        Kind::Integer => vec![json!({ "type": "integer" })],
        Kind::Number(bounds) => vec![number(&bounds)],
        Kind::NumberOrOff(bounds) => vec![number(&bounds), switched_off()],
        Kind::WholeOrAuto { min, max } => {
            vec![
                json!({ "type": "integer", "minimum": min, "maximum": max }),
                json!({ "enum": ["auto"] }),
            ]
        }
        Kind::WholeOrOff { min, max } => {
            vec![
                json!({ "type": "integer", "minimum": min, "maximum": max }),
                switched_off(),
            ]
        }
        Kind::Metrics => vec![
            rows(&object_of(METRIC_ROW, &["metric", "threshold"])),
            switched_off(),
        ],
        Kind::Buckets => vec![
            rows(&json!({ "anyOf": [
                object_of(BUCKET, &["min_turn", "share", "tol"]),
                { "type": "array", "minItems": 3, "maxItems": 3 },
            ] })),
            switched_off(),
        ],
        Kind::PeersFrom => {
            let mut source = object_of(PEERS_FROM_KEYS, &[]);
            source["minProperties"] = json!(1);
            source["maxProperties"] = json!(1);
            source["properties"][PEERS_FROM_DNS.key] =
                object_of(PEERS_FROM_DNS_KEYS, &["name", "port"]);
            vec![source]
        }
        Kind::Eject => vec![object_of(EJECT, &[]), switched_off()],
        Kind::HealthCheck => vec![object_of(HEALTH_CHECK, &[]), switched_off()],
        Kind::Bodies => vec![text(r"^(full|none|truncate\( *[0-9]+[kKmMgGtT]? *\))$")],
        Kind::Duration { min, max, off } => {
            let mut forms = vec![
                json!({ "type": "number", "minimum": min.as_secs_f64(), "maximum": max.as_secs_f64() }),
                text(r"^([0-9]+\.?[0-9]*|\.[0-9]+)(ms|s|m|h)?$"),
            ];
            if off {
                forms.push(switched_off());
            }
            forms
        }
        Kind::Size { min, max } => {
            vec![
                json!({ "type": "integer", "minimum": min, "maximum": max }),
                text("^[0-9]+[kKmMgGtT]?$"),
            ]
        }
        Kind::Choice(words) => vec![json!({ "enum": words() })],
        Kind::Status(codes) => vec![json!({ "enum": codes })],
        Kind::RouteName => vec![json!({
            "type": ["string", "number"],
            "pattern": "^[a-z0-9][a-z0-9._-]*$",
            "maxLength": check::NAME_MAX,
            "not": { "enum": check::RESERVED },
        })],
        Kind::Text | Kind::Secret => {
            vec![json!({ "type": ["string", "number"], "pattern": r"\S" })]
        }
        Kind::File => vec![text(r"\S")],
        Kind::Listen => vec![text(":[0-9]+$")],
        Kind::UrlPath => vec![text("^/")],
        Kind::Address => vec![text(r"^(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):[0-9]+$")],
        Kind::Literal => {
            let one = json!({ "type": ["string", "number", "boolean"] });
            vec![one.clone(), json!({ "type": "array", "items": one })]
        }
        Kind::PageUrl => vec![text("^[Hh][Tt][Tt][Pp][Ss]?://[^#@]+$")],
        Kind::Url => vec![text("^[Hh][Tt][Tt][Pp][Ss]?://[^?#@]+$")],
        _ => vec![collection(kind)],
    }
}

/// The spellings that switch an option off. Older YAML reads `off` as a boolean.
fn switched_off() -> Value {
    json!({ "enum": ["off", false] })
}

fn number(bounds: &Bounds) -> Value {
    let mut number = Map::from_iter([("type".to_owned(), json!("number"))]);
    let (low, high) = bounds.ends();
    let ends = [
        (low, "minimum", "exclusiveMinimum"),
        (high, "maximum", "exclusiveMaximum"),
    ];
    for (end, included, excluded) in ends {
        match end {
            Bound::Included(end) => number.insert(included.to_owned(), json!(end)),
            Bound::Excluded(end) => number.insert(excluded.to_owned(), json!(end)),
            Bound::Unbounded => None,
        };
    }
    number.into()
}

fn rows(row: &Value) -> Value {
    json!({ "type": "array", "items": row })
}

/// A row with these keys, some of them required.
fn object_of(keys: &[&Meta], required: &[&str]) -> Value {
    let mut row = object(keys);
    row.insert("required".into(), json!(required));
    row.into()
}

/// A list, or one text with comma-separated addresses.
fn peers() -> Value {
    json!({
        "type": ["array", "string"],
        "items": { "$ref": "#/$defs/peer" },
        "pattern": r"\S",
    })
}

fn collection(kind: &Kind) -> Value {
    let list = |item: Value| json!({ "type": "array", "items": item });
    match *kind {
        Kind::Peers => peers(),
        Kind::PeersByModel => json!({
            "type": "object",
            "minProperties": 1,
            "additionalProperties": peers(),
        }),
        Kind::ApiKeys => json!({ "anyOf": [
            {
                "type": "object",
                "propertyNames": { "pattern": r"^[\x21-\x7e]+$" },
                "additionalProperties": { "type": ["string", "number"], "pattern": r"\S" },
            },
            { "enum": [check::SHARED] },
        ] }),
        Kind::Owners => json!({
            "type": "object",
            "propertyNames": { "pattern": r"^[^*]*\*?$", "minLength": 1, "maxLength": 256 },
            "additionalProperties": object_of(OWNER, &[]),
        }),
        Kind::Aliases => json!({
            "type": "object",
            "additionalProperties": { "type": ["string", "number"], "pattern": r"\S" },
        }),
        Kind::Thresholds(bounds) => json!({
            "type": "object",
            "additionalProperties": { "anyOf": [number(&bounds), { "$ref": "#/$defs/variable" }] },
        }),
        Kind::Rules => list(json!({ "$ref": "#/$defs/rule" })),
        Kind::Conditions => json!({
            "type": "array",
            "minItems": 1,
            "items": { "$ref": "#/$defs/condition" },
        }),
        Kind::Prefixes => list(json!({ "type": "string", "pattern": "^/" })),
        Kind::SessionSources => {
            let presets: Vec<_> = Preset::WORDS.iter().map(|(word, _)| *word).collect();
            json!({ "anyOf": [list(json!({ "type": "string" })), { "enum": presets }] })
        }
        Kind::Section(keys) => object(keys()).into(),
        _ => list(json!({ "type": "string" })),
    }
}

/// The built-in default, if it is a value and not a remark.
fn default(meta: &Meta) -> Option<Value> {
    if !meta.has_literal_default() {
        return None;
    }
    yaml::parse(meta.default).ok().map(|node| value(&node))
}

fn value(node: &tree::Node) -> Value {
    match &node.value {
        tree::Value::Seq(items) => items.iter().map(value).collect(),
        tree::Value::Map(pairs) => pairs
            .iter()
            .map(|(key, node)| (key.text.clone(), value(node)))
            .collect(),
        tree::Value::Scalar(scalar) if scalar.style == tree::Style::Quoted => json!(scalar.text),
        tree::Value::Scalar(scalar) if scalar.is_null() => Value::Null,
        // Anything that parses as JSON is a value. `.5` is one too, although only YAML reads it as
        // a number.
        tree::Value::Scalar(scalar) => serde_json::from_str(&scalar.text)
            .or_else(|_| scalar.text.parse::<f64>().map(Value::from))
            .unwrap_or_else(|_| json!(scalar.text)),
    }
}

#[cfg(test)]
mod tests;
