//! The head of an answer and its body. The router makes the body, or a peer sends it.

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{Method, Response, response};

use super::dispatch::api_of;
use super::edits::{Edits, Room};
use super::error::Dialect;
use super::lookup::sole_route;
use super::phase::{Answered, Live, LocalAnswer, Observed, Phase, Placed, Progress, Refused};
use super::relay::{Body, Bounds, Relay, Stream};
use super::respond::{self, Media, Stamp};
use super::shutdown_notice::ShutdownNotice;
use super::unwritten::Unwritten;
use crate::state::{Entry, RouteTable};
use crate::upstream::PeerBody;
use service::budget::ByteBudget;

/// An answer that the router made.
pub(super) fn local<P: Phase>(
    phase: Live<P>,
    response: Response<Bytes>,
    dialect: Dialect,
    stamp: Stamp,
) -> Response<Body>
where
    Progress: From<P>,
{
    let progress = phase.next(Progress::from);
    let (mut head, mut body) = response.into_parts();
    if progress.arrival().method == Method::HEAD {
        // HTTP/2 does not drop the body of an answer to HEAD by itself.
        let length = HeaderValue::from(body.len());
        head.headers.insert(header::CONTENT_LENGTH, length);
        body = Bytes::new();
    }
    let routing = progress.routing();
    respond::stamp(
        &mut head.headers,
        &progress.arrival().id,
        routing,
        dialect,
        stamp,
    );
    let answer = progress.next(|progress| LocalAnswer::of(progress, head.status, &body));
    Response::from_parts(head, Body::local(body, answer))
}

/// The answer to a refused request, in the dialect and with the headers that the API of the path
/// uses.
pub(super) fn refused(refused: Refused, table: &RouteTable) -> Response<Body> {
    let Refused { progress, error } = refused;
    let (dialect, stamp) = match progress.route() {
        Some(route) => (Dialect::of(progress.path()), Stamp::of(route)),
        None => of_path(progress.path(), table),
    };
    local(progress, error.response(dialect), dialect, stamp)
}

/// The answer to a request that is refused before its route is known: the API of the path decides
/// the dialect and the headers.
fn of_path(path: &str, table: &RouteTable) -> (Dialect, Stamp) {
    let Some((name, at)) = api_of(path) else {
        return (Dialect::of(path), Stamp::IdOnly);
    };
    let route = match name {
        Some(name) => table.get(name).and_then(Entry::route),
        None => sole_route(table),
    };
    let stamp = route.map_or(Stamp::Routed, |route| Stamp::of(route));
    (Dialect::of(&path[at..]), stamp)
}

/// How the answers of one router are relayed.
pub(super) struct RelayOptions<'a> {
    /// The snapshot in force when the request arrived.
    pub(super) table: &'a RouteTable,
    /// Memory budget for bytes held back by edits, or not read by the client.
    pub(super) budget: &'a ByteBudget,
    /// Signals the end of the process.
    pub(super) shutdown_notice: ShutdownNotice,
    /// The router asked the engine for usage that the client must not see.
    pub(super) asked_for_usage: bool,
}

/// A relayed answer, as far as it is known at the head of the peer's.
pub(super) enum Relayed {
    /// The head is final.
    Now(Response<Body>),
    /// The head depends on the body.
    Held(Held),
}

/// A relayed answer whose head waits for its body.
pub(super) struct Held {
    head: response::Parts,
    relay: Box<Relay>,
    stamp: Stamp,
}

impl Held {
    /// Waits for the first part of the body, which is held until it is complete.
    pub(super) async fn begun(mut self) -> Response<Body> {
        if let Err(error) = self.relay.begin().await {
            self.head = self.relay.fail(&error, self.stamp);
        }
        Response::from_parts(self.head, Body::relay(self.relay))
    }
}

/// Relays a peer's answer.
pub(super) fn relayed(
    placed: Live<Placed>,
    response: Response<PeerBody>,
    options: RelayOptions<'_>,
) -> Relayed {
    let (mut head, body) = response.into_parts();
    let authorised = &placed.inspected.authorised;
    let route = &authorised.route;
    let (dialect, stamp) = (Dialect::of(authorised.path()), Stamp::of(route));
    let is_head = authorised.arrival.method == Method::HEAD;
    let server = &options.table.server;
    let room = || Room::new(options.budget, server.max_buffered_bytes);
    let media = Media::of(&head.headers);
    let model = placed.inspected.asked.model_for_client(route);
    let edits = Edits::of(route, options.asked_for_usage, model, &head, media, room);
    let decodes = edits.as_ref().is_some_and(|edits| edits.decodes());
    let holds_all = edits.as_ref().is_some_and(|edits| edits.holds_all());
    let is_held = holds_all && !http_body::Body::is_end_stream(&body);
    let bounds = Bounds {
        idle: server.idle_timeout,
        client_idle: route.options.client_write_timeout.value,
        deadline: authorised.deadline(),
    };
    let transparent = route.options.transparent.value;
    let observed = Observed {
        media,
        is_decoded: decodes,
        is_held,
    };
    let answered = Answered::live(placed, &head, body.connect_time(), observed);

    let prefix = answered.placed.inspected.authorised.prefix();
    let target = &answered.placed.tries.peer.target;
    respond::translate(&mut head.headers, target, prefix);
    let is_stream = media == Media::EventStream;
    if is_stream {
        respond::hint_stream(&mut head.headers);
    }
    let placed = &answered.placed;
    let routing = Some(placed.routing());
    respond::stamp(&mut head.headers, placed.id(), routing, dialect, stamp);
    if edits.is_some() {
        Edits::fix(&mut head.headers);
    }
    let speaks = !transparent && !head.headers.contains_key(header::CONTENT_ENCODING);
    if is_stream && speaks && !is_head {
        // An edit may have to add an event.
        head.headers.remove(header::CONTENT_LENGTH);
    }
    // Connection extensions of the upstream hop do not apply to this hop.
    head.extensions = http::Extensions::new();
    head.version = http::Version::HTTP_11;
    let stream = is_stream.then(|| Stream::new(dialect, speaks));
    let notice = options.shutdown_notice;
    let unwritten = Unwritten::new(options.budget, server.max_buffered_bytes);
    let relay = Relay::new(body, answered, bounds, stream, edits, notice, unwritten);
    match is_held {
        true => Relayed::Held(Held { head, relay, stamp }),
        false => Relayed::Now(Response::from_parts(head, Body::relay(relay))),
    }
}
