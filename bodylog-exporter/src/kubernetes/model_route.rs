//! What a ModelRoute says about a route: its name, its service and its router. Pure.
//!
//! The kind belongs to another project, so its form is not trusted: a member of another type counts
//! as absent, and one odd object hides no other.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use crate::aggregate::labels::clean;

/// Namespace of a service that names none.
const NAMESPACE: &str = "default";

/// Suffix of the service of a group's leaders; not shown.
const LEADERS: &str = "-leader";

/// The type of model whose routes have status endpoints; also assumed where a route names none.
const LANGUAGE: &str = "llm";

/// Longest name of an object or a namespace.
const NAME_MAX: usize = 253;

/// A Service, by namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ServiceName {
    pub(super) namespace: Box<str>,
    pub(super) name: Box<str>,
}

impl ServiceName {
    /// `namespace/name`, or a name alone. `None` if it cannot be one: it becomes part of a query.
    fn parse(text: &str) -> Option<Self> {
        let (namespace, name) = text.split_once('/').unwrap_or((NAMESPACE, text));
        (is_name(namespace) && is_name(name)).then(|| Self {
            namespace: namespace.into(),
            name: name.into(),
        })
    }

    /// As the label shows it.
    pub(super) fn label(&self) -> Arc<str> {
        let name = self.name.strip_suffix(LEADERS).unwrap_or(&self.name);
        clean(&format!("{}/{name}", self.namespace)).into()
    }
}

impl fmt::Display for ServiceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Whether text can be the name of an object: letters, digits, dots and hyphens.
pub(super) fn is_name(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let ends_well = |byte: Option<&u8>| byte.is_some_and(|byte| is_part(*byte));
    let bytes = text.as_bytes();
    bytes.len() <= NAME_MAX
        && ends_well(bytes.first())
        && ends_well(bytes.last())
        && bytes
            .iter()
            .all(|byte| is_part(*byte) || b"-.".contains(byte))
}

/// The used part of a ModelRoute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ModelRoute {
    /// The route.
    pub(super) route: Arc<str>,
    /// Where its pods are.
    pub(super) service: Option<ServiceName>,
    /// The router that serves it.
    pub(super) router: Option<Box<str>>,
    /// It has status endpoints.
    pub(super) has_status: bool,
}

impl ModelRoute {
    /// The route of the object with this name and content; `None` if it does not belong to such a
    /// router.
    pub(super) fn of(name: &str, object: &Value) -> Option<Self> {
        let spec = &object["spec"];
        let nginx = &spec["nginx"];
        let named = text(&nginx["route"]);
        let has_section = ["outputConfigMap", "peers"]
            .iter()
            .any(|member| is_set(&nginx[*member]));
        let route = named.or_else(|| has_section.then_some(name))?;
        let kind = text(&spec["modelType"]);
        Some(Self {
            route: clean(route).into(),
            service: text(&spec["discovery"]["service"]).and_then(ServiceName::parse),
            router: text(&nginx["service"]).map(Into::into),
            has_status: kind.is_none_or(|kind| kind == LANGUAGE),
        })
    }
}

/// Text that is not empty.
fn text(value: &Value) -> Option<&str> {
    value.as_str().filter(|text| !text.is_empty())
}

fn is_set(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(list) => !list.is_empty(),
        Value::Object(members) => !members.is_empty(),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn route(spec: &Value) -> Option<String> {
        let route = ModelRoute::of("object", &json!({"spec": spec}));
        route.map(|route| route.route.to_string())
    }

    #[test]
    fn a_route_is_named_by_its_section_or_by_the_object() {
        for (spec, expected) in [
            (json!({"nginx": {"route": "chat"}}), Some("chat")),
            (
                json!({"nginx": {"route": "", "outputConfigMap": "m"}}),
                Some("object"),
            ),
            (json!({"nginx": {"peers": [{"a": 1}]}}), Some("object")),
            (json!({"nginx": {"peers": []}}), None),
            (json!({"nginx": {}}), None),
            (json!({"other": {"route": "chat"}}), None),
            (
                json!({"nginx": {"route": 7, "peers": {"a": 1}}}),
                Some("object"),
            ),
            (json!({"nginx": {"route": "a\nb"}}), Some("a\u{fffd}b")),
            (json!("text"), None),
        ] {
            assert_eq!(route(&spec).as_deref(), expected, "{spec}");
        }
    }

    #[test]
    fn a_service_has_a_namespace_and_is_shown_without_its_leaders() {
        let service = |text: &str| {
            let spec = json!({"nginx": {"route": "r"}, "discovery": {"service": text}});
            let service = ModelRoute::of("o", &json!({"spec": spec})).unwrap().service;
            service.map(|service| (service.to_string(), service.label().to_string()))
        };
        for (given, name, label) in [
            ("ns/vllm", "ns/vllm", "ns/vllm"),
            ("vllm", "default/vllm", "default/vllm"),
            ("ns/vllm-leader", "ns/vllm-leader", "ns/vllm"),
        ] {
            assert_eq!(service(given), Some((name.into(), label.into())));
        }
        let long = "a".repeat(254);
        for given in [
            "", "ns/", "/a", "a/b/c", "a b", "a,b", "-a", "ns/A", "a)", &long,
        ] {
            assert_eq!(service(given), None, "{given:?}");
        }
    }

    #[test]
    fn routes_of_language_models_have_a_status() {
        for (kind, expected) in [
            (json!(null), true),
            (json!(""), true),
            (json!("llm"), true),
            (json!("video"), false),
        ] {
            let object =
                json!({"spec": {"modelType": kind, "nginx": {"route": "r", "service": "edge"}}});
            let route = ModelRoute::of("o", &object).unwrap();
            assert_eq!(route.has_status, expected, "{kind}");
            assert_eq!(route.router.as_deref(), Some("edge"));
        }
    }
}
