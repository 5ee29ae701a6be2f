//! What the cluster reports: the pod behind an address, the number of pods of a service, and the
//! routes.
//!
//! ModelRoutes name routes and their services; the EndpointSlices of those services name the pods.
//! Both are listed once and then watched, the slices by namespace, so that one unreadable namespace
//! hides no other. After every change the result goes to the next epoch, which counts rows with it,
//! and to the page. While the API server is away the last result stays.

mod client;
mod fleet;
mod follow;
mod guard;
mod model_route;
mod owners;
mod slice;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::{Api, Client, ResourceExt};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, JoinSet};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use self::client::{ApiServer, NoApiServer};
use self::fleet::{Fleet, Heard, Name, ROUTES_MAX, SLICES_MAX};
use self::follow::Followed;
use self::guard::Guard;
use self::model_route::{ModelRoute, ServiceName};
use self::slice::{SERVICE, Slice};
use crate::resolver::{Health, Resolver, Source};
use crate::shared::Shared;

/// The kind of a route object.
const KIND: &str = "ModelRoute";

/// Events that were received and not processed yet; the sender waits beyond this.
const WAITING_MAX: usize = 64;

/// How the cluster is asked.
#[derive(Clone, Debug)]
pub struct KubernetesConfig {
    /// The API server.
    pub server: ApiServer,
    /// API group of ModelRoutes.
    pub group: String,
    /// Its version.
    pub version: String,
    /// Their name in paths.
    pub plural: String,
    /// Only routes of this router (`spec.nginx.service`) are polled.
    pub router: Option<String>,
    /// Interval between two requests for the owners of pods, and the longest pause before an API
    /// server that does not answer is asked again.
    pub interval: Duration,
    /// Time-out of one answer.
    pub timeout: Duration,
}

impl Default for KubernetesConfig {
    fn default() -> Self {
        Self {
            server: ApiServer::default(),
            group: "routing.modelsphere.dev".to_owned(),
            version: "v1alpha1".to_owned(),
            plural: "modelroutes".to_owned(),
            router: None,
            interval: Duration::from_secs(30),
            timeout: Duration::from_secs(4),
        }
    }
}

/// Whether text can be part of an API path.
///
/// # Errors
/// What it must be.
pub fn api_name(text: &str) -> Result<String, String> {
    let is_name = model_route::is_name(text);
    is_name
        .then(|| text.to_owned())
        .ok_or_else(|| "a name of lower-case letters, digits, dots and hyphens".to_owned())
}

/// Begins to ask, on `tasks`, until `stop`. The receiver is notified once everything was listed, or
/// closed if no cluster is asked.
pub(crate) fn start(
    config: KubernetesConfig,
    shared: &Arc<Shared>,
    tasks: &TaskTracker,
    stop: &CancellationToken,
) -> oneshot::Receiver<()> {
    let (complete, is_complete) = oneshot::channel();
    let health = Arc::new(Health::default());
    let kube = match config.server.config() {
        Ok(Some(kube)) => kube,
        Ok(None) => return is_complete,
        Err(error) => {
            unusable(shared, &health, &error.to_string());
            return is_complete;
        }
    };
    health.asked(&Source::Routes);
    shared.resolved(Resolver {
        health: Arc::clone(&health),
        ..Resolver::default()
    });
    let (say, said) = mpsc::channel(WAITING_MAX);
    let resolving = Resolving {
        config,
        kube,
        health,
        shared: Arc::clone(shared),
        fleet: Fleet::default(),
        slices: BTreeMap::new(),
        watches: 0,
        say,
        children: JoinSet::new(),
        complete: Some(complete),
    };
    let stop = stop.clone();
    tasks.spawn(async move {
        tokio::select! {
            () = stop.cancelled() => {}
            () = resolving.run(said) => {}
        }
    });
    is_complete
}

/// The page shows that a cluster should be asked and is not.
fn unusable(shared: &Shared, health: &Arc<Health>, why: &str) {
    health.asked(&Source::Routes);
    health.failed(&Source::Routes, why);
    shared.resolved(Resolver {
        health: Arc::clone(health),
        ..Resolver::default()
    });
}

/// A message of a child task.
enum Said {
    Routes(Heard<ModelRoute>),
    Slices {
        namespace: Name,
        /// From a watch that may have been replaced meanwhile.
        watch: u64,
        heard: Heard<Slice>,
    },
    Desired(BTreeMap<ServiceName, u64>),
}

/// The watch of a namespace's slices.
struct Watch {
    number: u64,
    services: BTreeSet<Name>,
    task: AbortHandle,
}

struct Resolving {
    config: KubernetesConfig,
    kube: kube::Config,
    health: Arc<Health>,
    shared: Arc<Shared>,
    fleet: Fleet,
    /// By namespace.
    slices: BTreeMap<Name, Watch>,
    /// The result so far.
    watches: u64,
    say: mpsc::Sender<Said>,
    /// Child tasks end when this is dropped.
    children: JoinSet<()>,
    /// Notified once everything was listed.
    complete: Option<oneshot::Sender<()>>,
}

impl Resolving {
    async fn run(mut self, mut said: mpsc::Receiver<Said>) {
        let clients = (self.client(Some(Source::Routes)), self.client(None));
        let (routes, owners) = match clients {
            (Ok(routes), Ok(owners)) => (routes, owners),
            (Err(error), _) | (_, Err(error)) => {
                return unusable(&self.shared, &self.health, &error.to_string());
            }
        };
        self.follow_routes(routes);
        let mut ticks = tokio::time::interval(self.config.interval);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut is_asking = false;
        loop {
            tokio::select! {
                Some(one) = said.recv() => {
                    let mut next = Some(one);
                    while let Some(one) = next {
                        is_asking &= !matches!(one, Said::Desired(_));
                        self.take(one);
                        next = said.try_recv().ok();
                    }
                    if self.show() {
                        ticks.reset_immediately();
                    }
                }
                _ = ticks.tick(), if !is_asking => is_asking = self.ask_for_owners(&owners),
                Some(_) = self.children.join_next() => {}
            }
        }
    }

    fn take(&mut self, said: Said) {
        match said {
            Said::Routes(heard) => self.fleet.routes(heard),
            Said::Slices {
                namespace,
                watch,
                heard,
            } => {
                if let Some(current) = self.slices.get(&namespace)
                    && current.number == watch
                {
                    self.fleet.slices(&namespace, &current.services, heard);
                }
            }
            Said::Desired(desired) => self.fleet.desired(desired),
        }
    }

    /// Adjusts the watches, and publishes the result. True when everything is known for the first
    /// time.
    fn show(&mut self) -> bool {
        self.follow_slices();
        if let Some(reading) = self.fleet.reading() {
            self.shared.places(reading);
        }
        self.shared.resolved(Resolver {
            services: self.fleet.replicas(),
            routes: self.fleet.polled(self.config.router.as_deref()),
            health: Arc::clone(&self.health),
        });
        if !self.fleet.is_complete() {
            return false;
        }
        match self.complete.take() {
            Some(complete) => {
                // The receiver may be gone.
                let _ = complete.send(());
                true
            }
            None => false,
        }
    }

    /// True if there was an owner to ask for.
    fn ask_for_owners(&mut self, client: &Client) -> bool {
        let pods = self.fleet.samples();
        if pods.is_empty() {
            return false;
        }
        let before = self.fleet.known_desired();
        let (client, health, say) = (client.clone(), Arc::clone(&self.health), self.say.clone());
        self.children.spawn(async move {
            let desired = owners::desired(&client, &pods, &before, &health).await;
            let _ = say.send(Said::Desired(desired)).await;
        });
        true
    }

    fn follow_routes(&mut self, client: Client) {
        let KubernetesConfig {
            group,
            version,
            plural,
            ..
        } = &self.config;
        let kind = GroupVersionKind::gvk(group, version, KIND);
        let resource = ApiResource::from_gvk_with_plural(&kind, plural);
        let api: Api<DynamicObject> = Api::all_with(client, &resource);
        let followed = self.followed(api, Source::Routes, None, ROUTES_MAX);
        let say = self.say.clone();
        self.children.spawn(followed.follow(
            |object: DynamicObject| {
                let name = object.metadata.name.as_deref()?;
                let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
                let route = ModelRoute::of(name, &object.data);
                Some((format!("{namespace}/{name}").into(), route))
            },
            async move |heard| say.send(Said::Routes(heard)).await.is_ok(),
        ));
    }

    /// Starts, replaces and ends watches: one for each namespace with a service of a route.
    fn follow_slices(&mut self) {
        let wanted = self.fleet.wanted();
        self.slices.retain(|namespace, watch| {
            let is_wanted = wanted.get(namespace) == Some(&watch.services);
            if !is_wanted {
                watch.task.abort();
            }
            if !wanted.contains_key(namespace) {
                self.health.dismissed(&Source::Slices(namespace.clone()));
            }
            is_wanted
        });
        for (namespace, services) in wanted {
            if self.slices.contains_key(&namespace) {
                continue;
            }
            let source = Source::Slices(namespace.clone());
            self.health.asked(&source);
            match self.client(Some(source.clone())) {
                Ok(client) => self.follow_slices_of(namespace, services, source, client),
                Err(error) => self.health.failed(&source, &error.to_string()),
            }
        }
    }

    fn follow_slices_of(
        &mut self,
        namespace: Name,
        services: BTreeSet<Name>,
        source: Source,
        client: Client,
    ) {
        self.watches += 1;
        let number = self.watches;
        let names: Vec<&str> = services.iter().map(|name| &**name).collect();
        let labels = format!("{SERVICE} in ({})", names.join(","));
        let api: Api<EndpointSlice> = Api::namespaced(client, &namespace);
        let followed = self.followed(api, source, Some(labels), SLICES_MAX);
        let (say, of) = (self.say.clone(), namespace.clone());
        let task = self.children.spawn(followed.follow(
            |slice: EndpointSlice| Some((slice.name_any().into(), Slice::of(slice))),
            async move |heard| {
                let said = Said::Slices {
                    namespace: of.clone(),
                    watch: number,
                    heard,
                };
                say.send(said).await.is_ok()
            },
        ));
        let watch = Watch {
            number,
            services,
            task,
        };
        self.slices.insert(namespace, watch);
    }

    fn followed<K>(
        &self,
        api: Api<K>,
        source: Source,
        labels: Option<String>,
        room: usize,
    ) -> Followed<K> {
        Followed {
            api,
            labels,
            may_be_absent: source == Source::Routes,
            source,
            health: Arc::clone(&self.health),
            pause_max: self.config.interval,
            room,
        }
    }

    /// Each watch has its own client, which reports the watch's state.
    fn client(&self, watched: Option<Source>) -> Result<Client, kube::Error> {
        let guard = Guard {
            timeout: self.config.timeout,
            watched: watched.map(|source| (Arc::clone(&self.health), source)),
        };
        client::client(&self.kube, &guard)
    }
}
