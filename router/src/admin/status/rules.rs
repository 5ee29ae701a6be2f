//! `_reject_rules_status`: a route's content rules, and how many requests each one refused.

use http::StatusCode;
use proto::admin::{RejectRule, RejectRulesStatus};

use crate::admin::answer::{self, Answer};
use crate::state::{Route, Switch};

/// The rules in force.
pub(super) fn status(route: &Route) -> Answer {
    let switch = route.switch(Switch::RejectRules);
    let default_status = route.options.reject_rules_status.value;
    let rules = route.rules.hits().map(|(rule, hits)| RejectRule {
        name: rule.name.to_string(),
        status: rule.status.unwrap_or(default_status),
        cond: rule.condition.to_string(),
        hits,
    });
    let rules: Vec<_> = rules.collect();
    let status = RejectRulesStatus {
        route: route.name.to_string(),
        ok: true,
        enabled: switch.value,
        source: switch.source.as_str().to_owned(),
        default_status,
        rule_count: rules.len(),
        rules_source: route.options.reject_rules.source.as_str().to_owned(),
        rules,
    };
    answer::json(StatusCode::OK, &status)
}
