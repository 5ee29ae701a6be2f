//! `least_conn`: the smallest load ÷ slots.

use std::cmp::Ordering;

use rand::{Rng, RngExt};

use super::{Candidate, Policy, Terms, Winner};
use crate::load::Idle;

pub(super) struct LeastConn;

impl Policy for LeastConn {
    const NEEDS_ENGINE_LOAD: bool = false;
    const USES_WEIGHTS: bool = false;

    /// The first pass counts the peers tied for the smallest share, the second picks one of them.
    /// This needs one random number per decision instead of one per tie.
    fn pick(
        peers: impl Iterator<Item = Candidate> + Clone,
        _: &Terms<impl Fn(usize) -> Idle>,
        rng: &mut impl Rng,
    ) -> Option<Winner> {
        let mut best: Option<Candidate> = None;
        let mut tied = 0_usize;
        // `for_each` lets the iterator run its own loop, which is faster than `next` here.
        peers.clone().for_each(|peer| {
            match best.map_or(Ordering::Less, |least| peer.load.cmp_ratio(least.load)) {
                Ordering::Less => {
                    best = Some(peer);
                    tied = 1;
                }
                Ordering::Equal => tied += 1,
                Ordering::Greater => {}
            }
        });
        let least = best?;
        if tied == 1 {
            return Some(Winner::at(least.index));
        }
        let nth = rng.random_range(0..tied);
        let mut drawn = peers.filter(|peer| peer.load.cmp_ratio(least.load) == Ordering::Equal);
        drawn.nth(nth).map(|peer| Winner::at(peer.index))
    }
}
