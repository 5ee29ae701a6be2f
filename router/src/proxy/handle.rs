//! The life of one request, in order: destination, policy, body, inspection, slot, peer, relay.
//! Each step is a function in its own module; this module only calls them in order.

use std::borrow::Cow;
use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::HeaderMap;
use http::request::Parts;
use http::{Method, Request, Response};
use hyper::body::{Body as _, Incoming};
use router_bodylog::Begun;

use super::answer;
use super::body::{self, Collected, Limits};
use super::cors::Page;
use super::destination::{Denied, Destination};
use super::dispatch::leading_slashes;
use super::error::{ApiError, Dialect};
use super::exchange::{Requested, Whole};
use super::fallback::Fallbacks;
use super::head::HeadWatch;
use super::local::{self, ModelsPath};
use super::lookup::{names, route_of_model};
use super::phase::{Arrival, Authorised, Grant, Live, Received, Refused, Sinks};
use super::relay::Body;
use super::respond::Stamp;
use super::upload::{FormNeed, read_form};
use super::{backends, finish, guard, limits, status, stored};
use crate::admin::access;
use crate::clock::now;
use crate::content::stored::StoredPath;
use crate::content::{Inspection, is_form};
use crate::state::{Lifecycle, Phase, RouteTable};
use crate::upstream::headers::Remote;
use crate::upstream::{PeerClient, headers};
use service::budget::ByteBudget;

/// The handler of the public port. One per process, shared by all connections.
#[derive(Debug)]
pub struct Proxy {
    /// The snapshot in force.
    pub tables: Arc<ArcSwap<RouteTable>>,
    /// The client for upstream requests.
    pub client: PeerClient,
    /// Memory budget for request bodies.
    pub budget: ByteBudget,
    /// Whether the process accepts new work.
    pub lifecycle: Lifecycle,
    /// Receives settled exchanges.
    pub sinks: Arc<Sinks>,
}

type Deadline = Option<(Instant, Duration)>;

/// The answer to a request, or why the router refuses it.
pub(super) type Outcome = Result<Response<Body>, Box<Refused>>;

/// A request under way. Boxed, because each future that holds another is moved with all of its size.
type Running<'c> = Pin<Box<dyn Future<Output = Outcome> + Send + 'c>>;

/// What became of a request by its head alone.
enum Dispatched<'c> {
    /// It is answered.
    Answered(Response<Body>),
    /// Its handler has to wait. Boxed, because the connection reserves room for the future of
    /// [`Proxy::handle`] for its whole life, and a stream lives long after its head is decided.
    Running(Running<'c>),
}

impl<'c> Dispatched<'c> {
    fn run(handler: impl Future<Output = Outcome> + Send + 'c) -> Self {
        Self::Running(Box::pin(handler))
    }
}

/// The parts of a request that do not change with its phase.
struct Call<'t> {
    /// The snapshot in force when the request arrived.
    table: &'t RouteTable,
    parts: Parts,
    body: Incoming,
    /// The other end of the connection.
    peer: &'t Remote,
}

impl Proxy {
    /// Answers one request. Dropping the future or the response's body ends the upstream request.
    pub async fn handle(
        &self,
        request: Request<Incoming>,
        peer: &Remote,
        head: &Arc<HeadWatch>,
    ) -> Response<Body> {
        let at = now();
        let (parts, body) = request.into_parts();
        let framing = head.take(!body.is_end_stream());
        let arrival = Arrival::live(&parts, head, &self.sinks, at);
        let table = self.tables.load_full();
        if let Err(error) = limits::check(&parts, framing) {
            return answer::refused(*Refused::new(arrival, error), &table);
        }
        let page = Page::of(&table, &parts);
        if let Some(page) = &page
            && let Some(answer) = page.preflight(&parts)
        {
            return match answer {
                Ok(answer) => own(arrival, answer),
                Err(error) => answer::refused(*Refused::new(arrival, error), &table),
            };
        }
        let path = parts.uri.path().to_owned();
        let call = Call {
            table: &table,
            parts,
            body,
            peer,
        };
        let answered = match self.dispatch(arrival, call, &path) {
            Ok(Dispatched::Answered(response)) => Ok(response),
            Ok(Dispatched::Running(handler)) => handler.await,
            Err(refused) => Err(refused),
        };
        let mut response = match answered {
            Ok(response) => response,
            Err(refused) => answer::refused(*refused, &table),
        };
        if let Some(page) = page {
            page.stamp(response.headers_mut());
        }
        response
    }

    /// Finds the destination, applies its policy, and answers or starts the handler.
    fn dispatch<'c>(
        &'c self,
        arrival: Live<Arrival>,
        call: Call<'c>,
        path: &'c str,
    ) -> Result<Dispatched<'c>, Box<Refused>> {
        let destination = Destination::of(call.table, path);
        let policy = destination.policy();
        let admitted = match policy.admit(call.table, &call.parts, call.peer.ip) {
            Ok(admitted) => admitted,
            Err(denied) => match *denied {
                Denied::Status(answer) => return Ok(Dispatched::Answered(own(arrival, answer))),
                Denied::Api(error) => return Err(destination.refuse(arrival, error)),
            },
        };
        if destination.takes_new_work() && self.lifecycle.phase() >= Phase::Draining {
            return Err(Refused::new(arrival, ApiError::draining()));
        }
        let parts = &call.parts;
        let result = match destination {
            Destination::Serve { route, path_at } => {
                let owner = admitted.owner;
                let grant = Grant {
                    route,
                    path_at,
                    owner,
                };
                return Ok(Dispatched::run(self.serve(arrival, call, grant)));
            }
            Destination::ByModel => return Ok(Dispatched::run(self.by_model(arrival, call))),
            Destination::Health => Ok(local::health()),
            Destination::Ready => Ok(local::ready(call.table, &self.lifecycle)),
            Destination::ProxyMetrics => {
                backends::answer(parts, &guard::opened(call.table, &parts.headers))
            }
            Destination::FinishSessions => {
                finish::answer(parts, &guard::opened(call.table, &parts.headers))
            }
            Destination::FinishSession(route) => finish::answer(parts, &[route]),
            Destination::Together(what) => Ok(status::answer_together(call.table, what, parts)),
            Destination::Status { endpoint: None, .. } => Ok(access::Denied::Hidden.answer()),
            Destination::Status {
                route,
                endpoint: Some(endpoint),
            } => {
                return Ok(Dispatched::run(async move {
                    let Call {
                        table, parts, body, ..
                    } = call;
                    match status::answer(self, table, route, endpoint, &parts, body).await {
                        Ok(response) => Ok(own(arrival, response)),
                        Err(error) => Err(Refused::new(arrival, error)),
                    }
                }));
            }
            Destination::Nowhere => Err(nowhere(&call)),
            Destination::BadPath(error) | Destination::Unserved(error) => Err(error),
        };
        match result {
            Ok(response) => Ok(Dispatched::Answered(own(arrival, response))),
            Err(error) => Err(Refused::new(arrival, error)),
        }
    }

    /// `/v1/…` without a prefix and with several routes: the model in the body decides the route.
    async fn by_model(
        &self,
        arrival: Live<Arrival>,
        call: Call<'_>,
    ) -> Result<Response<Body>, Box<Refused>> {
        let Call {
            table,
            parts,
            body,
            peer,
        } = call;
        let path_at = leading_slashes(parts.uri.path());
        if matches!(parts.method, Method::GET | Method::HEAD)
            && let Some(path) = ModelsPath::of(&parts.uri.path()[path_at..])
        {
            return match local::models_of_all(table, &parts.headers, path) {
                Ok(answer) => Ok(answer::local(
                    arrival,
                    answer,
                    Dialect::OpenAi,
                    Stamp::Routed,
                )),
                Err(error) => Err(Refused::new(arrival, error)),
            };
        }
        if let Some(StoredPath::Object { .. }) = StoredPath::of(&parts.uri.path()[path_at..]) {
            let call = Call {
                table,
                parts,
                body,
                peer,
            };
            return self.by_stored(arrival, call, path_at).await;
        }
        let bounds = Limits {
            body: table.max_body_size(),
            buffered: table.server.max_buffered_bytes,
        };
        let deadline = longest_deadline(&arrival, table);
        let reading = Reading {
            head: &arrival.head,
            headers: &parts.headers,
            need: || FormNeed::of_any(table),
            bounds,
            deadline,
        };
        let (collected, received) = match self.read(body, reading).await {
            Ok(read) => read,
            Err(error) => return Err(Refused::new(arrival, error)),
        };
        let form = collected.form.as_ref().map(|form| &form.form);
        let readable = match form {
            None => &collected.bytes,
            Some(Ok(form)) => &form.json,
            Some(Err(why)) => {
                let error = ApiError::unreadable_form(*why);
                return Err(Refused::new(arrival, error).having_read(received));
            }
        };
        let inspection = Inspection::read(&table.fields, readable);
        let in_query = || local::query_value(parts.uri.query(), "model");
        let model = inspection.model().map(Cow::into_owned).or_else(in_query);
        let route = match route_of_model(table, model.as_deref()) {
            Ok(route) => route,
            Err(error) => return Err(Refused::new(arrival, error).having_read(received)),
        };
        let admitted = match guard::admit(table, route, &parts.headers) {
            Ok(admitted) => admitted,
            Err(error) => {
                let refused = Refused::on_route(arrival, route, path_at, error);
                return Err(refused.having_read(received));
            }
        };
        let grant = Grant {
            route,
            path_at,
            owner: admitted.owner,
        };
        let mut authorised = match self.authorise(arrival, table, &parts, peer, grant) {
            Ok(authorised) => authorised,
            Err(refused) => return Err(refused.having_read(received)),
        };
        if let Some(capture) = &mut authorised.capture {
            collected.record(capture);
        }
        let limit = route.options.max_body_size.value;
        if received.bytes > limit {
            let error = ApiError::body_too_large(limit);
            return Err(Refused::new(authorised, error).having_read(received));
        }
        let request = Whole {
            parts,
            collected,
            received,
            peer,
        };
        self.send(authorised, table, request).await
    }

    /// `/v1/…/<id>` without a prefix and with several routes: the route that made the object.
    async fn by_stored(
        &self,
        arrival: Live<Arrival>,
        call: Call<'_>,
        path_at: usize,
    ) -> Result<Response<Body>, Box<Refused>> {
        let Call { table, parts, .. } = &call;
        let none = Inspection::empty(&table.fields);
        let home = stored::home(&self.sinks.stored, &parts.uri.path()[path_at..], &none);
        let route = home.and_then(|home| table.get(&home.route)?.route());
        let Some(route) = route else {
            return Err(Refused::new(arrival, ApiError::stored_not_known()));
        };
        let admitted = match guard::admit(table, route, &parts.headers) {
            Ok(admitted) => admitted,
            Err(error) => return Err(Refused::on_route(arrival, route, path_at, error)),
        };
        let grant = Grant {
            route,
            path_at,
            owner: admitted.owner,
        };
        Box::pin(self.serve(arrival, call, grant)).await
    }

    /// A request whose route is known before its body.
    async fn serve(
        &self,
        arrival: Live<Arrival>,
        call: Call<'_>,
        grant: Grant<'_>,
    ) -> Result<Response<Body>, Box<Refused>> {
        let Call {
            table,
            parts,
            body,
            peer,
        } = call;
        let reads = matches!(parts.method, Method::GET | Method::HEAD);
        let route = grant.route;
        let path = parts.uri.path().get(grant.path_at..).unwrap_or_default();
        if let Some(models) = ModelsPath::of(path)
            && (reads || route.is_by_model())
            && let Some(answer) = local::models(route, models)
        {
            let authorised = Authorised::live(arrival, grant, None);
            return match answer {
                Ok(answer) => Ok(answer::local(
                    authorised,
                    answer,
                    Dialect::of(path),
                    Stamp::of(route),
                )),
                Err(error) => Err(Refused::new(authorised, error)),
            };
        }
        let mut authorised = self.authorise(arrival, table, &parts, peer, grant)?;
        let bounds = Limits {
            body: route.options.max_body_size.value,
            buffered: table.server.max_buffered_bytes,
        };
        let deadline = authorised.deadline();
        let reading = Reading {
            head: &authorised.arrival.head,
            headers: &parts.headers,
            need: || FormNeed::of(route),
            bounds,
            deadline,
        };
        let (collected, received) = match self.read(body, reading).await {
            Ok(read) => read,
            Err(error) => return Err(Refused::new(authorised, error)),
        };
        if let Some(capture) = &mut authorised.capture {
            collected.record(capture);
        }
        let request = Whole {
            parts,
            collected,
            received,
            peer,
        };
        // Boxed apart, so that a slow upload does not hold the room of what follows it.
        self.send(authorised, table, request).await
    }

    async fn read(
        &self,
        body: Incoming,
        reading: Reading<'_, impl Fn() -> FormNeed>,
    ) -> Result<(Collected, Received), ApiError> {
        let Reading {
            head,
            headers,
            need,
            bounds,
            deadline,
        } = reading;
        let reading = async {
            match !body.is_end_stream() && is_form(headers) {
                false => body::collect(body, bounds, &self.budget).await,
                // Boxed, so that other bodies do not reserve its room.
                true => {
                    let form = read_form(body, headers, need(), bounds, &self.budget, head);
                    Box::pin(form).await
                }
            }
        };
        let collected = match deadline {
            None => reading.await?,
            Some((end, limit)) => tokio::time::timeout_at(end.into(), reading)
                .await
                .map_err(|_| ApiError::upload_timeout(limit))??,
        };
        let arriving = collected.arriving();
        if arriving == 0 {
            head.body_was_read();
        }
        let received = Received {
            bytes: collected.bytes.len() as u64 + arriving,
            at: now(),
        };
        Ok((collected, received))
    }

    /// Sends a request whose body is complete. Routes with `fallback` hand it on before an error.
    fn send<'c>(
        &'c self,
        authorised: Live<Authorised>,
        table: &'c RouteTable,
        request: Whole<'c>,
    ) -> Running<'c> {
        if !authorised.route.options.fallback.value.0.is_empty() {
            return Box::pin(self.send_or_fall_back(authorised, table, request));
        }
        match Requested::new(self, authorised, table, request) {
            Ok(requested) => Box::pin(requested.answered()),
            Err(refused) => Box::pin(ready(Err(refused))),
        }
    }

    /// Sends a request to its route, and to the fallbacks while no peer has taken it.
    async fn send_or_fall_back(
        &self,
        mut authorised: Live<Authorised>,
        table: &RouteTable,
        request: Whole<'_>,
    ) -> Result<Response<Body>, Box<Refused>> {
        // The memory of the body stays charged until one of the routes has answered.
        let _held = request.collected.held;
        let mut fallbacks = Fallbacks::new(&authorised.route);
        loop {
            let request = Whole {
                parts: request.parts.clone(),
                collected: Collected {
                    bytes: request.collected.bytes.clone(),
                    held: self.budget.hold(),
                    form: request.collected.form.as_ref().map(|form| form.again()),
                },
                received: request.received,
                peer: request.peer,
            };
            let sent = match Requested::new(self, authorised, table, request) {
                Ok(requested) => requested.answered().await,
                Err(refused) => Err(refused),
            };
            let refused = match sent {
                Err(refused) if refused.error.may_fall_back() => refused,
                other => return other,
            };
            let Some(next) = fallbacks.next(table, &refused) else {
                return Err(refused);
            };
            authorised = refused.fall_back(next);
        }
    }

    /// From here on the request is recorded, even if it is refused.
    ///
    /// # Errors
    /// 429 when the owner has all the places that it may have, or is too fast.
    fn authorise(
        &self,
        arrival: Live<Arrival>,
        table: &RouteTable,
        parts: &Parts,
        peer: &Remote,
        grant: Grant<'_>,
    ) -> Result<Live<Authorised>, Box<Refused>> {
        let client = headers::Client {
            peer,
            trusted: &table.server.trusted_proxies,
        };
        let capture = self.sinks.bodylog.begin(|| {
            Some(Begun {
                route: &grant.route.recorded,
                wanted: grant.route.capture().wanted()?,
                headers: &parts.headers,
                client: client.address(&parts.headers),
            })
        });
        let mut authorised = Authorised::live(arrival, grant, capture);
        if let (Some(owners), Some(owner)) = (&table.owners, &authorised.owner) {
            match owners.take(owner, authorised.arrival.at) {
                Ok(place) => authorised.place = place,
                Err(why) => {
                    let error = ApiError::owner_refused(owner, why);
                    return Err(Refused::new(authorised, error));
                }
            }
        }
        Ok(authorised)
    }
}

/// How a body is read.
struct Reading<'c, N> {
    /// The connection.
    head: &'c Arc<HeadWatch>,
    headers: &'c HeaderMap,
    /// How much of a form must be read.
    need: N,
    bounds: Limits,
    deadline: Deadline,
}

impl Destination<'_> {
    /// Refuses a caller whom the policy does not admit.
    fn refuse(&self, arrival: Live<Arrival>, error: ApiError) -> Box<Refused> {
        match self {
            Self::Serve { route, path_at } => Refused::on_route(arrival, route, *path_at, error),
            _ => Refused::new(arrival, error),
        }
    }
}

/// The answer of an endpoint that belongs to no engine API.
fn own(arrival: Live<Arrival>, answer: Response<Bytes>) -> Response<Body> {
    answer::local(arrival, answer, Dialect::OpenAi, Stamp::IdOnly)
}

/// 404. Lists the routes only to a caller whose key opens one.
fn nowhere(call: &Call<'_>) -> ApiError {
    let opens_some = guard::admit_any(call.table, &call.parts.headers).is_ok();
    let routes = opens_some.then(|| names(call.table));
    ApiError::route_not_found("no route has this path; use /<route>/v1/…", routes)
}

/// The deadline of a request whose body decides its route: the longest of all routes.
fn longest_deadline(arrival: &Arrival, table: &RouteTable) -> Deadline {
    let limits = table
        .routes()
        .map(|route| route.options.request_timeout.value);
    let limit = limits.collect::<Option<Vec<_>>>()?.into_iter().max()?;
    Some((arrival.at + limit, limit))
}
