use super::*;

fn leaf(field: &str, test: Test) -> Condition<Field> {
    Condition::Leaf(Field::parse(field).unwrap(), test)
}

fn text(text: &str) -> Literal {
    Literal::Text(text.into())
}

fn rules(conditions: impl IntoIterator<Item = Condition<Field>>) -> Rules {
    Rules::new(
        conditions
            .into_iter()
            .enumerate()
            .map(|(i, when)| RuleSpec {
                name: format!("rule{}", i + 1).into(),
                status: None,
                message: None,
                when,
            }),
    )
}

#[test]
fn a_field_that_two_rules_read_is_looked_up_once() {
    let rules = rules([
        leaf("model", Test::Exists),
        Condition::Any(vec![
            leaf("input_chars", Test::Number(Order::Gt, 5.0)),
            leaf("model", Test::Equals(text("m"))),
        ]),
    ]);
    let names: Vec<String> = rules.fields().iter().map(Field::to_string).collect();
    assert_eq!(names, ["model", "input_chars"]);
}

#[test]
fn the_first_rule_that_holds_refuses() {
    let rules = rules([
        leaf("a", Test::Equals(Literal::Number(2.0))),
        leaf("a", Test::Exists),
        leaf("a", Test::Equals(Literal::Number(1.0))),
    ]);
    let matched = |fact| rules.first_match(&[fact]).map(|(i, rule)| (i, &*rule.name));
    assert_eq!(matched(Fact::Number(2.0)), Some((0, "rule1")));
    assert_eq!(matched(Fact::Number(1.0)), Some((1, "rule2")));
    assert_eq!(matched(Fact::Missing), None);
}

#[test]
fn a_condition_is_shown_as_it_is_read() {
    let nested = Condition::All(vec![
        leaf("tools_count", Test::Number(Order::Gt, 64.0)),
        Condition::Any(vec![
            leaf("model", Test::Equals(text("m1"))),
            leaf("model", Test::In(vec![text("m2"), text("m3")])),
        ]),
    ]);
    let matching = Test::Matches(Pattern::regex("^a.*b$").unwrap());
    let rules = rules([
        nested,
        leaf("a..b.", Test::Absent),
        leaf("a.-1", matching),
        leaf("x", Test::Number(Order::Le, 1.5)),
    ]);
    let shown: Vec<&str> = rules.iter().map(|rule| &*rule.condition).collect();
    assert_eq!(
        shown,
        [
            "ALL(tools_count gt 64 & ANY(model eq m1 | model in [m2,m3]))",
            "a.b absent",
            "a.-1 match ^a.*b$",
            "x le 1.5",
        ]
    );
}

#[test]
fn a_path_has_steps_and_only_a_plain_number_is_an_index() {
    let indexes = |text: &str| match Field::parse(text) {
        Some(Field::Path(steps)) => steps.iter().map(|step| step.index).collect(),
        _ => Vec::new(),
    };
    assert_eq!(indexes("m.0.-1.x"), [None, Some(0), Some(-1), None]);
    assert_eq!(indexes("00.+1.-0.1e2.٣"), [None; 5]);
    assert_eq!(indexes("99999999999999999999"), [None]);
    for none in ["", ".", "..."] {
        assert_eq!(Field::parse(none), None, "{none:?}");
    }
    assert!(Field::parse(&"a.".repeat(STEPS_MAX)).is_some());
    assert!(Field::parse(&"a.".repeat(STEPS_MAX + 1)).is_none());
}

#[test]
fn a_pattern_says_in_one_line_why_it_is_none() {
    let why = |text: &str| Pattern::regex(text).unwrap_err().to_string();
    assert_eq!(why("(a"), "unclosed group");
    assert!(why(r"(?=a)").contains("look-around"), "{}", why(r"(?=a)"));
    assert!(why(r"\w{1000}{100}").contains("once compiled"));
    assert!(why(&"a".repeat(TEXT_BYTES_MAX + 1)).contains("longer than"));
    for text in ["(a", r"\w{1000}{100}"] {
        assert!(!why(text).contains('\n'));
        assert!(
            Pattern::literal(text).is_ok(),
            "a literal may look like anything"
        );
    }
}

#[test]
fn text_tests_look_at_bytes_and_take_lone_surrogates() {
    let lone = Fact::Text(b"ab\xed\xa0\x80c".as_slice().into());
    let holds = |test: &Test| test.holds(&lone);
    assert!(holds(&Test::Contains(Pattern::literal("c").unwrap())));
    assert!(holds(&Test::Matches(Pattern::regex("^ab").unwrap())));
    assert!(holds(&Test::Prefix("".into())) && holds(&Test::Prefix("ab".into())));
    assert!(!holds(&Test::Contains(Pattern::literal("a.").unwrap())));
    assert!(!holds(&Test::Prefix("AB".into())));
}
