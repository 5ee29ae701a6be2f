//! Finds defects of rules without a request: a rule that never holds, and a rule that an earlier
//! rule always pre-empts. Every answer is conservative: `false` means "not known".

use std::borrow::Cow;

use super::condition::{Condition, Literal, Order, Test};
use super::{Fact, Rules};

/// Maximum number of test comparisons per analysis of a route's rules. Nested lists compare each
/// element with each other; pairs beyond this number count as not known.
const COMPARISONS_MAX: usize = 1_000_000;

impl Rules {
    /// The indices of rules whose condition no request can satisfy.
    pub fn impossible(&self) -> Vec<usize> {
        let mut left = COMPARISONS_MAX;
        let rules = self.iter().enumerate();
        rules
            .filter(|(_, rule)| rule.when.is_impossible(&mut left))
            .map(|(index, _)| index)
            .collect()
    }

    /// The rules that are never reached, each with the earlier rule that holds whenever it does.
    pub fn shadowed(&self) -> Vec<(usize, usize)> {
        let mut left = COMPARISONS_MAX;
        let mut shadowed = Vec::new();
        for (index, rule) in self.iter().enumerate() {
            let earlier = self.iter().take(index);
            let by = earlier
                .enumerate()
                .find(|(_, earlier)| rule.when.implies(&earlier.when, &mut left));
            shadowed.extend(by.map(|(by, _)| (index, by)));
        }
        shadowed
    }
}

impl Condition<usize> {
    /// Whether the other condition certainly holds whenever this one does.
    fn implies(&self, other: &Self, left: &mut usize) -> bool {
        match (self, other) {
            (Self::Any(list), _) => list.iter().all(|one| one.implies(other, left)),
            (_, Self::All(list)) => list.iter().all(|one| self.implies(one, left)),
            (Self::All(list), _) if list.iter().any(|one| one.implies(other, left)) => true,
            (_, Self::Any(list)) => list.iter().any(|one| self.implies(one, left)),
            (Self::Leaf(field, test), Self::Leaf(other, weaker)) => {
                field == other && spend(left) && test.implies(weaker)
            }
            (Self::All(_), Self::Leaf(..)) => false,
        }
    }

    /// Whether no request can satisfy the condition.
    fn is_impossible(&self, left: &mut usize) -> bool {
        match self {
            Self::Any(list) => list.iter().all(|one| one.is_impossible(left)),
            Self::Leaf(_, Test::In(list)) => list.is_empty(),
            Self::Leaf(..) => false,
            Self::All(list) => {
                let mut leaves = Vec::new();
                self.collect(&mut leaves);
                let clash = leaves.iter().enumerate().any(|(index, (field, test))| {
                    let before = leaves[..index].iter();
                    before
                        .filter(|(other, _)| other == field)
                        .any(|(_, other)| spend(left) && test.excludes(other))
                });
                clash || list.iter().any(|one| one.is_impossible(left))
            }
        }
    }

    /// The tests that must all pass.
    fn collect<'c>(&'c self, leaves: &mut Vec<(usize, &'c Test)>) {
        match self {
            Self::All(list) => list.iter().for_each(|one| one.collect(leaves)),
            Self::Leaf(field, test) => leaves.push((*field, test)),
            Self::Any(_) => {}
        }
    }
}

fn spend(left: &mut usize) -> bool {
    let may = *left > 0;
    *left = left.saturating_sub(1);
    may
}

impl Test {
    /// Whether a value that passes this test certainly passes the other.
    fn implies(&self, weaker: &Self) -> bool {
        if let Some(values) = self.values() {
            return values.iter().all(|value| weaker.holds(&fact(value)));
        }
        match (self, weaker) {
            // `Differs` passes exactly the values that the other test of the pair rejects.
            (_, Self::Differs(value)) => !self.holds(&fact(value)),
            (_, Self::NotIn(values)) => values.iter().all(|value| !self.holds(&fact(value))),
            (_, Self::Exists) => !self.holds(&Fact::Missing),
            (Self::Absent, _) => weaker.holds(&Fact::Missing),
            (Self::Number(order, number), Self::Number(weaker, bound)) => {
                order.is_within(*number, *weaker, *bound)
            }
            (Self::Prefix(text), Self::Prefix(_) | Self::Contains(_)) => {
                weaker.holds(&Fact::Text(Cow::Borrowed(text.as_bytes())))
            }
            (Self::Matches(one), Self::Matches(other))
            | (Self::Contains(one), Self::Contains(other)) => one == other,
            _ => false,
        }
    }

    /// Whether no value passes both tests.
    fn excludes(&self, other: &Self) -> bool {
        for (one, other) in [(self, other), (other, self)] {
            if let Some(values) = one.values() {
                return !values.iter().any(|value| other.holds(&fact(value)));
            }
            if *one == Self::Absent {
                return !other.holds(&Fact::Missing);
            }
        }
        match (self, other) {
            (Self::Number(one, number), Self::Number(other, bound)) => {
                one.is_apart(*number, *other, *bound)
            }
            (Self::Number(..), text) | (text, Self::Number(..)) => text.wants_text(),
            (Self::Prefix(one), Self::Prefix(other)) => {
                !one.starts_with(&**other) && !other.starts_with(&**one)
            }
            _ => false,
        }
    }

    /// The only values that pass, if there are few.
    fn values(&self) -> Option<&[Literal]> {
        match self {
            Self::Equals(value) => Some(std::slice::from_ref(value)),
            Self::In(values) => Some(values),
            _ => None,
        }
    }

    fn wants_text(&self) -> bool {
        matches!(self, Self::Matches(_) | Self::Contains(_) | Self::Prefix(_))
    }
}

fn fact(value: &Literal) -> Fact<'_> {
    match value {
        Literal::Text(text) => Fact::Text(Cow::Borrowed(text.as_bytes())),
        Literal::Number(number) => Fact::Number(*number),
        Literal::Bool(value) => Fact::Bool(*value),
    }
}

impl Order {
    fn is_upward(self) -> bool {
        matches!(self, Self::Gt | Self::Ge)
    }

    /// Whether every number on this side of `number` is also on the other side of `bound`.
    fn is_within(self, number: f64, other: Self, bound: f64) -> bool {
        let edge = matches!((self, other), (Self::Ge, Self::Gt) | (Self::Le, Self::Lt));
        match (self.is_upward(), other.is_upward()) {
            (true, true) => number > bound || number >= bound && !edge,
            (false, false) => number < bound || number <= bound && !edge,
            _ => false,
        }
    }

    /// Whether no number is on both sides.
    fn is_apart(self, number: f64, other: Self, bound: f64) -> bool {
        let both_closed = matches!((self, other), (Self::Ge, Self::Le) | (Self::Le, Self::Ge));
        match (self.is_upward(), other.is_upward()) {
            (true, false) => number > bound || number >= bound && !both_closed,
            (false, true) => number < bound || number <= bound && !both_closed,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Pattern;
    use super::*;

    fn text(text: &str) -> Literal {
        Literal::Text(text.into())
    }

    fn one(test: Test) -> Condition<usize> {
        Condition::Leaf(0, test)
    }

    fn implies(a: &Condition<usize>, b: &Condition<usize>) -> bool {
        a.implies(b, &mut COMPARISONS_MAX.clone())
    }

    fn impossible(condition: &Condition<usize>) -> bool {
        condition.is_impossible(&mut COMPARISONS_MAX.clone())
    }

    #[test]
    fn a_stricter_rule_behind_a_looser_one_is_shadowed() {
        let above = |n| one(Test::Number(Order::Gt, n));
        assert!(implies(&above(200.0), &above(100.0)));
        assert!(!implies(&above(100.0), &above(200.0)));
        let model = one(Test::Equals(text("m1")));
        let either = one(Test::In(vec![text("m1"), text("m2")]));
        assert!(implies(&model, &either) && !implies(&either, &model));
        let both = Condition::All(vec![above(5.0), Condition::Leaf(1, Test::Exists)]);
        assert!(implies(&both, &above(1.0)) && !implies(&above(9.0), &both));
        let any = Condition::Any(vec![model.clone(), above(7.0)]);
        assert!(implies(&model, &any) && implies(&above(8.0), &any));
        assert!(!implies(&any, &model));
    }

    #[test]
    fn what_contradicts_itself_never_holds() {
        let all = |tests: Vec<Test>| Condition::All(tests.into_iter().map(one).collect());
        let number = Test::Number;
        assert!(impossible(&all(vec![
            number(Order::Gt, 5.0),
            number(Order::Lt, 3.0)
        ])));
        assert!(!impossible(&all(vec![
            number(Order::Ge, 5.0),
            number(Order::Le, 5.0)
        ])));
        assert!(impossible(&all(vec![
            number(Order::Ge, 5.0),
            number(Order::Lt, 5.0)
        ])));
        assert!(impossible(&all(vec![
            Test::Equals(text("a")),
            Test::Equals(text("b"))
        ])));
        assert!(impossible(&all(vec![Test::Absent, number(Order::Gt, 1.0)])));
        assert!(!impossible(&all(vec![
            Test::Absent,
            Test::Differs(text("a"))
        ])));
        assert!(impossible(&all(vec![
            Test::Prefix("gpt".into()),
            Test::Prefix("glm".into())
        ])));
        let match_a = Test::Matches(Pattern::regex("a").unwrap());
        assert!(impossible(&all(vec![match_a, number(Order::Gt, 1.0)])));
    }

    #[test]
    fn a_look_has_an_end() {
        let mut left = 3;
        let list = (0..50).map(|n| one(Test::Number(Order::Gt, f64::from(n))));
        let any = Condition::Any(list.collect());
        assert!(!any.implies(&one(Test::Absent), &mut left));
        let mut none = 0;
        assert!(!one(Test::Exists).implies(&one(Test::Exists), &mut none));
    }

    fn literal() -> impl Strategy<Value = Literal> {
        prop_oneof![
            prop::sample::select(vec!["", "a", "ab", "b"]).prop_map(text),
            (-2..3_i32).prop_map(|n| Literal::Number(f64::from(n))),
            any::<bool>().prop_map(Literal::Bool),
        ]
    }

    fn test() -> impl Strategy<Value = Test> {
        let order = prop::sample::select(vec![Order::Gt, Order::Ge, Order::Lt, Order::Le]);
        let words = prop::sample::select(vec!["a", "ab", "b"]);
        prop_oneof![
            (order, -2..3_i32).prop_map(|(order, n)| Test::Number(order, f64::from(n))),
            literal().prop_map(Test::Equals),
            literal().prop_map(Test::Differs),
            prop::collection::vec(literal(), 1..3).prop_map(Test::In),
            prop::collection::vec(literal(), 1..3).prop_map(Test::NotIn),
            words
                .clone()
                .prop_map(|word| Test::Matches(Pattern::regex(word).unwrap())),
            words
                .clone()
                .prop_map(|word| Test::Contains(Pattern::literal(word).unwrap())),
            words.prop_map(|word| Test::Prefix(word.into())),
            Just(Test::Exists),
            Just(Test::Absent),
        ]
    }

    fn condition() -> impl Strategy<Value = Condition<usize>> {
        let leaf = (0..2_usize, test()).prop_map(|(field, test)| Condition::Leaf(field, test));
        leaf.prop_recursive(2, 8, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 1..4).prop_map(Condition::All),
                prop::collection::vec(inner, 1..4).prop_map(Condition::Any),
            ]
        })
    }

    /// Values that distinguish almost any two of the tests above.
    fn facts() -> Vec<Fact<'static>> {
        let mut facts = vec![
            Fact::Missing,
            Fact::Null,
            Fact::Composite,
            Fact::Bool(true),
            Fact::Bool(false),
        ];
        facts.extend((-6..7).map(|half| Fact::Number(f64::from(half) / 2.0)));
        let words = ["", "a", "ab", "abc", "b", "ba", "c"];
        facts.extend(words.map(|word| Fact::Text(Cow::Borrowed(word.as_bytes()))));
        facts
    }

    proptest! {
        #[test]
        fn what_is_told_of_rules_is_true_of_every_request(a in condition(), b in condition()) {
            let (implied, never) = (implies(&a, &b), impossible(&a));
            for one in facts() {
                for two in facts() {
                    let found = [one.clone(), two];
                    let holds = a.holds(&found);
                    prop_assert!(!(implied && holds) || b.holds(&found), "{a:?} => {b:?} at {found:?}");
                    prop_assert!(!(never && holds), "{a:?} holds at {found:?}");
                }
            }
        }
    }
}
