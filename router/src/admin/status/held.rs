//! `_active_conns_set`: makes a peer look busier, by holding back units.

use http::StatusCode;
use proto::admin::ActiveConnsSet;
use router_core::pool::PeerKey;

use crate::admin::answer::{self, Answer};
use crate::admin::query::{Params, Refused};
use crate::state::{IN_FLIGHT_MAX, InFlight, NotHeld, Route};

/// `POST ?peer=&value=` holds units of a peer back until its in-flight count reaches the value.
/// `?peer=&delete=1` releases the peer's held units, `?flush=1` those of the whole route.
pub(super) fn set(route: &Route, params: &Params) -> Result<Answer, Refused> {
    params.only(&["peer", "value", "delete", "flush"])?;
    let peer = params.get("peer")?.map(PeerKey::new);
    let value = params.number("value", 0..=IN_FLIGHT_MAX as usize)?;
    let (delete, flush) = (params.flag("delete")?, params.flag("flush")?);
    let done = match (&peer, value, delete, flush) {
        (Some(peer), Some(value), false, false) => {
            let wanted = u32::try_from(value).unwrap_or(IN_FLIGHT_MAX);
            let InFlight { before, after } = route.set_in_flight(peer, wanted).map_err(why_not)?;
            ActiveConnsSet {
                before: Some(before),
                value: Some(after),
                ..answered(route, "set", Some(peer))
            }
        }
        (Some(peer), None, true, false) => {
            let given_back = route.give_back(Some(peer));
            ActiveConnsSet {
                given_back: Some(given_back),
                ..answered(route, "delete", Some(peer))
            }
        }
        (None, None, false, true) => ActiveConnsSet {
            given_back: Some(route.give_back(None)),
            ..answered(route, "flush_all", None)
        },
        _ => return Err("say peer= and value=, peer= and delete=1, or flush=1".to_owned()),
    };
    tracing::info!(
        route = &*route.name,
        peer = done.peer.as_deref(),
        action = &*done.action,
        value = done.value,
        "in-flight set"
    );
    Ok(answer::json(StatusCode::OK, &done))
}

fn answered(route: &Route, action: &str, peer: Option<&PeerKey>) -> ActiveConnsSet {
    ActiveConnsSet {
        ok: true,
        route: route.name.to_string(),
        action: action.to_owned(),
        peer: peer.map(ToString::to_string),
        ..ActiveConnsSet::default()
    }
}

fn why_not(why: NotHeld) -> Refused {
    match why {
        NotHeld::NoPeer => "'peer' must be host:port of a peer of this route".to_owned(),
        NotHeld::Running(1) => "1 request runs on it, and ends by itself".to_owned(),
        NotHeld::Running(count) => format!("{count} requests run on it, and end by themselves"),
    }
}
