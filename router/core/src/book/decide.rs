//! Reserve, retry, release, explain.
//!
//! Whether a request may come in is asked in `gates.rs`, where it goes is chosen in `view.rs`; both
//! only read. What they move is moved here, so that an explanation and a decision are the same.

use std::time::Instant;

use rand::Rng;

use super::gates::{AdmissionEffects, Gates};
use super::view::Pick;
use super::{Book, Pin, Placement, PlacementRequest, PoolId, ResolvedRoute, Ticket, Verdict};
use crate::admission::Refusal;
use crate::affinity::sid::Sid;
use crate::decision::{Explanation, Facts, Outcome};
use crate::pool::{PeerKey, Role};
use crate::signal::Signal;
use crate::window::window_end;

/// Prefixes that a pool remembers: a few thousand conversations, some 3 MiB.
const PREFIXES_MAX: usize = 65_536;

/// What a request came to; nothing is moved yet.
pub(super) struct Decision {
    /// What the gates move; absent without a usable peer.
    moves: Option<AdmissionEffects>,
    pub(super) outcome: Result<Pick, Refusal>,
    /// Whether the pool is full for it.
    is_full: bool,
}

impl Decision {
    /// Whether it would be placed, were the pool not full, and may wait for that.
    pub(super) fn must_wait(&self) -> bool {
        let may_wait = self.moves.is_some_and(|moves| moves.may_wait);
        self.is_full && may_wait && self.outcome.is_ok()
    }
}

impl Book {
    /// Admits and chooses in one step. Cost O(peers of the pool); no allocation when it is admitted,
    /// but for the key of a session that is remembered.
    pub fn reserve(
        &mut self,
        roster: &ResolvedRoute,
        ask: PlacementRequest<'_>,
        now: Instant,
        rng: &mut impl Rng,
    ) -> Verdict {
        self.epoch.get_or_insert(now);
        self.refresh(roster.id, ask.pool, ask.role, now);
        let decision = self.decide(roster, ask, false, now, rng);
        if let (Some(moves), Ok(pick)) = (decision.moves, &decision.outcome)
            && moves.may_wait
            && (decision.is_full || self.waiters.len(roster, &ask) > 0)
        {
            return self.queue(roster, ask, moves, pick.facts, now);
        }
        match self.settle(roster, ask, decision, now) {
            Ok(placement) => Verdict::Send(placement),
            Err(refusal) => Verdict::Refuse(refusal),
        }
    }

    /// Moves a reservation to the next candidate after a failed attempt: the ticket's own peer and
    /// the pool indices in `tried` are out. The request is never counted twice and never uncounted
    /// between. `None`: nobody is left, the ticket stays where it was.
    ///
    /// The next candidate is of the tier the request was placed in; with `cross_tier_fallback` also
    /// the least loaded peer of each lower tier, one per tier and request, in descending priority.
    /// A pinned request goes to the peers of its pin first, and to others only where it may fall back.
    /// `roster` is the one the ticket was reserved under.
    pub fn retry(
        &mut self,
        roster: &ResolvedRoute,
        ticket: &mut Ticket,
        tried: &[usize],
        pin: Option<Pin<'_>>,
        now: Instant,
    ) -> Option<usize> {
        let slots = &roster.members[ticket.pool].peers;
        debug_assert_eq!(
            slots[ticket.peer], ticket.slot,
            "a ticket is retried under its own roster"
        );
        let (pool, role) = (PoolId(ticket.pool), ticket.role);
        self.refresh(roster.id, pool, role, now);
        let view = self.view(roster, pool, role, now);
        let next = match pin {
            None => view.next(ticket, tried, None)?,
            Some(Pin { peers, falls_back }) => {
                let next = view.next(ticket, tried, Some(peers));
                next.or_else(|| view.next(ticket, tried, None).filter(|_| falls_back))?
            }
        };
        self.occupy(slots[next], now);
        self.vacate(ticket.slot, now);
        ticket.slot = slots[next];
        ticket.peer = next;
        Some(next)
    }

    /// Ends a reservation; the session it is of was in use until now. O(1), no allocation.
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
        self.pools.let_go(ticket.pool_slot);
        self.vacate(ticket.slot, now);
    }

    /// Reserves a unit on a peer past every gate and limit: what an operator holds back. Like a
    /// request's it counts until it is released; it is never retried. `None` for a peer that the
    /// roster does not name. O(the peer's places), like a reservation.
    pub fn hold_back(
        &mut self,
        roster: &ResolvedRoute,
        peer: &PeerKey,
        now: Instant,
    ) -> Option<Ticket> {
        let slot = self.peers.find(peer)?;
        let (pool, index) = *roster.places.of(slot).first()?;
        let spec = &roster.spec.pools[pool].peers[index];
        let pool_slot = roster.members[pool].pool;
        let epoch = self.epoch(now);
        self.pools.get_mut(pool_slot).drain.start(epoch, now);
        self.pools.hold(pool_slot);
        self.occupy(slot, now);
        Some(Ticket {
            slot,
            pool_slot,
            pool,
            peer: index,
            role: spec.role,
            tier: spec.priority,
            session: None,
        })
    }

    /// What would happen to `ask`. Counts nothing, advances no round-robin cursor; given the same
    /// random numbers, [`reserve`](Self::reserve) does the same.
    pub fn explain(
        &self,
        roster: &ResolvedRoute,
        ask: PlacementRequest<'_>,
        now: Instant,
        rng: &mut impl Rng,
    ) -> Explanation {
        let view = self.view_for(roster, &ask, now);
        let decision = self.decide(roster, ask, false, now, rng);
        let ahead = self.waiters.len(roster, &ask);
        let may_wait = decision.moves.is_some_and(|moves| moves.may_wait);
        let waits = decision.must_wait() || (may_wait && ahead > 0);
        let guard = &roster.spec.guard;
        let outcome = match decision.outcome {
            Ok(pick) if waits && self.waiting(roster, ask.pool) >= guard.wait_max as usize => {
                Outcome::Refuse(self.gates(roster, ask, now).full(&pick.facts))
            }
            Ok(_) if waits => Outcome::Wait {
                ahead: ahead as u32,
                wait_max: guard.wait_max,
                timeout_s: guard.wait_timeout.as_secs_f64(),
            },
            Ok(pick) => {
                let spec = roster.peer(ask.pool, pick.peer);
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
            let gates = self.gates(roster, ask, now);
            gates.explain(&capacity)
        });
        Explanation {
            peers: view.peer_facts(
                ask.session
                    .map(|session| Sid::new(session).with(ask.hashed)),
            ),
            outcome,
            gates: gates.unwrap_or_default(),
        }
    }

    /// `past_limit`: whatever the concurrency gate says.
    pub(super) fn decide(
        &self,
        roster: &ResolvedRoute,
        ask: PlacementRequest<'_>,
        past_limit: bool,
        now: Instant,
        rng: &mut impl Rng,
    ) -> Decision {
        let view = self.view_for(roster, &ask, now);
        let Some(capacity) = view.capacity() else {
            return Decision {
                moves: None,
                outcome: Err(view.no_healthy_peer()),
                is_full: false,
            };
        };
        let gates = Gates {
            past_limit,
            ..self.gates(roster, ask, now)
        };
        let hearing = gates.hear(&capacity);
        let place = |facts| view.place(facts, &ask, rng);
        Decision {
            moves: Some(hearing.moves),
            outcome: hearing.outcome.map(place),
            is_full: hearing.is_full,
        }
    }

    /// Carries a decision out.
    pub(super) fn settle(
        &mut self,
        roster: &ResolvedRoute,
        ask: PlacementRequest<'_>,
        decision: Decision,
        now: Instant,
    ) -> Result<Placement, Refusal> {
        let Decision { moves, outcome, .. } = decision;
        if let Some(moves) = moves {
            let facts = outcome.as_ref().map(|pick| pick.facts);
            self.note(roster, ask.pool, moves, facts, now);
        }
        outcome.map(|pick| self.commit(roster, ask, pick, now))
    }

    /// Moves what a hearing moves: the hold flag, probe slots, demand and the counters.
    pub(super) fn note(
        &mut self,
        roster: &ResolvedRoute,
        pool: PoolId,
        moves: AdmissionEffects,
        outcome: Result<Facts, &Refusal>,
        now: Instant,
    ) {
        let (epoch, guard) = (self.epoch(now), &roster.spec.guard);
        let state = self.pools.get_mut(roster.members[pool.0].pool);
        if let Some(hold) = moves.hold {
            state.is_held = hold;
        }
        match outcome {
            Ok(facts) => {
                for signal in Signal::ALL {
                    if facts.probes.contains(signal.into()) {
                        let aligned = window_end(epoch, guard.signal(signal).probe_window, now);
                        let probes = &mut state.signal_mut(signal).probes;
                        probes.take(moves.budget, aligned, now);
                    }
                }
                self.trips.add(facts.tripped);
            }
            Err(Refusal::ConcurrencyLimit(_)) => {
                if let Some(life) = moves.demand {
                    state.adaptive.refuse(life, now);
                }
            }
            Err(_) => {}
        }
        if let Some(grade) = moves.grade {
            self.priority.roll(guard.priority.warn_frac, epoch, now);
            self.priority.count(grade, outcome.is_ok());
        }
    }

    fn commit(
        &mut self,
        roster: &ResolvedRoute,
        ask: PlacementRequest<'_>,
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
        let pool = ask.pool.0;
        let members = &roster.members[pool];
        let slot = members.peers[peer];
        let state = self.pools.get_mut(members.pool);
        state.turn += u64::from(takes_turn);
        let memory = &roster.spec.memory;
        let session = ask.key.filter(|_| roster.spec.remembers_sessions());
        if let Some(key) = session {
            let (ttl, max) = (memory.session_ttl, memory.sessions_max as usize);
            state.sessions[ask.role].begin(key, slot, ttl, max, now);
        } else if memory.prefixes && ask.session.is_none() && ask.role == Role::Regular {
            state.prefixes.record(ask.prefix, slot, PREFIXES_MAX);
        }
        state.drain.start(epoch, now);
        self.pools.hold(members.pool);
        self.occupy(slot, now);
        Placement {
            ticket: Ticket {
                slot,
                pool_slot: members.pool,
                pool,
                peer,
                role: ask.role,
                tier: facts.tier,
                session: session.map(Box::from),
            },
            peer,
            mode,
            facts,
        }
    }
}
