//! Which peer a request without a home gets: total orders with one winner.
//!
//! The peers offered are already the ones that may be picked: candidates, and of those only the
//! ones with room while any has room. `power_of_two`: Mitzenmacher, "The Power of Two Choices in
//! Randomized Load Balancing" (2001). `least_busy` and `idle_aware` end in the peer's name, so that
//! replicas that see the same loads agree.

use std::cmp::{Ordering, Reverse};

use rand::{Rng, RngExt};
use serde::{Deserialize, Serialize};

use crate::load::Idle;
use crate::pool::{Load, Weight};

/// How requests without a session, and sessions whose home cannot take them, are spread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Balance {
    /// Smallest load ÷ slots; ties are broken uniformly at random.
    #[default]
    LeastConn,
    /// Smallest load, largest weight, smallest name.
    LeastBusy,
    /// The next peer in file order; peers at their own maximum are skipped while another has room.
    RoundRobin,
    /// Longest idle, smallest load, largest weight, smallest name: idle engines take turns, so that
    /// none cools down and none is always first.
    IdleAware,
    /// Two distinct peers at random, the one with the smaller load ÷ slots.
    PowerOfTwo,
}

/// How `least_busy` and `idle_aware` compare loads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Normalize {
    /// As counts.
    #[default]
    Off,
    /// As load ÷ slots, for fleets with unequal slots.
    Slots,
}

/// A peer that may be picked.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    /// Its index in the pool; contenders come in ascending order.
    pub index: usize,
    /// How busy it is.
    pub load: Load,
    /// Its [`rank`] in the pool.
    pub rank: u32,
}

/// The order of equally loaded peers: the largest weight first, then the smallest name, then file
/// order. Answers each peer's place in it.
pub fn rank<'a>(peers: impl Iterator<Item = (Weight, &'a str)>) -> Vec<u32> {
    let peers: Vec<_> = peers.collect();
    let mut order: Vec<usize> = (0..peers.len()).collect();
    order.sort_by_key(|index| (Reverse(peers[*index].0), peers[*index].1));
    let mut ranks = vec![0; peers.len()];
    for (rank, index) in (0..).zip(order) {
        ranks[index] = rank;
    }
    ranks
}

impl Balance {
    /// Whether it orders by what the engines say, so that they must be polled.
    pub fn needs_engine_load(self) -> bool {
        matches!(self, Self::LeastBusy | Self::IdleAware)
    }

    /// The pool index of the winner. `idle` says how long an idle peer has been so; it is asked of peers
    /// without load only. `turn` counts the pool's picks by `round_robin` so far. `None` when there
    /// are no peers.
    pub fn pick(
        self,
        peers: impl Iterator<Item = Candidate> + Clone,
        normalize: Normalize,
        idle: impl Fn(usize) -> Idle,
        turn: u64,
        rng: &mut impl Rng,
    ) -> Option<usize> {
        match self {
            Self::LeastConn => least_conn(peers, rng),
            Self::LeastBusy => least_busy(peers, normalize),
            Self::RoundRobin => round_robin(peers, turn),
            Self::IdleAware => idle_aware(peers, normalize, idle),
            Self::PowerOfTwo => power_of_two(peers, rng),
        }
    }
}

/// The first pass counts the peers tied for the smallest share, the second takes one of them: one
/// random number for the decision and not one for each tie.
fn least_conn(peers: impl Iterator<Item = Candidate> + Clone, rng: &mut impl Rng) -> Option<usize> {
    let mut best: Option<Candidate> = None;
    let mut tied = 0_usize;
    // Inside the iterator, which knows its own shape better than a loop around it.
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
        return Some(least.index);
    }
    let nth = rng.random_range(0..tied);
    let mut drawn = peers.filter(|peer| peer.load.cmp_ratio(least.load) == Ordering::Equal);
    drawn.nth(nth).map(|peer| peer.index)
}

fn least_busy(peers: impl Iterator<Item = Candidate>, normalize: Normalize) -> Option<usize> {
    let winner = match normalize {
        // A key of whole numbers: twice as fast as a comparison that is written out.
        Normalize::Off => peers.min_by_key(|peer| (peer.load.in_flight, peer.rank)),
        Normalize::Slots => peers.min_by(|one, other| by_load(normalize, one, other)),
    };
    Some(winner?.index)
}

/// The less loaded peer first, among equally loaded ones the preferred one.
#[inline]
fn by_load(normalize: Normalize, one: &Candidate, other: &Candidate) -> Ordering {
    let by_load = match normalize {
        Normalize::Off => one.load.in_flight.cmp(&other.load.in_flight),
        Normalize::Slots => one.load.cmp_ratio(other.load),
    };
    by_load.then(one.rank.cmp(&other.rank))
}

/// Idle peers come first; among them load says nothing.
fn idle_aware(
    peers: impl Iterator<Item = Candidate>,
    normalize: Normalize,
    idle: impl Fn(usize) -> Idle,
) -> Option<usize> {
    let mut most_rested: Option<(Reverse<Idle>, u32, usize)> = None;
    let mut least_busy: Option<Candidate> = None;
    // One pass, although it may turn out that the busy ones did not matter.
    peers.for_each(|peer| {
        let idle = match peer.load.in_flight {
            0 => idle(peer.index),
            _ => Idle::Busy,
        };
        if idle > Idle::Busy {
            let rested = (Reverse(idle), peer.rank, peer.index);
            if most_rested.is_none_or(|most| rested < most) {
                most_rested = Some(rested);
            }
        } else if least_busy.is_none_or(|least| by_load(normalize, &peer, &least).is_lt()) {
            least_busy = Some(peer);
        }
    });
    let rested = most_rested.map(|(_, _, index)| index);
    rested.or(least_busy.map(|peer| peer.index))
}

fn round_robin(mut peers: impl Iterator<Item = Candidate> + Clone, turn: u64) -> Option<usize> {
    let count = peers.clone().count() as u64;
    let nth = turn.checked_rem(count)?;
    peers.nth(nth as usize).map(|peer| peer.index)
}

/// The pair is drawn in random order, so a tie goes to either with equal chance.
fn power_of_two(
    peers: impl Iterator<Item = Candidate> + Clone,
    rng: &mut impl Rng,
) -> Option<usize> {
    let count = peers.clone().count();
    if count < 2 {
        return peers.map(|peer| peer.index).next();
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
    Some(winner.index)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;
    use crate::pool::Slots;

    const NAMES: [&str; 4] = ["a", "b", "c", "d"];

    /// Peers a, b, c …, from (load, slots) pairs.
    fn peers(loads: &[(u32, u32)]) -> Vec<Candidate> {
        let contender = |(index, &(in_flight, slots)): (usize, &(u32, u32))| Candidate {
            index,
            load: Load {
                in_flight,
                slots: Slots(slots),
            },
            rank: index as u32,
        };
        loads.iter().enumerate().map(contender).collect()
    }

    fn never_used(_: usize) -> Idle {
        Idle::Always
    }

    fn pick(balance: Balance, peers: &[Candidate], turn: u64) -> Option<&'static str> {
        let mut rng = StdRng::seed_from_u64(1);
        let winner = balance.pick(
            peers.iter().copied(),
            Normalize::Off,
            never_used,
            turn,
            &mut rng,
        );
        winner.map(|index| NAMES[index])
    }

    fn picks(balance: Balance, loads: &[(u32, u32)], times: usize) -> Vec<usize> {
        let (peers, mut rng) = (peers(loads), StdRng::seed_from_u64(7));
        let mut counts = vec![0; loads.len()];
        for _ in 0..times {
            counts[balance
                .pick(
                    peers.iter().copied(),
                    Normalize::Off,
                    never_used,
                    0,
                    &mut rng,
                )
                .unwrap()] += 1;
        }
        counts
    }

    #[test]
    fn nobody_wins_among_nobody() {
        for balance in [
            Balance::LeastConn,
            Balance::LeastBusy,
            Balance::RoundRobin,
            Balance::IdleAware,
            Balance::PowerOfTwo,
        ] {
            assert_eq!(pick(balance, &[], 3), None);
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
    fn least_busy_breaks_ties_by_weight_and_then_by_name() {
        let winner = |loads: &[(u32, u32)], weights: [f64; 3]| {
            let mut peers = peers(loads);
            let weights = weights.map(|weight| Weight::new(weight).unwrap());
            // Names against file order, so that neither stands for the other.
            let ranks = rank(weights.into_iter().zip(["b", "a", "c"]));
            for (peer, rank) in peers.iter_mut().zip(ranks) {
                peer.rank = rank;
            }
            let index = NAMES
                .iter()
                .position(|name| Some(*name) == pick(Balance::LeastBusy, &peers, 0));
            ["b", "a", "c"][index.unwrap()]
        };
        let (ahead, level) = ([(2, 4), (2, 4), (3, 4)], [(2, 4); 3]);
        assert_eq!(winner(&ahead, [2.0, 1.0, 9.0]), "b");
        assert_eq!(winner(&ahead, [1.0, 1.0, 9.0]), "a");
        assert_eq!(winner(&level, [2.0, 2.0, 2.0]), "a");
    }

    #[test]
    fn loads_compare_as_shares_of_the_slots_where_asked() {
        let (mut rng, peers) = (StdRng::seed_from_u64(1), peers(&[(2, 2), (3, 8)]));
        let by = |normalize, rng: &mut StdRng| {
            Balance::LeastBusy.pick(peers.iter().copied(), normalize, never_used, 0, rng)
        };
        assert_eq!(by(Normalize::Off, &mut rng), Some(0));
        assert_eq!(by(Normalize::Slots, &mut rng), Some(1));
    }

    #[test]
    fn round_robin_counts_on_over_those_that_are_left() {
        let all = peers(&[(0, 1), (0, 1), (0, 1)]);
        let picks: Vec<_> = (0..4)
            .map(|turn| pick(Balance::RoundRobin, &all, turn).unwrap())
            .collect();
        assert_eq!(picks, ["a", "b", "c", "a"]);
        let without_b = [all[0], all[2]];
        let picks: Vec<_> = (4..7)
            .map(|turn| pick(Balance::RoundRobin, &without_b, turn).unwrap())
            .collect();
        assert_eq!(picks, ["a", "c", "a"]);
    }

    #[test]
    fn the_longest_idle_goes_first_and_one_never_used_before_all() {
        let for_s = |seconds| Idle::For(Duration::from_secs(seconds));
        let idle = [for_s(5), for_s(9), Idle::Busy, Idle::Always];
        let winner = |peers: &[Candidate]| {
            let (peers, mut rng) = (peers.iter().copied(), StdRng::seed_from_u64(1));
            let by_rest = |index: usize| idle[index];
            let won = Balance::IdleAware.pick(peers, Normalize::Off, by_rest, 0, &mut rng);
            won.map(|index| NAMES[index])
        };
        let rested = peers(&[(0, 1), (0, 1), (1, 1), (0, 1)]);
        assert_eq!(winner(&rested[..3]), Some("b"));
        assert_eq!(winner(&rested), Some("d"));
        assert_eq!(winner(&peers(&[(3, 9), (1, 9), (2, 9)])), Some("b"));
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
