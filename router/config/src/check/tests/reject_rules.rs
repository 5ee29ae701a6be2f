//! Content rules: accepted rules, reports of bad rules, and the rest of a list with a bad rule.

use router_core::layered::Source;

use crate::testing::{lines, route};

/// A route file with these rules, one per line.
fn file(rules: &[&str]) -> String {
    let items: String = rules.iter().map(|rule| format!("- {rule}\n")).collect();
    format!("peers: []\nreject_rules:\n{items}")
}

/// `name: condition` of the rules in force.
fn kept(rules: &[&str]) -> Vec<String> {
    let rules = route(&file(rules)).0.options.reject_rules.value;
    let shown = rules
        .iter()
        .map(|rule| format!("{}: {}", rule.name, rule.condition));
    shown.collect()
}

/// The single problem of a rule.
fn only(rule: &str) -> String {
    let problems = route(&file(&[rule])).1;
    assert_eq!(problems.len(), 1, "{rule}: {:?}", lines(&problems));
    assert!(!problems[0].is_fatal(), "{rule}: {:?}", lines(&problems));
    lines(&problems).remove(0)
}

#[test]
fn the_whole_grammar_is_read() {
    let rules = [
        "{name: huge, status: 413, message: too much, field: input_bytes, op: gt, value: 2000000}",
        "{name: hot, all: [{field: tools_count, op: gt, value: 64}, {any: [{field: model, op: eq, value: m1}, {field: model, op: in, value: [m2, m3]}]}]}",
        "{field: temperature, op: le, value: -.5}",
        "{field: stream, op: ne, value: True}",
        "{field: n, op: nin, value: [1, \"1\", false]}",
        "{field: messages.-1.content, op: match, value: '^a\\d+(?i)b$'}",
        "{field: model, op: contains, value: 3.5}",
    ];
    let (parsed, problems) = route(&file(&rules[..6]));
    assert!(problems.is_empty(), "{:?}", lines(&problems));
    assert_eq!(
        kept(&rules[..6]),
        [
            "huge: input_bytes gt 2000000",
            "hot: ALL(tools_count gt 64 & ANY(model eq m1 | model in [m2,m3]))",
            "rule3: temperature le -0.5",
            "rule4: stream ne true",
            "rule5: n nin [1,1,false]",
            "rule6: messages.-1.content match ^a\\d+(?i)b$",
        ]
    );
    let options = parsed.options;
    let huge = options.reject_rules.value.iter().next().unwrap();
    assert_eq!(
        (huge.status, huge.message.as_deref()),
        (Some(413), Some("too much"))
    );
    assert_eq!(options.reject_rules.source, Source::Route);
    assert!(only(rules[6]).contains("expected a text, found the number `3.5`"));
}

#[test]
fn a_bad_rule_is_dropped_and_an_impossible_status_is_unset() {
    let rules = [
        "{name: first, field: x, op: like, value: 1}",
        "{field: x, op: exists}",
        "{name: third, status: 999, field: y, op: absent}",
    ];
    assert_eq!(kept(&rules), ["rule2: x exists", "third: y absent"]);
    let (parsed, problems) = route(&file(&rules));
    assert_eq!(
        lines(&problems),
        [
            "error reject_rules[0].op: expected `gt`, `ge`, `lt`, `le`, `eq`, `ne`, `in`, `nin`, `match`, `contains`, `prefix`, `exists` or `absent`, found the text `like`",
            "error reject_rules[2].status: expected a whole number from 400 to 599, found the number `999`",
        ]
    );
    assert!(problems.iter().all(|problem| !problem.is_fatal()));
    let options = parsed.options;
    assert_eq!(options.reject_rules.source, Source::DefaultInvalid);
    assert!(options.reject_rules_enabled.value);
    assert_eq!(options.reject_rules_status.value, 429);
    assert!(
        options
            .reject_rules
            .value
            .iter()
            .all(|rule| rule.status.is_none()),
        "999 is no status"
    );
}

#[test]
fn a_bad_rule_says_what_is_wrong_and_where() {
    for (rule, expected) in [
        (
            "5",
            "reject_rules[0]: expected a rule, found the number `5`",
        ),
        ("{name: x}", "reject_rules[0]: `field` is missing"),
        ("{field: a}", "reject_rules[0]: `op` is missing"),
        ("{field: a, op: eq}", "reject_rules[0]: `value` is missing"),
        (
            "{field: ..., op: exists}",
            "reject_rules[0].field: expected a path of 1 to 32 steps",
        ),
        (
            "{field: a, op: eq, value: ~}",
            "reject_rules[0].value: expected a text, a number or a boolean, found nothing",
        ),
        (
            "{field: a, op: eq, value: [1]}",
            "reject_rules[0].value: expected a text, a number or a boolean, found a list",
        ),
        (
            "{field: a, op: in, value: 1}",
            "reject_rules[0].value: expected a list of texts, numbers and booleans, found the number `1`",
        ),
        (
            "{field: a, op: in, value: [1, {}]}",
            "reject_rules[0].value[1]: expected a text",
        ),
        (
            "{field: a, op: gt, value: \"5\"}",
            "reject_rules[0].value: expected a number, found the text `5`",
        ),
        (
            "{field: a, op: gt, value: .inf}",
            "reject_rules[0].value: expected a number",
        ),
        (
            "{field: a, op: match, value: '(x'}",
            "reject_rules[0].value: `(x` is no regular expression: unclosed group",
        ),
        (
            "{field: a, op: exists, value: 1}",
            "reject_rules[0].value: `exists` takes no `value`",
        ),
        ("{all: []}", "reject_rules[0].all: the list is empty"),
        (
            "{all: [{field: a, op: exist}]}",
            "reject_rules[0].all[0].op: expected",
        ),
        (
            "{any: [{all: [{field: a, op: exists, status: 400}]}]}",
            "reject_rules[0].any[0].all[0]: unknown key `status`",
        ),
        (
            "{field: a, op: exists, mesage: x}",
            "reject_rules[0]: unknown key `mesage`; did you mean `message`?",
        ),
        (
            "{field: a, op: exists, all: [{field: b, op: exists}]}",
            "reject_rules[0]: a condition is one of `all`, `any` and `field`",
        ),
    ] {
        let line = only(rule);
        assert!(
            line.starts_with(&format!("error {expected}")),
            "{rule}: {line}"
        );
    }
}

#[test]
fn a_flaw_beside_the_condition_keeps_the_rule() {
    let rules = [
        "{field: a, op: exists, mesage: x}",
        "{name: \"\", field: b, op: exists}",
        "{field: c, op: exists, all: [{field: d, op: exists}]}",
        "{field: e, op: absent, value: 1}",
    ];
    assert_eq!(
        kept(&rules),
        [
            "rule1: a exists",
            "rule2: b exists",
            "rule3: ALL(d exists)",
            "rule4: e absent"
        ]
    );
}

#[test]
fn every_bad_condition_of_a_rule_is_reported() {
    let rule = "{all: [{field: a, op: gt, value: x}, {any: [{op: eq}, 7]}]}";
    let problems = route(&file(&[rule])).1;
    assert_eq!(problems.len(), 3, "{:?}", lines(&problems));
    assert_eq!(kept(&[rule]), [""; 0]);
}

#[test]
fn conditions_nest_as_deep_as_people_read() {
    let nested = |depth: usize| {
        let inner = "{field: a, op: exists}".to_owned();
        (1..depth).fold(inner, |inner, _| format!("{{all: [{inner}]}}"))
    };
    assert_eq!(kept(&[&nested(16)]).len(), 1);
    assert!(only(&nested(17)).contains("conditions nest deeper than 16"));
}

#[test]
fn there_is_an_end_to_rules() {
    let many = vec!["{field: a, op: exists}"; 257];
    assert_eq!(kept(&many).len(), 256);
    let problems = route(&file(&many)).1;
    assert!(lines(&problems)[0].contains("more than 256 rules"));
}

#[test]
fn what_is_no_list_leaves_the_route_up_without_rules() {
    let (parsed, problems) = route("peers: []\nreject_rules: {field: a, op: exists}\n");
    assert_eq!(problems.len(), 1, "{:?}", lines(&problems));
    assert!(!problems[0].is_fatal());
    let options = parsed.options;
    assert_eq!(options.reject_rules.source, Source::DefaultInvalid);
    assert!(options.reject_rules.value.is_empty() && !options.reject_rules_enabled.value);
}

#[test]
fn rules_are_on_where_there_are_some_unless_told() {
    let enabled = |text: &str| route(text).0.options.reject_rules_enabled;
    let off = enabled("peers: []\n");
    assert_eq!((off.value, off.source), (false, Source::Default));
    let rule = file(&["{field: a, op: exists}"]);
    let on = enabled(&rule);
    assert_eq!((on.value, on.source), (true, Source::Default));
    let told = enabled(&format!("{rule}reject_rules_enabled: false\n"));
    assert_eq!((told.value, told.source), (false, Source::Route));
}

#[test]
fn variables_are_what_is_wanted_of_them() {
    let rules = [
        "{field: a, op: gt, value: \"${NUMBER}\"}",
        "{field: a, op: prefix, value: \"${NUMBER}\"}",
        "{field: a, op: match, value: \"x$\"}",
    ];
    assert_eq!(
        kept(&rules),
        ["rule1: a gt 7", "rule2: a prefix 7", "rule3: a match x$"]
    );
}
