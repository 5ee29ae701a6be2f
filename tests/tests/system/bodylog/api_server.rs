//! An API server for one test. It lists, gets and watches objects with versions, as a cluster does,
//! and misbehaves on command.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{Either, Full};
use hyper::body::{Body, Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde_json::{Value, json};
use system_tests::tls::Authority;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

/// The path of ModelRoutes.
pub(super) const ROUTES: &str = "/apis/routing.modelsphere.dev/v1alpha1/modelroutes";

/// The path of a namespace's slices.
pub(super) fn slices(namespace: &str) -> String {
    format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices")
}

/// The fault of every answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// No fault.
    None,
    /// An error of this status.
    Status(u16),
    /// Success, with an invalid body.
    Garbage,
    /// Success, with an answer above any allowed size.
    Endless,
    /// No answer until the fault is over.
    Silence,
}

/// No test connects from here, so no outgoing connection takes the port of a dead server.
const ADDRESS: &str = "127.77.0.1:0";

type Answer = Response<Either<Full<Bytes>, Events>>;

/// Events that may wait for a watcher. Tests make few.
const EVENTS: usize = 64;

#[derive(Default)]
struct Cluster {
    version: u64,
    /// By collection, then name.
    objects: BTreeMap<String, BTreeMap<String, Value>>,
    /// Every change: version, collection, event.
    changes: Vec<(u64, String, Value)>,
    /// Changes up to this version are no longer available.
    forgotten: u64,
    watchers: Vec<Watcher>,
    /// The requests so far, without the parameters that do not matter.
    asked: Vec<String>,
    /// The token that every request must carry.
    token: Option<String>,
}

struct Watcher {
    collection: String,
    selector: Selector,
    events: mpsc::Sender<Bytes>,
}

/// The services whose slices are requested. `None` means all objects.
#[derive(Clone)]
struct Selector(Option<Vec<String>>);

impl Selector {
    fn of(query: &str) -> Self {
        let labels = query
            .split('&')
            .find_map(|pair| pair.strip_prefix("labelSelector="));
        let list = labels.map(|labels| {
            let plain = labels
                .replace("%2F", "/")
                .replace("%28", "(")
                .replace("%29", ")");
            let plain = plain.replace("%2C", ",").replace('+', " ");
            let list = plain.strip_prefix("kubernetes.io/service-name in (");
            let list = list.and_then(|list| list.strip_suffix(')'));
            let list = list.unwrap_or_else(|| panic!("selector {plain}"));
            list.split(',').map(str::to_owned).collect()
        });
        Self(list)
    }

    fn takes(&self, object: &Value) -> bool {
        let service = object["metadata"]["labels"]["kubernetes.io/service-name"].as_str();
        let Self(list) = self;
        list.as_ref()
            .is_none_or(|list| service.is_some_and(|service| list.iter().any(|one| one == service)))
    }
}

impl Cluster {
    fn change(&mut self, kind: &str, collection: &str, mut object: Value) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let event = json!({"type": kind, "object": object});
        for watcher in &self.watchers {
            if watcher.collection == collection && watcher.selector.takes(&object) {
                // A watcher that has closed, or does not read, loses the event.
                let _ = watcher.events.try_send(line(&event));
            }
        }
        self.changes
            .push((self.version, collection.to_owned(), event));
        object
    }

    fn list(&self, collection: &str, selector: &Selector) -> Value {
        let objects = self
            .objects
            .get(collection)
            .into_iter()
            .flat_map(BTreeMap::values);
        let items: Vec<_> = objects.filter(|object| selector.takes(object)).collect();
        json!({
            "kind": "List", "apiVersion": "v1", "items": items,
            "metadata": {"resourceVersion": self.version.to_string()},
        })
    }

    fn watch(&mut self, collection: &str, query: &str) -> Answer {
        let since = query
            .split('&')
            .find_map(|pair| pair.strip_prefix("resourceVersion="));
        let since: u64 = since.and_then(|since| since.parse().ok()).unwrap_or(0);
        let selector = Selector::of(query);
        let (events, body) = mpsc::channel(EVENTS);
        if since < self.forgotten {
            let _ = events.try_send(line(&json!({"type": "ERROR", "object": status(410)})));
            return Response::new(Either::Right(Events(body)));
        }
        for (version, of, event) in &self.changes {
            if *version > since && of == collection && selector.takes(&event["object"]) {
                let _ = events.try_send(line(event));
            }
        }
        self.watchers.push(Watcher {
            collection: collection.to_owned(),
            selector,
            events,
        });
        Response::new(Either::Right(Events(body)))
    }
}

fn line(event: &Value) -> Bytes {
    format!("{event}\n").into()
}

fn status(code: u16) -> Value {
    let reason = match code {
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "NotFound",
        410 => "Expired",
        _ => "InternalError",
    };
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code,
        "message": "secret-looking text of an answer", "reason": reason,
    })
}

/// The body of a watch: it ends when its watcher is dropped.
pub(super) struct Events(mpsc::Receiver<Bytes>);

impl Body for Events {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.0
            .poll_recv(context)
            .map(|event| event.map(|event| Ok(Frame::data(event))))
    }
}

/// An API server that may die and come back at the same address. It stops when the value is
/// dropped.
pub(super) struct ApiServer {
    pub(super) address: SocketAddr,
    shared: Shared,
    acceptor: Option<TlsAcceptor>,
    /// The accept loop, which owns the connections.
    life: JoinSet<()>,
}

#[derive(Clone)]
struct Shared {
    cluster: Arc<Mutex<Cluster>>,
    fault: watch::Sender<Fault>,
}

impl ApiServer {
    pub(super) async fn start() -> Self {
        Self::serve(None).await
    }

    /// Starts it over TLS; clients need this token.
    pub(super) async fn start_tls(authority: &Authority, token: &str) -> Self {
        let server = Self::serve(Some(authority.acceptor())).await;
        server.shared.cluster.lock().token = Some(format!("Bearer {token}"));
        server
    }

    async fn serve(acceptor: Option<TlsAcceptor>) -> Self {
        let shared = Shared {
            cluster: Arc::default(),
            fault: watch::Sender::new(Fault::None),
        };
        let mut server = Self {
            address: ADDRESS.parse().unwrap(),
            shared,
            acceptor,
            life: JoinSet::new(),
        };
        server.revive().await;
        server
    }

    /// Starts it again at the same address.
    pub(super) async fn revive(&mut self) {
        let listener = TcpListener::bind(self.address).await.unwrap();
        self.address = listener.local_addr().unwrap();
        let (shared, acceptor) = (self.shared.clone(), self.acceptor.clone());
        self.life.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (shared, acceptor) = (shared.clone(), acceptor.clone());
                connections.spawn(async move {
                    match acceptor {
                        None => serve_connection(stream, shared).await,
                        Some(acceptor) => {
                            if let Ok(stream) = acceptor.accept(stream).await {
                                serve_connection(stream, shared).await;
                            }
                        }
                    }
                });
            }
        });
    }

    /// Closes its port and every connection.
    pub(super) async fn die(&mut self) {
        self.life.shutdown().await;
        self.shared.cluster.lock().watchers.clear();
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Creates or changes an object.
    pub(super) fn put(&self, collection: &str, name: &str, mut object: Value) {
        object["metadata"]["name"] = json!(name);
        let mut cluster = self.shared.cluster.lock();
        let is_new = cluster
            .objects
            .get(collection)
            .is_none_or(|objects| !objects.contains_key(name));
        let kind = if is_new { "ADDED" } else { "MODIFIED" };
        let object = cluster.change(kind, collection, object);
        let objects = cluster.objects.entry(collection.to_owned()).or_default();
        objects.insert(name.to_owned(), object);
    }

    pub(super) fn delete(&self, collection: &str, name: &str) {
        let mut cluster = self.shared.cluster.lock();
        let objects = cluster.objects.get_mut(collection);
        let object = objects.and_then(|objects| objects.remove(name)).unwrap();
        cluster.change("DELETED", collection, object);
    }

    /// Sets the fault from now on. Any fault ends the watches.
    pub(super) fn set(&self, fault: Fault) {
        self.shared.fault.send_replace(fault);
        if fault != Fault::None {
            self.shared.cluster.lock().watchers.clear();
        }
    }

    /// Forgets every change and ends the watches. Watches that resume then ask for a forgotten
    /// version.
    pub(super) fn forget(&self) {
        let mut cluster = self.shared.cluster.lock();
        cluster.version += 1;
        cluster.forgotten = cluster.version;
        cluster.changes.clear();
        cluster.watchers.clear();
    }

    /// How often this was requested. A watch has `watch` in front.
    pub(super) fn asked(&self, what: &str) -> usize {
        let cluster = self.shared.cluster.lock();
        cluster.asked.iter().filter(|asked| *asked == what).count()
    }
}

async fn serve_connection(stream: impl AsyncRead + AsyncWrite + Unpin + Send, shared: Shared) {
    let answer = service_fn(move |request| {
        let shared = shared.clone();
        async move { Ok::<_, std::convert::Infallible>(shared.answer(request).await) }
    });
    // Clients may close at any time.
    let _ = http1::Builder::new()
        .serve_connection(TokioIo::new(stream), answer)
        .await;
}

impl Shared {
    async fn answer(self, request: Request<Incoming>) -> Answer {
        let uri = request.uri();
        let (path, query) = (uri.path(), uri.query().unwrap_or_default());
        let is_watch = query.contains("watch=true");
        {
            let mut cluster = self.cluster.lock();
            let kind = if is_watch { "watch " } else { "" };
            cluster.asked.push(format!("{kind}{path}"));
            let token = request.headers().get("authorization");
            let token = token.and_then(|token| token.to_str().ok());
            if cluster.token.is_some() && cluster.token.as_deref() != token {
                return failure(401);
            }
        }
        let mut faults = self.fault.subscribe();
        let fault = *faults.borrow_and_update();
        match fault {
            Fault::None => {}
            Fault::Status(code) => return failure(code),
            Fault::Garbage => return text("<html>secret-looking text of an answer"),
            Fault::Endless => return text("[".repeat(9 << 20)),
            Fault::Silence => {
                let _ = faults.wait_for(|fault| *fault != Fault::Silence).await;
            }
        }
        let mut cluster = self.cluster.lock();
        if is_watch {
            return cluster.watch(path, query);
        }
        if path == ROUTES || path.ends_with("/endpointslices") {
            return text(cluster.list(path, &Selector::of(query)).to_string());
        }
        let object = path.rsplit_once('/').and_then(|(collection, name)| {
            let objects = cluster.objects.get(collection)?;
            objects.get(name)
        });
        match object {
            Some(object) => text(object.to_string()),
            None => failure(404),
        }
    }
}

fn text(text: impl Into<Bytes>) -> Answer {
    Response::new(Either::Left(Full::new(text.into())))
}

fn failure(code: u16) -> Answer {
    let mut answer = text(status(code).to_string());
    *answer.status_mut() = http::StatusCode::from_u16(code).unwrap();
    answer
}
