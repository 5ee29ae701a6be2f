//! The peers as scrape targets, so that Prometheus needs no list of its own.

use std::collections::BTreeMap;

use http::Uri;
use proto::admin::TargetGroup;
use router_config::valid::Peer;

use crate::state::{Entry, RouteTable};

/// Where a peer's metrics page is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Page {
    address: String,
    scheme: String,
    path: String,
}

/// Every enabled peer once, however many routes use it.
pub(super) fn targets(table: &RouteTable) -> Vec<TargetGroup> {
    let mut pages: BTreeMap<Page, (String, Vec<&str>)> = BTreeMap::new();
    for entry in &table.entries {
        let Entry::Ready { route, .. } = entry else {
            continue;
        };
        for peer in route.distinct_peers() {
            if peer.spec.enabled {
                let (_, routes) = pages
                    .entry(page(&peer.spec))
                    .or_insert_with(|| (peer.spec.name.to_string(), Vec::new()));
                routes.push(&route.name);
            }
        }
    }
    let group = |(page, (name, routes)): (Page, (String, Vec<&str>))| TargetGroup {
        targets: vec![page.address],
        labels: BTreeMap::from([
            ("__metrics_path__".to_owned(), page.path),
            ("__scheme__".to_owned(), page.scheme),
            ("peer".to_owned(), name),
            ("route".to_owned(), routes.join(",")),
        ]),
    };
    pages.into_iter().map(group).collect()
}

fn page(peer: &Peer) -> Page {
    let named = peer
        .metrics_url
        .as_deref()
        .and_then(|url| url.parse::<Uri>().ok());
    match named.as_ref().and_then(|url| Some((url, url.authority()?))) {
        Some((url, authority)) => Page {
            address: authority.to_string(),
            scheme: url.scheme_str().unwrap_or("http").to_owned(),
            path: url.path().to_owned(),
        },
        None => Page {
            address: peer.key.to_string(),
            scheme: if peer.tls { "https" } else { "http" }.to_owned(),
            path: format!("{}/metrics", peer.base_path),
        },
    }
}
