//! Tests of the admin port without its sockets.

mod gates;
mod guard;
mod openapi;
mod process;
mod status;
mod transforms;

use std::net::SocketAddr;

use http::StatusCode;
use router_core::book::{PlacementRequest, PoolId};
use router_core::pool::Evidence;
use serde_json::{Value, json};
use tower::ServiceExt;

use super::*;
use crate::clock::now;
use crate::control::Controlled;
use crate::proxy::serve;
use crate::state::{Reservation, Route};
use crate::testing::Tables;

pub(super) const CHAT: &str = "
peers:
  - {address: 10.0.0.11:8000, name: gpu-a, max_concurrency: 4, gpu: H100}
  - {address: 10.0.0.12:8000, name: gpu-b, max_concurrency: 2}
  - {address: 10.0.0.13:8000, name: spare, max_concurrency: 8, priority: -1}
";

const MULTI: &str = "
peers_by_model:
  m1: [{address: 10.0.0.11:8000, name: gpu-a}]
  m2: [{address: 10.0.0.12:8000, name: gpu-b, enabled: false}, {address: 10.0.0.11:8000, name: gpu-a}]
";

/// A router's admin port without its sockets.
pub(super) struct Port {
    tables: Tables,
    current: Arc<ArcSwap<RouteTable>>,
    lifecycle: Lifecycle,
    controlled: Controlled,
    router: Router,
}

pub(super) struct Reply {
    pub(super) status: StatusCode,
    pub(super) headers: http::HeaderMap,
    pub(super) text: String,
}

impl Reply {
    fn json(&self) -> Value {
        assert!(self.text.ends_with("}\n"), "{}", self.text);
        serde_json::from_str(&self.text).unwrap()
    }
}

impl Port {
    pub(super) fn over(main: &str, routes: &[(&str, &str)]) -> Self {
        let mut tables = Tables::new();
        let current = Arc::new(ArcSwap::from_pointee(tables.table(main, routes)));
        let lifecycle = Lifecycle::default();
        let (control, controlled) = Control::new();
        let metrics = Arc::clone(&tables.metrics);
        let events = Arc::new(Events::new(Arc::clone(&metrics)));
        let budget = ByteBudget::default();
        let state = AdminState::new(Parts {
            tables: Arc::clone(&current),
            lifecycle: lifecycle.clone(),
            control,
            metrics,
            events,
            budget,
            connections: Connections::new(serve::limits(&current.load().server)),
            bodylog: Arc::new(BodyLog::new(1 << 20)),
            findings: Arc::new(Watch::new(now())),
        });
        Self {
            tables,
            current,
            lifecycle,
            controlled,
            router: router(state),
        }
    }

    pub(super) fn chat() -> Self {
        Self::over("", &[("chat", CHAT)])
    }

    fn route(&self) -> Arc<Route> {
        Arc::clone(self.current.load().routes().next().unwrap())
    }

    pub(super) async fn send(
        &self,
        peer: &str,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Reply {
        let mut request = Request::builder().method(method).uri(target);
        if !headers.iter().any(|(name, _)| *name == "host") {
            request = request.header("host", "localhost:8090");
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut request = request.body(Body::from(body.to_owned())).unwrap();
        request
            .extensions_mut()
            .insert(PeerAddr(SocketAddr::new(peer.parse().unwrap(), 5555)));
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (head, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        Reply {
            status: head.status,
            headers: head.headers,
            text: String::from_utf8(bytes.to_vec()).unwrap(),
        }
    }

    /// The answer to a loopback caller, with its body unread.
    pub(super) async fn open(&self, target: &str) -> Response {
        let request = Request::builder()
            .uri(target)
            .header("host", "localhost:8090");
        let mut request = request.body(Body::empty()).unwrap();
        let peer = SocketAddr::new("127.0.0.1".parse().unwrap(), 5555);
        request.extensions_mut().insert(PeerAddr(peer));
        self.router.clone().oneshot(request).await.unwrap()
    }

    pub(super) async fn get(&self, target: &str) -> Reply {
        self.send("127.0.0.1", "GET", target, &[], "").await
    }

    pub(super) async fn post(&self, target: &str) -> Reply {
        self.send("127.0.0.1", "POST", target, &[], "").await
    }

    fn reserve(&self, session: &str) -> Reservation {
        let ask = PlacementRequest::new(PoolId(0), Some(session.as_bytes()));
        self.route().reserve(ask).unwrap().reservation
    }

    pub(super) fn observe(&self, peer: &str, evidence: Evidence) {
        let route = self.route();
        let key = route
            .distinct_peers()
            .into_iter()
            .find(|p| &*p.spec.name == peer)
            .unwrap()
            .spec
            .key
            .clone();
        route.observe(&key, evidence);
    }
}

/// JSON for a snapshot: pretty, keys in order.
fn pretty(reply: &Reply) -> String {
    serde_json::to_string_pretty(&reply.json()).unwrap()
}
