//! The schema and the check agree.

use jsonschema::Validator;
use serde_json::json;

use super::*;
use crate::testing;

fn validator(schema: Schema) -> Validator {
    jsonschema::validator_for(&schema.to_value()).expect("the schema is one")
}

fn json_of(text: &str) -> Value {
    match value(&yaml::parse(text).expect("the fixture is YAML")) {
        // An empty main file is an empty mapping.
        Value::Null => json!({}),
        other => other,
    }
}

#[track_caller]
fn assert_valid(validator: &Validator, text: &str) {
    let instance = json_of(text);
    let errors: Vec<_> = validator
        .iter_errors(&instance)
        .map(|e| format!("{}: {e}", e.instance_path()))
        .collect();
    assert!(errors.is_empty(), "{errors:#?}");
}

#[test]
fn accepted_files_fit_the_schema() {
    assert_valid(
        &validator(main()),
        include_str!("../fixtures/accepted/router.yaml"),
    );
    let routes = validator(route());
    for text in [
        include_str!("../fixtures/accepted/routes/minimal.yaml"),
        include_str!("../fixtures/accepted/routes/no-peers.yaml"),
        include_str!("../fixtures/accepted/routes/full.yaml"),
        include_str!("../fixtures/accepted/routes/by-model.yaml"),
    ] {
        assert_valid(&routes, text);
    }
}

#[test]
fn the_full_fixtures_have_every_key() {
    let full = json_of(include_str!("../fixtures/accepted/routes/full.yaml"));
    for meta in ROUTE.iter().filter(|meta| meta.key != "peers_by_model") {
        assert!(full.get(meta.key).is_some(), "{}", meta.key);
    }
    let peers = full["peers"].as_array().expect("a list");
    for meta in PEER {
        assert!(
            peers.iter().any(|peer| peer.get(meta.key).is_some()),
            "{}",
            meta.key
        );
    }
    let rules = full["reject_rules"].as_array().expect("a list");
    for meta in RULE.iter().filter(|meta| meta.key != "any") {
        assert!(
            rules.iter().any(|rule| rule.get(meta.key).is_some()),
            "{}",
            meta.key
        );
    }
    let full = json_of(include_str!("../fixtures/accepted/router.yaml"));
    for meta in MAIN {
        let section = &full[meta.key];
        let Kind::Section(keys) = meta.kind else {
            continue;
        };
        let missing = keys()
            .iter()
            .filter(|key| meta.key != "defaults" && section.get(key.key).is_none())
            .count();
        assert_eq!(missing, 0, "{}", meta.key);
    }
}

/// The check rejects everything that the schema rejects, so an editor never warns about a valid
/// file.
#[test]
fn what_the_schema_refuses_the_check_refuses() {
    let schema = validator(route());
    let values = [
        "5",
        "-1",
        "0",
        "1.5",
        ".5",
        "true",
        "off",
        "~",
        "\"\"",
        "text",
        "\"5\"",
        "5s",
        "10m",
        "[]",
        "[x]",
        "[/x]",
        "[user]",
        "{}",
        "{a: b}",
        "hash",
        "none",
        "429",
        "/v1",
        "\"${NUMBER}\"",
        "${X:-1}",
        "crc32",
        "least_conn",
        "reject",
        "fallback",
        "1000000000",
    ];
    let mut refused = 0;
    for meta in ROUTE.iter().filter(|meta| !meta.key.starts_with("peers")) {
        for value in values {
            let text = format!("peers: []\n{}: {value}\n", meta.key);
            let accepted = testing::route(&text).1.is_empty();
            let valid = schema.is_valid(&json_of(&text));
            refused += usize::from(!valid);
            assert!(
                valid || !accepted,
                "the schema refuses what the check accepts: {text}"
            );
        }
    }
    assert!(
        refused > 300,
        "the schema refuses next to nothing: {refused}"
    );
}

#[test]
fn unknown_keys_and_doubled_choices_do_not_fit() {
    let routes = validator(route());
    for text in [
        "peers: []\nx: 1\n",
        "hash: crc32\n",
        "peers: []\npeers_by_model: {m: []}\n",
        "peers: [{address: \"a:1\", url: \"http://b\"}]\n",
        "peers: [{address: \"a:1\", slots: 1, max_concurrency: 1}]\n",
        "peers: [{name: a}]\n",
    ] {
        assert!(!routes.is_valid(&json_of(text)), "{text}");
        assert!(!testing::route(text).1.is_empty(), "{text}");
    }
    assert!(!validator(main()).is_valid(&json_of("server: {x: 1}\n")));
}

#[test]
fn every_property_says_what_it_means() {
    let schema = route().to_value();
    for (key, property) in schema["properties"].as_object().expect("properties") {
        assert!(property["description"].is_string(), "{key}");
    }
    assert_eq!(schema["properties"]["default_max"]["default"], json!(20));
    assert_eq!(
        schema["properties"]["max_body_size"]["default"],
        json!("10m")
    );
}
