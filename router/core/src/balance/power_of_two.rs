//! `power_of_two`: two distinct peers at random, the one with the smaller load ÷ slots. Mitzenmacher,
//! "The Power of Two Choices in Randomized Load Balancing" (2001).

use std::cmp::Ordering;

use rand::{Rng, RngExt};

use super::{Candidate, Policy, Terms, Winner};
use crate::load::Idle;

pub(super) struct PowerOfTwo;

impl Policy for PowerOfTwo {
    const NEEDS_ENGINE_LOAD: bool = false;
    const USES_WEIGHTS: bool = false;

    /// The pair is drawn in random order, so each peer wins a tie with equal chance.
    fn pick(
        peers: impl Iterator<Item = Candidate> + Clone,
        _: &Terms<impl Fn(usize) -> Idle>,
        rng: &mut impl Rng,
    ) -> Option<Winner> {
        let count = peers.clone().count();
        if count < 2 {
            return peers.map(|peer| Winner::at(peer.index)).next();
        }
        let first = rng.random_range(0..count);
        // Skipping over `first` keeps the second draw uniform among the others.
        let second = (first + 1 + rng.random_range(0..count - 1)) % count;
        let mut drawn = peers
            .enumerate()
            .filter(|(nth, _)| *nth == first || *nth == second)
            .map(|(_, peer)| peer);
        let (earlier, later) = (drawn.next()?, drawn.next()?);
        let winner = match earlier.load.cmp_ratio(later.load) {
            Ordering::Less => earlier,
            Ordering::Greater => later,
            Ordering::Equal if first < second => earlier,
            Ordering::Equal => later,
        };
        Some(Winner::at(winner.index))
    }
}
