//! The questions to the book.

use super::PoolId;
use crate::affinity::Hashed;
use crate::affinity::prefix::Prefix;
use crate::health::AnswerKind;
use crate::pool::Role;
use crate::session::TABLE_KEY_BYTES_MAX;

/// One request in the form that the choice needs.
#[derive(Clone, Copy, Debug)]
pub struct PlacementRequest<'a> {
    /// The pool that serves the request.
    pub pool: PoolId,
    /// The role of the peers that may serve it.
    pub role: Role,
    /// The raw session id; `None` when the request named none or affinity is switched off.
    pub session: Option<&'a [u8]>,
    /// The state of a long id that was hashed [in advance](super::ResolvedRoute::hashed). Without
    /// it, `session` is hashed during placement.
    pub hashed: Option<&'a Hashed>,
    /// The session's [`table_key`](crate::session::SessionId::table_key); without it the session is
    /// not remembered.
    pub key: Option<&'a [u8]>,
    /// The prefixes of the conversation, shortest first; empty where prefixes do not decide the
    /// placement.
    pub prefix: &'a [Prefix],
    /// Indices, ascending, of the pool's peers that list the request's model; `None`: any peer may
    /// serve it.
    pub pin: Option<&'a [usize]>,
    /// Whether any other peer may serve the request when none of these is usable. If not, it is
    /// refused.
    pub pin_falls_back: bool,
    /// The turn of a usable `x-phanrouter-session` header. Without one the request counts as fully
    /// warm. Read only while `session_prio` is on.
    pub turn: Option<u32>,
    /// The kind of answer that the request waits for.
    pub answer: AnswerKind,
    /// Whether this is a model list or health request: it passes every load gate, and no gate
    /// counts it.
    pub exempt: bool,
    /// The route's switches in force.
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

/// The switches that a decision follows, with runtime overrides applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switches {
    /// `load_rate_limit`. When off, the three load gates only count trips.
    pub rate_limit: bool,
    /// `ttft_enabled`. When off, TTFT neither refuses requests nor shrinks the adaptive limit.
    pub ttft: bool,
    /// `ttft_429`. When off, TTFT shrinks the adaptive limit but refuses no request.
    pub ttft_429: bool,
    /// `tps_enabled`. When off, the decode rate neither refuses requests nor moves the adaptive
    /// limit.
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

/// The peers to which a request that names a model may be retried.
#[derive(Clone, Copy, Debug)]
pub struct Pin<'a> {
    /// Same as [`PlacementRequest::pin`].
    pub peers: &'a [usize],
    /// Same as [`PlacementRequest::pin_falls_back`].
    pub falls_back: bool,
}
