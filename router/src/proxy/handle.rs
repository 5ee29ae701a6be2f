//! The life of one request, in order: dispatch, guard, read, inspect, admit and choose, forward,
//! relay. Each step is a function of its own module; this one only strings them together.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::header::{self};
use http::request::Parts;
use http::{Method, Request, Response};
use hyper::body::{Body as _, Incoming};
use router_bodylog::Begun;
use router_core::book::PoolId;

use super::body::{self, Collected, Limits};
use super::dispatch::{Destination, api_of, dispatch, is_forwarded};
use super::edits::{Edits, Room};
use super::error::{ApiError, Dialect};
use super::exchange::{Exchange, Sinks, now};
use super::forward::{Deadlines, Outgoing, RETRY_WINDOW, forward};
use super::head::HeadWatch;
use super::local::{self, ModelsPath};
use super::lookup::{names, route_of_model, sole_route};
use super::relay::{Body, Bounds, Relay, Stream};
use super::respond::{self, Stamp};
use super::rewrite::rewrite;
use super::{backends, decide, finish, guard, limits, status};
use crate::content::Inspection;
use crate::state::{Entry, Lifecycle, Phase, Route, RouteTable};
use crate::upstream::{PeerBody, PeerClient, headers};
use service::budget::ByteBudget;

/// The public port. One per process, shared by every connection.
#[derive(Debug)]
pub struct Proxy {
    /// The snapshot in force.
    pub tables: Arc<ArcSwap<RouteTable>>,
    /// To the peers.
    pub client: PeerClient,
    /// Request bytes in memory.
    pub budget: ByteBudget,
    /// Whether new work is taken.
    pub lifecycle: Lifecycle,
    /// Where exchanges are settled.
    pub sinks: Arc<Sinks>,
}

/// A request's way out.
enum Reply {
    Local(Response<Bytes>),
    Relayed {
        response: Response<PeerBody>,
        pool: PoolId,
        deadline: Deadline,
    },
}

type Deadline = Option<(Instant, std::time::Duration)>;

/// One request on its way through the steps.
struct Call<'t> {
    table: &'t RouteTable,
    exchange: &'t mut Exchange,
    /// The address of the connection.
    peer: IpAddr,
    /// Which headers the answer gets.
    stamp: &'t mut Stamp,
}

impl Proxy {
    /// Answers one request. Dropping the future, or the response's body, ends the upstream request.
    pub async fn handle(
        &self,
        request: Request<Incoming>,
        peer: IpAddr,
        head: &Arc<HeadWatch>,
    ) -> Response<Body> {
        let arrived = now();
        let (parts, body) = request.into_parts();
        let rid = match respond::client_request_id(&parts.headers) {
            Some(id) => Arc::from(id),
            None => Arc::from(respond::new_request_id()),
        };
        let (method, uri) = (parts.method.clone(), parts.uri.clone());
        let sinks = Arc::clone(&self.sinks);
        let mut exchange = Box::new(Exchange::begin(
            rid,
            method,
            uri,
            &parts.headers,
            sinks,
            arrived,
        ));
        exchange.head = Some(Arc::clone(head));
        let framing = head.take(!body.is_end_stream());
        let table = self.tables.load_full();
        let mut stamp = Stamp::IdOnly;
        let call = Call {
            table: &table,
            exchange: &mut exchange,
            peer,
            stamp: &mut stamp,
        };
        let reply = match limits::check(&parts, framing) {
            // Boxed for the connection's sake: it keeps room for this future for as long as it
            // lives, and a stream lives long after its head is decided.
            Ok(()) => Box::pin(self.dispatch(call, parts, body)).await,
            Err(error) => Err(error),
        };
        let response = self.finish(reply, exchange, &table, stamp);
        match response.body().is_held() {
            true => Box::pin(when_whole(response, stamp)).await,
            false => response,
        }
    }

    fn finish(
        &self,
        reply: Result<Reply, ApiError>,
        mut exchange: Box<Exchange>,
        table: &RouteTable,
        mut stamp: Stamp,
    ) -> Response<Body> {
        if reply.is_err() && exchange.route.is_none() {
            stamp = find_api(&mut exchange, table).unwrap_or(stamp);
        }
        let dialect = Dialect::of(exchange.path());
        if let (Err(error), Some(capture)) = (&reply, &mut exchange.capture) {
            capture.refused(error.code());
        }
        let (mut head, mut body) = match reply {
            Ok(Reply::Relayed {
                response,
                pool,
                deadline,
            }) => {
                let room = || Room::new(&self.budget, table.server.max_buffered_bytes);
                let edits = Edits::of(&exchange, &response, room);
                let decoded = edits.as_ref().is_some_and(|edits| edits.decodes());
                exchange.measure_answer(&response, pool, decoded);
                let way = RelayOptions {
                    deadline,
                    stamp,
                    dialect,
                    edits,
                };
                return relayed(response, exchange, table, way, &self.lifecycle);
            }
            Ok(Reply::Local(response)) => response.into_parts(),
            Err(error) => error.response(dialect).into_parts(),
        };
        exchange.status = Some(head.status);
        if exchange.method == Method::HEAD {
            // Over HTTP/2 nothing else keeps the body of an answer to HEAD back.
            let length = header::HeaderValue::from(body.len());
            head.headers.insert(header::CONTENT_LENGTH, length);
            body = Bytes::new();
        }
        if let Some(capture) = &mut exchange.capture {
            capture.local(&body);
        }
        exchange.bytes_out = body.len() as u64;
        exchange.complete = true;
        respond::stamp(&mut head.headers, &exchange, dialect, stamp);
        Response::from_parts(
            head,
            Body::Local {
                bytes: Some(body),
                exchange: Some(exchange),
            },
        )
    }

    async fn dispatch(
        &self,
        call: Call<'_>,
        parts: Parts,
        body: Incoming,
    ) -> Result<Reply, ApiError> {
        let path = parts.uri.path().to_owned();
        match dispatch(&path).map_err(|bad| ApiError::bad_request("bad_path", bad.message()))? {
            Destination::Health => {
                call.exchange.logged = false;
                Ok(Reply::Local(local::health()))
            }
            Destination::Ready => {
                call.exchange.logged = false;
                Ok(Reply::Local(local::ready(call.table, &self.lifecycle)))
            }
            Destination::Status { route, name } => {
                status::answer(self, call.table, route, name, &parts, body, call.peer)
                    .await
                    .map(Reply::Local)
            }
            Destination::Together(what) => Ok(Reply::Local(status::answer_together(
                call.table, what, &parts, call.peer,
            ))),
            Destination::ProxyMetrics => {
                call.exchange.logged = false;
                guard::admit_holder(call.table, &parts.headers)?;
                let routes = guard::opened(call.table, &parts.headers);
                backends::answer(&parts, &routes).map(Reply::Local)
            }
            Destination::FinishSession { route: None } => {
                guard::admit_any(call.table, &parts.headers)?;
                finish::answer(&parts, &guard::opened(call.table, &parts.headers)).map(Reply::Local)
            }
            Destination::FinishSession { route: Some(name) } => match call.table.get(name) {
                Some(Entry::Ready { route, .. }) => {
                    guard::admit(call.table, route, &parts.headers)?;
                    finish::answer(&parts, &[route]).map(Reply::Local)
                }
                Some(Entry::Invalid { name, .. }) => Err(ApiError::route_invalid(name)),
                None => self.nowhere(call, parts, body, &path).await,
            },
            Destination::Nowhere => self.nowhere(call, parts, body, &path).await,
            Destination::Unprefixed => {
                *call.stamp = Stamp::Routed;
                self.refuse_when_draining()?;
                self.unprefixed(call, parts, body).await
            }
            Destination::Route {
                route: name,
                path: rest,
            } => {
                let prefix = path.len() - rest.len();
                match call.table.get(name) {
                    Some(Entry::Ready { route, .. })
                        if is_forwarded(rest, &route.options.extra_paths.value) =>
                    {
                        self.refuse_when_draining()?;
                        self.serve(call, route, prefix, parts, body).await
                    }
                    Some(Entry::Invalid { name, .. }) => {
                        call.exchange.path_at = prefix;
                        Err(ApiError::route_invalid(name))
                    }
                    Some(Entry::Ready { .. }) => Err(ApiError::route_not_found(
                        "no such path on this route",
                        None,
                    )),
                    None => self.nowhere(call, parts, body, &path).await,
                }
            }
        }
    }

    fn refuse_when_draining(&self) -> Result<(), ApiError> {
        if self.lifecycle.phase() >= Phase::Draining {
            Err(ApiError::draining())
        } else {
            Ok(())
        }
    }

    /// A path under no route: an engine-native path of the one route that unprefixed paths mean,
    /// else 404. Only a caller with a key learns which routes there are.
    async fn nowhere(
        &self,
        call: Call<'_>,
        parts: Parts,
        body: Incoming,
        path: &str,
    ) -> Result<Reply, ApiError> {
        if let Some(route) = sole_route(call.table)
            && !path.starts_with("/v1/")
            && is_forwarded(path, &route.options.extra_paths.value)
        {
            self.refuse_when_draining()?;
            let route = Arc::clone(route);
            return self.serve(call, &route, 0, parts, body).await;
        }
        let routes = guard::admit_any(call.table, &parts.headers)
            .ok()
            .map(|()| names(call.table));
        Err(ApiError::route_not_found(
            "no route has this path; use /<route>/v1/…",
            routes,
        ))
    }

    /// `/v1/…`: the default route, else the route of the body's model, else the only route.
    async fn unprefixed(
        &self,
        call: Call<'_>,
        parts: Parts,
        body: Incoming,
    ) -> Result<Reply, ApiError> {
        if let Some(name) = &call.table.server.default_route {
            return match call.table.get(name) {
                Some(Entry::Ready { route, .. }) => self.serve(call, route, 0, parts, body).await,
                Some(Entry::Invalid { name, .. }) => Err(ApiError::route_invalid(name)),
                None => Err(ApiError::route_not_found(
                    "the default route does not exist",
                    None,
                )),
            };
        }
        match &*call.table.entries {
            [Entry::Ready { route, .. }] => return self.serve(call, route, 0, parts, body).await,
            [Entry::Invalid { name, .. }] => return Err(ApiError::route_invalid(name)),
            _ => {}
        }
        guard::admit_any(call.table, &parts.headers)?;
        if matches!(parts.method, Method::GET | Method::HEAD)
            && let Some(path) = ModelsPath::of(parts.uri.path())
        {
            return local::models_of_all(call.table, &parts.headers, path).map(Reply::Local);
        }
        let bounds = Limits {
            body: call.table.max_body_size(),
            buffered: call.table.server.max_buffered_bytes,
        };
        let deadline = longest_deadline(call.exchange, call.table);
        let collected = self.read(call.exchange, body, bounds, deadline).await?;
        let inspection = Inspection::read(&call.table.fields, &collected.bytes);
        let model = inspection.model().map(Cow::into_owned);
        let route = Arc::clone(route_of_model(call.table, model.as_deref())?);
        *call.stamp = Stamp::of(&route);
        let admitted = guard::admit(call.table, &route, &parts.headers)?;
        call.exchange.owner = admitted.owner.clone();
        call.exchange.route = Some(Arc::clone(&route));
        begin_capture(call.table, call.exchange, &route, &parts, call.peer);
        if let Some(capture) = &mut call.exchange.capture {
            capture.request(&collected.bytes);
        }
        let limit = route.options.max_body_size.value;
        if collected.bytes.len() as u64 > limit {
            return Err(ApiError::body_too_large(limit));
        }
        self.place(call, &route, parts, collected, admitted.is_validated())
            .await
    }

    /// A request whose route is known before its body.
    async fn serve(
        &self,
        call: Call<'_>,
        route: &Arc<Route>,
        prefix: usize,
        parts: Parts,
        body: Incoming,
    ) -> Result<Reply, ApiError> {
        call.exchange.path_at = prefix;
        call.exchange.route = Some(Arc::clone(route));
        *call.stamp = Stamp::of(route);
        let admitted = guard::admit(call.table, route, &parts.headers)?;
        let validated = admitted.is_validated();
        call.exchange.owner = admitted.owner;
        let reads = matches!(parts.method, Method::GET | Method::HEAD);
        if let Some(path) = ModelsPath::of(call.exchange.path())
            && (reads || route.is_by_model())
            && let Some(answer) = local::models(route, path)
        {
            return answer.map(Reply::Local);
        }
        let bounds = Limits {
            body: route.options.max_body_size.value,
            buffered: call.table.server.max_buffered_bytes,
        };
        begin_capture(call.table, call.exchange, route, &parts, call.peer);
        let deadline = deadline(call.exchange, route);
        let collected = self.read(call.exchange, body, bounds, deadline).await?;
        self.place(call, route, parts, collected, validated).await
    }

    async fn read(
        &self,
        exchange: &mut Exchange,
        body: Incoming,
        bounds: Limits,
        deadline: Deadline,
    ) -> Result<Collected, ApiError> {
        let reading = body::collect(body, bounds, &self.budget);
        let collected = match deadline {
            None => reading.await?,
            Some((end, limit)) => tokio::time::timeout_at(end.into(), reading)
                .await
                .map_err(|_| ApiError::upload_timeout(limit))??,
        };
        if let Some(head) = &exchange.head {
            head.body_was_read();
        }
        if let Some(capture) = &mut exchange.capture {
            capture.request(&collected.bytes);
        }
        exchange.bytes_in = collected.bytes.len() as u64;
        exchange.times.received = Some(now());
        Ok(collected)
    }

    /// Admits, chooses and forwards a request that is read whole.
    async fn place(
        &self,
        call: Call<'_>,
        route: &Arc<Route>,
        parts: Parts,
        collected: Collected,
        validated: bool,
    ) -> Result<Reply, ApiError> {
        let Call {
            table,
            exchange,
            peer,
            ..
        } = call;
        let deadline = deadline(exchange, route);
        let waits = decide::RetryBounds {
            deadline,
            lifecycle: &self.lifecycle,
        };
        let (pool, first) =
            decide::decide(table, exchange, route, &parts, &collected.bytes, waits).await?;
        let Collected { bytes, held } = collected;
        let bytes = rewrite(exchange, route, self.budget.buffers(), bytes);
        let outgoing = outgoing(table, exchange, parts, peer, bytes, validated);
        let deadlines = Deadlines {
            response: table.server.response_timeout,
            retries: RETRY_WINDOW,
            deadline,
        };
        let sent = forward(
            &self.client,
            exchange,
            route,
            pool,
            first,
            &outgoing,
            deadlines,
        );
        let response = tokio::select! {
            biased;
            response = sent => response?,
            () = self.lifecycle.reached(Phase::Stopped) => return Err(ApiError::draining()),
        };
        // With the head here nothing will be sent again.
        self.budget.buffers().give(outgoing.body);
        drop(held);
        Ok(Reply::Relayed {
            response,
            pool,
            deadline,
        })
    }
}

/// A caller that may come in: from here on its request is recorded, refusals included.
fn begin_capture(
    table: &RouteTable,
    exchange: &mut Exchange,
    route: &Arc<Route>,
    parts: &Parts,
    peer: IpAddr,
) {
    let client = headers::Client {
        peer,
        trusted: &table.server.trusted_proxies,
    };
    exchange.capture = exchange.sinks.bodylog.begin(|| {
        Some(Begun {
            route: &route.recorded,
            wanted: route.capture().wanted()?,
            headers: &parts.headers,
            client: client.address(&parts.headers),
        })
    });
}

fn outgoing(
    table: &RouteTable,
    exchange: &Exchange,
    parts: Parts,
    peer: IpAddr,
    body: Bytes,
    validated: bool,
) -> Outgoing {
    let mut map = parts.headers;
    headers::prepare_request(
        &mut map,
        headers::Client {
            peer,
            trusted: &table.server.trusted_proxies,
        },
    );
    if let Ok(id) = http::HeaderValue::from_str(&exchange.rid) {
        map.insert(respond::REQUEST_ID, id);
    }
    if body.is_empty() && matches!(parts.method, Method::POST | Method::PUT | Method::PATCH) {
        // Such a method may have a body: that it has none is to be said (RFC 9110 section 8.6).
        map.insert(header::CONTENT_LENGTH, header::HeaderValue::from(0_u16));
    }
    let target = parts
        .uri
        .path_and_query()
        .map_or("/", http::uri::PathAndQuery::as_str);
    let path_and_query = target.get(exchange.path_at..).unwrap_or("/").to_owned();
    Outgoing {
        method: parts.method,
        path_and_query,
        headers: map,
        body,
        validated,
    }
}

/// How an answer is relayed.
struct RelayOptions {
    deadline: Deadline,
    stamp: Stamp,
    dialect: Dialect,
    edits: Option<Box<Edits>>,
}

fn relayed(
    response: Response<PeerBody>,
    mut exchange: Box<Exchange>,
    table: &RouteTable,
    way: RelayOptions,
    lifecycle: &Lifecycle,
) -> Response<Body> {
    let (mut head, body) = response.into_parts();
    if let Some(capture) = &mut exchange.capture {
        capture.answered(&head, body.connect_time());
    }
    headers::strip_hop_by_hop(&mut head.headers);
    let transparent = exchange
        .route
        .as_ref()
        .is_some_and(|route| route.options.transparent.value);
    let is_stream = respond::is_event_stream(&head.headers);
    if is_stream {
        respond::hint_stream(&mut head.headers);
    }
    respond::stamp(&mut head.headers, &exchange, way.dialect, way.stamp);
    exchange.status = Some(head.status);
    if way.edits.is_some() {
        Edits::fix(&mut head.headers);
    }
    let speaks = !transparent && !head.headers.contains_key(header::CONTENT_ENCODING);
    if is_stream && speaks && exchange.method != Method::HEAD {
        // An event may have to be added.
        head.headers.remove(header::CONTENT_LENGTH);
    }
    // Connection extensions of the upstream hop are not this hop's.
    head.extensions = http::Extensions::new();
    head.version = http::Version::HTTP_11;
    let stream = is_stream.then(|| Stream::new(way.dialect, speaks));
    let bounds = Bounds {
        idle: table.server.idle_timeout,
        deadline: way.deadline,
    };
    let mut relay = Relay::new(body, exchange, bounds, stream);
    relay.ends_with(lifecycle);
    if let Some(edits) = way.edits {
        relay.edit(edits);
    }
    Response::from_parts(head, Body::Relay(Box::new(relay)))
}

/// The answer whose body is held until it is whole, or what became of it meanwhile.
async fn when_whole(response: Response<Body>, stamp: Stamp) -> Response<Body> {
    let (mut head, mut body) = response.into_parts();
    if let Body::Relay(relay) = &mut body
        && let Err(error) = relay.begin().await
    {
        head = relay.fail(&error, stamp);
    }
    Response::from_parts(head, body)
}

fn deadline(exchange: &Exchange, route: &Route) -> Deadline {
    let limit = route.options.request_timeout.value?;
    Some((exchange.times.arrived + limit, limit))
}

/// The deadline of a request whose body decides its route: that of the most patient one.
fn longest_deadline(exchange: &Exchange, table: &RouteTable) -> Deadline {
    let limits = table
        .routes()
        .map(|route| route.options.request_timeout.value);
    let limit = limits.collect::<Option<Vec<_>>>()?.into_iter().max()?;
    Some((exchange.times.arrived + limit, limit))
}

/// For a request refused before its route was looked at: whose `/v1/…` it is, so that the answer has
/// the dialect and the headers that the caller expects there. `None` where no API is.
fn find_api(exchange: &mut Exchange, table: &RouteTable) -> Option<Stamp> {
    let (name, at) = api_of(exchange.uri.path())?;
    let route = match name {
        Some(name) => table.get(name).and_then(Entry::route),
        None => sole_route(table),
    };
    exchange.path_at = at;
    Some(route.map_or(Stamp::Routed, |route| Stamp::of(route)))
}
