//! `_cluster_avg`: the five-minute average of in-flight requests, per pool and for the route.

use std::collections::BTreeMap;

use http::StatusCode;
use proto::admin::{ClusterAvg, ErrorBody, PoolAvg};
use router_core::book::status::Protection;

use super::{has_no_peers, no_peers, pool_name};
use crate::admin::answer::{self, Answer};
use crate::state::Route;

/// `_cluster_avg`.
pub(super) fn status(route: &Route) -> Answer {
    if has_no_peers(route) {
        return answer::json(
            StatusCode::SERVICE_UNAVAILABLE,
            &ErrorBody { error: no_peers() },
        );
    }
    let pools: BTreeMap<String, PoolAvg> = route
        .pool_ids()
        .zip(route.protections())
        .map(|(pool, now)| (pool_name(route, pool), of_pool(&now)))
        .collect();
    let average = ClusterAvg {
        route: route.name.to_string(),
        sum: sum(pools.values()),
        pools,
    };
    answer::json(StatusCode::OK, &average)
}

fn of_pool(now: &Protection) -> PoolAvg {
    let slots = now.average.slots.iter();
    PoolAvg {
        realtime_sum: now.in_flight,
        buckets: slots
            .map(|(slot, count)| (slot.to_string(), *count))
            .collect(),
        samples: now.average.slots.len(),
        avg_5min: now.average.mean,
        cur_bucket_idx: now.average.current,
    }
}

/// Sums over the pools: their slot times add up to those of the route.
fn sum<'p>(pools: impl Iterator<Item = &'p PoolAvg>) -> PoolAvg {
    let mut sum = PoolAvg::default();
    for pool in pools {
        sum.realtime_sum += pool.realtime_sum;
        sum.cur_bucket_idx = pool.cur_bucket_idx;
        for (slot, count) in &pool.buckets {
            *sum.buckets.entry(slot.clone()).or_default() += count;
        }
    }
    sum.samples = sum.buckets.len();
    if sum.samples > 0 {
        sum.avg_5min = sum.buckets.values().sum::<u64>() as f64 / sum.samples as f64;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(in_flight: u64, slots: &[(&str, u64)]) -> PoolAvg {
        PoolAvg {
            realtime_sum: in_flight,
            buckets: slots
                .iter()
                .map(|(slot, count)| ((*slot).to_owned(), *count))
                .collect(),
            cur_bucket_idx: 5,
            ..PoolAvg::default()
        }
    }

    #[test]
    fn the_average_of_the_slots_there_are_v49() {
        let of_one = sum([pool(7, &[("3", 9), ("4", 11), ("5", 7)])].iter());
        assert_eq!((of_one.samples, of_one.avg_5min), (3, 9.0));
        assert_eq!(sum([].iter()).avg_5min, 0.0);
    }

    #[test]
    fn pools_add_up_slot_by_slot() {
        let both = [pool(2, &[("3", 1), ("4", 2)]), pool(3, &[("4", 3)])];
        let sum = sum(both.iter());
        assert_eq!(
            (sum.realtime_sum, sum.samples, sum.cur_bucket_idx),
            (5, 2, 5)
        );
        assert_eq!((sum.buckets["4"], sum.avg_5min), (5, 3.0));
    }
}
