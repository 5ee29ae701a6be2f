//! Turns a refusal of the core into an answer: which numbers were compared, and what would have
//! admitted the request.
//!
//! The details repeat the same numbers under the names in llm-openresty's bodies (control-loops,
//! "Literal rejection bodies"), because dashboards and clients know those.

use std::time::Duration;

use http::StatusCode;
use router_core::admission::{Full, Probes, Refusal, Slow};
use router_core::signal::Signal;
use serde_json::{Value, json};

use super::{ApiError, Retry};

/// The model name shown for a flat route's pool.
const NO_MODEL: &str = "-";

impl ApiError {
    /// A refusal of the core, with its numbers. `full_status` is 429 or 503 and applies only to a
    /// full pool; `model` is the pool's.
    pub fn refused(refusal: &Refusal, full_status: u16, model: Option<&str>) -> Self {
        let retry = Retry::After(Duration::from_secs(refusal.retry_after_s()));
        let status = match refusal {
            Refusal::NoHealthyPeer { .. } => StatusCode::SERVICE_UNAVAILABLE,
            Refusal::ConcurrencyLimit(_) => {
                StatusCode::from_u16(full_status).unwrap_or(StatusCode::TOO_MANY_REQUESTS)
            }
            Refusal::TtftLimit(_) | Refusal::TpsLimit(_) => StatusCode::TOO_MANY_REQUESTS,
        };
        let mut error = Self::new(status, refusal.code(), message(refusal), retry);
        error.numbers = numbers(refusal).into();
        if refusal.gate().is_some() {
            error = error.with("model", model.unwrap_or(NO_MODEL));
        }
        match refusal {
            Refusal::NoHealthyPeer { .. } => error,
            Refusal::ConcurrencyLimit(full) => legacy_full(error, full),
            Refusal::TtftLimit(slow) => legacy_slow(error, Signal::Ttft, slow),
            Refusal::TpsLimit(slow) => legacy_slow(error, Signal::Tps, slow),
        }
    }
}

fn message(refusal: &Refusal) -> String {
    match refusal {
        Refusal::NoHealthyPeer { .. } => "no healthy peer can take this request".to_owned(),
        Refusal::ConcurrencyLimit(full) if full.held > 0 => {
            let (running, held) = (full.in_flight, full.held);
            let held_s = full.held_s.unwrap_or_default();
            format!(
                "this route is full: {running} requests of this router are running, and {held} peers are held because their metrics have been silent for up to {held_s} s"
            )
        }
        Refusal::ConcurrencyLimit(full) => {
            let Full {
                in_flight, ceiling, ..
            } = **full;
            let whom = graded(full.bucket);
            format!(
                "the concurrency limit of this route is reached: {in_flight} requests are running, at most {ceiling} may{whom}"
            )
        }
        Refusal::TtftLimit(slow) if slow.held => format!(
            "this route is recovering from a slow first token: new sessions wait until {} is below {:.0} ms, it is {:.0}",
            slow.metric, slow.admits_at, slow.ewma
        ),
        Refusal::TtftLimit(slow) => format!(
            "this route takes too long to its first token: {} is {:.0} ms, it must be below {:.0}{}",
            slow.metric,
            slow.ewma,
            slow.admits_at,
            graded(slow.bucket)
        ),
        Refusal::TpsLimit(slow) => format!(
            "this route generates tokens too slowly: {} is {:.1} per second, {:.1} is asked for{}",
            slow.metric,
            slow.ewma,
            slow.admits_at,
            graded(slow.bucket)
        ),
    }
}

fn graded(bucket: Option<u32>) -> String {
    bucket.map_or_else(String::new, |turn| {
        format!(" for sessions from turn {turn} on")
    })
}

/// The refusal's numbers under our own names, as members of a JSON object.
fn numbers(refusal: &Refusal) -> String {
    let text = match refusal {
        // Both sets of names have this average, and dashboards know it with one decimal.
        Refusal::ConcurrencyLimit(full) => serde_json::to_string(&Full {
            avg_5min: tenths(full.avg_5min),
            ..(**full).clone()
        }),
        Refusal::TtftLimit(slow) | Refusal::TpsLimit(slow) => serde_json::to_string(slow),
        Refusal::NoHealthyPeer { .. } => serde_json::to_string(refusal),
    };
    let text = text.expect("every key of a refusal is a text");
    let members = text
        .strip_prefix('{')
        .and_then(|text| text.strip_suffix('}'));
    // The tag says what the error code says.
    let members = members.map(|members| match members.split_once(',') {
        Some((tag, rest)) if tag.starts_with("\"reason\":") => rest,
        _ => members,
    });
    members.unwrap_or_default().to_owned()
}

// The same numbers under the names of llm-openresty.

fn legacy_full(error: ApiError, full: &Full) -> ApiError {
    let error = error
        .with("trigger", format!("realtime_{}x", full.factor))
        .with("realtime", full.in_flight)
        .with("rt_factor", full.factor)
        .with("active_level", full.tier);
    match full.adaptive {
        Some(adaptive) => error.with("adaptive_cc", tenths(adaptive)),
        None => error,
    }
}

fn legacy_slow(error: ApiError, signal: Signal, slow: &Slow) -> ApiError {
    let Probes {
        used, per_window, ..
    } = slow.probes;
    error
        .with("probes_left", per_window.saturating_sub(used))
        .with("trigger", format!("{signal}_ewma"))
        .with(format!("{signal}_ewma"), tenths(slow.ewma))
        .with(format!("{signal}_limit"), whole(slow.threshold))
        .with("active_level", slow.tier)
}

/// Rounds to one decimal.
fn tenths(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

/// Writes a whole number without a fraction.
fn whole(value: f64) -> Value {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if value.fract() == 0.0 && value.abs() < EXACT {
        json!(value as i64)
    } else {
        json!(value)
    }
}

#[cfg(test)]
mod tests {
    use http::Response;
    use router_core::admission::Budget;

    use super::super::Dialect;
    use super::*;

    fn full() -> Full {
        Full {
            in_flight: 17,
            limit: 19.25,
            pool_limit: 20,
            adaptive: Some(19.25),
            factor: 1.0,
            share: Some(0.85),
            ceiling: 17,
            must_end: 1,
            avg_5min: 12.34,
            healthy_peers: 2,
            held: 0,
            held_s: None,
            tier: 1,
            bucket: Some(1),
            turn: Some(1),
            retry_after_s: 3,
        }
    }

    fn slow() -> Slow {
        Slow {
            metric: "p80".into(),
            ewma: 34_565.04,
            threshold: 30_000.0,
            tolerance: None,
            severe: None,
            held: false,
            admits_at: 30_000.0,
            probes: Probes {
                budget: Budget::All,
                used: 4,
                per_window: 5,
                used_by_warm: None,
                window_left_s: 7,
            },
            healthy_peers: 2,
            tier: 0,
            bucket: None,
            turn: None,
            retry_after_s: 7,
        }
    }

    /// The details under both sets of names, which must agree.
    fn details(error: &ApiError) -> Value {
        let anthropic = error.body(Dialect::Anthropic)["details"].clone();
        let openai = error.body(Dialect::OpenAi)["error"].clone();
        for (name, value) in anthropic.as_object().unwrap() {
            assert_eq!(openai[name], *value, "{name}");
        }
        anthropic
    }

    fn assert_carries(details: &Value, expected: &Value) {
        for (name, value) in expected.as_object().unwrap() {
            assert_eq!(details[name], *value, "{name} in {details}");
        }
    }

    fn retry(response: &Response<bytes::Bytes>) -> (&str, &str) {
        let header = |name: &str| response.headers()[name].to_str().unwrap();
        (header("retry-after"), header("retry-after-ms"))
    }

    #[test]
    fn a_full_pool_says_what_ran_and_what_would_have_admitted_it() {
        let refusal = Refusal::ConcurrencyLimit(Box::new(full()));
        let error = ApiError::refused(&refusal, 429, Some("m1")).on_route("rt");
        let details = details(&error);
        assert_carries(
            &details,
            &json!({
                "in_flight": 17, "limit": 19.25, "ceiling": 17, "must_end": 1, "share": 0.85,
                "bucket": 1, "turn": 1, "route": "rt", "model": "m1", "code": "concurrency_limit",
                "trigger": "realtime_1x", "realtime": 17, "avg_5min": 12.3, "pool_limit": 20,
                "adaptive_cc": 19.3, "rt_factor": 1.0, "healthy_peers": 2, "active_level": 1,
            }),
        );
        let response = error.response(Dialect::OpenAi);
        assert_eq!(response.status(), 429);
        assert_eq!(retry(&response), ("3", "3000"));
        let message = error.body(Dialect::OpenAi)["error"]["message"].to_string();
        assert!(
            message.contains("at most 17 may for sessions from turn 1 on"),
            "{message}"
        );
    }

    #[test]
    fn a_pool_with_held_peers_says_so_and_counts_only_its_own_requests() {
        let refusal = Refusal::ConcurrencyLimit(Box::new(Full {
            in_flight: 1,
            held: 2,
            held_s: Some(9),
            ..full()
        }));
        let error = ApiError::refused(&refusal, 429, None);
        assert_carries(
            &details(&error),
            &json!({"in_flight": 1, "held": 2, "held_s": 9}),
        );
        let message = error.body(Dialect::OpenAi)["error"]["message"].to_string();
        assert!(
            message.contains("1 requests of this router are running, and 2 peers are held"),
            "{message}"
        );
    }

    #[test]
    fn the_trigger_spells_the_factor_without_trailing_zeros() {
        for (factor, trigger) in [(1.0, "realtime_1x"), (1.5, "realtime_1.5x")] {
            let refusal = Refusal::ConcurrencyLimit(Box::new(Full {
                factor,
                adaptive: None,
                ..full()
            }));
            let error = ApiError::refused(&refusal, 429, None);
            let details = details(&error);
            assert_carries(&details, &json!({"trigger": trigger, "model": "-"}));
            assert_eq!(details.get("adaptive_cc"), None);
        }
    }

    #[test]
    fn a_slow_pool_names_its_metric_and_the_probe_slots_left() {
        let refusals = [
            (Refusal::TtftLimit(Box::new(slow())), "ttft"),
            (Refusal::TpsLimit(Box::new(slow())), "tps"),
        ];
        for (refusal, signal) in refusals {
            // A slow pool is not a full pool.
            let error = ApiError::refused(&refusal, 503, None).on_route("rt");
            let details = details(&error);
            assert_carries(
                &details,
                &json!({
                    "ewma": 34565.04, "threshold": 30000, "admits_at": 30000, "metric": "p80",
                    "probe_budget": "all", "probes_used": 4, "probes_left": 1,
                    "probes_per_window": 5, "probe_window_left_s": 7, "held": false,
                    "trigger": format!("{signal}_ewma"), format!("{signal}_ewma"): 34565.0,
                    format!("{signal}_limit"): 30000, "model": "-", "healthy_peers": 2,
                    "active_level": 0, "route": "rt", "code": format!("{signal}_limit"),
                }),
            );
            let response = error.response(Dialect::Anthropic);
            assert_eq!(response.status(), 429);
            assert_eq!(retry(&response), ("7", "7000"));
            let kind = &error.body(Dialect::Anthropic)["error"]["type"];
            assert_eq!(kind, "rate_limit_error");
        }
    }

    #[test]
    fn full_status_is_for_a_full_pool_alone_and_no_peer_has_no_gate() {
        let refusal = Refusal::ConcurrencyLimit(Box::new(full()));
        assert_eq!(ApiError::refused(&refusal, 503, None).status(), 503);
        let nobody = Refusal::NoHealthyPeer {
            peers: 4,
            banned: 2,
            stale: 1,
            ejected: 1,
            draining: 0,
        };
        let error = ApiError::refused(&nobody, 429, None);
        assert_eq!(error.status(), 503);
        assert_eq!(retry(&error.response(Dialect::OpenAi)), ("5", "5000"));
        assert_eq!(
            details(&error),
            json!({"code": "no_healthy_peer", "peers": 4, "banned": 2, "stale": 1, "ejected": 1})
        );
    }
}
