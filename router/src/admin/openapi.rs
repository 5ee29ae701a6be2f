//! `GET /_openapi.json` and `GET /`: what the admin port has, from the types that it answers with.
//!
//! Every endpoint of a route has to say its type here, or the router does not compile.

use std::sync::LazyLock;

use proto::admin;
use router_core::signal::Signal;
use schemars::generate::{SchemaGenerator, SchemaSettings};
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value, json};

use super::status::Endpoint;

/// One operation.
struct Operation {
    path: String,
    method: &'static str,
    about: &'static str,
    /// The answer with status 200; `None` for text that is no JSON.
    answer: Option<Schema>,
    query: &'static [Parameter],
}

/// The document, as it is sent.
pub(super) static DOCUMENT: LazyLock<String> = LazyLock::new(|| document().to_string() + "\n");

/// The document: OpenAPI 3.1.
pub(super) fn document() -> Value {
    let mut generator = SchemaSettings::draft2020_12()
        .for_serialize()
        .with(|settings| settings.definitions_path = "/components/schemas".into())
        .into_generator();
    let error = generator.subschema_for::<admin::ErrorBody>();
    let mut paths: Map<String, Value> = Map::new();
    for operation in operations(&mut generator) {
        let entry = paths
            .entry(operation.path.clone())
            .or_insert_with(|| json!({}));
        entry[operation.method] = described(&operation, &error);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "llm-router, admin port",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Reads need loopback or the admin token unless `server.admin_read` is `open`; writes need loopback or the token. `/healthz`, `/readyz` and `/metrics` are open.",
        },
        "paths": paths,
        "components": {
            "schemas": generator.take_definitions(true),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    })
}

fn described(operation: &Operation, error: &Schema) -> Value {
    let mut parameters: Vec<Value> = Vec::new();
    if operation.path.starts_with("/{route}/") {
        parameters.push(json!({
            "name": "route", "in": "path", "required": true, "schema": {"type": "string"},
            "description": "The name of the route.",
        }));
    }
    for (name, about) in operation.query {
        parameters.push(json!({
            "name": name, "in": "query", "schema": {"type": "string"}, "description": about,
        }));
    }
    let content = match &operation.answer {
        Some(schema) => json!({"application/json": {"schema": schema}}),
        None => json!({"text/plain": {"schema": {"type": "string"}}}),
    };
    json!({
        "summary": operation.about,
        "parameters": parameters,
        "responses": {
            "200": {"description": "As described.", "content": content},
            "default": {
                "description": "An error.",
                "content": {"application/json": {"schema": error}},
            },
        },
    })
}

fn operations(generator: &mut SchemaGenerator) -> Vec<Operation> {
    let mut all = whole_process(generator);
    for (name, endpoint) in Endpoint::all() {
        let path = format!("/{{route}}/{name}");
        let Answers { about, read, write } = of_route(generator, endpoint);
        if let Some(answer) = read {
            all.push(Operation {
                path: path.clone(),
                method: "get",
                about,
                answer: Some(answer),
                query: &[],
            });
        }
        if let Some((answer, query)) = write {
            all.push(Operation {
                path,
                method: "post",
                about,
                answer: Some(answer),
                query,
            });
        }
    }
    all
}

fn whole_process(generator: &mut SchemaGenerator) -> Vec<Operation> {
    let json = |path: &str, method, about, answer: Schema, query| Operation {
        path: path.to_owned(),
        method,
        about,
        answer: Some(answer),
        query,
    };
    let text = |path: &str, about| Operation {
        path: path.to_owned(),
        method: "get",
        about,
        answer: None,
        query: &[],
    };
    let of = generator;
    vec![
        text("/", "The pages of this port."),
        text("/healthz", "The process is up."),
        text(
            "/metrics",
            "Metrics, in the text format of Prometheus or in OpenMetrics.",
        ),
        json(
            "/readyz",
            "get",
            "Whether the router can do its work.",
            of.subschema_for::<admin::Readiness>(),
            &[],
        ),
        json(
            "/_routes",
            "get",
            "Every route: pools, peers, files, switches, refusals.",
            of.subschema_for::<admin::Routes>(),
            &[],
        ),
        json(
            "/_findings",
            "get",
            "What is wrong now, worst first.",
            of.subschema_for::<admin::Findings>(),
            &[],
        ),
        json(
            "/_keys",
            "get",
            "The shared keys.",
            of.subschema_for::<admin::KeysAnswer>(),
            &[(
                "fingerprint",
                "SHA-256 of a key, hexadecimal: is it in force?",
            )],
        ),
        json(
            "/_owners",
            "get",
            "What owners use, when any is limited.",
            of.subschema_for::<admin::Owners>(),
            &[],
        ),
        json(
            "/_targets",
            "get",
            "Peers as targets of Prometheus's HTTP service discovery.",
            of.subschema_for::<Vec<admin::TargetGroup>>(),
            &[],
        ),
        json(
            "/_decisions",
            "get",
            "Receipts of the last requests of all routes, newest first.",
            of.subschema_for::<admin::Decisions<Value>>(),
            &[
                ("n", "At most so many."),
                ("request_id", "The one with this id."),
            ],
        ),
        json(
            "/_sessions",
            "get",
            "Sessions of all routes.",
            of.subschema_for::<admin::AllSessions>(),
            &[],
        ),
        json(
            "/_openapi.json",
            "get",
            "This document.",
            of.subschema_for::<Map<String, Value>>(),
            &[],
        ),
        json(
            "/_reload",
            "post",
            "Read all files again.",
            of.subschema_for::<admin::Reload>(),
            &[],
        ),
        json(
            "/_drain",
            "post",
            "Finish what runs and end.",
            of.subschema_for::<admin::Drain>(),
            &[],
        ),
        json(
            "/finish_session",
            "post",
            "Release a session on every route.",
            of.subschema_for::<admin::FinishedSession>(),
            &[("session_id", "Its id.")],
        ),
        json(
            "/{route}/finish_session",
            "post",
            "Release a session of one route.",
            of.subschema_for::<admin::FinishedSession>(),
            &[("session_id", "Its id.")],
        ),
    ]
}

/// What an endpoint answers, by kind of request.
struct Answers {
    about: &'static str,
    read: Option<Schema>,
    write: Option<(Schema, &'static [Parameter])>,
}

fn of_route(generator: &mut SchemaGenerator, endpoint: Endpoint) -> Answers {
    fn read<T: JsonSchema>(generator: &mut SchemaGenerator, about: &'static str) -> Answers {
        Answers {
            about,
            read: Some(generator.subschema_for::<T>()),
            write: None,
        }
    }
    let of = generator;
    match endpoint {
        Endpoint::HealthStatus => {
            read::<admin::HealthStatus>(of, "Every peer: in flight, banned or not.")
        }
        Endpoint::ActiveConns => read::<admin::ActiveConns>(of, "Requests in flight by peer."),
        Endpoint::ActiveConnsSet => Answers {
            about: "Hold back units of a peer.",
            read: None,
            write: Some((
                of.subschema_for::<admin::ActiveConnsSet>(),
                &[
                    ("peer", "`host:port`."),
                    ("value", "Units to hold back."),
                    ("delete", "1 holds back nothing of the peer any more."),
                    ("flush", "1 holds back nothing of any peer any more."),
                ],
            )),
        },
        Endpoint::RouteState => read::<admin::RouteState>(of, "Tiers and their room."),
        Endpoint::RouteOpts => {
            read::<admin::RouteOpts>(of, "Every option in force, with its source.")
        }
        Endpoint::RouteDebug => {
            read::<admin::RouteDebug<Value>>(of, "Where a request would go, and why.")
        }
        Endpoint::RouteInspect => {
            read::<admin::RouteInspect<Value>>(of, "How a request's body would be read.")
        }
        Endpoint::Decisions => {
            read::<admin::Decisions<Value>>(of, "Receipts of the last requests, newest first.")
        }
        Endpoint::ClusterAvg => read::<admin::ClusterAvg>(of, "Averages of requests in flight."),
        Endpoint::RateLimitStatus => {
            read::<admin::RateLimitStatus>(of, "The load gates and their numbers.")
        }
        Endpoint::Refusals => Answers {
            about: "Refusals since the last reset.",
            read: Some(of.subschema_for::<admin::RefusalStatus>()),
            write: Some((
                of.subschema_for::<admin::RefusalReset>(),
                &[
                    ("reset", "1 resets the counts."),
                    ("all", "1 for every route."),
                ],
            )),
        },
        Endpoint::SessionStatus => {
            read::<admin::SessionStatus>(of, "Priorities by turn of the session.")
        }
        Endpoint::Sessions => read::<admin::Sessions>(of, "Where sessions live."),
        Endpoint::SignalStatus(Signal::Ttft) => {
            read::<admin::TtftStatus>(of, "The gate on time to first token.")
        }
        Endpoint::SignalStatus(Signal::Tps) => {
            read::<admin::TpsStatus>(of, "The gate on decode rate.")
        }
        Endpoint::Limit(Signal::Ttft) => limit::<admin::TtftLimit>(
            of,
            &[("ms", "Milliseconds."), LIMIT_MODEL, LIMIT_TTL, RESET],
        ),
        Endpoint::Limit(Signal::Tps) => limit::<admin::TpsLimit>(
            of,
            &[("tps", "Tokens a second."), LIMIT_MODEL, LIMIT_TTL, RESET],
        ),
        Endpoint::RejectRulesStatus => {
            read::<admin::RejectRulesStatus>(of, "Content rules and their refusals.")
        }
        Endpoint::BodylogStatus => read::<admin::BodylogStatus>(of, "The recording of this route."),
        Endpoint::CchStripStatus => {
            read::<admin::CchStripStatus>(of, "The transform of Claude Code's billing header.")
        }
        Endpoint::CchTest => read::<admin::CchTest>(of, "That transform, tried on a body."),
        Endpoint::Toggle(crate::state::Switch::Bodylog) => Answers {
            about: "The switch of the recording.",
            read: Some(of.subschema_for::<admin::BodylogToggle>()),
            write: Some((of.subschema_for::<admin::BodylogToggled>(), TOGGLE)),
        },
        Endpoint::Toggle(_) => Answers {
            about: "A switch of the route.",
            read: Some(of.subschema_for::<admin::Toggle>()),
            write: Some((of.subschema_for::<admin::Toggled>(), TOGGLE)),
        },
    }
}

/// A parameter and its meaning.
type Parameter = (&'static str, &'static str);

const LIMIT_MODEL: Parameter = ("model", "Of this model only.");
const LIMIT_TTL: Parameter = ("ttl", "For this long, such as 2h.");
const RESET: Parameter = ("reset", "1: the files decide again.");

const TOGGLE: &[Parameter] = &[
    ("on", "1 or 0."),
    RESET,
    ("reset_counters", "1: its counters begin at zero."),
];

fn limit<T: JsonSchema>(generator: &mut SchemaGenerator, query: &'static [Parameter]) -> Answers {
    Answers {
        about: "A threshold of the route.",
        read: Some(generator.subschema_for::<T>()),
        write: Some((generator.subschema_for::<T>(), query)),
    }
}

/// The list of pages, for a person at the port's root.
pub(super) fn pages() -> String {
    let document = document();
    let mut text = String::from("llm-router, admin port\n\n/console/  pages for people\n");
    for (path, methods) in document["paths"].as_object().into_iter().flatten() {
        for (method, operation) in methods.as_object().into_iter().flatten() {
            let about = operation["summary"].as_str().unwrap_or_default();
            text.push_str(&format!("{} {path}  {about}\n", method.to_uppercase()));
        }
    }
    text
}
