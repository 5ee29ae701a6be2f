//! Reserve, retry, release, explain.
//!
//! `gates.rs` decides whether a request may come in, `view.rs` chooses its peer; both only read.
//! This file applies the resulting changes, so that an explanation and a decision are the same.

use std::time::{Duration, Instant};

use rand::Rng;

use super::gates::{AdmissionEffects, Gates};
use super::view::Pick;
use super::{Book, Pin, Placement, PlacementRequest, PoolId, ResolvedRoute, Ticket, Verdict};
use crate::admission::Refusal;
use crate::affinity::sid::Sid;
use crate::decision::{Explanation, Facts, Mode, Outcome};
use crate::health::AnswerKind;
use crate::pool::{PeerKey, Role, RouteSpec};
use crate::signal::Signal;
use crate::window::window_end;

/// Prefixes that a pool remembers: a few thousand conversations, about 3 MiB.
const PREFIXES_MAX: usize = 65_536;

/// The decision about a request, before any change is applied.
pub(super) struct Decision {
    /// The changes that the gates cause; absent without a usable peer.
    effects: Option<AdmissionEffects>,
    pub(super) outcome: Result<Pick, Refusal>,
    /// Whether the pool is full for this request.
    is_full: bool,
}

impl Decision {
    /// Whether the request may wait: the full pool is the only reason against its placement.
    pub(super) fn must_wait(&self) -> bool {
        let may_wait = self.effects.is_some_and(|effects| effects.may_wait);
        self.is_full && may_wait && self.outcome.is_ok()
    }
}

impl Book {
    /// Admits a request and chooses its peer in one step. Cost O(peers of the pool). An admitted
    /// request does not allocate, except for the key of a remembered session.
    pub fn reserve(
        &mut self,
        resolved: &ResolvedRoute,
        request: PlacementRequest<'_>,
        now: Instant,
        rng: &mut impl Rng,
    ) -> Verdict {
        self.epoch.get_or_insert(now);
        self.refresh(resolved.id, request.pool, request.role, now);
        let decision = self.decide(resolved, request, false, now, rng);
        if let (Some(effects), Ok(pick)) = (decision.effects, &decision.outcome)
            && effects.may_wait
            && (decision.is_full || self.waiters.len(resolved, &request) > 0)
        {
            return self.queue(resolved, request, effects, pick.facts, now);
        }
        match self.settle(resolved, request, decision, now) {
            Ok(placement) => Verdict::Send(placement),
            Err(refusal) => Verdict::Refuse(refusal),
        }
    }

    /// Moves a reservation to the next candidate after a failed attempt. The ticket's own peer and
    /// the pool indices in `tried` are excluded. At every moment the request is counted exactly
    /// once. `None`: no peer is left, and the ticket stays where it was.
    ///
    /// The next candidate comes from the tier in which the request was placed. With
    /// `cross_tier_fallback` also the least loaded peer of each lower tier, one per tier and
    /// request, in descending priority. A pinned request goes to the peers of its pin first, and to
    /// others only if it may fall back. `resolved` is the one under which the ticket was reserved.
    pub fn retry(
        &mut self,
        resolved: &ResolvedRoute,
        ticket: &mut Ticket,
        tried: &[usize],
        pin: Option<Pin<'_>>,
        now: Instant,
    ) -> Option<usize> {
        let slots = &resolved.members[ticket.pool].peers;
        debug_assert_eq!(
            slots[ticket.peer], ticket.slot,
            "a ticket is retried under its own resolved"
        );
        let (pool, role) = (PoolId(ticket.pool), ticket.role);
        self.refresh(resolved.id, pool, role, now);
        let view = self.view(resolved, pool, role, now);
        let next = match pin {
            None => view.next(ticket, tried, None)?,
            Some(Pin { peers, falls_back }) => {
                let next = view.next(ticket, tried, Some(peers));
                next.or_else(|| view.next(ticket, tried, None).filter(|_| falls_back))?
            }
        };
        let attempt = self.occupy(slots[next], ticket.kind, now);
        self.vacate(ticket.slot, ticket.attempt.replace(attempt), now);
        ticket.slot = slots[next];
        ticket.peer = next;
        Some(next)
    }

    /// Ends a reservation. Its session counts as used until now. O(1), no allocation.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "consuming the ticket makes a second release impossible"
    )]
    pub fn release(&mut self, ticket: Ticket, now: Instant) {
        let epoch = self.epoch(now);
        let pool = self.pools.get_mut(ticket.pool_slot);
        if let Some(key) = &ticket.session {
            pool.sessions[ticket.role].end(key, ticket.slot, now);
        }
        pool.drain.end(epoch, now);
        self.pools.release_hold(ticket.pool_slot);
        self.vacate(ticket.slot, ticket.attempt, now);
    }

    /// Reserves a unit on a peer regardless of gates and limits: capacity that an operator holds
    /// back. It counts like a request until it is released, and it is never retried. `None` for a
    /// peer that the resolved route does not name. O(the peer's places), like a reservation.
    pub fn hold_back(
        &mut self,
        resolved: &ResolvedRoute,
        peer: &PeerKey,
        now: Instant,
    ) -> Option<Ticket> {
        let slot = self.peers.find(peer)?;
        self.occupy_unplaced(resolved, slot, AnswerKind::Other, now)
    }

    /// Reserves a unit on a peer for a request that the router generates, if the peer needs one: it
    /// is idle and has given no first byte for `idle`, or it is suspect, or it is being probed and
    /// no other probe is under way. The outcome is reported like that of a client's request; the
    /// ticket is never retried. `None` also for a peer that cannot answer now. O(the peer's places).
    pub fn generate(
        &mut self,
        resolved: &ResolvedRoute,
        peer: &PeerKey,
        idle: Duration,
        now: Instant,
    ) -> Option<Ticket> {
        let slot = self.peers.find(peer)?;
        let state = self.peers.get_mut(slot);
        state.health.pass(now);
        let is_idle = state.in_flight == 0 && !state.reading.shows_saturation();
        let needs_it = state.health.needs_generated(is_idle, idle, now);
        if !needs_it || state.ban.is_active(now) {
            return None;
        }
        self.occupy_unplaced(resolved, slot, AnswerKind::Whole, now)
    }

    fn occupy_unplaced(
        &mut self,
        resolved: &ResolvedRoute,
        slot: u32,
        kind: AnswerKind,
        now: Instant,
    ) -> Option<Ticket> {
        let (pool, index) = *resolved.places.of(slot).first()?;
        let spec = &resolved.spec.pools[pool].peers[index];
        let pool_slot = resolved.members[pool].pool;
        let epoch = self.epoch(now);
        self.pools.get_mut(pool_slot).drain.start(epoch, now);
        self.pools.hold(pool_slot);
        let attempt = self.occupy(slot, kind, now);
        Some(Ticket {
            attempt: Some(attempt),
            kind,
            slot,
            pool_slot,
            pool,
            peer: index,
            role: spec.role,
            tier: spec.priority,
            session: None,
        })
    }

    /// The decision that `request` would get. Counts nothing and advances no round-robin cursor.
    /// With the same random numbers, [`reserve`](Self::reserve) decides the same.
    pub fn explain(
        &self,
        resolved: &ResolvedRoute,
        request: PlacementRequest<'_>,
        now: Instant,
        rng: &mut impl Rng,
    ) -> Explanation {
        let view = self.view_for(resolved, &request, now);
        let decision = self.decide(resolved, request, false, now, rng);
        let ahead = self.waiters.len(resolved, &request);
        let may_wait = decision.effects.is_some_and(|effects| effects.may_wait);
        let waits = decision.must_wait() || (may_wait && ahead > 0);
        let guard = &resolved.spec.guard;
        let outcome = match decision.outcome {
            Ok(pick)
                if waits && self.waiting(resolved, request.pool) >= guard.wait_max as usize =>
            {
                let full = self.gates(resolved, request, now).full(&pick.facts);
                Outcome::Refuse(view.with_held(full))
            }
            Ok(_) if waits => Outcome::Wait {
                ahead: ahead as u32,
                wait_max: guard.wait_max,
                timeout_s: guard.wait_timeout.as_secs_f64(),
            },
            Ok(pick) => {
                let spec = resolved.peer(request.pool, pick.peer);
                Outcome::Send {
                    peer: spec.key.clone(),
                    name: spec.name.to_string(),
                    mode: pick.mode,
                    facts: pick.facts,
                }
            }
            Err(refusal) => Outcome::Refuse(refusal),
        };
        let gates = view.capacity().map(|capacity| {
            let gates = self.gates(resolved, request, now);
            gates.explain(&capacity)
        });
        Explanation {
            peers: view.peer_facts(
                request
                    .session
                    .map(|session| Sid::new(session).with(request.hashed)),
            ),
            outcome,
            gates: gates.unwrap_or_default(),
        }
    }

    /// `past_limit`: ignore the concurrency gate.
    pub(super) fn decide(
        &self,
        resolved: &ResolvedRoute,
        request: PlacementRequest<'_>,
        past_limit: bool,
        now: Instant,
        rng: &mut impl Rng,
    ) -> Decision {
        let view = self.view_for(resolved, &request, now);
        let Some(capacity) = view.capacity() else {
            return Decision {
                effects: None,
                outcome: Err(view.no_healthy_peer()),
                is_full: false,
            };
        };
        let gates = Gates {
            past_limit,
            ..self.gates(resolved, request, now)
        };
        let admission = gates.admit(&capacity);
        Decision {
            effects: Some(admission.effects),
            outcome: match admission.outcome {
                Ok(facts) => Ok(view.place(facts, &request, rng)),
                Err(refusal) => Err(view.with_held(refusal)),
            },
            is_full: admission.is_full,
        }
    }

    /// Applies a decision.
    pub(super) fn settle(
        &mut self,
        resolved: &ResolvedRoute,
        request: PlacementRequest<'_>,
        decision: Decision,
        now: Instant,
    ) -> Result<Placement, Refusal> {
        let Decision {
            effects, outcome, ..
        } = decision;
        if let Some(effects) = effects {
            let facts = outcome.as_ref().map(|pick| pick.facts);
            self.note(resolved, request.pool, effects, facts, now);
        }
        outcome.map(|pick| self.commit(resolved, request, pick, now))
    }

    /// Applies the changes of an admission: the hold flag, probe slots, demand and the counters.
    pub(super) fn note(
        &mut self,
        resolved: &ResolvedRoute,
        pool: PoolId,
        effects: AdmissionEffects,
        outcome: Result<Facts, &Refusal>,
        now: Instant,
    ) {
        let (epoch, guard) = (self.epoch(now), &resolved.spec.guard);
        let state = self.pools.get_mut(resolved.members[pool.0].pool);
        if let Some(hold) = effects.hold {
            state.is_held = hold;
        }
        match outcome {
            Ok(facts) => {
                for signal in Signal::ALL {
                    if facts.probes.contains(signal.into()) {
                        let aligned = window_end(epoch, guard.signal(signal).probe_window, now);
                        let probes = &mut state.signal_mut(signal).probes;
                        probes.take(effects.budget, aligned, now);
                    }
                }
                self.trips.add(facts.tripped);
            }
            Err(Refusal::ConcurrencyLimit(_)) => {
                if let Some(life) = effects.demand {
                    state.adaptive.refuse(life, now);
                }
            }
            Err(_) => {}
        }
        if let Some(grade) = effects.grade {
            self.priority.roll(guard.priority.warn_frac, epoch, now);
            self.priority.count(grade, outcome.is_ok());
        }
    }

    fn commit(
        &mut self,
        resolved: &ResolvedRoute,
        request: PlacementRequest<'_>,
        pick: Pick,
        now: Instant,
    ) -> Placement {
        let Pick {
            peer,
            mode,
            facts,
            takes_turn,
        } = pick;
        let epoch = self.epoch(now);
        let pool = request.pool.0;
        let members = &resolved.members[pool];
        let slot = members.peers[peer];
        let state = self.pools.get_mut(members.pool);
        state.turn += u64::from(takes_turn);
        let memory = &resolved.spec.memory;
        let session = request.key.filter(|_| resolved.spec.remembers_sessions());
        if let Some(key) = session {
            let (ttl, max) = (memory.session_ttl, memory.sessions_max as usize);
            state.sessions[request.role].begin(key, slot, ttl, max, now);
        } else if memory.prefixes && request.session.is_none() && request.role == Role::Regular {
            state.prefixes.record(request.prefix, slot, PREFIXES_MAX);
        }
        if let (Some(session), true) = (request.session, remembers_homes(&resolved.spec, mode)) {
            let sid = Sid::new(session).with(request.hashed);
            state
                .warm
                .record(sid.fingerprint(), slot, memory.session_ttl, now);
        }
        state.drain.start(epoch, now);
        self.pools.hold(members.pool);
        let kind = match request.exempt {
            true => AnswerKind::Other,
            false => request.answer,
        };
        let attempt = self.occupy(slot, kind, now);
        Placement {
            ticket: Ticket {
                attempt: Some(attempt),
                kind,
                slot,
                pool_slot: members.pool,
                pool,
                peer,
                role: request.role,
                tier: facts.tier,
                session: session.map(Box::from),
            },
            peer,
            mode,
            facts,
        }
    }
}

/// Whether a placement marks a session as warm on its home peer, where no session table exists.
fn remembers_homes(route: &RouteSpec, mode: Mode) -> bool {
    mode == Mode::Hash && !route.remembers_sessions()
}
