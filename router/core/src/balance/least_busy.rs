//! `least_busy`: the smallest load, then the largest weight, then the smallest name.

use rand::Rng;

use super::{Candidate, Normalize, Policy, Terms, Winner, by_load};
use crate::load::Idle;

pub(super) struct LeastBusy;

impl Policy for LeastBusy {
    const NEEDS_ENGINE_LOAD: bool = true;
    const USES_WEIGHTS: bool = true;

    fn pick(
        peers: impl Iterator<Item = Candidate> + Clone,
        terms: &Terms<impl Fn(usize) -> Idle>,
        _: &mut impl Rng,
    ) -> Option<Winner> {
        let winner = match terms.normalize {
            // A key of whole numbers is twice as fast as a hand-written comparison.
            Normalize::Off => peers.min_by_key(|peer| (peer.load.in_flight, peer.rank)),
            Normalize::Slots => peers.min_by(|one, other| by_load(terms.normalize, one, other)),
        };
        Some(Winner::at(winner?.index))
    }
}
