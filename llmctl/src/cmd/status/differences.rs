//! Says in what a route differs between routers: the order of its peers, or its options.

use std::collections::BTreeSet;

use proto::admin::{Peer, Route, RouteOpts};

use super::seen::Seen;
use crate::cmd::fleet::{self, Round};
use crate::exit::Failure;
use crate::render::tame;
use crate::settings::Settings;

/// Maximum number of differing options named for one route.
const OPTIONS_MAX: usize = 10;

/// One router's version of a route.
struct Version<'v> {
    router: &'v str,
    route: &'v Route,
}

/// Compares each route whose fingerprint differs between routers. Asks the routers for the options
/// of these routes.
///
/// # Errors
/// When TLS cannot be set up.
pub(super) async fn find(round: &Round<Seen>, settings: &Settings) -> Result<Vec<String>, Failure> {
    let mut found = Vec::new();
    let names: BTreeSet<&str> = round
        .whole()
        .flat_map(|(_, seen)| seen.status.routes.iter().map(|route| &*route.name))
        .collect();
    for name in names {
        let versions: Vec<_> = round
            .whole()
            .filter_map(|(router, seen)| {
                let route = seen.status.routes.iter().find(|route| route.name == name)?;
                Some(Version { router, route })
            })
            .collect();
        let prints: BTreeSet<_> = versions.iter().map(|one| &one.route.fingerprint).collect();
        if prints.len() < 2 {
            continue;
        }
        let before = found.len();
        found.extend(peers(&versions));
        let options = fleet::each(settings, async |router| {
            router.get::<RouteOpts>(&[name, "_route_opts"], &[]).await
        })
        .await?;
        let options: Vec<_> = options.whole().collect();
        found.extend(self::options(name, &options));
        if found.len() == before {
            found.push(format!(
                "{}: differs in keys, or in what a peer is besides its address",
                tame(name)
            ));
        }
    }
    Ok(found)
}

/// The first place where the ordered peers differ from those of the first router.
fn peers(versions: &[Version<'_>]) -> Option<String> {
    let of = |version: &Version<'_>| -> Vec<String> {
        let pools = version.route.pools.iter();
        pools.flat_map(|pool| &pool.peers).map(label).collect()
    };
    let (first, others) = versions.split_first()?;
    let own = of(first);
    for other in others {
        let their = of(other);
        let most = own.len().max(their.len());
        let Some(at) = (0..most).find(|at| own.get(*at) != their.get(*at)) else {
            continue;
        };
        let same_set = BTreeSet::from_iter(&own) == BTreeSet::from_iter(&their);
        let what = if same_set {
            "the peers stand in another order, so with hash: crc32 a session has another home"
        } else {
            "the peers are not the same"
        };
        let told = |peers: &[String]| peers.get(at).cloned().unwrap_or("none".to_owned());
        return Some(format!(
            "{}: {what}: peer {} is {} at {}, {} at {}",
            tame(&first.route.name),
            at + 1,
            tame(&told(&own)),
            tame(first.router),
            tame(&told(&their)),
            tame(other.router),
        ));
    }
    None
}

fn label(peer: &Peer) -> String {
    let mut label = format!("{} (max {}", peer.peer, peer.max);
    if peer.priority != 0 {
        label.push_str(&format!(", tier {}", peer.priority));
    }
    for (is_set, word) in [(!peer.enabled, ", disabled"), (peer.draining, ", draining")] {
        label.push_str(if is_set { word } else { "" });
    }
    label.push(')');
    label
}

/// The options whose values differ.
fn options(name: &str, routers: &[(&str, &RouteOpts)]) -> Vec<String> {
    let Some(((first, own), others)) = routers.split_first() else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for (other, theirs) in others {
        for option in own.options.iter().chain(&own.advanced) {
            let all = theirs.options.iter().chain(&theirs.advanced);
            let same = all.clone().find(|one| one.key == option.key);
            let Some(their) = same.filter(|their| their.value != option.value) else {
                continue;
            };
            found.push(format!(
                "{}: {} is {} at {}, {} at {}",
                tame(name),
                tame(&option.key),
                tame(&option.value.to_string()),
                tame(first),
                tame(&their.value.to_string()),
                tame(other),
            ));
        }
    }
    found.truncate(OPTIONS_MAX);
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn route(addresses: &[&str]) -> Route {
        let peers: Vec<_> = addresses
            .iter()
            .map(|address| {
                json!({"peer": address, "name": address, "priority": 0, "max": 4, "in_flight": 0,
                       "enabled": true, "banned": false})
            })
            .collect();
        serde_json::from_value(json!({
            "name": "chat", "path": "chat.yaml", "status": "ok", "errors": [], "auth": "open", "switches": {},
            "pools": [{"limit": 4, "in_flight": 0, "healthy_peers": 2, "peers": peers}],
        }))
        .unwrap()
    }

    fn said(one: &[&str], other: &[&str]) -> Option<String> {
        let (one, other) = (route(one), route(other));
        let version = |router, route| Version { router, route };
        peers(&[version("r1", &one), version("r2", &other)])
    }

    #[test]
    fn reversed_peers_are_told_from_other_peers() {
        assert_eq!(said(&["a:1", "b:1"], &["a:1", "b:1"]), None);
        let text = said(&["a:1", "b:1"], &["b:1", "a:1"]).unwrap();
        assert!(text.contains("another order"), "{text}");
        assert!(
            text.ends_with("peer 1 is a:1 (max 4) at r1, b:1 (max 4) at r2"),
            "{text}"
        );
        let text = said(&["a:1", "b:1"], &["a:1"]).unwrap();
        assert!(
            text.contains("not the same") && text.ends_with("none at r2"),
            "{text}"
        );
    }
}
