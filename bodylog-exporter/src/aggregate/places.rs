//! Maps an address to the route and the service of its pod, as the cluster reports them. Pure.
//!
//! Rows arrive later than the exchanges they describe, and pods disappear meanwhile. So an address
//! keeps its meaning for a quarter of an hour after the cluster removed it, and is part of the
//! checkpoint, so that a restart does not forget it.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::labels::without_retry;
use super::ms;

/// How long an address keeps its meaning after the cluster removed it.
const KEPT: Duration = Duration::from_secs(15 * 60);

/// Most pairs of address and route in one reading.
pub const PODS_MAX: usize = 4096;

/// Most pairs of address and route remembered, removed ones included.
const REMEMBERED_MAX: usize = 2 * PODS_MAX;

/// A pod's address on one route.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pod {
    /// Its address.
    pub address: IpAddr,
    /// The route.
    pub route: Arc<str>,
    /// Its service, as the label shows it.
    pub service: Arc<str>,
}

/// What a cluster reports at one time. The caller keeps it within [`PODS_MAX`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    /// The service of each route that has one.
    pub services: BTreeMap<Arc<str>, Arc<str>>,
    /// The pods of the known services.
    pub pods: Vec<Pod>,
    /// Routes and services whose pods are not known: their earlier pods stay.
    pub unheard: BTreeSet<(Arc<str>, Arc<str>)>,
}

/// What is known about a row; nothing without a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The route, for a row that names none.
    pub route: Option<Arc<str>>,
    /// The service.
    pub service: Option<Arc<str>>,
}

/// Every address that maps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Places {
    services: Arc<BTreeMap<Arc<str>, Arc<str>>>,
    pods: HashMap<IpAddr, Vec<Held>>,
}

/// One route of an address.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Held {
    route: Arc<str>,
    service: Arc<str>,
    /// When the cluster removed it, milliseconds since the Unix epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    gone_ms: Option<i64>,
}

impl Held {
    fn is(&self, pod: &Pod) -> bool {
        self.route == pod.route && self.service == pod.service
    }
}

impl Places {
    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.pods.is_empty() && self.services.is_empty()
    }

    /// Addresses that have a meaning, removed but kept ones included.
    pub fn len(&self) -> usize {
        self.pods.len()
    }

    /// The service of each route.
    pub fn services(&self) -> &Arc<BTreeMap<Arc<str>, Arc<str>>> {
        &self.services
    }

    /// Takes a reading. Returns whether anything changed.
    pub fn read(&mut self, reading: &Reading, now_ms: i64) -> bool {
        let mut is_changed = false;
        if *self.services != reading.services {
            self.services = Arc::new(reading.services.clone());
            is_changed = true;
        }
        let mut new: HashSet<&Pod> = reading.pods.iter().collect();
        for (address, routes) in &mut self.pods {
            for held in routes.iter_mut() {
                let pod = Pod {
                    address: *address,
                    route: Arc::clone(&held.route),
                    service: Arc::clone(&held.service),
                };
                let is_there = new.remove(&pod)
                    || (held.gone_ms.is_none()
                        && reading.unheard.contains(&(pod.route, pod.service)));
                is_changed |= is_there == held.gone_ms.is_some();
                held.gone_ms = match is_there {
                    true => None,
                    false => held.gone_ms.or(Some(now_ms)),
                };
            }
        }
        is_changed |= !new.is_empty();
        self.make_room(new.len());
        let mut room = REMEMBERED_MAX.saturating_sub(self.remembered());
        for pod in reading.pods.iter().filter(|pod| new.contains(pod)) {
            let routes = self.pods.entry(pod.address).or_default();
            if room > 0 && !routes.iter().any(|held| held.is(pod)) {
                room -= 1;
                routes.push(Held {
                    route: Arc::clone(&pod.route),
                    service: Arc::clone(&pod.service),
                    gone_ms: None,
                });
            }
        }
        if is_changed {
            for routes in self.pods.values_mut() {
                // Present ones first, then the most recently removed.
                routes.sort_by(|a, b| {
                    let gone = |held: &Held| held.gone_ms.unwrap_or(i64::MAX);
                    gone(b).cmp(&gone(a)).then_with(|| a.route.cmp(&b.route))
                });
            }
        }
        self.expire(now_ms) || is_changed
    }

    /// Forgets addresses that were removed long enough ago. Returns whether there were any.
    pub fn expire(&mut self, now_ms: i64) -> bool {
        let before = self.remembered();
        self.retain(|held| {
            held.gone_ms
                .is_none_or(|gone| (0..ms(KEPT)).contains(&now_ms.saturating_sub(gone)))
        });
        self.remembered() != before
    }

    /// What is known about a row with this backend and this route, which may be empty. The row's
    /// own route wins; of several routes of an address it is preferred, else the first by name is
    /// taken.
    pub fn find(&self, backend: &str, route: &str) -> Found {
        if self.is_empty() {
            return Found::default();
        }
        let routes = address(backend).and_then(|address| self.pods.get(&address));
        let routes = routes.map_or(&[][..], Vec::as_slice);
        let first = routes.first();
        if route.is_empty() {
            return Found {
                route: first.map(|held| Arc::clone(&held.route)),
                service: first.map(|held| Arc::clone(&held.service)),
            };
        }
        let own = routes.iter().find(|held| *held.route == *route);
        let service = own
            .map(|held| &held.service)
            .or_else(|| self.services.get(route))
            .or_else(|| first.map(|held| &held.service));
        Found {
            route: None,
            service: service.map(Arc::clone),
        }
    }

    fn remembered(&self) -> usize {
        self.pods.values().map(Vec::len).sum()
    }

    /// Forgets the longest removed ones if `more` would not fit.
    fn make_room(&mut self, more: usize) {
        let excess = (self.remembered() + more).saturating_sub(REMEMBERED_MAX);
        if excess == 0 {
            return;
        }
        let gone = self.pods.values().flatten().filter_map(|held| held.gone_ms);
        let mut gone: Vec<_> = gone.collect();
        gone.sort_unstable();
        if let Some(last) = gone.get(..excess.min(gone.len())).and_then(<[_]>::last) {
            self.retain(|held| held.gone_ms.is_none_or(|gone| gone > *last));
        }
    }

    fn retain(&mut self, is_kept: impl Fn(&Held) -> bool) {
        self.pods.retain(|_, routes| {
            routes.retain(&is_kept);
            !routes.is_empty()
        });
    }
}

/// The address in a row's backend, which has a port and maybe a note of retries.
fn address(backend: &str) -> Option<IpAddr> {
    let backend = without_retry(backend);
    let address = backend
        .parse()
        .map(|address: SocketAddr| address.ip())
        .or_else(|_| backend.parse::<IpAddr>());
    address.ok().map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: i64 = 60_000;

    fn pod(address: &str, route: &str, service: &str) -> Pod {
        Pod {
            address: address.parse().unwrap(),
            route: route.into(),
            service: service.into(),
        }
    }

    fn reading(pods: &[(&str, &str, &str)]) -> Reading {
        Reading {
            pods: pods.iter().map(|(a, r, s)| pod(a, r, s)).collect(),
            ..Reading::default()
        }
    }

    fn found(route: Option<&str>, service: Option<&str>) -> Found {
        Found {
            route: route.map(Into::into),
            service: service.map(Into::into),
        }
    }

    #[test]
    fn a_backend_is_looked_up_by_its_address_alone() {
        let mut places = Places::default();
        places.read(
            &reading(&[("10.0.0.1", "chat", "ns/a"), ("fd00::1", "six", "ns/b")]),
            0,
        );
        for (backend, route, service) in [
            ("10.0.0.1:8000", Some("chat"), Some("ns/a")),
            ("10.0.0.1:9 (retry#2)", Some("chat"), Some("ns/a")),
            ("10.0.0.1", Some("chat"), Some("ns/a")),
            ("[::ffff:10.0.0.1]:8000", Some("chat"), Some("ns/a")),
            ("[fd00::1]:8000", Some("six"), Some("ns/b")),
            ("10.0.0.2:8000", None, None),
            ("(none)", None, None),
            ("engine:8000", None, None),
            ("", None, None),
        ] {
            assert_eq!(places.find(backend, ""), found(route, service), "{backend}");
        }
    }

    #[test]
    fn a_rows_own_route_stands_and_chooses_the_service() {
        let mut places = Places::default();
        let mut reading = reading(&[("10.0.0.1", "b", "ns/b"), ("10.0.0.1", "a", "ns/a")]);
        reading.services.insert("c".into(), "ns/c".into());
        places.read(&reading, 0);
        for (route, expected) in [
            ("", found(Some("a"), Some("ns/a"))),
            ("a", found(None, Some("ns/a"))),
            ("b", found(None, Some("ns/b"))),
            ("c", found(None, Some("ns/c"))),
            ("d", found(None, Some("ns/a"))),
        ] {
            assert_eq!(places.find("10.0.0.1:1", route), expected, "{route}");
        }
        let refused = places.find("(none)", "c");
        assert_eq!(refused, found(None, Some("ns/c")), "refused by the router");
        assert_eq!(places.find("(none)", "d"), found(None, None));
    }

    #[test]
    fn an_address_maps_a_quarter_of_an_hour_longer_than_the_cluster_has_it() {
        let mut places = Places::default();
        assert!(places.read(&reading(&[("10.0.0.1", "chat", "ns/a")]), 0));
        assert!(!places.read(&reading(&[("10.0.0.1", "chat", "ns/a")]), MINUTE));
        assert!(places.read(&reading(&[]), 2 * MINUTE));
        assert!(
            !places.read(&reading(&[]), 3 * MINUTE),
            "gone since minute 2"
        );
        assert!(!places.expire(17 * MINUTE - 1));
        let chat = found(Some("chat"), Some("ns/a"));
        assert_eq!(places.find("10.0.0.1:1", ""), chat);
        assert!(places.expire(17 * MINUTE));
        assert_eq!(places.find("10.0.0.1:1", ""), Found::default());
        assert!(places.is_empty());
    }

    #[test]
    fn an_address_that_comes_back_is_not_gone_any_more() {
        let mut places = Places::default();
        let there = reading(&[("10.0.0.1", "chat", "ns/a")]);
        places.read(&there, 0);
        places.read(&reading(&[]), MINUTE);
        assert!(places.read(&there, 2 * MINUTE));
        assert!(!places.expire(60 * MINUTE));
        assert_eq!(places.len(), 1);
    }

    #[test]
    fn an_address_that_moved_is_the_new_routes() {
        let mut places = Places::default();
        places.read(&reading(&[("10.0.0.1", "a", "ns/a")]), 0);
        places.read(&reading(&[("10.0.0.1", "b", "ns/b")]), MINUTE);
        let moved = found(Some("b"), Some("ns/b"));
        assert_eq!(places.find("10.0.0.1:1", ""), moved);
        // The row's own values may be older.
        assert_eq!(places.find("10.0.0.1:1", "a"), found(None, Some("ns/a")));
    }

    #[test]
    fn pods_of_a_service_that_was_not_heard_of_stay() {
        let mut places = Places::default();
        places.read(
            &reading(&[("10.0.0.1", "a", "ns/a"), ("10.0.0.2", "b", "ns/b")]),
            0,
        );
        let mut part = reading(&[]);
        part.unheard.insert(("b".into(), "ns/b".into()));
        places.read(&part, MINUTE);
        places.expire(60 * MINUTE);
        assert_eq!(places.find("10.0.0.1:1", ""), Found::default());
        let b = found(Some("b"), Some("ns/b"));
        assert_eq!(places.find("10.0.0.2:1", ""), b);
    }

    #[test]
    fn without_room_the_longest_gone_makes_it() {
        let mut places = Places::default();
        let block = |block: u8| {
            let addresses = (0..PODS_MAX).map(|n| format!("10.{block}.{}.{}", n / 256, n % 256));
            Reading {
                pods: addresses.map(|a| pod(&a, "r", "s")).collect(),
                ..Reading::default()
            }
        };
        for minute in 0..3 {
            places.read(&block(minute), i64::from(minute) * MINUTE);
        }
        assert_eq!(places.len(), REMEMBERED_MAX);
        assert_eq!(places.find("10.0.0.0:1", ""), Found::default());
        let s = found(Some("r"), Some("s"));
        assert_eq!(places.find("10.1.0.0:1", ""), s, "gone later");
        assert_eq!(places.find("10.2.15.255:1", ""), s, "there");
    }

    #[test]
    fn places_come_back_from_a_checkpoint() {
        let mut places = Places::default();
        let mut both = reading(&[("10.0.0.1", "a", "ns/a"), ("fd00::1", "b", "ns/b")]);
        both.services.insert("a".into(), "ns/a".into());
        places.read(&both, 0);
        places.read(&reading(&[("fd00::1", "b", "ns/b")]), MINUTE);
        let text = serde_json::to_string(&places).unwrap();
        assert_eq!(serde_json::from_str::<Places>(&text).unwrap(), places);
    }
}
