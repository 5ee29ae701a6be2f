//! The number of pods a service should have: the number in the topmost owner of one of its pods.
//! The topmost, because owners in between grow and shrink during a rollout.

use std::collections::{BTreeMap, HashMap};

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersion;
use kube::{Api, Client};

use super::client::why;
use super::fleet::Name;
use super::model_route::{ServiceName, is_name};
use crate::resolver::{Health, Source};

/// Most owners above a pod; longer owner chains are ignored.
const LEVELS_MAX: usize = 5;

/// Asks for the owners of one pod of each service. Where an owner cannot be asked, the number known
/// `before` stays.
pub(super) async fn desired(
    client: &Client,
    pods: &BTreeMap<ServiceName, Name>,
    before: &BTreeMap<ServiceName, u64>,
    health: &Health,
) -> BTreeMap<ServiceName, u64> {
    health.asked(&Source::Owners);
    let mut walk = Walk {
        client,
        seen: HashMap::new(),
    };
    let mut found = BTreeMap::new();
    let mut failure = None;
    let mut is_reached = true;
    for (service, pod) in pods {
        let wanted = match is_reached {
            true => walk.top(&service.namespace, pod).await,
            false => Ok(before.get(service).copied()),
        };
        let wanted = wanted.unwrap_or_else(|error| {
            // If the server does not answer at all, the remaining owners are not asked.
            is_reached = matches!(error, kube::Error::Api(_));
            failure.get_or_insert_with(|| why(&error));
            before.get(service).copied()
        });
        if let Some(wanted) = wanted {
            found.insert(service.clone(), wanted);
        }
    }
    match failure {
        Some(why) => health.failed(&Source::Owners, &why),
        None => health.answered(&Source::Owners),
    }
    found
}

/// One round; services with the same owner ask for it once.
struct Walk<'c> {
    client: &'c Client,
    seen: HashMap<Owner, Object>,
}

/// An owner, by namespace, version, kind and name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Owner {
    namespace: Name,
    version: String,
    kind: String,
    name: String,
}

/// The used part of an object; an object that is gone has neither.
#[derive(Clone, Debug, Default)]
struct Object {
    owner: Option<Owner>,
    replicas: Option<u64>,
}

impl Walk<'_> {
    /// What the topmost owner wants; `None` without an owner or a number.
    async fn top(&mut self, namespace: &str, pod: &str) -> Result<Option<u64>, kube::Error> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let Some(pod) = pods.get_metadata_opt(pod).await? else {
            return Ok(None);
        };
        let mut owner = Owner::of(namespace, &pod.metadata);
        let mut replicas = None;
        for _ in 0..LEVELS_MAX {
            let Some(above) = owner else {
                return Ok(replicas);
            };
            let object = self.object(above).await?;
            (owner, replicas) = (object.owner, object.replicas);
        }
        Ok(None)
    }

    async fn object(&mut self, owner: Owner) -> Result<Object, kube::Error> {
        if let Some(object) = self.seen.get(&owner) {
            return Ok(object.clone());
        }
        let object = match owner.resource() {
            Some(resource) => {
                let api: Api<DynamicObject> =
                    Api::namespaced_with(self.client.clone(), &owner.namespace, &resource);
                api.get_opt(&owner.name).await?
            }
            None => None,
        };
        let object = object.map_or_else(Object::default, |object| Object {
            owner: Owner::of(&owner.namespace, &object.metadata),
            replicas: object.data["spec"]["replicas"].as_u64(),
        });
        self.seen.insert(owner, object.clone());
        Ok(object)
    }
}

impl Owner {
    /// The controller of the object with this metadata.
    fn of(namespace: &str, metadata: &ObjectMeta) -> Option<Self> {
        let owners = metadata.owner_references.iter().flatten();
        let mut controllers = owners.filter(|owner| owner.controller == Some(true));
        let OwnerReference {
            api_version,
            kind,
            name,
            ..
        } = controllers.next()?;
        Some(Self {
            namespace: namespace.into(),
            version: api_version.clone(),
            kind: kind.clone(),
            name: name.clone(),
        })
    }

    /// The API path of a kind. Assumes the regular plural, which nearly all kinds have.
    fn resource(&self) -> Option<ApiResource> {
        let is_kind = self.kind.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let is_version = self.version.split('/').all(is_name);
        let version: GroupVersion = self.version.parse().ok()?;
        let is_sound = is_kind && is_version && is_name(&self.name);
        is_sound.then(|| ApiResource::from_gvk(&version.with_kind(&self.kind)))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_owner_is_who_controls() {
        let metadata = json!({"ownerReferences": [
            {"apiVersion": "v1", "kind": "Other", "name": "o", "uid": "1"},
            {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "name": "vllm", "uid": "2", "controller": true},
        ]});
        let owner = Owner::of("ns", &serde_json::from_value(metadata).unwrap()).unwrap();
        assert_eq!((&*owner.name, &*owner.namespace), ("vllm", "ns"));
        let resource = owner.resource().unwrap();
        assert_eq!(resource.plural, "leaderworkersets");
        assert_eq!(resource.api_version, "leaderworkerset.x-k8s.io/v1");
        assert_eq!(Owner::of("ns", &ObjectMeta::default()), None);
    }

    #[test]
    fn an_owner_that_is_no_object_is_not_asked_for() {
        for (version, kind, name) in [
            ("apps/v1", "ReplicaSet/../x", "a"),
            ("apps/../v1", "ReplicaSet", "a"),
            ("apps/v1", "ReplicaSet", "a/status"),
        ] {
            let owner = Owner {
                namespace: "ns".into(),
                version: version.into(),
                kind: kind.into(),
                name: name.into(),
            };
            assert!(owner.resource().is_none(), "{owner:?}");
        }
    }
}
