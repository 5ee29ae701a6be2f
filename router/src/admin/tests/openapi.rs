//! The OpenAPI document is what the port answers.

use serde_json::Map;

use super::*;
use crate::admin::openapi::document;

/// The schema of an operation's answer, with the definitions that it refers to.
fn schema(document: &Value, operation: &Value) -> Option<Value> {
    let schema = &operation["responses"]["200"]["content"]["application/json"]["schema"];
    let mut schema = schema.as_object()?.clone();
    schema.insert("components".to_owned(), document["components"].clone());
    Some(Value::Object(schema))
}

fn operations(document: &Value, method: &str) -> Vec<(String, Value)> {
    let paths = document["paths"].as_object().unwrap();
    let each = paths.iter().filter_map(|(path, methods)| {
        Some((path.clone(), methods.as_object()?.get(method)?.clone()))
    });
    each.collect()
}

fn valid(schema: &Value, text: &str, path: &str) {
    let answer: Value = serde_json::from_str(text).unwrap_or_else(|_| panic!("{path}: {text}"));
    let validator = jsonschema::validator_for(schema).unwrap();
    let problems: Vec<String> = validator
        .iter_errors(&answer)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert!(problems.is_empty(), "{path}: {problems:?}\n{text}");
}

#[tokio::test]
async fn every_page_answers_what_the_document_says() {
    let port = Port::over(
        "owners: {alice: {max_concurrency: 2}}",
        &[(
            "chat",
            "peers: [{address: '10.0.0.1:8000', name: a}]\nttft_limit_ms: 9000\ntps_limit_tps: 2\nadaptive_cc: true\nsession_prio: true\n\
             reject_rules: [{name: big, field: max_tokens, op: gt, value: 5}]",
        )],
    );
    let served: Value = serde_json::from_str(&port.get("/_openapi.json").await.text).unwrap();
    let document = document();
    assert_eq!(served, document);
    let mut seen = 0;
    for (path, operation) in operations(&document, "get") {
        let target = path.replace("{route}", "chat");
        let reply = port.get(&target).await;
        assert_eq!(reply.status, 200, "{target}: {}", reply.text);
        if let Some(schema) = schema(&document, &operation) {
            valid(&schema, &reply.text, &target);
            seen += 1;
        }
    }
    assert!(seen > 30, "{seen} pages");
}

#[tokio::test]
async fn every_switch_and_limit_answers_what_the_document_says() {
    let port = Port::over(
        "",
        &[(
            "chat",
            "peers: [{address: '10.0.0.1:8000', name: a}]\nttft_limit_ms: 9000\ntps_limit_tps: 2",
        )],
    );
    let document = document();
    let mut seen = 0;
    for (path, operation) in operations(&document, "post") {
        let query = match path.as_str() {
            path if path.ends_with("_toggle") => "on=1",
            "/{route}/_429_status" => "reset=1",
            "/{route}/_active_conns_set" => "peer=10.0.0.1:8000&value=1",
            "/{route}/_ttft_limit" => "ms=5",
            "/{route}/_tps_limit" => "tps=5",
            "/{route}/finish_session" | "/finish_session" => "session_id=s",
            _ => continue,
        };
        let target = format!("{}?{query}", path.replace("{route}", "chat"));
        let reply = port.send("127.0.0.1", "POST", &target, &[], "").await;
        assert_eq!(reply.status, 200, "{target}: {}", reply.text);
        valid(
            &schema(&document, &operation).unwrap(),
            &reply.text,
            &target,
        );
        seen += 1;
    }
    assert!(seen > 10, "{seen} operations");
}

#[tokio::test]
async fn the_root_lists_the_pages_and_a_stranger_sees_none() {
    let port = Port::chat();
    let page = port.get("/").await.text;
    for line in [
        "GET /_routes  ",
        "POST /{route}/_rate_limit_toggle  ",
        "/console/",
    ] {
        assert!(page.contains(line), "{line}\n{page}");
    }
    for path in ["/", "/_openapi.json"] {
        let refused = port.send("10.9.9.9", "GET", path, &[], "").await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN, "{path}");
    }
}

#[test]
fn each_reference_has_its_definition() {
    fn references(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(members) => {
                if let Some(Value::String(to)) = members.get("$ref") {
                    found.push(to.clone());
                }
                members.values().for_each(|value| references(value, found));
            }
            Value::Array(items) => items.iter().for_each(|item| references(item, found)),
            _ => {}
        }
    }
    let document = document();
    let mut found = Vec::new();
    references(&document, &mut found);
    let known: &Map<String, Value> = document["components"]["schemas"].as_object().unwrap();
    assert!(!found.is_empty());
    for to in found {
        let name = to.strip_prefix("#/components/schemas/").unwrap();
        assert!(known.contains_key(name), "{to}");
    }
}
