//! The floor: axum over hyper's client, which streams both ways and decides nothing. This is what a
//! router costs without any routing.

use std::net::SocketAddr;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::uri::{Authority, Scheme};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::serve::ListenerExt;
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::net::TcpListener;

use crate::report;

/// Connections kept per upstream: as many as there can be open requests.
const POOL_MAX_IDLE: usize = 1024;

#[derive(Clone)]
struct Upstream {
    authority: Authority,
    client: Client<HttpConnector, Body>,
}

/// Prints its address, then serves until the process ends.
pub(crate) async fn serve(upstream: SocketAddr) {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client = Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_max_idle_per_host(POOL_MAX_IDLE)
        .build(connector);
    let authority = upstream
        .to_string()
        .parse()
        .expect("an address is an authority");
    let app = axum::Router::new()
        .fallback(relay)
        .with_state(Upstream { authority, client });
    let listener = TcpListener::bind("127.0.0.1:0")
        .await
        .expect("loopback has free ports");
    report::line(&format!(
        "floor ready http://{}",
        listener.local_addr().expect("it is bound")
    ));
    let listener = listener.tap_io(|stream| {
        stream
            .set_nodelay(true)
            .expect("a TCP socket takes TCP_NODELAY");
    });
    axum::serve(listener, app)
        .await
        .expect("axum serves until the process ends");
}

async fn relay(State(upstream): State<Upstream>, mut request: Request) -> Response {
    let mut parts = std::mem::take(request.uri_mut()).into_parts();
    parts.scheme = Some(Scheme::HTTP);
    parts.authority = Some(upstream.authority);
    *request.uri_mut() = Uri::from_parts(parts).expect("scheme, authority and path are a URI");
    match upstream.client.request(request).await {
        Ok(response) => response.map(Body::new),
        Err(_) => StatusCode::BAD_GATEWAY.into_response(),
    }
}
