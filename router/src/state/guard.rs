//! Converts the load gates of a route into the core's types.

use proto::admin::AdaptiveBounds;
use router_core::admission::priority::PrioritySpec;
use router_core::aimd::{AdaptiveSpec, Bounds};
use router_core::layered::Setting;
use router_core::pool::GuardSpec;
use router_core::signal::{Limit, SignalSpec};

use router_config::valid::{AdaptiveOptions, PriorityOptions, RouteOptions, SignalOptions};

/// The reasons besides a full pool for which a route refuses requests.
pub(super) fn guard_of(options: &RouteOptions) -> GuardSpec {
    let adaptive = &options.adaptive;
    GuardSpec {
        ttft: signal(&options.ttft),
        tps: signal(&options.tps),
        adaptive: adaptive.enabled.value.then(|| adaptive_spec(adaptive)),
        priority: priority(&options.priority),
        cluster_avg_interval: options.cluster_avg_interval.value,
        wait_max: options.wait_max.value,
        wait_timeout: options.wait_timeout.value,
    }
}

/// The bounds of each pool's adaptive limit, whether it is switched on or not. `pools`: each pool's
/// model and the slots of its [`largest_tier`](router_config::valid::largest_tier).
pub fn adaptive_bounds<'a>(
    options: &AdaptiveOptions,
    pools: impl Iterator<Item = (Option<&'a str>, u64)>,
) -> Vec<AdaptiveBounds> {
    let spec = adaptive_spec(options);
    let of = |(model, slots): (Option<&str>, u64)| {
        let Bounds { min, max, init } = Bounds::new(&spec, slots);
        AdaptiveBounds {
            model: model.map(str::to_owned),
            max,
            min,
            init,
        }
    };
    pools.map(of).collect()
}

fn signal(options: &SignalOptions) -> SignalSpec {
    let Setting { value, source } = options.limit;
    SignalSpec {
        table: options.metrics.value.clone(),
        limit: value.map(|value| Limit { value, source }),
        by_model: options.limit_by_model.value.clone(),
        alpha: options.ewma_alpha.value,
        window: options.window.value,
        ttl: options.ttl.value,
        probe_window: options.probe_window.value,
        probes_per_window: options.probe_per_window.value,
    }
}

fn adaptive_spec(options: &AdaptiveOptions) -> AdaptiveSpec {
    AdaptiveSpec {
        interval: options.interval.value,
        dec: options.dec.value,
        inc: options.inc.value,
        min: options.min.value,
        min_frac: options.min_frac.value,
        init: options.init.value,
        init_frac: options.init_frac.value,
        pressure_frac: options.pressure_frac.value,
        slack_frac: options.slack_frac.value,
        headroom: options.headroom.value,
        ttl: options.ttl.value,
        use_ttft: options.use_ttft.value,
        hold_when_idle: options.hold_when_idle.value,
    }
}

fn priority(options: &PriorityOptions) -> PrioritySpec {
    let severe = options.severe.value;
    let graded = PrioritySpec::graded(options.r_new.value, options.full_turn.value, severe);
    PrioritySpec {
        table: options.table.value.clone().unwrap_or(graded.table),
        severe,
        release: options.release.value,
        t1_probes: options.t1_probes.value,
        warn_frac: options.warn_frac.value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use router_config::valid::Route;
    use router_config::{Env, RoutesAt, Sources, load};

    /// Builds a route from this file.
    fn route(text: &str) -> Route {
        let directory = tempfile::tempdir().unwrap();
        let (config, file) = (
            directory.path().join("router.yaml"),
            directory.path().join("r.yaml"),
        );
        std::fs::write(&config, "{}").unwrap();
        std::fs::write(&file, text).unwrap();
        let mut loaded = load(&Sources {
            config: Some(config),
            routes: RoutesAt::Files(vec![file]),
            env: Env::fixed::<String, String>([]),
            advise: false,
        });
        loaded.routes.remove(0).result.unwrap()
    }

    #[test]
    fn the_catalogues_defaults_are_the_cores() {
        let options = route("peers: []").options;
        assert_eq!(guard_of(&options), GuardSpec::default());
        assert_eq!(adaptive_spec(&options.adaptive), AdaptiveSpec::default());
    }

    #[test]
    fn every_option_reaches_the_core() {
        let text = "
peers: []
ttft_limit_ms: 30000
ttft_limit_by_model: {m: 5000}
ttft_metrics: [{metric: avg, threshold: 9}, {metric: p95, q: .95, threshold: 8}]
ttft_ewma_alpha: .5
ttft_window: 1s
ttft_ttl: 2s
ttft_probe_window: 3s
ttft_probe_per_window: 4
tps_limit_tps: 20
tps_window: 7s
adaptive_cc: true
adaptive_cc_dec: .5
adaptive_cc_inc: 2
adaptive_cc_min: 3
adaptive_cc_min_frac: .1
adaptive_cc_init: 4
adaptive_cc_init_frac: .2
adaptive_cc_pressure_frac: .8
adaptive_cc_slack_frac: .6
adaptive_cc_abs: 0
adaptive_cc_ttl: 1m
adaptive_cc_use_ttft: false
adaptive_cc_hold_when_idle: false
session_prio_severe: 2
session_prio_release: .5
session_prio_t1_probes: 0
session_prio_warn_frac: .4
session_prio_table: [[1, .5, 1], {min_turn: 9, share: 1, tol: 2}]
cluster_avg_interval: 5s
";
        insta::assert_debug_snapshot!(guard_of(&route(text).options));
    }

    #[test]
    fn an_interval_that_nobody_sets_is_the_tps_window() {
        let of = |text: &str| route(text).options.adaptive.interval.value.as_secs();
        assert_eq!(of("peers: []\ntps_window: 7s"), 7);
        assert_eq!(of("peers: []\ntps_window: 7s\nadaptive_cc_interval: 3s"), 3);
    }
}
