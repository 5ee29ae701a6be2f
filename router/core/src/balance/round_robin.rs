//! `round_robin`: the next peer in file order. The caller does not offer peers at their own maximum
//! while another peer has room.

use rand::Rng;

use super::{Candidate, Policy, Terms, Winner};
use crate::load::Idle;

pub(super) struct RoundRobin;

impl Policy for RoundRobin {
    const NEEDS_ENGINE_LOAD: bool = false;
    const USES_WEIGHTS: bool = false;

    fn pick(
        mut peers: impl Iterator<Item = Candidate> + Clone,
        terms: &Terms<impl Fn(usize) -> Idle>,
        _: &mut impl Rng,
    ) -> Option<Winner> {
        let count = peers.clone().count() as u64;
        let nth = terms.turn.checked_rem(count)?;
        peers.nth(nth as usize).map(|peer| Winner {
            index: peer.index,
            takes_turn: true,
        })
    }
}
