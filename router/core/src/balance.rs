//! Chooses the peer of a request without a home peer. Each policy is a total order with one winner.
//!
//! Each policy is one file beside this one and one line of the table below. The enum, its words in
//! files and responses, the text of the option and the choice itself all come from that line.
//!
//! The caller offers only peers that may be picked: candidates, and only those with room while any
//! has room. `least_busy` and `idle_aware` end in the peer's name, so that replicas that see the
//! same loads agree.

mod idle_aware;
mod least_busy;
mod least_conn;
mod power_of_two;
mod round_robin;

use std::cmp::{Ordering, Reverse};

use rand::Rng;
use serde::{Deserialize, Serialize};

use crate::load::Idle;
use crate::pool::{Load, Weight};

/// One way to spread requests. No item has a default, so that a new policy must answer each
/// question.
trait Policy {
    /// Whether the policy orders by loads that the engines report, which requires polling.
    const NEEDS_ENGINE_LOAD: bool;
    /// Whether the peers' weights decide between equally loaded peers.
    const USES_WEIGHTS: bool;

    /// The winner among the offered peers, which come in ascending order of their index. `None`
    /// when there are no peers.
    fn pick(
        peers: impl Iterator<Item = Candidate> + Clone,
        terms: &Terms<impl Fn(usize) -> Idle>,
        rng: &mut impl Rng,
    ) -> Option<Winner>;
}

/// The inputs of a policy besides the candidates.
#[derive(Clone, Copy, Debug)]
pub struct Terms<I> {
    /// How loads are compared.
    pub normalize: Normalize,
    /// How long the idle peer with this index has been idle. Policies call it only for peers
    /// without load.
    pub idle: I,
    /// How many turns the pool's policy has taken so far.
    pub turn: u64,
}

/// The peer a policy chose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Winner {
    /// Its index in the pool.
    pub index: usize,
    /// Whether the choice used up a turn, so that the next choice continues behind it.
    pub takes_turn: bool,
}

impl Winner {
    /// A choice that does not depend on earlier choices.
    fn at(index: usize) -> Self {
        Self {
            index,
            takes_turn: false,
        }
    }
}

/// Declares the policies. The rules read as one list in the option's text.
macro_rules! policies {
    (
        $(#[$first_meta:meta])* $first:ident = $first_module:ident, $first_word:literal, $first_rule:literal;
        $($name:ident = $module:ident, $word:literal, $rule:literal;)*
    ) => {
        words! {
            /// How requests without a session, and sessions whose home cannot take them, are spread.
            #[derive(Default)]
            pub enum Balance {
                #[doc = $first_rule]
                $(#[$first_meta])*
                $first = $first_word,
                $(#[doc = $rule] $name = $word,)*
            }
        }

        impl Balance {
            /// The text of the option: every policy with its rule.
            pub const RULES: &'static str =
                concat!("How requests without a home are spread: `", $first_word, "`: ", $first_rule $(, "; `", $word, "`: ", $rule)*, ".");

            /// The rule of the policy in a few words.
            pub fn rule(self) -> &'static str {
                match self {
                    Self::$first => $first_rule,
                    $(Self::$name => $rule,)*
                }
            }

            /// Whether the policy orders by loads that the engines report, which requires polling.
            pub fn needs_engine_load(self) -> bool {
                match self {
                    Self::$first => $first_module::$first::NEEDS_ENGINE_LOAD,
                    $(Self::$name => $module::$name::NEEDS_ENGINE_LOAD,)*
                }
            }

            /// Whether the peers' weights decide between equally loaded peers.
            pub fn uses_weights(self) -> bool {
                match self {
                    Self::$first => $first_module::$first::USES_WEIGHTS,
                    $(Self::$name => $module::$name::USES_WEIGHTS,)*
                }
            }

            /// The winner among `peers`, ascending by index. `None` when there are no peers.
            pub fn pick(
                self,
                peers: impl Iterator<Item = Candidate> + Clone,
                terms: &Terms<impl Fn(usize) -> Idle>,
                rng: &mut impl Rng,
            ) -> Option<Winner> {
                match self {
                    Self::$first => $first_module::$first::pick(peers, terms, rng),
                    $(Self::$name => $module::$name::pick(peers, terms, rng),)*
                }
            }
        }
    };
}

policies! {
    #[default]
    LeastConn = least_conn, "least_conn", "the smallest load ÷ slots, ties at random";
    LeastBusy = least_busy, "least_busy", "the smallest load, then the largest weight, then the name";
    IdleAware = idle_aware, "idle_aware", "the one idle for the longest, then the smallest load";
    RoundRobin = round_robin, "round_robin", "the next in file order";
    PowerOfTwo = power_of_two, "power_of_two", "the less loaded of two drawn at random";
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
    /// Index in the pool; candidates come in ascending order.
    pub index: usize,
    /// The load of the peer.
    pub load: Load,
    /// The peer's [`rank`] in the pool.
    pub rank: u32,
}

/// The order of equally loaded peers: the largest weight first, then the smallest name, then file
/// order. Returns each peer's position in it.
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

/// Orders the less loaded peer first, and among equally loaded peers the preferred one.
#[inline]
fn by_load(normalize: Normalize, one: &Candidate, other: &Candidate) -> Ordering {
    let by_load = match normalize {
        Normalize::Off => one.load.in_flight.cmp(&other.load.in_flight),
        Normalize::Slots => one.load.cmp_ratio(other.load),
    };
    by_load.then(one.rank.cmp(&other.rank))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;
    use crate::pool::Slots;

    const NAMES: [&str; 4] = ["a", "b", "c", "d"];

    /// Makes peers a, b, c … from (load, slots) pairs.
    fn peers(loads: &[(u32, u32)]) -> Vec<Candidate> {
        let candidate = |(index, &(in_flight, slots)): (usize, &(u32, u32))| Candidate {
            index,
            load: Load {
                in_flight,
                slots: Slots(slots),
            },
            rank: index as u32,
        };
        loads.iter().enumerate().map(candidate).collect()
    }

    /// Terms that compare loads as counts, with peers that were never used.
    fn terms(turn: u64) -> Terms<impl Fn(usize) -> Idle> {
        Terms {
            normalize: Normalize::Off,
            idle: |_| Idle::Always,
            turn,
        }
    }

    fn pick(balance: Balance, peers: &[Candidate], turn: u64) -> Option<&'static str> {
        let mut rng = StdRng::seed_from_u64(1);
        let winner = balance.pick(peers.iter().copied(), &terms(turn), &mut rng);
        winner.map(|winner| NAMES[winner.index])
    }

    fn picks(balance: Balance, loads: &[(u32, u32)], times: usize) -> Vec<usize> {
        let (peers, mut rng) = (peers(loads), StdRng::seed_from_u64(7));
        let mut counts = vec![0; loads.len()];
        for _ in 0..times {
            let winner = balance.pick(peers.iter().copied(), &terms(0), &mut rng);
            counts[winner.unwrap().index] += 1;
        }
        counts
    }

    #[test]
    fn nobody_wins_among_nobody() {
        for balance in Balance::ALL {
            assert_eq!(pick(*balance, &[], 3), None);
        }
    }

    #[test]
    fn every_policy_spreads_over_equal_peers_as_they_fill() {
        for balance in Balance::ALL {
            let mut loads = [(0, 4); 4];
            let mut rng = StdRng::seed_from_u64(3);
            for turn in 0..16 {
                let peers = peers(&loads);
                let winner = balance.pick(peers.iter().copied(), &terms(turn), &mut rng);
                loads[winner.unwrap().index].0 += 1;
            }
            assert!(
                loads.iter().all(|(load, _)| (2..=6).contains(load)),
                "{balance:?}: {loads:?}"
            );
        }
    }

    #[test]
    fn only_the_policy_that_goes_in_turn_takes_one() {
        let (peers, mut rng) = (peers(&[(0, 4), (0, 4)]), StdRng::seed_from_u64(3));
        for balance in Balance::ALL {
            let winner = balance.pick(peers.iter().copied(), &terms(0), &mut rng);
            let takes_turn = winner.unwrap().takes_turn;
            assert_eq!(takes_turn, *balance == Balance::RoundRobin, "{balance:?}");
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
            // Names run against file order, so that a test can tell them apart.
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
            let terms = Terms {
                normalize,
                ..terms(0)
            };
            let winner = Balance::LeastBusy.pick(peers.iter().copied(), &terms, rng);
            winner.map(|winner| winner.index)
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
            let terms = Terms {
                normalize: Normalize::Off,
                idle: |index: usize| idle[index],
                turn: 0,
            };
            let winner = Balance::IdleAware.pick(peers, &terms, &mut rng);
            winner.map(|winner| NAMES[winner.index])
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
