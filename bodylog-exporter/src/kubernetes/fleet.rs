//! Routes, their services and the endpoints of those, as far as they are known. Pure: events go in,
//! conclusions come out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::model_route::{ModelRoute, ServiceName};
use super::slice::{Endpoint, Slice};
use crate::aggregate::places::{PODS_MAX, Pod, Reading};
use crate::resolver::Replicas;

/// Most routes taken from a cluster: as many as the label may have.
pub(super) const ROUTES_MAX: usize = 512;

/// Most slices and endpoints remembered, together.
pub(super) const SLICES_MAX: usize = 4 * PODS_MAX;

/// Something that needs a bound.
pub(super) trait Weigh {
    /// Its share of the bound.
    fn weight(&self) -> usize;
}

impl Weigh for ModelRoute {
    fn weight(&self) -> usize {
        1
    }
}

impl Weigh for Slice {
    fn weight(&self) -> usize {
        1 + self.endpoints.len()
    }
}

/// The share of all of it.
fn weight<T: Weigh>(things: &BTreeMap<Name, T>) -> usize {
    things.values().map(Weigh::weight).sum()
}

/// Name of an object: within its namespace for slices, with it for routes.
pub(super) type Name = Box<str>;

/// An event of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Heard<T> {
    /// The complete list.
    All(Vec<(Name, T)>),
    /// An object that is new or changed.
    One(Name, T),
    /// An object that is gone.
    Gone(Name),
}

/// Everything known.
#[derive(Debug, Default)]
pub(super) struct Fleet {
    /// `None` before the first list.
    routes: Option<BTreeMap<Name, ModelRoute>>,
    /// By namespace.
    slices: BTreeMap<Name, Slices>,
    desired: BTreeMap<ServiceName, u64>,
}

/// The slices of a namespace.
#[derive(Debug, Default)]
struct Slices {
    /// Services whose slices were listed.
    heard: BTreeSet<Name>,
    by_name: BTreeMap<Name, Slice>,
}

impl<T: Weigh> Heard<T> {
    /// What does not fit is left out.
    fn apply(self, to: &mut BTreeMap<Name, T>, max: usize) {
        let all = match self {
            Self::All(all) => {
                to.clear();
                all
            }
            Self::One(name, one) => vec![(name, one)],
            Self::Gone(name) => {
                to.remove(&name);
                return;
            }
        };
        let mut room = max.saturating_sub(weight(to));
        for (name, one) in all {
            room += to.remove(&name).map_or(0, |before| before.weight());
            if let Some(left) = room.checked_sub(one.weight()) {
                room = left;
                to.insert(name, one);
            }
        }
    }
}

impl Fleet {
    /// Takes an event about routes.
    pub(super) fn routes(&mut self, heard: Heard<ModelRoute>) {
        let routes = self.routes.get_or_insert_default();
        heard.apply(routes, ROUTES_MAX);
        let wanted = self.wanted();
        self.slices
            .retain(|namespace, _| wanted.contains_key(namespace));
        self.desired.retain(|service, _| {
            let names = wanted.get(&service.namespace);
            names.is_some_and(|names| names.contains(&service.name))
        });
    }

    /// Takes an event about the slices of these services of a namespace.
    pub(super) fn slices(&mut self, namespace: &str, of: &BTreeSet<Name>, heard: Heard<Slice>) {
        let others = self
            .slices
            .iter()
            .filter(|(other, _)| ***other != *namespace);
        let others: usize = others.map(|(_, slices)| weight(&slices.by_name)).sum();
        let room = SLICES_MAX.saturating_sub(others);
        let slices = self.slices.entry(namespace.into()).or_default();
        if matches!(heard, Heard::All(_)) {
            slices.heard.clone_from(of);
        }
        heard.apply(&mut slices.by_name, room);
    }

    /// Takes how many pods services should have; services that are missing are unknown.
    pub(super) fn desired(&mut self, desired: BTreeMap<ServiceName, u64>) {
        self.desired = desired;
    }

    /// The last numbers taken.
    pub(super) fn known_desired(&self) -> BTreeMap<ServiceName, u64> {
        self.desired.clone()
    }

    /// Namespaces, with the services whose slices are needed.
    pub(super) fn wanted(&self) -> BTreeMap<Name, BTreeSet<Name>> {
        let mut wanted: BTreeMap<Name, BTreeSet<Name>> = BTreeMap::new();
        for (service, _) in self.services() {
            let names = wanted.entry(service.namespace.clone()).or_default();
            names.insert(service.name.clone());
        }
        wanted
    }

    /// Routes that can be polled at one router, or at all, in order.
    pub(super) fn polled(&self, router: Option<&str>) -> Arc<[Box<str>]> {
        let routes = self.routes.iter().flat_map(BTreeMap::values);
        let routes = routes.filter(|route| route.has_status);
        let routes = routes.filter(|route| router.is_none() || route.router.as_deref() == router);
        let names: BTreeSet<Box<str>> = routes.map(|route| Box::from(&*route.route)).collect();
        names.into_iter().collect()
    }

    /// Whether the routes and the slices of each of their services are known.
    pub(super) fn is_complete(&self) -> bool {
        self.routes.is_some() && self.services().keys().all(|service| self.is_heard(service))
    }

    /// What rows need; `None` before the routes were listed.
    pub(super) fn reading(&self) -> Option<Reading> {
        let routes = self.routes.as_ref()?;
        let mut reading = Reading::default();
        for route in routes.values() {
            if let Some(service) = &route.service {
                let services = &mut reading.services;
                services
                    .entry(Arc::clone(&route.route))
                    .or_insert_with(|| service.label());
            }
        }
        for (service, routes) in self.services() {
            let label = service.label();
            if !self.is_heard(service) {
                let unheard = routes
                    .iter()
                    .map(|route| (Arc::clone(route), Arc::clone(&label)));
                reading.unheard.extend(unheard);
                continue;
            }
            for address in self.endpoints(service).flat_map(|e| &e.addresses) {
                for route in &routes {
                    if reading.pods.len() < PODS_MAX {
                        reading.pods.push(Pod {
                            address: *address,
                            route: Arc::clone(route),
                            service: Arc::clone(&label),
                        });
                    }
                }
            }
        }
        Some(reading)
    }

    /// How many pods each known service has, by label and route.
    pub(super) fn replicas(&self) -> Vec<Replicas> {
        let mut found: BTreeMap<(Arc<str>, Arc<str>), Replicas> = BTreeMap::new();
        for (service, routes) in self.services() {
            if !self.is_heard(service) {
                continue;
            }
            // A pod of two address families is in two slices.
            let mut pods: BTreeMap<PodKey<'_>, bool> = BTreeMap::new();
            for endpoint in self.endpoints(service) {
                *pods.entry(PodKey::of(endpoint)).or_default() |= endpoint.is_ready;
            }
            let endpoints = pods.len() as u64;
            let ready = pods.values().filter(|is_ready| **is_ready).count() as u64;
            for route in routes {
                let label = service.label();
                let key = (Arc::clone(&label), Arc::clone(&route));
                let new = Replicas {
                    service: label,
                    route,
                    endpoints,
                    ready,
                    desired: self.desired.get(service).copied(),
                };
                found.entry(key).or_insert(new);
            }
        }
        found.into_values().collect()
    }

    /// One pod of each service that has any; a ready one if possible.
    pub(super) fn samples(&self) -> BTreeMap<ServiceName, Name> {
        let mut found = BTreeMap::new();
        for service in self.services().into_keys() {
            let pods = self.endpoints(service).filter_map(|endpoint| {
                let pod = endpoint.pod.as_ref()?;
                Some((!endpoint.is_ready, pod))
            });
            if let Some((_, pod)) = pods.min() {
                found.insert(service.clone(), pod.clone());
            }
        }
        found
    }

    fn services(&self) -> BTreeMap<&ServiceName, BTreeSet<Arc<str>>> {
        let mut services: BTreeMap<&ServiceName, BTreeSet<Arc<str>>> = BTreeMap::new();
        for route in self.routes.iter().flat_map(BTreeMap::values) {
            if let Some(service) = &route.service {
                let routes = services.entry(service).or_default();
                routes.insert(Arc::clone(&route.route));
            }
        }
        services
    }

    fn is_heard(&self, service: &ServiceName) -> bool {
        let slices = self.slices.get(&service.namespace);
        slices.is_some_and(|slices| slices.heard.contains(&service.name))
    }

    fn endpoints(&self, service: &ServiceName) -> impl Iterator<Item = &Endpoint> {
        let slices = self.slices.get(&service.namespace).into_iter();
        let slices = slices.flat_map(|slices| slices.by_name.values());
        let slices = slices.filter(|slice| slice.service == service.name);
        slices.flat_map(|slice| &slice.endpoints)
    }
}

/// What distinguishes endpoints.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum PodKey<'e> {
    Pod(&'e str),
    Addresses(&'e [std::net::IpAddr]),
}

impl<'e> PodKey<'e> {
    fn of(endpoint: &'e Endpoint) -> Self {
        match &endpoint.pod {
            Some(pod) => Self::Pod(pod),
            None => Self::Addresses(&endpoint.addresses),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn route(name: &str, service: &str) -> (Name, ModelRoute) {
        let object = json!({"spec": {
            "nginx": {"route": name, "service": "edge"}, "discovery": {"service": service},
        }});
        (name.into(), ModelRoute::of(name, &object).unwrap())
    }

    /// Endpoints as `address`, `address!` when it is not ready, `address=pod`.
    fn slice(name: &str, service: &str, endpoints: &[&str]) -> (Name, Slice) {
        let endpoints = endpoints.iter().map(|text| {
            let (text, pod) = text
                .split_once('=')
                .map_or((*text, None), |(a, p)| (a, Some(p)));
            Endpoint {
                addresses: vec![text.trim_end_matches('!').parse().unwrap()],
                is_ready: !text.ends_with('!'),
                pod: pod.map(Into::into),
            }
        });
        let slice = Slice {
            service: service.into(),
            endpoints: endpoints.collect(),
        };
        (name.into(), slice)
    }

    fn one<T>((name, thing): (Name, T)) -> Heard<T> {
        Heard::One(name, thing)
    }

    fn names(names: &[&str]) -> BTreeSet<Name> {
        names.iter().map(|name| (*name).into()).collect()
    }

    /// Address, route and service of each pod.
    fn pods(fleet: &Fleet) -> Vec<String> {
        let pods = fleet.reading().unwrap().pods;
        let pods = pods
            .iter()
            .map(|p| format!("{} {} {}", p.address, p.route, p.service));
        pods.collect()
    }

    #[test]
    fn a_fleet_is_known_once_its_routes_and_their_slices_are() {
        let mut fleet = Fleet::default();
        assert!(fleet.reading().is_none() && !fleet.is_complete());
        fleet.routes(Heard::All(vec![
            route("a", "one/x"),
            route("b", "two/y-leader"),
        ]));
        assert_eq!(
            fleet.wanted(),
            [
                ("one".into(), names(&["x"])),
                ("two".into(), names(&["y-leader"]))
            ]
            .into()
        );
        let unheard = fleet.reading().unwrap().unheard;
        assert_eq!(unheard.len(), 2);
        fleet.slices(
            "one",
            &names(&["x"]),
            Heard::All(vec![slice("x-1", "x", &["10.0.0.1"])]),
        );
        assert!(!fleet.is_complete());
        let unheard: Vec<_> = fleet.reading().unwrap().unheard.into_iter().collect();
        assert_eq!(unheard, [("b".into(), "two/y".into())]);
        let leaders = slice("y-1", "y-leader", &["10.0.0.2"]);
        fleet.slices("two", &names(&["y-leader"]), Heard::All(vec![leaders]));
        assert!(fleet.is_complete());
        assert_eq!(pods(&fleet), ["10.0.0.1 a one/x", "10.0.0.2 b two/y"]);
    }

    #[test]
    fn changes_are_taken_up_one_by_one() {
        let mut fleet = Fleet::default();
        let x = names(&["x"]);
        fleet.routes(Heard::All(vec![route("a", "one/x")]));
        fleet.slices(
            "one",
            &x,
            Heard::All(vec![slice("x-1", "x", &["10.0.0.1"])]),
        );
        fleet.slices("one", &x, one(slice("x-1", "x", &["10.0.0.2"])));
        fleet.slices("one", &x, one(slice("x-2", "x", &["10.0.0.3"])));
        assert_eq!(pods(&fleet), ["10.0.0.2 a one/x", "10.0.0.3 a one/x"]);
        fleet.slices("one", &x, Heard::Gone("x-1".into()));
        fleet.routes(one(route("b", "one/x")));
        assert_eq!(pods(&fleet), ["10.0.0.3 a one/x", "10.0.0.3 b one/x"]);
        fleet.routes(Heard::Gone("a".into()));
        assert_eq!(pods(&fleet), ["10.0.0.3 b one/x"]);
        fleet.routes(Heard::All(Vec::new()));
        assert!(pods(&fleet).is_empty());
        assert!(fleet.is_complete(), "nothing is wanted");
    }

    #[test]
    fn a_service_that_is_new_leaves_its_neighbours_known() {
        let mut fleet = Fleet::default();
        fleet.routes(Heard::All(vec![route("a", "one/x")]));
        fleet.slices(
            "one",
            &names(&["x"]),
            Heard::All(vec![slice("x-1", "x", &["10.0.0.1"])]),
        );
        fleet.routes(one(route("b", "one/y")));
        assert!(!fleet.is_complete());
        assert_eq!(pods(&fleet), ["10.0.0.1 a one/x"]);
    }

    #[test]
    fn replicas_are_counted_by_pod() {
        let mut fleet = Fleet::default();
        fleet.routes(Heard::All(vec![
            route("a", "one/x"),
            route("b", "one/none"),
        ]));
        let of = names(&["x", "none"]);
        let v4 = slice(
            "x-4",
            "x",
            &["10.0.0.1=p0", "10.0.0.2!=p1", "10.0.0.3", "10.0.0.4!"],
        );
        let v6 = slice("x-6", "x", &["fd00::1=p0"]);
        fleet.slices("one", &of, Heard::All(vec![v4, v6]));
        let x = ServiceName {
            namespace: "one".into(),
            name: "x".into(),
        };
        assert_eq!(fleet.samples(), [(x.clone(), "p0".into())].into());
        fleet.desired([(x, 5)].into());
        let counts = fleet.replicas();
        let counts = counts
            .iter()
            .map(|r| (&*r.route, r.endpoints, r.ready, r.desired));
        let counts: Vec<_> = counts.collect();
        assert_eq!(counts, [("b", 0, 0, None), ("a", 4, 2, Some(5))]);
    }

    #[test]
    fn polled_routes_are_those_of_the_router() {
        let mut fleet = Fleet::default();
        let other = json!({"spec": {"nginx": {"route": "other"}, "modelType": "llm"}});
        let video = json!({"spec": {"nginx": {"route": "video"}, "modelType": "video"}});
        let parsed = |name: &str, object| (name.into(), ModelRoute::of(name, &object).unwrap());
        fleet.routes(Heard::All(vec![
            route("b", ""),
            route("a", ""),
            parsed("other", other),
            parsed("video", video),
        ]));
        assert_eq!(
            *fleet.polled(None),
            ["a".into(), "b".into(), "other".into()]
        );
        assert_eq!(*fleet.polled(Some("edge")), ["a".into(), "b".into()]);
    }

    #[test]
    fn a_cluster_without_end_is_cut() {
        let mut fleet = Fleet::default();
        let routes = (0..600).map(|n| route(&format!("r{n}"), "one/x"));
        fleet.routes(Heard::All(routes.collect()));
        let addresses: Vec<_> = (0..300)
            .map(|n| format!("10.0.{}.{}", n / 256, n % 256))
            .collect();
        let addresses: Vec<_> = addresses.iter().map(String::as_str).collect();
        let slices = (0..SLICES_MAX).map(|n| slice(&format!("x-{n}"), "x", &addresses[..1]));
        fleet.slices("one", &names(&["x"]), Heard::All(slices.collect()));
        fleet.slices("one", &names(&["x"]), one(slice("one more", "x", &[])));
        assert_eq!(fleet.slices["one"].by_name.len(), SLICES_MAX / 2);
        fleet.slices("one", &names(&["x"]), one(slice("x-0", "x", &[])));
        fleet.slices("one", &names(&["x"]), one(slice("one more", "x", &[])));
        assert_eq!(fleet.slices["one"].by_name.len(), SLICES_MAX / 2 + 1);
        fleet.slices(
            "one",
            &names(&["x"]),
            Heard::All(vec![slice("x", "x", &addresses)]),
        );
        assert_eq!(fleet.polled(None).len(), ROUTES_MAX);
        assert_eq!(fleet.reading().unwrap().pods.len(), PODS_MAX);
    }
}
