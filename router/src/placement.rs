//! Prepares the placement of a request: its session, its turn, its prefixes, the peers that serve
//! its model, and its content rules. Shared by the request path and by `explain`, so that both ask
//! the core the same question.

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use http::HeaderMap;
use router_core::affinity::Hashed;
use router_core::affinity::prefix::Prefix;
use router_core::book::{PlacementRequest, PoolId, Switches};
use router_core::health::AnswerKind;
use router_core::rules::Rule;
use router_core::session::{Place, Session, SessionId, is_blank, pick};

use crate::content::alias::{Alias, replace_model};
use crate::content::{Form, FormError, Inspection, Turn, Wanted, prefix};
use crate::state::{Pin, Route, Switch};

/// Whether health checks use this path: content rules and load gates do not apply to it.
pub fn is_probe(path: &str) -> bool {
    matches!(path, "/v1/models" | "/v1/models/" | "/health")
}

/// The two names of a request's model, and its body with the served name, where the client asked by an
/// alias of this route.
pub fn served_body(route: &Route, body: &[u8]) -> Option<(Alias, Vec<u8>)> {
    route.aliases.as_ref()?;
    replace_model(body, |asked| route.served_for(asked).map(Cow::into_owned))
}

/// The same for a form, whose fields are edited too.
pub fn served_form(
    route: &Route,
    form: &mut Result<Form, FormError>,
    body: &[u8],
) -> Option<(Alias, Bytes)> {
    route.aliases.as_ref()?;
    let served = |asked: &str| route.served_for(asked).map(Cow::into_owned);
    form.as_mut().ok()?.replace_model(body, served)
}

/// What the content rules in force need to know of a body.
pub fn wanted_facts(route: &Route) -> Option<&Wanted> {
    let wanted = route.rules.wanted()?;
    route.switch(Switch::RejectRules).value.then_some(wanted)
}

/// The content rule that refuses a body, and its index, when the rules are on.
pub fn rule_against<'r>(
    route: &'r Route,
    body: &[u8],
    inspection: &Inspection<'_>,
) -> Option<(usize, &'r Rule)> {
    if !route.switch(Switch::RejectRules).value {
        return None;
    }
    route.rules.first_match(body, inspection.facts())
}

/// The facts that one request carries, with the current switches applied.
#[derive(Debug)]
pub struct RequestContext<'a> {
    /// The session of the request, with the affinity switch applied.
    pub session: Session<'a>,
    turn: Option<u32>,
    switches: Switches,
    answer: AnswerKind,
}

impl<'a> RequestContext<'a> {
    /// Reads the session and the turn from a request's headers and body.
    pub fn of(route: &Route, headers: &'a HeaderMap, inspection: &Inspection<'a>) -> Self {
        let switches = route.switches();
        // While the switch is off, the header is ignored.
        let turn = if switches.session_prio {
            Turn::of(headers)
        } else {
            None
        };
        let names = NameFilter::of(headers);
        let found = pick(&route.options.session_sources.value, |place| match place {
            Place::Header(name) if !names.may_have(name) => None,
            // A walk over a head of ten lines costs less than parsing and hashing a name.
            Place::Header(name) => headers
                .iter()
                .filter(|(key, _)| key.as_str() == &**name)
                .map(|(_, value)| value.as_bytes())
                .find(|value| !is_blank(value))
                .map(Cow::Borrowed),
            Place::Body(path) => inspection.text(path),
        });
        let number = turn.as_ref().map(|turn| turn.turn);
        let found = found.or_else(|| {
            Some(SessionId {
                raw: into_bytes(turn?.session_id),
                source: turn_source(),
            })
        });
        Self {
            session: Session::new(found, route.affinity_acts()),
            turn: number,
            switches,
            answer: match inspection.stream() {
                Some(true) => AnswerKind::Stream,
                Some(false) | None => AnswerKind::Whole,
            },
        }
    }

    /// The request in the form for the core; `exempt` for a [probe](is_probe).
    pub fn ask(&self, pool: PoolId, exempt: bool) -> PlacementRequest<'_> {
        PlacementRequest {
            turn: self.turn,
            answer: self.answer,
            exempt,
            switches: self.switches,
            ..PlacementRequest::new(pool, self.session.placed())
        }
    }
}

/// The results of a route's options for a request's session, model and conversation.
#[derive(Debug)]
pub struct PlacementLookups<'s> {
    hashed: Option<Hashed>,
    key: Option<Cow<'s, [u8]>>,
    prefix: Vec<Prefix>,
    /// The peers that may serve the request's model.
    pub pin: Pin,
    pin_falls_back: bool,
}

impl<'s> PlacementLookups<'s> {
    /// Allocates only when sessions or prefixes are remembered, models pin, or an ID is long.
    pub fn of(
        route: &Route,
        pool: PoolId,
        model: Option<&str>,
        session: &'s Session<'_>,
        inspection: &Inspection<'_>,
    ) -> Self {
        let key = match session {
            Session::Known(id) if route.spec().remembers_sessions() => Some(id.table_key()),
            _ => None,
        };
        let prefix = if session.placed().is_none() && route.places_by_prefix() {
            let fields = prefix::FIELDS.iter();
            prefix::chain(fields.filter_map(|name| inspection.top(name)))
        } else {
            Vec::new()
        };
        let hashed = session.placed().and_then(|id| route.hashed(pool, id));
        Self {
            hashed,
            key,
            prefix,
            pin: route.pin(model),
            pin_falls_back: route.pin_falls_back(),
        }
    }

    /// Restricts the request to one peer, because no other can serve it.
    pub fn only(&mut self, peer: usize) {
        self.pin = Pin::To(Arc::from([peer]));
        self.pin_falls_back = false;
    }

    /// Combines the request with these results.
    pub fn on<'a>(&'a self, ask: PlacementRequest<'a>) -> PlacementRequest<'a> {
        PlacementRequest {
            hashed: self.hashed.as_ref(),
            key: self.key.as_deref(),
            prefix: &self.prefix,
            pin: self.pin.indices(),
            pin_falls_back: self.pin_falls_back,
            ..ask
        }
    }
}

/// The names of a head, as a set of hashes. Most session sources are not in a head, and this spares
/// a walk over it for each of them.
struct NameFilter(u64);

impl NameFilter {
    fn of(headers: &HeaderMap) -> Self {
        Self(
            headers
                .keys()
                .fold(0, |all, name| all | Self::bit(name.as_str())),
        )
    }

    fn may_have(&self, name: &str) -> bool {
        self.0 & Self::bit(name) != 0
    }

    fn bit(name: &str) -> u64 {
        let last = name.as_bytes().last().copied().unwrap_or_default();
        1 << ((name.len() * 7 + usize::from(last)) % 64)
    }
}

fn into_bytes(text: Cow<'_, str>) -> Cow<'_, [u8]> {
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    }
}

/// The value of `X-Routed-Source` for an ID from the header of `session_prio`.
fn turn_source() -> Arc<str> {
    static SOURCE: LazyLock<Arc<str>> = LazyLock::new(|| format!("header.{}", Turn::NAME).into());
    Arc::clone(&SOURCE)
}
