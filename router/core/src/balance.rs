//! Which peer a request without a home gets: total orders with one winner.
//!
//! The peers offered are already the ones that may be picked: candidates, and of those only the
//! ones with room while any has room. `power_of_two`: Mitzenmacher, "The Power of Two Choices in
//! Randomized Load Balancing" (2001).

use std::cmp::Ordering;

use rand::{Rng, RngExt};
use serde::{Deserialize, Serialize};

use crate::pool::Load;

/// How requests without a session, and sessions whose home cannot take them, are spread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Balance {
    /// Smallest in-flight ÷ slots; ties are broken uniformly at random.
    #[default]
    LeastConn,
    /// The next peer in file order; peers at their own maximum are skipped while another has room.
    RoundRobin,
    /// Two distinct peers at random, the one with the smaller in-flight ÷ slots.
    PowerOfTwo,
}

impl Balance {
    /// The pool index of the winner among `peers`, which come in ascending index order. `cursor`
    /// is the index after the last one that `round_robin` picked. `None` when there are no peers.
    pub fn pick(
        self,
        peers: impl Iterator<Item = (usize, Load)> + Clone,
        cursor: usize,
        rng: &mut impl Rng,
    ) -> Option<usize> {
        match self {
            Self::LeastConn => least_conn(peers, rng),
            Self::RoundRobin => round_robin(peers, cursor),
            Self::PowerOfTwo => power_of_two(peers, rng),
        }
    }
}

/// The first pass counts the peers tied for the smallest share, the second takes one of them: one
/// random number for the decision and not one for each tie.
fn least_conn(
    peers: impl Iterator<Item = (usize, Load)> + Clone,
    rng: &mut impl Rng,
) -> Option<usize> {
    let mut best: Option<(usize, Load)> = None;
    let mut tied = 0_usize;
    for (index, load) in peers.clone() {
        match best.map_or(Ordering::Less, |(_, least)| load.cmp_ratio(least)) {
            Ordering::Less => {
                best = Some((index, load));
                tied = 1;
            }
            Ordering::Equal => tied += 1,
            Ordering::Greater => {}
        }
    }
    let (first, least) = best?;
    if tied == 1 {
        return Some(first);
    }
    let nth = rng.random_range(0..tied);
    let mut drawn = peers.filter(|(_, load)| load.cmp_ratio(least) == Ordering::Equal);
    drawn.nth(nth).map(|(index, _)| index)
}

fn round_robin(
    mut peers: impl Iterator<Item = (usize, Load)> + Clone,
    cursor: usize,
) -> Option<usize> {
    let first = peers.clone().next()?;
    let next = peers.find(|(index, _)| *index >= cursor).unwrap_or(first);
    Some(next.0)
}

/// The pair is drawn in random order, so a tie goes to either with equal chance.
fn power_of_two(
    peers: impl Iterator<Item = (usize, Load)> + Clone,
    rng: &mut impl Rng,
) -> Option<usize> {
    let count = peers.clone().count();
    if count < 2 {
        return peers.map(|(index, _)| index).next();
    }
    let first = rng.random_range(0..count);
    // Skipping over `first` keeps the second draw uniform among the others.
    let second = (first + 1 + rng.random_range(0..count - 1)) % count;
    let mut drawn = peers
        .enumerate()
        .filter(|(nth, _)| *nth == first || *nth == second)
        .map(|(_, peer)| peer);
    let (earlier, later) = (drawn.next()?, drawn.next()?);
    let winner = match earlier.1.cmp_ratio(later.1) {
        Ordering::Less => earlier,
        Ordering::Greater => later,
        Ordering::Equal if first < second => earlier,
        Ordering::Equal => later,
    };
    Some(winner.0)
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;
    use crate::pool::Slots;

    /// Index and load, from (in-flight, slots) pairs.
    fn peers(loads: &[(u32, u32)]) -> Vec<(usize, Load)> {
        let load = |&(in_flight, slots)| Load {
            in_flight,
            slots: Slots(slots),
        };
        loads.iter().map(load).enumerate().collect()
    }

    fn picks(balance: Balance, loads: &[(u32, u32)], times: usize) -> Vec<usize> {
        let (peers, mut rng) = (peers(loads), StdRng::seed_from_u64(7));
        let mut counts = vec![0; loads.len()];
        for _ in 0..times {
            counts[balance.pick(peers.iter().copied(), 0, &mut rng).unwrap()] += 1;
        }
        counts
    }

    #[test]
    fn nobody_wins_among_nobody() {
        let mut rng = StdRng::seed_from_u64(1);
        for balance in [Balance::LeastConn, Balance::RoundRobin, Balance::PowerOfTwo] {
            assert_eq!(balance.pick([].into_iter(), 0, &mut rng), None);
        }
    }

    #[test]
    fn least_conn_weighs_in_flight_by_slots() {
        assert_eq!(
            picks(Balance::LeastConn, &[(3, 10), (5, 20), (1, 2)], 20),
            [0, 20, 0]
        );
    }

    #[test]
    fn least_conn_breaks_ties_uniformly() {
        let counts = picks(
            Balance::LeastConn,
            &[(1, 2), (9, 10), (2, 4), (3, 6)],
            3_000,
        );
        assert_eq!(counts[1], 0);
        assert!(
            [0, 2, 3].iter().all(|i| (900..1_100).contains(&counts[*i])),
            "{counts:?}"
        );
    }

    #[test]
    fn round_robin_goes_on_from_the_cursor_and_wraps() {
        let (mut rng, all) = (StdRng::seed_from_u64(1), peers(&[(0, 1), (0, 1), (0, 1)]));
        let from = |list: &[(usize, Load)], cursor, rng: &mut StdRng| {
            Balance::RoundRobin.pick(list.iter().copied(), cursor, rng)
        };
        assert_eq!(from(&all, 1, &mut rng), Some(1));
        assert_eq!(from(&all, 3, &mut rng), Some(0));
        assert_eq!(from(&[all[0], all[2]], 1, &mut rng), Some(2));
        assert_eq!(from(&all[..1], 9, &mut rng), Some(0));
    }

    #[test]
    fn power_of_two_never_takes_the_busiest_and_may_take_any_other() {
        let counts = picks(
            Balance::PowerOfTwo,
            &[(9, 10), (1, 10), (5, 10), (1, 10)],
            6_000,
        );
        assert_eq!(counts[0], 0, "one of any pair is less busy");
        // Of six pairs, index 2 wins only against 0; 1 and 3 share the other five.
        assert!((850..1_150).contains(&counts[2]), "{counts:?}");
        assert!(
            [1, 3].iter().all(|i| (2_300..2_700).contains(&counts[*i])),
            "{counts:?}"
        );
    }
}
