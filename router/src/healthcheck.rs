//! `router healthcheck`: the health check of a container, for images without curl.
//!
//! Without `--ready` it checks that the process is up. With it, it checks that the router can work:
//! a route has a usable peer, and the key file could be read. A failure prints one sentence, which
//! the container engine stores with the unhealthy state.

use std::net::SocketAddr;

use proto::admin::{Readiness, ReadyStatus, RouteStatus, Routes};
use serde::de::DeserializeOwned;
use service::healthcheck::{Answer, Unhealthy, ask};

/// Sends the check to the admin port at `address`; an unspecified address means this machine.
pub(crate) fn run(address: SocketAddr, ready: bool) -> Result<(), Unhealthy> {
    if !ready {
        return service::healthcheck::run(address, "/healthz");
    }
    is_ready(address)?.map_or(Ok(()), |why| Err(Unhealthy::Unready(why)))
}

/// The reason why the router cannot work, if any.
fn is_ready(address: SocketAddr) -> Result<Option<String>, Unhealthy> {
    let answer = ask(address, "/readyz")?;
    if !matches!(answer.status, 200 | 503) {
        answer.verdict()?;
    }
    let readiness: Readiness = read(&answer)?;
    // This page is only for callers on this machine: an admin port that is bound to one external
    // address refuses it.
    let listing = ask(address, "/_routes")?;
    let routes: Option<Routes> = match listing.status {
        200 => Some(read(&listing)?),
        _ => None,
    };
    Ok(verdict(&readiness, routes.as_ref()))
}

fn read<T: DeserializeOwned>(answer: &Answer) -> Result<T, Unhealthy> {
    let not_ours = |_| Unhealthy::Unready("what answers there is no router".to_owned());
    serde_json::from_str(&answer.body).map_err(not_ours)
}

/// The sentence about the problem, if there is one.
fn verdict(readiness: &Readiness, routes: Option<&Routes>) -> Option<String> {
    let bad_keys = routes
        .map(|routes| &routes.keys)
        .filter(|keys| matches!(keys.status.as_str(), "unreadable" | "empty"));
    if let Some(keys) = bad_keys {
        let detail = keys.detail.as_ref();
        let detail = detail.map_or(String::new(), |detail| format!(" ({detail})"));
        return Some(format!(
            "the key file {} is {}{detail}: check its mount, its owner and its content",
            keys.file, keys.status
        ));
    }
    match readiness.status {
        ReadyStatus::Ready => None,
        ReadyStatus::Draining => Some("it is draining".to_owned()),
        ReadyStatus::Unready | ReadyStatus::Unknown => {
            Some(routes.map_or_else(|| "no route has a usable peer".into(), unusable))
        }
    }
}

/// Why no route has a usable peer.
fn unusable(routes: &Routes) -> String {
    let broken = |status| status == RouteStatus::Invalid;
    if routes.routes.is_empty() {
        return "there are no routes: check the mount of the directory that `routes` names".into();
    }
    if let Some(route) = routes.routes.iter().find(|route| broken(route.status)) {
        let why = route.errors.first().map_or("", |error| &error.message);
        return format!("the route file {} is invalid: {why}", route.path);
    }
    let peers: Vec<&str> = routes
        .routes
        .iter()
        .flat_map(|route| &route.pools)
        .flat_map(|pool| &pool.peers)
        .map(|peer| peer.peer.as_str())
        .collect();
    match peers.as_slice() {
        [] => "no route has a peer: name engines under `peers`".into(),
        peers => format!(
            "no peer answers its health probe: check that an engine listens on {}",
            peers.join(", ")
        ),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn said(
        status: &str,
        routes: &serde_json::Value,
        keys: (&str, Option<&str>),
    ) -> Option<String> {
        let readiness = Readiness {
            status: serde_json::from_value(json!(status)).unwrap(),
            usable_routes: 0,
            routes: 1,
        };
        let routes = serde_json::from_value(json!({
            "routes": routes,
            "keys": {"file": "/run/keys", "status": keys.0, "detail": keys.1,
                     "in_force": "open", "count": 0, "problems": []},
            "config": {"last_reload_success": true},
            "phase": "serving",
            "version": "1.0.0",
        }))
        .unwrap();
        verdict(&readiness, Some(&routes))
    }

    fn route(status: &str, peers: &[&str]) -> serde_json::Value {
        let peers: Vec<_> = peers
            .iter()
            .map(|peer| {
                json!({"peer": peer, "name": peer, "priority": 0, "max": 1, "in_flight": 0,
                       "enabled": true, "banned": true})
            })
            .collect();
        let error = json!({"file": "routes/chat.yaml", "line": 2, "column": 1,
                           "message": "peers: expected a list", "severity": "error"});
        json!({"name": "chat", "path": "routes/chat.yaml", "status": status, "errors": [error],
               "pools": [{"limit": 1, "in_flight": 0, "healthy_peers": 0, "peers": peers}],
               "auth": "open", "switches": {}})
    }

    #[test]
    fn one_sentence_says_what_to_mend() {
        let fine = ("ok", None);
        let chat = |peers| json!([route("ok", peers)]);
        for (said, expected) in [
            (said("ready", &chat(&["a:1"]), fine), None),
            (said("ready", &chat(&["a:1"]), ("missing", None)), None),
            (
                said(
                    "ready",
                    &chat(&["a:1"]),
                    ("unreadable", Some("Permission denied")),
                ),
                Some(
                    "the key file /run/keys is unreadable (Permission denied): check its mount, its owner and its content",
                ),
            ),
            (
                said("unready", &chat(&["a:1", "b:2"]), fine),
                Some("no peer answers its health probe: check that an engine listens on a:1, b:2"),
            ),
            (
                said("unready", &chat(&[]), fine),
                Some("no route has a peer: name engines under `peers`"),
            ),
            (
                said("unready", &json!([]), fine),
                Some("there are no routes: check the mount of the directory that `routes` names"),
            ),
            (
                said("unready", &json!([route("invalid", &[])]), fine),
                Some("the route file routes/chat.yaml is invalid: peers: expected a list"),
            ),
            (
                said("draining", &chat(&["a:1"]), fine),
                Some("it is draining"),
            ),
        ] {
            assert_eq!(said.as_deref(), expected);
        }
    }
}
