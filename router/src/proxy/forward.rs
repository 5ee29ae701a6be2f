//! Gets a response's head from a peer: the attempts, the next step after each failure, and the time
//! limits.
//!
//! The router retries only while no response byte has reached the client, and never after a fresh
//! connection took the request: a prompt that kills an engine must not kill three. The exception is
//! a route with `first_byte_timeout`: its operator asks for the retry of a request that a peer took
//! and did not answer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use router_core::health::{AttemptEnd, Failure};
use router_core::pool::Evidence;

use super::error::ApiError;
use super::phase::{Arrival, Authorised, Placed, Tries};
use super::stored::SEEK_MAX;
use super::upload::Fault;
use crate::clock::now;
use crate::state::{Peer, Route};
use crate::telemetry::events::PeerRef;
use crate::upstream::client::chain;
use crate::upstream::{PeerBody, PeerClient, RequestBody, SendError, headers};
use router_config::units::show_duration;

/// No attempt begins later than this after the first one.
pub(super) const RETRY_WINDOW: Duration = Duration::from_secs(60);

/// A request ready to be sent to any peer of its pool.
#[derive(Debug)]
pub(super) struct Outgoing {
    /// As received.
    pub method: Method,
    /// Raw path and query after the route prefix.
    pub path_and_query: PathAndQuery,
    /// Headers prepared for the upstream hop, except `Host` and the credential.
    pub headers: HeaderMap,
    /// The body, with the edits of the route.
    pub body: RequestBody,
    /// The router itself checked the client's credential.
    pub validated: bool,
    /// Whether a peer that answers 404 sends the request on to the next one.
    pub seeks: bool,
    /// Why the client's part of a streamed body failed.
    pub fault: Option<Fault>,
}

impl Outgoing {
    fn to(&self, peer: &Peer, forward_auth: bool) -> Result<Request<RequestBody>, ApiError> {
        let unusable =
            |_| ApiError::bad_request("bad_path", "the path is not a valid request target");
        let path = peer.target.below(&self.path_and_query);
        let mut request = Request::new(self.body.clone());
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = path.map_err(unusable)?.into();
        let mut headers = self.headers.clone();
        headers.insert(header::HOST, peer.target.host.clone());
        headers::credential(
            &mut headers,
            peer.target.authorization.as_ref(),
            self.validated,
            forward_auth,
        );
        *request.headers_mut() = headers;
        Ok(request)
    }
}

impl Outgoing {
    /// A failure of the client says nothing about the peer.
    fn blame_client(&self, end: End) -> End {
        let fault = self.fault.as_ref().and_then(|fault| fault.lock().clone());
        match (fault, end) {
            (Some(error), End::Fatal(..) | End::Stale(_)) => {
                End::Fatal(error, Arc::from("the client's body"), AttemptEnd::Neutral)
            }
            (_, end) => end,
        }
    }
}

/// The time limits for a response's head.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadlines {
    /// Per attempt, from the sent request to the head.
    pub response: Duration,
    /// Per attempt, from the sent request to the first byte of the body. `None`: no limit.
    pub first_byte: Option<Duration>,
    /// From the start of the first attempt to the start of the last one.
    pub retries: Duration,
    /// The deadline of the whole request.
    pub deadline: Option<(Instant, Duration)>,
}

/// The result of one attempt, as far as it decides the next step.
enum End {
    /// A head to pass on.
    Head(Response<PeerBody>),
    /// 502 or 503 from the peer: passed on only if no other candidate is left.
    Unavailable(Response<PeerBody>),
    /// 404 from a peer that does not store what the request names.
    NotHere(Response<PeerBody>),
    /// No byte was sent. `dead` if the peer can serve no request now.
    NotSent {
        /// Whether to ban the peer.
        dead: bool,
        /// Evidence about the peer.
        says: AttemptEnd,
        /// For the receipt and the log.
        why: Arc<str>,
    },
    /// Nothing was received within this time.
    Silent(Duration),
    /// A reused connection closed without an answer.
    Stale(Arc<str>),
    /// No further attempt is allowed. Carries the evidence about the peer.
    Fatal(ApiError, Arc<str>, AttemptEnd),
}

impl End {
    /// A 404 sends a request on that `seeks` its peer.
    fn unless_missing(self, seeks: bool) -> Self {
        match self {
            Self::Head(response) if seeks && response.status() == StatusCode::NOT_FOUND => {
                Self::NotHere(response)
            }
            end => end,
        }
    }
}

/// What is left of a failed attempt, in case no other candidate is left.
enum Left {
    /// A response to pass on.
    Response(Response<PeerBody>),
    /// The peer sent nothing within this time.
    Silence(Duration),
    /// No connection.
    Nothing,
}

/// Sends a request to the peer it is placed on, and after a failure to the next candidates. The
/// reservation moves with it. Dropping the future cancels the current attempt.
///
/// # Errors
/// 502 or 504, by the rule in the module's documentation.
pub(super) async fn forward(
    client: &PeerClient,
    placed: &mut Placed,
    first: usize,
    outgoing: &Outgoing,
    deadlines: Deadlines,
) -> Result<Response<PeerBody>, ApiError> {
    let Placed {
        inspected,
        pool,
        tries,
        ..
    } = placed;
    let Authorised { arrival, route, .. } = &inspected.authorised;
    let Arrival { rid, sinks, .. } = arrival;
    let started = tries.sent;
    let mut current = first;
    let mut tried = Vec::new();
    // A body that is still arriving can be sent once. So it takes no connection that may be stale.
    let mut fresh = outgoing.body.is_streamed();
    loop {
        let peer = Arc::clone(&tries.peer);
        let request = outgoing.to(&peer, route.options.forward_auth.value)?;
        let end = attempt(client, &peer, request, fresh, deadlines).await;
        let (left, why) = match outgoing.blame_client(end.unless_missing(outgoing.seeks)) {
            End::Head(response) => return Ok(response),
            // A late failure does not mean that the connection was already dead: the prompt may
            // have killed the engine.
            End::Stale(why) if !fresh && is_in_window(started, deadlines) => {
                tracing::debug!(rid = %rid, peer = %peer.spec.key, error = %why, "a kept connection was stale");
                fresh = true;
                continue;
            }
            End::Fatal(error, why, says) => {
                tries.ended(route, &sinks.events, says);
                return Err(give_up(tries, arrival, route, &peer, &why, error));
            }
            End::Stale(why) => {
                tries.ended(route, &sinks.events, AttemptEnd::Failed(Failure::Reset));
                let error = ApiError::upstream(BROKE, tries.attempts.len());
                return Err(give_up(tries, arrival, route, &peer, &why, error));
            }
            End::Unavailable(response) => {
                let why = Arc::from(format!("status {}", response.status().as_u16()));
                let says = AttemptEnd::Failed(Failure::ServerError);
                tries.ended(route, &sinks.events, says);
                (Left::Response(response), why)
            }
            End::NotHere(response) => {
                tries.ended(route, &sinks.events, AttemptEnd::Neutral);
                (Left::Response(response), Arc::from("status 404"))
            }
            End::Silent(limit) => {
                let says = AttemptEnd::Failed(Failure::NoFirstByte);
                tries.ended(route, &sinks.events, says);
                let why = format!("no first byte within {}", show_duration(limit));
                (Left::Silence(limit), Arc::from(why))
            }
            End::NotSent { dead, says, why } => {
                tries.ended(route, &sinks.events, says);
                if dead && let Some(change) = route.observe(&peer.spec.key, Evidence::Unreachable) {
                    let events = &sinks.events;
                    events.peer_changed(at_peer(route, &peer), change, &why);
                }
                (Left::Nothing, why)
            }
        };
        tried.push(current);
        // The wait for a silent peer may be longer than the window. The number of attempts bounds
        // it.
        let may_go_on = matches!(left, Left::Silence(_)) || is_in_window(started, deadlines);
        let more_tries = match outgoing.seeks {
            true => SEEK_MAX,
            false => route.options.max_more_tries.value as usize,
        };
        let next = match may_go_on && outgoing.body.can_be_sent() {
            true => next_candidate(tries, route, &tried, more_tries),
            false => None,
        };
        match (next, left) {
            (Some(next), _) => {
                tries.failed(&why);
                if !outgoing.seeks {
                    sinks.events.attempt_retried(
                        &route.state.metrics,
                        at_peer(route, &peer),
                        rid,
                        &why,
                    );
                }
                current = next;
                tries.go_on(&route.peers[pool.0][next]);
                fresh = outgoing.body.is_streamed();
            }
            (None, Left::Response(response)) => return Ok(response),
            (None, Left::Silence(limit)) => {
                let error = ApiError::upstream_timeout("first_byte_timeout", limit);
                return Err(give_up(tries, arrival, route, &peer, &why, error));
            }
            (None, Left::Nothing) => {
                let error = ApiError::upstream("no peer could be reached", tries.attempts.len());
                let error = error.falling_back();
                return Err(give_up(tries, arrival, route, &peer, &why, error));
            }
        }
    }
}

const BROKE: &str = "the peer broke off before its response headers";
const SWITCHED: &str = "the peer changed the protocol unasked";

async fn attempt(
    client: &PeerClient,
    peer: &Peer,
    request: Request<RequestBody>,
    fresh: bool,
    deadlines: Deadlines,
) -> End {
    let limits = AttemptLimits::new(deadlines, now());
    let asks_upgrade =
        request.method() == Method::GET && request.headers().contains_key(header::UPGRADE);
    let (end, late) = limits.head();
    let sent = client.send(&peer.target.address, request, fresh);
    match tokio::time::timeout_at(end.into(), sent).await {
        Err(_) => late.end("no response headers in time"),
        Ok(Ok(mut response)) => match response.status() {
            StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE => End::Unavailable(response),
            StatusCode::SWITCHING_PROTOCOLS if !asks_upgrade => End::Fatal(
                ApiError::upstream(SWITCHED, 1),
                Arc::from("status 101"),
                AttemptEnd::Neutral,
            ),
            status if status.is_success() && limits.first_byte.is_some() => {
                let (end, late) = limits.body();
                let first_byte = response.body_mut().first_byte();
                match tokio::time::timeout_at(end.into(), first_byte).await {
                    Ok(()) => End::Head(response),
                    Err(_) => late.end("no byte of the answer in time"),
                }
            }
            _ => End::Head(response),
        },
        Ok(Err(error)) => {
            let why = Arc::from(chain(&error));
            match error {
                SendError::Dead(_) => End::NotSent {
                    dead: true,
                    says: AttemptEnd::Failed(Failure::NoConnection),
                    why,
                },
                // No connection was refused. A host that swallows connections is not banned, so
                // this has to count.
                SendError::ConnectTimeout => End::NotSent {
                    dead: false,
                    says: AttemptEnd::Failed(Failure::NoFirstByte),
                    why,
                },
                // Another peer would need a descriptor too.
                SendError::Exhausted(_) => {
                    End::Fatal(ApiError::no_descriptors(), why, AttemptEnd::Neutral)
                }
                SendError::Stale(_) => End::Stale(why),
                SendError::Broken(_) => {
                    let says = AttemptEnd::Failed(Failure::Reset);
                    End::Fatal(ApiError::upstream(BROKE, 1), why, says)
                }
            }
        }
    }
}

/// The ends of the time limits of one attempt, each with its length.
struct AttemptLimits {
    response: (Instant, Duration),
    first_byte: Option<(Instant, Duration)>,
    request: Option<(Instant, Duration)>,
}

/// The time limit that ended an attempt.
#[derive(Clone, Copy)]
enum Late {
    Response(Duration),
    FirstByte(Duration),
    Request(Duration),
}

impl AttemptLimits {
    fn new(deadlines: Deadlines, now: Instant) -> Self {
        Self {
            response: (now + deadlines.response, deadlines.response),
            first_byte: deadlines.first_byte.map(|limit| (now + limit, limit)),
            request: deadlines.deadline,
        }
    }

    /// The first limit that ends the wait for the head.
    fn head(&self) -> (Instant, Late) {
        let (end, limit) = self.response;
        self.or_earlier((end, Late::Response(limit)))
    }

    /// The first limit that ends the wait for the first byte of the body.
    fn body(&self) -> (Instant, Late) {
        match self.first_byte {
            Some((end, limit)) => self.or_earlier((end, Late::FirstByte(limit))),
            None => self.head(),
        }
    }

    fn or_earlier(&self, mut first: (Instant, Late)) -> (Instant, Late) {
        if let Some((end, limit)) = self.first_byte.filter(|(end, _)| *end <= first.0) {
            first = (end, Late::FirstByte(limit));
        }
        match self.request {
            Some((end, limit)) if end <= first.0 => (end, Late::Request(limit)),
            _ => first,
        }
    }
}

impl Late {
    fn end(self, why: &'static str) -> End {
        let (which, limit) = match self {
            Self::FirstByte(limit) => return End::Silent(limit),
            Self::Response(limit) => ("response_timeout", limit),
            Self::Request(limit) => ("request_timeout", limit),
        };
        let error = ApiError::upstream_timeout(which, limit);
        let says = AttemptEnd::Failed(Failure::NoFirstByte);
        End::Fatal(error, Arc::from(why), says)
    }
}

fn next_candidate(
    tries: &mut Tries,
    route: &Route,
    tried: &[usize],
    more_tries: usize,
) -> Option<usize> {
    if tries.retries() >= more_tries {
        return None;
    }
    route.retry(&mut tries.reservation, tried)
}

fn is_in_window(started: Instant, deadlines: Deadlines) -> bool {
    now().saturating_duration_since(started) <= deadlines.retries
}

fn give_up(
    tries: &mut Tries,
    arrival: &Arrival,
    route: &Route,
    peer: &Peer,
    why: &Arc<str>,
    error: ApiError,
) -> ApiError {
    tries.failed(why);
    let attempts = tries.attempts.len();
    let events = &arrival.sinks.events;
    events.request_failed(at_peer(route, peer), &arrival.rid, attempts, why, now());
    error.on_route(&route.name)
}

/// The label of a peer in events.
pub(super) fn at_peer<'a>(route: &'a Route, peer: &'a Peer) -> PeerRef<'a> {
    PeerRef {
        route: &route.name,
        peer: &peer.spec.key,
        name: &peer.spec.name,
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use router_bodylog::BodyLog;
    use router_core::book::{PlacementRequest, PoolId};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::task::JoinSet;

    use super::super::head::HeadWatch;
    use super::super::phase::{Asked, Inspected, Live, Received, Sinks};
    use super::super::stored::StoredUse;
    use super::*;
    use crate::telemetry::events::Events;
    use crate::testing::Tables;
    use crate::upstream::ConnectTimeout;
    use bytes::Bytes;
    use service::tls::install_crypto_provider;

    /// An engine that answers the first request of each connection and closes the connection at the
    /// second.
    async fn engine(tasks: &mut JoinSet<()>) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                connections.spawn(async move {
                    let mut request = [0; 1024];
                    let _ = stream.read(&mut request).await;
                    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
                    let _ = stream.write_all(answer).await;
                    let _ = stream.read(&mut request).await;
                });
            }
        });
        address
    }

    /// A request that holds a slot on the only peer.
    fn placed(route: &Arc<Route>, sinks: &Arc<Sinks>) -> Live<Placed> {
        let (parts, ()) = Request::post("/r/v1/x").body(()).unwrap().into_parts();
        let head = Arc::new(HeadWatch::default());
        let slot = route
            .reserve(PlacementRequest::new(PoolId(0), None))
            .unwrap();
        Arrival::live(&parts, &head, sinks, now()).next(|arrival| {
            let authorised = Authorised {
                arrival,
                route: Arc::clone(route),
                path_at: 2,
                owner: None,
                place: None,
                capture: None,
            };
            let asked = Asked {
                model: None,
                alias: None,
                stored: StoredUse::Nothing,
                session: "-".into(),
                source: "none".into(),
            };
            let received = Received {
                bytes: 2,
                at: now(),
            };
            let inspected = Inspected {
                authorised,
                received,
                asked,
            };
            Placed::of(inspected, PoolId(0), slot, now())
        })
    }

    /// The error of the first refused request out of many; `None` if all of them are answered.
    async fn refusal(window: Duration) -> Option<&'static str> {
        install_crypto_provider();
        let (mut tables, mut tasks) = (Tables::new(), JoinSet::new());
        let route = format!("peers: [{{address: '{}'}}]", engine(&mut tasks).await);
        let table = tables.table("", &[("r", &route)]);
        let route = table.get("r").unwrap().route().unwrap();
        let client = PeerClient::new(ConnectTimeout::new(Duration::from_secs(10)));
        let sinks = Arc::new(Sinks {
            metrics: Arc::clone(&tables.metrics),
            events: Arc::new(Events::new(Arc::clone(&tables.metrics))),
            access: None,
            bodylog: Arc::new(BodyLog::new(0)),
            findings: Arc::new(crate::findings::Watch::new(now())),
            stored: crate::state::StoredIds::default(),
        });
        let outgoing = Outgoing {
            method: Method::POST,
            path_and_query: PathAndQuery::from_static("/v1/x"),
            headers: HeaderMap::new(),
            body: Bytes::from_static(b"{}").into(),
            validated: false,
            seeks: false,
            fault: None,
        };
        let deadlines = Deadlines {
            response: Duration::from_secs(10),
            first_byte: None,
            retries: window,
            deadline: None,
        };
        for _ in 0..100 {
            let mut placed = placed(route, &sinks);
            let sent = forward(&client, &mut placed, 0, &outgoing, deadlines);
            if let Err(error) = sent.await {
                return Some(error.code());
            }
        }
        None
    }

    #[tokio::test]
    async fn a_reused_connection_that_dies_is_replaced_early_and_not_late() {
        assert_eq!(refusal(RETRY_WINDOW).await, None);
        assert_eq!(refusal(Duration::ZERO).await, Some("upstream_error"));
    }
}
