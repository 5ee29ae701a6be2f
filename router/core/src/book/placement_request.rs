//! What the book is asked.

use super::PoolId;
use crate::affinity::Hashed;
use crate::affinity::prefix::Prefix;
use crate::health::AnswerKind;
use crate::pool::Role;
use crate::session::TABLE_KEY_BYTES_MAX;

/// One request as the choice sees it.
#[derive(Clone, Copy, Debug)]
pub struct PlacementRequest<'a> {
    /// Which pool serves it.
    pub pool: PoolId,
    /// Which of its peers.
    pub role: Role,
    /// The raw session id; `None` when the request named none or affinity is switched off.
    pub session: Option<&'a [u8]>,
    /// What was made of a long id [beforehand](super::ResolvedRoute::hashed); else `session` is hashed as it is
    /// placed.
    pub hashed: Option<&'a Hashed>,
    /// The session's [`table_key`](crate::session::SessionId::table_key); without it the session is
    /// not remembered.
    pub key: Option<&'a [u8]>,
    /// The conversation's prefixes, shortest first; empty where nothing is placed by them.
    pub prefix: &'a [Prefix],
    /// Indices, ascending, of the pool's peers that list the request's model; `None`: any may serve it.
    pub pin: Option<&'a [usize]>,
    /// What happens when none of these is usable: any other peer, or a refusal.
    pub pin_falls_back: bool,
    /// The turn of a usable `x-phanrouter-session` header. Without one the request counts as fully
    /// warm. Read only while `session_prio` is on.
    pub turn: Option<u32>,
    /// What it waits for.
    pub answer: AnswerKind,
    /// A model list or health request: passes every load gate and is not counted by any.
    pub exempt: bool,
    /// The route's switches as they are in force.
    pub switches: Switches,
}

impl<'a> PlacementRequest<'a> {
    /// A whole request without a turn, with every switch at its built-in default.
    pub const fn new(pool: PoolId, session: Option<&'a [u8]>) -> Self {
        let key = match session {
            Some(session) if session.len() <= TABLE_KEY_BYTES_MAX => Some(session),
            _ => None,
        };
        Self {
            pool,
            role: Role::Regular,
            session,
            hashed: None,
            key,
            prefix: &[],
            pin: None,
            pin_falls_back: true,
            turn: None,
            answer: AnswerKind::Stream,
            exempt: false,
            switches: Switches::DEFAULT,
        }
    }

    /// A placeholder request for inspecting a pool. Turn 1, because it is refused first.
    pub(super) const fn under(pool: PoolId, switches: Switches) -> Self {
        Self {
            switches,
            turn: Some(1),
            ..Self::new(pool, None)
        }
    }
}

/// The switches that a decision obeys, runtime overrides applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switches {
    /// `load_rate_limit`: off, the three load gates only count trips.
    pub rate_limit: bool,
    /// `ttft_enabled`: off, TTFT neither refuses nor shrinks the adaptive limit.
    pub ttft: bool,
    /// `ttft_429`: off, TTFT shrinks the adaptive limit but refuses nobody.
    pub ttft_429: bool,
    /// `tps_enabled`: off, the decode rate neither refuses nor moves the adaptive limit.
    pub tps: bool,
    /// `session_prio`.
    pub session_prio: bool,
}

impl Switches {
    /// The built-in defaults.
    pub const DEFAULT: Self = Self {
        rate_limit: true,
        ttft: true,
        ttft_429: true,
        tps: true,
        session_prio: false,
    };
}

/// Where a request that names a model may be retried.
#[derive(Clone, Copy, Debug)]
pub struct Pin<'a> {
    /// As [`PlacementRequest::pin`].
    pub peers: &'a [usize],
    /// As [`PlacementRequest::pin_falls_back`].
    pub falls_back: bool,
}
