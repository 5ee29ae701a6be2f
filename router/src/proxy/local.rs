//! Answers that the router gives itself: health, readiness and model lists.

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{HeaderMap, Response, StatusCode};
use router_core::book::PoolId;
use router_core::decision::PeerFacts;
use router_core::load::Freshness;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::error::ApiError;
use super::guard;
use super::lookup::names;
use crate::admin;
use crate::state::{Lifecycle, Route, RouteTable};

/// A JSON response.
pub(super) fn json_response(status: StatusCode, value: &Value) -> Response<Bytes> {
    raw_json(status, format!("{value}\n"))
}

fn raw_json(status: StatusCode, body: String) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    response
}

/// `GET /health`: the process is up.
pub(super) fn health() -> Response<Bytes> {
    json_response(StatusCode::OK, &json!({ "status": "ok" }))
}

/// `GET /ready`: at least one route has a usable peer and the process is not shutting down.
pub(super) fn ready(table: &RouteTable, lifecycle: &Lifecycle) -> Response<Bytes> {
    admin::ready(table, lifecycle)
}

/// How the router reads `/v1/models…` below a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ModelsPath<'p> {
    /// The list.
    List,
    /// One model, its id still percent-encoded.
    One(&'p str),
}

impl<'p> ModelsPath<'p> {
    /// Parses a path without its route prefix.
    pub(super) fn of(path: &'p str) -> Option<Self> {
        match path.strip_prefix("/v1/models")? {
            "" | "/" => Some(Self::List),
            rest => rest.strip_prefix('/').map(Self::One),
        }
    }
}

/// The router's own answer to a models path of one route: always on a by-model route; with
/// `merge_models` or aliases the list, and each model in it. `None`: forward the request to a peer.
pub(super) fn models(
    route: &Route,
    path: ModelsPath<'_>,
) -> Option<Result<Response<Bytes>, ApiError>> {
    let entries = if route.is_by_model() {
        with_aliases(route, by_model_entries(route))
    } else if route.options.merge_models.value || route.aliases.is_some() {
        with_aliases(route, merged_entries(route))
    } else {
        return None;
    };
    match path {
        ModelsPath::List if entries.is_empty() && !route.is_by_model() => None,
        ModelsPath::List => Some(Ok(list(&entries))),
        ModelsPath::One(id) => {
            let id = percent_decode(id);
            match entries.iter().find(|(known, _)| **known == *id) {
                Some((_, entry)) => Some(Ok(one(entry))),
                None if route.is_by_model() => {
                    let error = ApiError::model_not_found(&id).on_route(&route.name);
                    Some(Err(error.listing_models(route.models())))
                }
                None => None,
            }
        }
    }
}

/// `GET /v1/models…` for no single route: the union over the routes that this caller may use, or
/// one model of it.
///
/// # Errors
/// 404 for a model that none of these routes serves.
pub(super) fn models_of_all(
    table: &RouteTable,
    headers: &HeaderMap,
    path: ModelsPath<'_>,
) -> Result<Response<Bytes>, ApiError> {
    let mut all: Vec<(Box<str>, String)> = Vec::new();
    for route in guard::opened(table, headers) {
        let entries = if route.is_by_model() {
            by_model_entries(route)
        } else {
            merged_entries(route)
        };
        for (id, entry) in with_aliases(route, entries) {
            if !all.iter().any(|(known, _)| *known == id) {
                all.push((id, entry));
            }
        }
    }
    match path {
        ModelsPath::List => Ok(list(&all)),
        ModelsPath::One(id) => {
            let id = percent_decode(id);
            let found = all.iter().find(|(known, _)| **known == *id);
            found.map(|(_, entry)| one(entry)).ok_or_else(|| {
                let error = ApiError::model_not_found(&id).listing(names(table));
                error.listing_models(all.iter().map(|(known, _)| known))
            })
        }
    }
}

/// One entry of a list.
fn one(entry: &str) -> Response<Bytes> {
    raw_json(StatusCode::OK, format!("{entry}\n"))
}

fn list(entries: &[(Box<str>, String)]) -> Response<Bytes> {
    let data: Vec<&str> = entries.iter().map(|(_, entry)| entry.as_str()).collect();
    raw_json(
        StatusCode::OK,
        format!("{{\"object\":\"list\",\"data\":[{}]}}\n", data.join(",")),
    )
}

/// The configured models, by id.
fn by_model_entries(route: &Route) -> Vec<(Box<str>, String)> {
    let mut ids: Vec<&str> = route.models().collect();
    ids.sort_unstable();
    let entry = |id: &str| {
        json!({ "id": id, "object": "model", "created": 0, "owned_by": "llm-router" }).to_string()
    };
    ids.into_iter().map(|id| (id.into(), entry(id))).collect()
}

/// Adds the aliases of models that are listed. A pattern stands for any number of names and is not
/// listed.
fn with_aliases(route: &Route, mut entries: Vec<(Box<str>, String)>) -> Vec<(Box<str>, String)> {
    let Some(aliases) = &route.aliases else {
        return entries;
    };
    for (asked, served) in aliases.exact() {
        let is_listed = |name: &str| entries.iter().any(|(id, _)| **id == *name);
        if is_listed(served) && !is_listed(asked) {
            let entry = json!({
                "id": asked, "object": "model", "created": 0, "owned_by": "llm-router", "root": served,
            });
            entries.push((asked.into(), entry.to_string()));
        }
    }
    entries
}

/// The models that a route serves, as far as they are known.
pub(super) fn served_models(route: &Route) -> Vec<Box<str>> {
    if route.is_by_model() {
        return route.models().map(Into::into).collect();
    }
    let entries = merged_entries(route).into_iter();
    entries.map(|(model, _)| model).collect()
}

/// The union of the cached lists of the usable peers, in file order. The first entry of each id is
/// kept as its engine wrote it.
fn merged_entries(route: &Route) -> Vec<(Box<str>, String)> {
    let mut all: Vec<(Box<str>, String)> = Vec::new();
    let facts = route.peer_facts(PoolId(0));
    let is_usable = |peer: &&PeerFacts| {
        let is_read = peer.freshness.is_none_or(Freshness::is_candidate);
        peer.enabled && !peer.banned && is_read
    };
    for peer in facts.iter().filter(is_usable) {
        let Some(models) = route.state.models.get(&peer.peer) else {
            continue;
        };
        for (id, entry) in &models.entries {
            if !all.iter().any(|(known, _)| known == id) {
                all.push((id.clone(), RawValue::get(entry).to_owned()));
            }
        }
    }
    all
}

/// Decodes `%xx`. A stray `%` stays as it is.
fn percent_decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let escape = (bytes[at] == b'%')
            .then(|| text.get(at + 1..at + 3))
            .flatten();
        match escape.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                decoded.push(byte);
                at += 3;
            }
            None => {
                decoded.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

/// The first value of a query parameter, decoded once.
pub(super) fn query_value(query: Option<&str>, name: &str) -> Option<String> {
    let mut pairs = query?.split('&').filter_map(|pair| pair.split_once('='));
    let (_, value) = pairs.find(|(key, _)| *key == name)?;
    Some(percent_decode(&value.replace('+', " ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_paths_are_the_list_or_one_model() {
        assert_eq!(ModelsPath::of("/v1/models"), Some(ModelsPath::List));
        assert_eq!(
            ModelsPath::of("/v1/models/org%2Fm"),
            Some(ModelsPath::One("org%2Fm"))
        );
        assert_eq!(ModelsPath::of("/v1/models_x"), None);
        assert_eq!(ModelsPath::of("/v1/chat/completions"), None);
    }

    #[test]
    fn escapes_are_decoded_once() {
        assert_eq!(percent_decode("org%2Fm%25"), "org/m%");
        assert_eq!(percent_decode("100%"), "100%");
        assert_eq!(
            query_value(Some("a=1&model=org%2Fm"), "model").as_deref(),
            Some("org/m")
        );
        assert_eq!(query_value(Some("xmodel=a"), "model"), None);
    }
}
