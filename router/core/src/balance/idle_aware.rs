//! `idle_aware`: the peer that has been idle longest, then the smallest load, the largest weight,
//! the smallest name.
//!
//! Idle peers take turns, so that none cools down and none is always first.

use std::cmp::Reverse;

use rand::Rng;

use super::{Candidate, Policy, Terms, Winner, by_load};
use crate::load::Idle;

pub(super) struct IdleAware;

impl Policy for IdleAware {
    const NEEDS_ENGINE_LOAD: bool = true;
    const USES_WEIGHTS: bool = true;

    /// Idle peers come first, and their load does not matter.
    fn pick(
        peers: impl Iterator<Item = Candidate> + Clone,
        terms: &Terms<impl Fn(usize) -> Idle>,
        _: &mut impl Rng,
    ) -> Option<Winner> {
        let mut most_rested: Option<(Reverse<Idle>, u32, usize)> = None;
        let mut least_busy: Option<Candidate> = None;
        // A single pass, even if the busy peers turn out not to matter.
        peers.for_each(|peer| {
            let idle = match peer.load.in_flight {
                0 => (terms.idle)(peer.index),
                _ => Idle::Busy,
            };
            if idle > Idle::Busy {
                let rested = (Reverse(idle), peer.rank, peer.index);
                if most_rested.is_none_or(|most| rested < most) {
                    most_rested = Some(rested);
                }
            } else if least_busy.is_none_or(|least| by_load(terms.normalize, &peer, &least).is_lt())
            {
                least_busy = Some(peer);
            }
        });
        let rested = most_rested.map(|(_, _, index)| index);
        rested.or(least_busy.map(|peer| peer.index)).map(Winner::at)
    }
}
