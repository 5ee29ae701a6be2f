//! The used part of an EndpointSlice: addresses, their readiness and their pods.

use std::net::IpAddr;

use k8s_openapi::api::discovery::v1::EndpointSlice;

use super::model_route::is_name;

/// The label with the service of a slice.
pub(super) const SERVICE: &str = "kubernetes.io/service-name";

/// The slice of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Slice {
    /// The name of its service, in the slice's namespace.
    pub(super) service: Box<str>,
    pub(super) endpoints: Vec<Endpoint>,
}

/// One endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Endpoint {
    pub(super) addresses: Vec<IpAddr>,
    /// True if the condition is true or absent.
    pub(super) is_ready: bool,
    /// The name of its pod.
    pub(super) pod: Option<Box<str>>,
}

impl Slice {
    /// The used part of a slice; `None` for a slice without a service. Skips addresses that are not
    /// IP addresses, because no row contains them.
    pub(super) fn of(slice: EndpointSlice) -> Option<Self> {
        let service = slice.metadata.labels?.remove(SERVICE)?;
        let endpoints = slice.endpoints.unwrap_or_default().into_iter();
        let endpoints = endpoints.map(|endpoint| {
            let addresses = endpoint.addresses.iter();
            let addresses = addresses.filter_map(|address| address.parse::<IpAddr>().ok());
            let ready = endpoint.conditions.and_then(|conditions| conditions.ready);
            let pod = endpoint
                .target_ref
                .filter(|target| target.kind.as_deref() == Some("Pod"))
                .and_then(|target| target.name)
                .filter(|name| is_name(name));
            Endpoint {
                addresses: addresses.map(|address| address.to_canonical()).collect(),
                is_ready: ready.unwrap_or(true),
                pod: pod.map(Into::into),
            }
        });
        let endpoints = endpoints.filter(|endpoint| !endpoint.addresses.is_empty());
        Some(Self {
            service: service.into(),
            endpoints: endpoints.collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_slice_gives_addresses_readiness_and_pods() {
        let slice = json!({
            "metadata": {"name": "vllm-x", "labels": {SERVICE: "vllm"}},
            "addressType": "IPv4",
            "endpoints": [
                {"addresses": ["10.0.0.1"], "conditions": {"ready": true}, "targetRef": {"kind": "Pod", "name": "vllm-0"}},
                {"addresses": ["10.0.0.2"], "conditions": {"ready": false}},
                {"addresses": ["10.0.0.3", "::ffff:10.0.0.4"], "conditions": {}},
                {"addresses": ["engine.example"], "targetRef": {"kind": "Pod", "name": "vllm-9"}},
            ],
        });
        let slice = Slice::of(serde_json::from_value(slice).unwrap()).unwrap();
        let endpoint = |addresses: &[&str], is_ready, pod: Option<&str>| Endpoint {
            addresses: addresses.iter().map(|a| a.parse().unwrap()).collect(),
            is_ready,
            pod: pod.map(Into::into),
        };
        assert_eq!(&*slice.service, "vllm");
        assert_eq!(
            slice.endpoints,
            [
                endpoint(&["10.0.0.1"], true, Some("vllm-0")),
                endpoint(&["10.0.0.2"], false, None),
                endpoint(&["10.0.0.3", "10.0.0.4"], true, None),
            ]
        );
    }

    #[test]
    fn a_slice_without_a_service_is_none() {
        let slice = json!({"metadata": {"name": "x"}, "addressType": "IPv4", "endpoints": []});
        assert_eq!(Slice::of(serde_json::from_value(slice).unwrap()), None);
    }
}
