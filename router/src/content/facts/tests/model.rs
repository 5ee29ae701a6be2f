//! Random rules over random bodies, against a model that builds the tree and follows paths as
//! written.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Map, Value, json};

use super::*;

const KEYS: [&str; 8] = ["a", "b", "messages", "tools", "content", "text", "0", "-1"];

fn plain() -> impl Strategy<Value = Value> {
    let numbers = [json!(0), json!(1), json!(1.0), json!(-1), json!(1.5)];
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        select(numbers.to_vec()),
        select(vec!["", "x", "xy", "é\n𝄞", "5", "a\"\\"]).prop_map(Value::from),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    plain().prop_recursive(4, 48, 4, |inner| {
        let keyed = (select(&KEYS[..]), inner.clone());
        prop_oneof![
            vec(inner, 0..4).prop_map(Value::from),
            vec(keyed, 0..5).prop_map(object),
        ]
    })
}

fn object(pairs: Vec<(&str, Value)>) -> Value {
    let pairs = pairs
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value));
    Value::Object(pairs.collect::<Map<_, _>>())
}

fn body() -> impl Strategy<Value = Value> {
    let chat = (vec(value(), 0..4), value(), value());
    let chat = chat
        .prop_map(|(messages, tools, a)| json!({ "messages": messages, "tools": tools, "a": a }));
    prop_oneof![value(), chat]
}

/// Every character beyond ASCII as an escape: the same value in another spelling.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        if c.is_ascii() {
            out.push(c);
        } else {
            for unit in c.encode_utf16(&mut [0; 2]) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    out
}

fn field() -> impl Strategy<Value = String> {
    let computed = [
        "input_bytes",
        "input_chars",
        "messages_count",
        "tools_count",
    ];
    let steps = [&KEYS[..], &["1", "-2", ""]].concat();
    let path = vec(select(steps), 1..4).prop_map(|steps| steps.join("."));
    prop_oneof![select(computed.to_vec()).prop_map(str::to_owned), path]
        .prop_filter("a path has steps", |text| Field::parse(text).is_some())
}

fn literal() -> impl Strategy<Value = Literal> {
    prop_oneof![
        select(vec![0.0, 1.0, 1.5]).prop_map(Literal::Number),
        any::<bool>().prop_map(Literal::Bool),
        select(vec!["", "x", "xy", "5"]).prop_map(text),
    ]
}

fn test() -> impl Strategy<Value = Test> {
    let order = select(vec![Order::Gt, Order::Ge, Order::Lt, Order::Le]);
    let number = select(vec![0.0, 1.0, 2.0, 40.0]);
    let searched = || select(vec!["", "x", "y", "é\n"]);
    prop_oneof![
        (order, number).prop_map(|(order, number)| Test::Number(order, number)),
        literal().prop_map(Test::Equals),
        literal().prop_map(Test::Differs),
        vec(literal(), 0..3).prop_map(Test::In),
        vec(literal(), 0..3).prop_map(Test::NotIn),
        searched().prop_map(|t| Test::Matches(Pattern::regex(&format!("^{t}")).unwrap())),
        searched().prop_map(|t| Test::Contains(Pattern::literal(t).unwrap())),
        searched().prop_map(|t| Test::Prefix(t.into())),
        Just(Test::Exists),
        Just(Test::Absent),
    ]
}

/// A condition whose fields are text, which the model parses itself.
fn condition() -> impl Strategy<Value = Condition<String>> {
    let leaf = (field(), test()).prop_map(|(field, test)| Condition::Leaf(field, test));
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            vec(inner.clone(), 1..4).prop_map(Condition::All),
            vec(inner, 1..4).prop_map(Condition::Any),
        ]
    })
}

fn compiled(condition: &Condition<String>) -> Condition<Field> {
    let all = |list: &[Condition<String>]| list.iter().map(compiled).collect();
    match condition {
        Condition::All(list) => Condition::All(all(list)),
        Condition::Any(list) => Condition::Any(all(list)),
        Condition::Leaf(field, test) => leaf(field, test.clone()),
    }
}

fn holds(condition: &Condition<String>, body: &Value, bytes: usize) -> bool {
    match condition {
        Condition::All(list) => list.iter().all(|one| holds(one, body, bytes)),
        Condition::Any(list) => list.iter().any(|one| holds(one, body, bytes)),
        Condition::Leaf(field, test) => passes(test, looked_up(field, body, bytes).as_ref()),
    }
}

fn looked_up(field: &str, body: &Value, bytes: usize) -> Option<Value> {
    let count = |name: &str| {
        let list = body.get(name).and_then(Value::as_array);
        Some(json!(list.map_or(0, Vec::len)))
    };
    match field {
        "input_bytes" => Some(json!(bytes)),
        "messages_count" => count("messages"),
        "tools_count" => count("tools"),
        "input_chars" => Some(json!(chars(body))),
        path => {
            let mut steps = path.split('.').filter(|step| !step.is_empty());
            steps.try_fold(body, below).cloned()
        }
    }
}

fn below<'v>(value: &'v Value, step: &str) -> Option<&'v Value> {
    match value {
        Value::Object(map) => map.get(step),
        Value::Array(list) => {
            let index: i64 = step.parse().ok()?;
            let length = i64::try_from(list.len()).ok()?;
            let index = if index < 0 { length + index } else { index };
            list.get(usize::try_from(index).ok()?)
        }
        _ => None,
    }
}

fn chars(body: &Value) -> usize {
    let of = |text: &str| text.chars().count();
    let part = |part: &Value| {
        let member = |name: &str| part.get(name).and_then(Value::as_str);
        let text = part.as_str().or_else(|| member("text"));
        text.or_else(|| member("content")).map_or(0, of)
    };
    let messages = body.get("messages").and_then(Value::as_array);
    let each = |message: &Value| match message.get("content") {
        Some(Value::String(text)) => of(text),
        Some(Value::Array(parts)) => parts.iter().map(part).sum(),
        _ => 0,
    };
    messages.into_iter().flatten().map(each).sum()
}

fn passes(test: &Test, found: Option<&Value>) -> bool {
    let number = found.and_then(Value::as_f64);
    let text = found.and_then(Value::as_str);
    let equals = |literal: &Literal| match literal {
        Literal::Text(literal) => text == Some(literal),
        Literal::Number(literal) => number == Some(*literal),
        Literal::Bool(literal) => found.and_then(Value::as_bool) == Some(*literal),
    };
    // A pattern displays as it was written: `match ^x`, `contains x`.
    let shown = test.to_string();
    let written = shown.split_once(' ').map_or("", |(_, written)| written);
    match test {
        Test::Number(Order::Gt, bound) => number.is_some_and(|found| found > *bound),
        Test::Number(Order::Ge, bound) => number.is_some_and(|found| found >= *bound),
        Test::Number(Order::Lt, bound) => number.is_some_and(|found| found < *bound),
        Test::Number(Order::Le, bound) => number.is_some_and(|found| found <= *bound),
        Test::Equals(literal) => equals(literal),
        Test::Differs(literal) => !equals(literal),
        Test::In(list) => list.iter().any(equals),
        Test::NotIn(list) => !list.iter().any(equals),
        Test::Matches(_) => text.is_some_and(|text| text.starts_with(&written[1..])),
        Test::Contains(_) => text.is_some_and(|text| text.contains(written)),
        Test::Prefix(prefix) => text.is_some_and(|text| text.starts_with(&**prefix)),
        Test::Exists => found.is_some(),
        Test::Absent => found.is_none(),
    }
}

proptest! {
    #[test]
    fn rules_decide_as_the_model_does(body in body(), conditions in vec(condition(), 1..4)) {
        let rules = Rules::new(conditions.iter().map(|condition| RuleSpec {
            name: "r".into(),
            status: None,
            message: None,
            when: compiled(condition),
        }));
        let wanted = Wanted::new(&rules);
        for text in [body.to_string(), escaped(&body.to_string())] {
            let facts = wanted.read(text.as_bytes());
            prop_assert_eq!(facts.is_some(), body.is_object() || body.is_array());
            let Some(facts) = facts else { continue };
            let expected = conditions.iter().position(|one| holds(one, &body, text.len()));
            let found = rules.first_match(&facts).map(|(index, _)| index);
            prop_assert_eq!(found, expected, "{}", text);
        }
    }
}
