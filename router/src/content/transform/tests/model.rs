//! Random bodies with unusual spellings, against a model that edits the tree.

use std::collections::HashMap;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Map, Value, json};

use super::*;

const HEADER: &str = "x-anthropic-billing-header: cc_version=1; cc_entrypoint=cli; cch=abc;";

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(HEADER.to_owned()),
        Just(format!("{HEADER} You are")),
        Just(format!("a {HEADER}")),
        Just(HEADER.replace("cch", "cc")),
        Just("\"stream\":true,\\".to_owned()),
        Just("{\"id\":\"c1\",\"content\":\"x\"}[".to_owned()),
        "[ -~]{0,12}",
        "\\PC{0,6}",
    ]
}

fn id() -> impl Strategy<Value = Value> {
    let ids = [
        "c1",
        "c2",
        "functions.read:0",
        "functions.read:7",
        "functions.bash:1",
        " ",
        "",
    ];
    prop_oneof![
        8 => select(ids.to_vec()).prop_map(Value::from),
        1 => Just(json!(7)),
        1 => Just(Value::Null),
    ]
}

fn name() -> impl Strategy<Value = Value> {
    let names = [
        json!("read"),
        json!("bash"),
        json!("re ad"),
        json!(""),
        json!(7),
    ];
    select(names.to_vec())
}

/// Any JSON, including keys that the transforms look for.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        text().prop_map(Value::from),
        id(),
    ];
    leaf.prop_recursive(4, 32, 5, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..5).prop_map(Value::from),
            object(vec((key(), inner), 0..5)),
        ]
    })
}

fn object(members: impl Strategy<Value = Vec<(String, Value)>>) -> impl Strategy<Value = Value> {
    members.prop_map(|members| Value::Object(members.into_iter().collect()))
}

fn key() -> impl Strategy<Value = String> {
    let keys = [
        "stream",
        "stream_options",
        "include_usage",
        "model",
        "messages",
        "system",
        "input",
        "role",
        "content",
        "text",
        "tool_calls",
        "tool_call_id",
        "id",
        "function",
        "name",
        "arguments",
    ];
    prop_oneof![6 => select(keys.to_vec()).prop_map(str::to_owned), 1 => text()]
}

fn content() -> impl Strategy<Value = Value> {
    let block = prop_oneof![
        4 => text().prop_map(|text| json!({"type": "text", "text": text})),
        1 => any_json(),
    ];
    prop_oneof![
        2 => text().prop_map(Value::from),
        2 => vec(block, 0..4).prop_map(Value::from),
        1 => any_json(),
    ]
}

fn call() -> impl Strategy<Value = Value> {
    let arguments = select(vec![
        json!("{}"),
        json!("{\"a\":1}"),
        json!(null),
        json!({"a": 1}),
    ]);
    prop_oneof![
        6 => (id(), name(), arguments).prop_map(|(id, name, arguments)| {
            json!({"id": id, "function": {"name": name, "arguments": arguments}})
        }),
        1 => any_json(),
    ]
}

fn message() -> impl Strategy<Value = Value> {
    let member = prop_oneof![
        3 => select(vec!["user", "system", "assistant"]).prop_map(|role| ("role".to_owned(), json!(role))),
        3 => content().prop_map(|content| ("content".to_owned(), content)),
        2 => vec(call(), 0..4).prop_map(|calls| ("tool_calls".to_owned(), json!(calls))),
        2 => id().prop_map(|id| ("tool_call_id".to_owned(), id)),
        1 => (key(), any_json()),
    ];
    prop_oneof![9 => object(vec(member, 0..5)), 1 => any_json()]
}

/// A request body that is likely to contain the interesting members.
fn body() -> impl Strategy<Value = Value> {
    let models = ["kimi-k2.5", "moonshotai/kimi-k2.6", "other"];
    let messages = || vec(message(), 0..6).prop_map(Value::from);
    let member = prop_oneof![
        2 => (key(), any_json()),
        2 => Just(("stream".to_owned(), Value::Bool(true))),
        1 => any_json().prop_map(|v| ("stream_options".to_owned(), json!({"include_usage": v}))),
        3 => select(models.to_vec()).prop_map(|model| ("model".to_owned(), json!(model))),
        4 => messages().prop_map(|list| ("messages".to_owned(), list)),
        1 => messages().prop_map(|list| ("input".to_owned(), list)),
        2 => content().prop_map(|content| ("system".to_owned(), content)),
    ];
    object(vec(member, 0..8))
}

fn wanted() -> impl Strategy<Value = Wanted> {
    let ids = [
        IdStrategy::Rerank,
        IdStrategy::Hash,
        IdStrategy::RerankMaxlast,
        IdStrategy::Keepinc,
    ];
    let ids = prop::option::weighted(0.8, select(ids.to_vec()));
    let hoist = select(vec![
        SystemHoist::All,
        SystemHoist::Leading,
        SystemHoist::Off,
    ]);
    (any::<bool>(), any::<bool>(), ids, hoist).prop_map(|(usage, cch, ids, hoist)| Wanted {
        include_usage: usage,
        cch_strip: cch,
        kimi_normalize: ids,
        system_hoist: hoist,
    })
}

/// Writes a value with unusual white space, escapes and numbers, as the bits say.
struct Spelling<'a> {
    bits: &'a [u8],
    at: usize,
    out: String,
}

impl Spelling<'_> {
    fn bit(&mut self) -> u8 {
        self.at += 1;
        self.bits[self.at % self.bits.len()]
    }

    fn blank(&mut self) {
        let blanks = ["", "", "", " ", "\n\t", "\r\n  "];
        let bit = usize::from(self.bit());
        self.out.push_str(blanks[bit % blanks.len()]);
    }

    fn value(&mut self, value: &Value) {
        self.blank();
        match value {
            Value::Array(items) => {
                self.out.push('[');
                for (at, item) in items.iter().enumerate() {
                    if at > 0 {
                        self.out.push(',');
                    }
                    self.value(item);
                }
                self.blank();
                self.out.push(']');
            }
            Value::Object(members) => {
                self.out.push('{');
                for (at, (key, value)) in members.iter().enumerate() {
                    if at > 0 {
                        self.out.push(',');
                    }
                    self.blank();
                    self.text(key);
                    self.blank();
                    self.out.push(':');
                    self.value(value);
                }
                self.blank();
                self.out.push('}');
            }
            Value::String(text) => self.text(text),
            Value::Number(number) if number.is_i64() => {
                let suffix = ["", ".0", "e0", ".000E+0"][usize::from(self.bit()) % 4];
                self.out.push_str(&format!("{number}{suffix}"));
            }
            plain => self.out.push_str(&plain.to_string()),
        }
        self.blank();
    }

    fn text(&mut self, text: &str) {
        // A header is recognised only as written.
        if text.contains("x-anthropic") {
            self.out.push_str(&json!(text).to_string());
            return;
        }
        self.out.push('"');
        for c in text.chars() {
            if self.bit().is_multiple_of(16) || c < ' ' || c == '"' || c == '\\' {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    self.out.push_str(&format!("\\u{unit:04X}"));
                }
            } else {
                self.out.push(c);
            }
        }
        self.out.push('"');
    }
}

fn spelled(value: &Value, bits: &[u8]) -> String {
    let mut spelling = Spelling {
        bits,
        at: 0,
        out: String::new(),
    };
    spelling.value(value);
    spelling.out
}

/// A model of the transforms that edits a tree.
fn model(mut body: Value, wanted: Wanted) -> Value {
    if wanted.cch_strip {
        strip(&mut body["system"]);
        for list in ["messages", "input"] {
            for message in body[list].as_array_mut().into_iter().flatten() {
                if let Some(content) = message.get_mut("content") {
                    strip(content);
                }
            }
        }
    }
    if let Some(strategy) = wanted.kimi_normalize {
        rename(&mut body, strategy);
    }
    if wanted.include_usage {
        ask(&mut body);
    }
    hoist(&mut body, wanted.system_hoist);
    body
}

fn strip(content: &mut Value) {
    let cut = |text: &mut Value| {
        let rest = text.as_str().and_then(|text| text.strip_prefix(HEADER));
        if let Some(rest) = rest {
            *text = json!(rest);
        }
    };
    cut(content);
    for block in content.as_array_mut().into_iter().flatten() {
        if let Some(text) = block.get_mut("text") {
            cut(text);
        }
    }
}

fn rename(body: &mut Value, strategy: IdStrategy) {
    let models = ["kimi-k2.5", "moonshotai/kimi-k2.6"];
    if !body["model"]
        .as_str()
        .is_some_and(|model| models.contains(&model))
    {
        return;
    }
    let is_name = |name: &&str| matches!(*name, "read" | "bash");
    // Position, id, name, arguments.
    let mut candidates: Vec<(usize, String, String, Vec<u8>)> = Vec::new();
    let mut position = 0;
    for message in body["messages"].as_array().into_iter().flatten() {
        let calls = message.get("tool_calls").and_then(Value::as_array);
        for call in calls.into_iter().flatten().filter(|call| call.is_object()) {
            let id = call["id"].as_str().filter(|id| !id.trim().is_empty());
            let name = call["function"]["name"].as_str().filter(is_name);
            if let Some((id, name)) = id.zip(name) {
                let arguments = match &call["function"]["arguments"] {
                    Value::String(text) => text.clone(),
                    Value::Null if call["function"].get("arguments").is_none() => String::new(),
                    // As it was spelled, which only the body shows.
                    _ => "?".to_owned(),
                };
                candidates.push((position, id.into(), name.into(), arguments.into()));
            }
            position += 1;
        }
    }
    let conforming = |id: &str, name: &str| -> Option<usize> {
        let digits = id.strip_prefix(&format!("functions.{name}:"))?;
        digits.parse().ok()
    };
    let count = candidates.len();
    let greatest = candidates
        .iter()
        .filter_map(|(_, id, name, _)| conforming(id, name))
        .max();
    let mut next = 0;
    let mut numbers = candidates
        .iter()
        .enumerate()
        .map(|(at, (position, id, name, arguments))| match strategy {
            IdStrategy::Rerank => *position,
            IdStrategy::Hash => {
                let call = [name.as_bytes(), &[1], arguments].concat();
                1_000_000 + crc32fast::hash(&call) as usize % 1_000_000
            }
            IdStrategy::RerankMaxlast if at + 1 == count => greatest.unwrap_or(0).max(at),
            IdStrategy::RerankMaxlast => at,
            IdStrategy::Keepinc => {
                let kept = conforming(id, name).filter(|number| *number >= next);
                next = kept.unwrap_or(next) + 1;
                next - 1
            }
        });
    let mut known: HashMap<String, (String, String)> = HashMap::new();
    for message in body["messages"].as_array_mut().into_iter().flatten() {
        let calls = message.get_mut("tool_calls").and_then(Value::as_array_mut);
        for call in calls.into_iter().flatten().filter(|call| call.is_object()) {
            let id = call["id"].as_str().filter(|id| !id.trim().is_empty());
            let name = call["function"]["name"].as_str().filter(is_name);
            let Some((id, name)) = id.zip(name) else {
                continue;
            };
            let new = format!("functions.{name}:{}", numbers.next().unwrap());
            let entry = known.entry(id.to_owned()).or_default();
            if entry.0 != name {
                *entry = (name.to_owned(), new);
            }
            let new = entry.1.clone();
            call["id"] = json!(new);
        }
        if let Some(id) = message.get_mut("tool_call_id")
            && let Some((_, new)) = id.as_str().and_then(|id| known.get(id))
        {
            *id = json!(new);
        }
    }
}

fn ask(body: &mut Value) {
    let top = body.as_object_mut().unwrap();
    if top.get("stream") != Some(&Value::Bool(true)) {
        return;
    }
    let options = top.entry("stream_options").or_insert(Value::Null);
    if options.is_null() {
        *options = Value::Object(Map::new());
    }
    if let Some(options) = options.as_object_mut() {
        let flag = options.entry("include_usage").or_insert(Value::Null);
        if !flag.is_object() && !flag.is_array() {
            *flag = Value::Bool(true);
        }
    }
}

fn hoist(body: &mut Value, which: SystemHoist) {
    let is_system = |message: &Value| message["role"] == "system";
    let block = |text: &str| json!({"type": "text", "text": text});
    let list = body["messages"].as_array().cloned().unwrap_or_default();
    let leading = list.iter().take_while(|message| is_system(message));
    let moved = match which {
        SystemHoist::All => list.len(),
        SystemHoist::Leading => leading.count(),
        SystemHoist::Off => 0,
    };
    let mut blocks = Vec::new();
    for message in list[..moved].iter().filter(|message| is_system(message)) {
        match &message["content"] {
            Value::String(text) => blocks.push(block(text)),
            Value::Array(items) => blocks.extend(items.iter().map(|item| match item {
                Value::String(text) => block(text),
                item => item.clone(),
            })),
            _ => {}
        }
    }
    if !blocks.is_empty() {
        let mut system = match body.get("system") {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::String(text)) => vec![block(text)],
            Some(Value::Array(items)) => items.clone(),
            Some(_) => return,
        };
        system.append(&mut blocks);
        body["system"] = json!(system);
    }
    if let Some(list) = body["messages"].as_array_mut() {
        let mut at = 0;
        list.retain(|message| {
            at += 1;
            at > moved || !is_system(message)
        });
    }
}

/// Removes members that the model's indexing added.
fn without_nothing(mut body: Value, before: &Value) -> Value {
    if let Some(top) = body.as_object_mut() {
        top.retain(|key, value| !value.is_null() || before.get(key).is_some());
    }
    body
}

/// The tokens of a text, white space included.
fn tokens(text: &str) -> Vec<&str> {
    let bytes = text.as_bytes();
    let mut tokens = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let run = |of: &dyn Fn(u8) -> bool| bytes[at..].iter().take_while(|b| of(**b)).count();
        let length = match bytes[at] {
            b'"' => {
                let mut end = at + 1;
                while bytes[end] != b'"' {
                    end += if bytes[end] == b'\\' { 2 } else { 1 };
                }
                end + 1 - at
            }
            b if b.is_ascii_whitespace() => run(&|b| b.is_ascii_whitespace()),
            b'{' | b'}' | b'[' | b']' | b',' | b':' => 1,
            _ => run(&|b| !b.is_ascii_whitespace() && !b",]}".contains(&b)),
        };
        tokens.push(&text[at..at + length]);
        at += length;
    }
    tokens
}

/// Whether every token of `before` is in `after`, in its place and unchanged, except for what the
/// transforms change in place: texts behind headers, ids, and usage options.
fn kept(before: &str, after: &str) -> bool {
    let (before, after) = (tokens(before), tokens(after));
    let asked = tokens(r#","stream_options":{"include_usage":true}"#);
    let flag = &asked[4..7];
    let mut out = &after[..];
    for token in before {
        let Some(&first) = out.first() else {
            return false;
        };
        // An insertion before a token that stays.
        for inserted in [&asked[..], flag] {
            if first != token && out.starts_with(inserted) {
                out = &out[inserted.len()..];
                if inserted.len() == flag.len() && out.first() == Some(&",") {
                    out = &out[1..];
                }
            }
        }
        let Some(&now) = out.first() else {
            return false;
        };
        let in_place = token == now
            || (token.starts_with("\"x-anthropic") && token.ends_with(&now[1..]))
            || (token.starts_with('"') && now.starts_with("\"functions."))
            || (now == "true" && !"{[,]}:".contains(token));
        if in_place {
            out = &out[1..];
        } else if token == "null" && out.starts_with(&asked[3..]) {
            out = &out[asked.len() - 3..];
        } else {
            return false;
        }
    }
    out.is_empty()
}

/// Whether every number of `after` is spelled as one of `before` was.
fn numbers_kept(before: &str, after: &str) -> bool {
    let is_number = |token: &&str| token.starts_with(|c: char| c == '-' || c.is_ascii_digit());
    let mut spelled: Vec<_> = tokens(before).into_iter().filter(is_number).collect();
    tokens(after).into_iter().filter(is_number).all(|number| {
        let at = spelled.iter().position(|known| *known == number);
        at.map(|at| spelled.swap_remove(at)).is_some()
    })
}

/// Whether some call's arguments are not a string: their hash depends on the spelling.
fn has_odd_arguments(body: &Value) -> bool {
    let messages = body["messages"].as_array().into_iter().flatten();
    let calls = messages.filter_map(|message| message.get("tool_calls")?.as_array());
    calls.flatten().any(|call| {
        let arguments = call
            .get("function")
            .and_then(|function| function.get("arguments"));
        arguments.is_some_and(|arguments| !arguments.is_string())
    })
}

proptest! {
    #[test]
    fn the_edited_body_means_what_the_tree_would_and_keeps_every_other_byte(
        value in body(),
        wanted in wanted(),
        bits in vec(any::<u8>(), 1..40),
    ) {
        let text = spelled(&value, &bits);
        // Numbers are compared by their parsed values.
        let value: Value = serde_json::from_str(&text).unwrap();
        let by_hash = wanted.kimi_normalize == Some(IdStrategy::Hash);
        prop_assume!(!(by_hash && has_odd_arguments(&value)));
        let out = sent(&text, wanted);
        let read: Value = serde_json::from_str(&out).unwrap();
        prop_assert_eq!(&read, &without_nothing(model(value.clone(), wanted), &value));
        prop_assert!(numbers_kept(&text, &out), "{}\n{}", text, out);
        let in_place = sent(&text, Wanted { system_hoist: SystemHoist::Off, ..wanted });
        prop_assert!(kept(&text, &in_place), "{}\n{}", text, in_place);
    }

    #[test]
    fn no_body_breaks_the_scanner(
        body in r#"(\{|\}|\[|\]|:|,|"|\\|"stream"|"messages"|"role"|"system"|"tool_calls"|true| |x){0,32}"#,
    ) {
        transform(body.as_bytes(), EVERYTHING);
    }

    #[test]
    fn a_body_cut_anywhere_changes_nothing(
        value in body(),
        wanted in wanted(),
        at in any::<prop::sample::Index>(),
    ) {
        let text = value.to_string();
        let cut = &text.as_bytes()[..at.index(text.len())];
        prop_assert_eq!(transform(cut, wanted).body, None);
    }
}
