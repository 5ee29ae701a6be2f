//! A request whose body is complete, up to the answer's head: inspection, slot, peer, relay.
//!
//! Only what waits is a future. The steps between two waits are functions, because a future holds
//! room for all of its steps and is moved with it.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::request::Parts;
use http::{Method, Response, StatusCode};
use hyper::body::Body as _;
use router_core::book::PoolId;

use super::answer::{self, RelayOptions, Relayed};
use super::body::Collected;
use super::early::{Finish, Sending};
use super::error::ApiError;
use super::forward::{Deadlines, Outgoing, RETRY_WINDOW, forward};
use super::handle::{Outcome, Proxy};
use super::inspect::inspect;
use super::phase::{Authorised, Inspected, Live, Placed, Received, Refused};
use super::place::{Queue, Tried, place};
use super::respond;
use super::rewrite::rewrite;
use super::shutdown_notice::ShutdownNotice;
use super::tunnel::{self, Upgrade};
use super::upload::ReadForm;
use crate::clock::now;
use crate::content::alias::Alias;
use crate::content::transform::Places;
use crate::content::{Form, FormError};
use crate::placement::{served_body, served_form};
use crate::state::{self, Route, RouteTable};
use crate::upstream::headers::{self, Remote};
use crate::upstream::{PeerBody, RequestBody};
use service::budget::Held;

/// A request whose body was read, as far as its placement needs it.
pub(super) struct Whole<'c> {
    pub(super) parts: Parts,
    pub(super) collected: Collected,
    pub(super) received: Received,
    /// The other end of the connection.
    pub(super) peer: &'c Remote,
}

/// A request that is sent, or waits for a slot.
pub(super) enum Requested<'c> {
    /// It has a slot.
    Placed(Box<Exchange<'c>>),
    /// Its pool is full.
    Queued(Box<Queued<'c>>),
}

/// A request that waits for a slot.
pub(super) struct Queued<'c> {
    pending: Pending<'c>,
    queue: Box<Queue>,
}

/// What is known of a request before it has a slot.
struct Pending<'c> {
    proxy: &'c Proxy,
    table: &'c RouteTable,
    peer: &'c Remote,
    parts: Parts,
    bytes: Bytes,
    held: Held,
    upgrade: Option<Box<Upgrade>>,
    pool: PoolId,
    seeks: bool,
    asks_for_stream: bool,
    places: Option<Places>,
    form: Option<Box<ReadForm>>,
}

/// A request with a slot, until its answer is relayed.
pub(super) struct Exchange<'c> {
    proxy: &'c Proxy,
    table: &'c RouteTable,
    placed: Live<Placed>,
    /// The index of the first peer.
    first: usize,
    outgoing: Outgoing,
    deadlines: Deadlines,
    notice: ShutdownNotice,
    upgrade: Option<Box<Upgrade>>,
    /// The interval of pings to a client that waits for its stream.
    pings: Option<Duration>,
    asked_for_usage: bool,
    bytes: Bytes,
    held: Held,
}

impl<'c> Requested<'c> {
    /// Inspects a request and asks for a slot.
    ///
    /// # Errors
    /// Why the router refuses it.
    pub(super) fn new(
        proxy: &'c Proxy,
        authorised: Live<Authorised>,
        table: &'c RouteTable,
        request: Whole<'c>,
    ) -> Result<Self, Box<Refused>> {
        let Whole {
            mut parts,
            collected:
                Collected {
                    bytes,
                    held,
                    mut form,
                },
            received,
            peer,
        } = request;
        let upgrade = Upgrade::take(&mut parts);
        if upgrade.is_some() && !authorised.route.options.websockets.value {
            let error = ApiError::upgrade_not_allowed().on_route(&authorised.route.name);
            return Err(Refused::new(authorised, error));
        }
        let fields = form.as_mut().map(|form| &mut form.form);
        let (bytes, alias) = serve_alias(&authorised.route, bytes, fields);
        let (inspected, mut question) = inspect(
            table,
            authorised,
            &parts,
            &bytes,
            form.as_ref().map(|form| &form.form),
            alias,
            received,
        )?;
        let tried = place(inspected, &question)?;
        let (pool, seeks) = (question.pool, question.seeks);
        let renamed = question.renamed.take();
        let asks_for_stream = question.inspection.stream() == Some(true);
        let places = question.inspection.places().filter(|_| form.is_none());
        drop(question);
        if let Some(renamed) = renamed {
            parts.uri = renamed.into();
        }
        let pending = Pending {
            proxy,
            table,
            peer,
            parts,
            bytes,
            held,
            upgrade,
            pool,
            seeks,
            asks_for_stream,
            places,
            form,
        };
        match tried {
            Tried::Placed(inspected, slot) => pending.placed(inspected, slot).map(Self::Placed),
            Tried::Queued(queue) => Ok(Self::Queued(Box::new(Queued { pending, queue }))),
        }
    }

    /// Forwards the request, when it has its slot, and relays the answer.
    pub(super) async fn answered(self) -> Outcome {
        let exchange = match self {
            Self::Placed(exchange) => exchange,
            Self::Queued(queued) => Box::pin(queued.placed()).await?,
        };
        exchange.answered().await
    }
}

impl<'c> Queued<'c> {
    async fn placed(self) -> Result<Box<Exchange<'c>>, Box<Refused>> {
        let (inspected, slot) = self.queue.wait(&self.pending.proxy.lifecycle).await?;
        self.pending.placed(inspected, slot)
    }
}

impl<'c> Pending<'c> {
    /// Prepares what is sent to the peer.
    fn placed(
        self,
        inspected: Live<Inspected>,
        slot: state::Placed,
    ) -> Result<Box<Exchange<'c>>, Box<Refused>> {
        let first = slot.peer;
        let rewritten = rewrite(&inspected, self.places.as_ref(), &self.bytes);
        let client = headers::Client {
            peer: self.peer,
            trusted: &self.table.server.trusted_proxies,
        };
        let (body, fault) = match self.form {
            None => (rewritten.body, None),
            Some(form) => form.complete(rewritten.body),
        };
        let outgoing = outgoing(&inspected.authorised, self.parts, client, body);
        let mut outgoing = match outgoing {
            Ok(outgoing) => outgoing,
            Err(error) => return Err(Refused::new(inspected, error)),
        };
        outgoing.seeks = self.seeks;
        outgoing.fault = fault;
        if self.upgrade.is_some() {
            Upgrade::ask(&mut outgoing.headers);
        }
        let placed = inspected.next(|inspected| Placed::of(inspected, self.pool, slot, now()));
        let options = &placed.route().options;
        let may_ping = self.asks_for_stream && !options.transparent.value;
        Ok(Box::new(Exchange {
            first,
            outgoing,
            deadlines: Deadlines {
                response: self.table.server.response_timeout,
                first_byte: options.health.first_byte_timeout.value,
                retries: RETRY_WINDOW,
                deadline: placed.inspected.authorised.deadline(),
            },
            notice: ShutdownNotice::new(self.proxy.lifecycle.clone()),
            upgrade: self.upgrade,
            pings: options.sse_keepalive.value.filter(|_| may_ping),
            asked_for_usage: rewritten.asked_for_usage,
            bytes: self.bytes,
            held: self.held,
            proxy: self.proxy,
            table: self.table,
            placed,
        }))
    }
}

impl Exchange<'_> {
    async fn answered(mut self: Box<Self>) -> Outcome {
        if let Some(interval) = self.pings {
            // Boxed, so that requests without pings do not carry its state.
            return Box::pin(self.sending().run_with_pings(interval)).await;
        }
        let Self {
            proxy,
            placed,
            first,
            outgoing,
            deadlines,
            notice,
            ..
        } = &mut *self;
        let sent = forward(&proxy.client, placed, *first, outgoing, *deadlines);
        let sent = tokio::select! {
            biased;
            sent = sent => sent,
            () = poll_fn(|cx| notice.poll(cx)) => Err(ApiError::draining()),
        };
        match self.relayed(sent)? {
            Relayed::Now(response) => Ok(response),
            Relayed::Held(held) => Ok(Box::pin(held.begun()).await),
        }
    }

    fn sending(self: Box<Self>) -> Sending {
        Sending {
            client: self.proxy.client.clone(),
            placed: self.placed,
            first: self.first,
            outgoing: self.outgoing,
            deadlines: self.deadlines,
            notice: self.notice,
            finish: Finish {
                tables: Arc::clone(&self.proxy.tables),
                budget: self.proxy.budget.clone(),
                held: self.held,
                asked_for_usage: self.asked_for_usage,
            },
        }
    }

    /// Relays the answer whose head has come.
    fn relayed(
        self: Box<Self>,
        sent: Result<Response<PeerBody>, ApiError>,
    ) -> Result<Relayed, Box<Refused>> {
        let this = *self;
        let (proxy, table, placed) = (this.proxy, this.table, this.placed);
        let response = match sent {
            Ok(response) => response,
            Err(error) => return Err(Refused::new(placed, error)),
        };
        let is_refused = matches!(
            response.status(),
            StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE
        );
        if is_refused && !placed.route().options.fallback.value.0.is_empty() {
            let message = "every peer that was tried answered 502 or 503";
            let error = ApiError::upstream(message, placed.tries.attempts.len()).falling_back();
            return Err(Refused::new(placed, error));
        }
        if response.status() == StatusCode::SWITCHING_PROTOCOLS
            && let Some(upgrade) = this.upgrade
        {
            let limits = tunnel::Limits {
                idle: table.server.idle_timeout,
                deadline: this.deadlines.deadline.map(|(end, _)| end),
            };
            let joined = upgrade.join(placed, response, limits, proxy.lifecycle.clone());
            return joined.map(Relayed::Now);
        }
        // The head has arrived, so the request will not be sent again.
        drop(this.outgoing);
        proxy.budget.buffers().give(this.bytes);
        drop(this.held);
        let options = RelayOptions {
            table,
            budget: &proxy.budget,
            shutdown_notice: this.notice,
            asked_for_usage: this.asked_for_usage,
        };
        Ok(answer::relayed(placed, response, options))
    }
}

/// Names the served model in a body whose model is an alias on this route.
fn serve_alias(
    route: &Route,
    body: Bytes,
    form: Option<&mut Result<Form, FormError>>,
) -> (Bytes, Option<Box<Alias>>) {
    let served = match form {
        None => served_body(route, &body).map(|(alias, edited)| (alias, edited.into())),
        Some(form) => served_form(route, form, &body),
    };
    match served {
        Some((alias, edited)) => (edited, Some(Box::new(alias))),
        None => (body, None),
    }
}

fn outgoing(
    request: &Authorised,
    parts: Parts,
    client: headers::Client<'_>,
    body: RequestBody,
) -> Result<Outgoing, ApiError> {
    let mut map = parts.headers;
    headers::prepare_request(&mut map, client);
    if !request.route.options.transparent.value {
        headers::narrow_encodings(&mut map);
    }
    map.insert(respond::REQUEST_ID, request.arrival.id.clone());
    if body.is_end_stream() && matches!(parts.method, Method::POST | Method::PUT | Method::PATCH) {
        // A method that may have a body must state that it has none (RFC 9110 section 8.6).
        map.insert(header::CONTENT_LENGTH, HeaderValue::from(0_u16));
    }
    let target = parts
        .uri
        .path_and_query()
        .map_or("/", http::uri::PathAndQuery::as_str);
    let target = target.get(request.path_at..).unwrap_or("/").parse();
    let unusable = |_| ApiError::bad_request("bad_path", "the path is not a valid request target");
    Ok(Outgoing {
        path_and_query: target.map_err(unusable)?,
        method: parts.method,
        headers: map,
        body,
        // The router used a credential to admit this caller.
        validated: request.owner.is_some(),
        seeks: false,
        fault: None,
    })
}
