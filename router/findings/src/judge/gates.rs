//! Gates that refuse requests for load.

use proto::admin::{FindingCode, Pool, PoolSignal, Route, Severity};

use super::words::share;
use super::{Cause, Window};
use crate::EVENTS_MIN;
use crate::traffic::{Events, Refused, RouteTraffic};

pub(super) fn judge(route: &Route, traffic: &RouteTraffic, window: Window, found: &mut Vec<Cause>) {
    let refused = |kind| {
        let events = traffic.refused(kind, window.span, window.now);
        (events.count >= EVENTS_MIN).then_some(events)
    };
    let mut add = |code, events: Events, why: String, look: String| {
        let text = format!(
            "{} requests were refused in {}: {why}",
            share(events),
            window.name()
        );
        let cause = Cause::new(code, Severity::Critical, text);
        found.push(cause.route(&route.name).counted(events).look(look));
    };
    if let Some(events) = refused(Refused::Concurrency) {
        let look = format!("llmctl route show {}: limit and peers", route.name);
        add(FindingCode::ConcurrencyLimit, events, limits(route), look);
    }
    if let Some(events) = refused(Refused::Waiting) {
        let why = format!(
            "the queue is full or the wait was too long; {}",
            limits(route)
        );
        let look = format!(
            "llmctl route show {}: the peers; then wait_max in {}",
            route.name, route.path
        );
        add(FindingCode::WaitingFull, events, why, look);
    }
    let signals = [
        (Refused::Ttft, FindingCode::TtftLimit, "time to first token"),
        (Refused::Tps, FindingCode::TpsLimit, "decode rate"),
    ];
    for (kind, code, name) in signals {
        if let Some(events) = refused(kind) {
            let why = format!("{name} is past its threshold: {}", averages(route, kind));
            let look = format!(
                "peers of {} in llmctl status: one slow, or all?",
                route.name
            );
            add(code, events, why, look);
        }
    }
    if let Some(events) = refused(Refused::Overloaded) {
        let why = "request bodies or connections reached their bound".to_owned();
        let look = "max_buffered_bytes under server in router.yaml";
        add(FindingCode::Overloaded, events, why, look.to_owned());
    }
    if refused(Refused::Concurrency).is_none() {
        found.extend(full(route));
    }
}

/// A pool that is full and has not refused enough to be counted.
fn full(route: &Route) -> Option<Cause> {
    let limit = |pool: &Pool| pool.adaptive_limit.unwrap_or(pool.limit as f64);
    let mut pools = route.pools.iter();
    let pool = pools.find(|pool| pool.limit > 0 && pool.in_flight as f64 >= limit(pool))?;
    let adaptive = pool.adaptive_limit.map_or(String::new(), |limit| {
        format!(", adaptive limit {limit:.1}")
    });
    let text = format!(
        "full: {} in flight of {}{adaptive}",
        pool.in_flight, pool.limit
    );
    let cause = Cause::new(FindingCode::ConcurrencyLimit, Severity::Warning, text);
    let look = format!("llmctl route show {}: limit and peers", route.name);
    Some(cause.route(&route.name).look(look))
}

/// `64 in flight of 64 (static limit)`, for each pool that is or was full.
fn limits(route: &Route) -> String {
    let fullest = route.pools.iter().max_by(|one, other| {
        let used = |in_flight: u64, limit: u64| in_flight.saturating_mul(1000) / limit.max(1);
        used(one.in_flight, one.limit).cmp(&used(other.in_flight, other.limit))
    });
    let Some(pool) = fullest else {
        return "the route has no peers".to_owned();
    };
    let model = pool
        .model
        .as_deref()
        .map_or(String::new(), |model| format!(" for model {model}"));
    match pool.adaptive_limit {
        Some(adaptive) if adaptive < pool.limit as f64 => format!(
            "{} in flight now, adaptive limit {adaptive:.1} of {}{model}",
            pool.in_flight, pool.limit
        ),
        _ => format!(
            "{} in flight now of {}{model}, the sum of max_concurrency",
            pool.in_flight, pool.limit
        ),
    }
}

fn averages(route: &Route, kind: Refused<'_>) -> String {
    let rows = route.pools.iter().filter_map(|pool| {
        let signal = match kind {
            Refused::Ttft => pool.ttft.as_ref(),
            _ => pool.tps.as_ref(),
        }?;
        first(signal, kind)
    });
    let rows: Vec<_> = rows.collect();
    if rows.is_empty() {
        "no average now".to_owned()
    } else {
        rows.join("; ")
    }
}

fn first(signal: &PoolSignal, kind: Refused<'_>) -> Option<String> {
    let item = signal.items.first()?;
    let (average, threshold, unit) = match kind {
        Refused::Ttft => (item.ewma_ms, item.threshold_ms?, "ms"),
        _ => (item.ewma_tps, item.threshold_tps?, "tok/s"),
    };
    let average = average.map_or("cold".to_owned(), |average| format!("{average:.1}"));
    Some(format!(
        "{} averages {average}, threshold {threshold} {unit} ({})",
        item.metric, signal.layer
    ))
}
