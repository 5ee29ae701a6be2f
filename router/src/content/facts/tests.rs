//! Rules against bodies: the vectors of the specification, then random ones against a naive model.

mod model;

use router_core::rules::{Condition, Literal, Order, Pattern, RuleSpec, Test};

use super::*;
use crate::content::{Fields, Inspection};

fn leaf(field: &str, test: Test) -> Condition<Field> {
    Condition::Leaf(Field::parse(field).unwrap(), test)
}

fn rules(when: Condition<Field>) -> Rules {
    Rules::new([RuleSpec {
        name: "rule1".into(),
        status: None,
        message: None,
        when,
    }])
}

/// Whether the rule refuses the body; `None` when the rules are skipped.
fn judge(when: &Condition<Field>, body: impl AsRef<[u8]>) -> Option<bool> {
    let rules = rules(when.clone());
    let wanted = Wanted::new(&rules);
    let body = body.as_ref();
    let facts = wanted.read(body)?;
    let fields = Fields::new(["metadata"]);
    let inspection = Inspection::read_for(&fields, Some(&wanted), body);
    if inspection.is_object() {
        assert_eq!(inspection.facts(), Some(&*facts));
    }
    Some(rules.first_match(&facts).is_some())
}

/// Each body with the expected verdict.
fn table(when: &Condition<Field>, cases: &[(&str, bool)]) {
    for (body, refused) in cases {
        assert_eq!(judge(when, body), Some(*refused), "{when} over {body}");
    }
}

fn text(text: &str) -> Literal {
    Literal::Text(text.into())
}

fn is(number: f64) -> Test {
    Test::Equals(Literal::Number(number))
}

fn above(number: f64) -> Test {
    Test::Number(Order::Gt, number)
}

#[test]
fn only_a_number_compares() {
    table(
        &leaf("max_tokens", Test::Number(Order::Lt, 10.0)),
        &[
            (r#"{"max_tokens":5}"#, true),
            (r#"{"max_tokens":"5"}"#, false),
            (r"{}", false),
            (r#"{"max_tokens":null}"#, false),
        ],
    );
}

#[test]
fn ne_holds_for_what_is_missing_and_for_null() {
    table(
        &leaf("tier", Test::Differs(text("gold"))),
        &[
            (r"{}", true),
            (r#"{"tier":null}"#, true),
            (r#"{"tier":"gold"}"#, false),
            (r#"{"tier":"Gold"}"#, true),
        ],
    );
}

#[test]
fn nin_holds_for_what_is_missing_and_in_does_not() {
    let list = || vec![text("a"), text("b")];
    table(&leaf("x", Test::NotIn(list())), &[("{}", true)]);
    table(&leaf("x", Test::In(list())), &[("{}", false)]);
}

#[test]
fn all_takes_every_one() {
    let both = Condition::All(vec![
        leaf("model", Test::Equals(text("danger"))),
        leaf("temperature", above(1.5)),
    ]);
    table(
        &both,
        &[
            (r#"{"model":"danger","temperature":2.0}"#, true),
            (r#"{"model":"danger","temperature":0.5}"#, false),
        ],
    );
}

#[test]
fn characters_are_code_points_of_texts() {
    table(
        &leaf("input_chars", above(3.0)),
        &[
            (r#"{"messages":[{"content":"你好世"}]}"#, false),
            (r#"{"messages":[{"content":"你好世界"}]}"#, true),
            (
                r#"{"messages":[{"content":[{"text":"ab"},{"type":"image"},"cd"]}]}"#,
                true,
            ),
        ],
    );
}

/// The specification says that list elements cannot be addressed; this implementation allows it.
#[test]
fn a_path_goes_into_lists() {
    let body = r#"{"messages":[{"role":"system"},{"role":"user"}]}"#;
    table(&leaf("messages.0.role", Test::Exists), &[(body, true)]);
    table(
        &leaf("messages.0.role", Test::Equals(text("system"))),
        &[(body, true)],
    );
    table(
        &leaf("messages.-1.role", Test::Equals(text("user"))),
        &[(body, true)],
    );
    table(
        &leaf("messages.-2.role", Test::Equals(text("system"))),
        &[(body, true)],
    );
    for beyond in [
        "messages.2.role",
        "messages.-3.role",
        "messages.x.role",
        "messages.role",
    ] {
        table(&leaf(beyond, Test::Exists), &[(body, false)]);
    }
    table(
        &leaf("messages.0", Test::Exists),
        &[(r#"{"messages":{"0":1}}"#, true)],
    );
}

#[test]
fn an_empty_list_is_json_and_an_empty_body_is_not() {
    let absent = leaf("x", Test::Absent);
    assert_eq!(judge(&absent, "[]"), Some(true));
    assert_eq!(judge(&absent, ""), None);
}

#[test]
fn what_is_not_a_json_object_or_array_is_left_alone() {
    let absent = leaf("x", Test::Absent);
    let bodies: [&[u8]; 9] = [
        b" ",
        b"null",
        b"5",
        b"\"x\"",
        b"{",
        b"{} x",
        b"[1,]",
        b"--boundary\r\n",
        b"{\"y\":\"\xff\"}",
    ];
    for body in bodies {
        assert_eq!(judge(&absent, body), None, "{body:?}");
    }
    assert_eq!(judge(&absent, " \r\n\t{ } "), Some(true));
    assert_eq!(judge(&absent, "\u{feff}{}"), Some(true));
}

#[test]
fn counts_are_those_of_lists_and_else_zero() {
    let body = r#"{"messages":[1,{},[2,3]],"tools":[[]]}"#;
    table(&leaf("messages_count", is(3.0)), &[(body, true)]);
    table(&leaf("tools_count", is(1.0)), &[(body, true)]);
    table(&leaf("input_bytes", is(body.len() as f64)), &[(body, true)]);
    for field in ["messages_count", "tools_count", "input_chars"] {
        table(
            &leaf(field, is(0.0)),
            &[
                ("{}", true),
                ("[1]", true),
                (r#"{"messages":{"a":1},"tools":"xy"}"#, true),
                (
                    r#"{"messages_count":7,"tools_count":7,"input_chars":7}"#,
                    true,
                ),
            ],
        );
    }
}

#[test]
fn characters_are_counted_as_they_are_meant_and_not_as_they_are_written() {
    for (content, chars) in [
        (r#""a\n\t\"\\\/""#, 6.0),
        (r#""\u00e9é""#, 2.0),
        (r#""\ud834\udd1e𝄞""#, 2.0),
        (r#""\ud834x\udd1e\ud834""#, 4.0),
        (r#""\\u0041""#, 6.0),
        (
            r#"[{"text":5,"content":"ab"},{"text":"c","content":"def"}]"#,
            3.0,
        ),
        (r#"[["ab"],{"text":{"text":"x"}},5,null,"\u0041"]"#, 1.0),
        (r#"{"text":"ab"}"#, 0.0),
        ("null", 0.0),
    ] {
        let body = format!(r#"{{"messages":["no",{{"content":"old","content":{content}}}]}}"#);
        table(&leaf("input_chars", is(chars)), &[(&body, true)]);
    }
}

#[test]
fn the_last_duplicate_counts_and_a_shared_way_is_gone_once() {
    table(
        &leaf("a.b", is(2.0)),
        &[
            (r#"{"a":{"b":1},"a":{"b":1,"b":2}}"#, true),
            (r#"{"a":{"b":2},"a":{}}"#, false),
        ],
    );
    let both = Condition::All(vec![
        leaf("a", Test::Exists),
        leaf("a.b", is(1.0)),
        leaf("a.c.0", is(2.0)),
        leaf("a.c.-1", is(2.0)),
    ]);
    table(&both, &[(r#"{"a":{"c":[2],"b":1}}"#, true)]);
}

#[test]
fn keys_and_texts_are_decoded() {
    let found = leaf(
        "user.na\"me",
        Test::Matches(Pattern::regex("^é\n$").unwrap()),
    );
    table(&found, &[(r#"{"us\u0065r":{"na\"me":"\u00e9\n"}}"#, true)]);
    let lone = leaf("x", Test::Prefix("ab".into()));
    table(&lone, &[(r#"{"\ud800":1,"x":"ab\ud800"}"#, true)]);
}

#[test]
fn depth_and_length_cost_nothing() {
    let deep = format!("{}{}", "[".repeat(200_000), "]".repeat(200_000));
    let body = format!(r#"{{"x":{deep},"messages":[{deep},{{"content":"ab"}}]}}"#);
    let counted = Condition::All(vec![
        leaf("x", Test::Exists),
        leaf("x.0.0", Test::Exists),
        leaf("input_chars", is(2.0)),
    ]);
    table(&counted, &[(&body, true)]);
}
