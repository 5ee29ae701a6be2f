//! `_ttft_limit` and `_tps_limit`: sets a temporary threshold on the running router, for the route
//! or for one model.

use std::collections::BTreeMap;
use std::time::Duration;

use http::{Method, StatusCode};
use proto::admin::{LimitScope, TpsLimit, TtftLimit};
use router_core::book::status::{SignalState, ThresholdSource};
use router_core::book::{PoolId, RuntimeLimit};
use router_core::layered::{Setting, Source};
use router_core::signal::Signal;

use super::POSTS;
use super::signal::{by_model, declared_wins, is_compared, layer, seconds_up, spec_of, switch_of};
use crate::admin::answer::{self, Answer};
use crate::admin::query::{Params, Refused};
use crate::state::Route;
use crate::telemetry::events::{Events, LimitChange};
use router_config::valid::SignalOptions;

/// Default lifetime of a limit, seconds: as long as an incident, so that a forgotten limit expires.
const TTL_S: f64 = 7200.0;

const PRIORITY: &str = "declared metrics > model override > route override > model limit > route limit > global default";

/// The limit in question.
#[derive(Clone, Copy)]
struct Scope<'r> {
    route: &'r Route,
    signal: Signal,
    /// `None`: the whole route.
    pool: Option<PoolId>,
}

/// `GET` shows the limit. `POST` sets it; with 0 or `reset=1` it removes the limit.
pub(super) fn limit(
    route: &Route,
    signal: Signal,
    method: &Method,
    params: &Params,
    events: &Events,
) -> Result<Answer, Refused> {
    let value = parameter(signal);
    params.only(&[value, "model", "ttl", "reset"])?;
    let scope = Scope {
        route,
        signal,
        pool: pool(route, params.get("model")?)?,
    };
    if method == Method::POST {
        let to = change(params, value)?;
        return Ok(scope.set(to, events));
    }
    if params.has_any(&[value, "ttl", "reset"]) {
        return Ok(answer::method_not_allowed(POSTS));
    }
    Ok(scope.answer(None))
}

fn parameter(signal: Signal) -> &'static str {
    match signal {
        Signal::Ttft => "ms",
        Signal::Tps => "tps",
    }
}

/// The pool of `?model=`.
fn pool(route: &Route, model: Option<&str>) -> Result<Option<PoolId>, Refused> {
    match model {
        None => Ok(None),
        // A flat route has one pool for all models: a limit for one model would have no effect.
        Some(_) if !route.is_by_model() => {
            Err("this route has no models of its own; leave 'model' out".to_owned())
        }
        Some(model) => match route.pool(Some(model)) {
            Some(pool) => Ok(Some(pool)),
            None => Err("'model' is none of this route's models".to_owned()),
        },
    }
}

/// The requested limit; `None` removes it.
fn change(params: &Params, name: &str) -> Result<Option<RuntimeLimit>, Refused> {
    let reset = params.flag("reset")?;
    let ttl = params.amount("ttl")?;
    let limit = match (params.amount(name)?, reset) {
        (Some(_), true) => return Err(format!("give either '{name}' or 'reset'")),
        (None, false) => return Err(format!("say {name}=<number>, {name}=0 or reset=1")),
        (Some(limit), false) if limit > 0.0 => limit,
        (Some(_), false) | (None, true) if ttl.is_some() => {
            return Err("'ttl' is for a limit that is set".to_owned());
        }
        (Some(_), false) | (None, true) => return Ok(None),
    };
    let ttl = ttl.unwrap_or(TTL_S);
    // A lifetime that does not fit a duration counts as unlimited.
    let life = Duration::try_from_secs_f64(ttl)
        .ok()
        .filter(|life| !life.is_zero());
    Ok(Some((limit, life)))
}

impl Scope<'_> {
    fn set(self, to: Option<RuntimeLimit>, events: &Events) -> Answer {
        let before = self.in_force();
        self.route.set_limit(self.signal, self.pool, to);
        let change = LimitChange {
            before: before.value,
            after: self.in_force().value,
            ttl: to.and_then(|(_, life)| life),
        };
        events.limit_set(&self.route.name, self.signal.as_str(), self.model(), change);
        self.answer(Some(before))
    }

    /// The current state; `before` is the state before a change.
    fn answer(self, before: Option<InForce>) -> Answer {
        let now = self.in_force();
        let runtime = self.route.runtime_limit(self.signal, self.pool);
        let numbers = Numbers {
            limit: now.value,
            held: runtime.map(|(value, _)| value),
            configured: self.options().limit.value,
            shadowed: runtime.and_then(|_| self.shadowed()),
        };
        let scope = self.scope(now, before, runtime);
        match self.signal {
            Signal::Ttft => answer::json(StatusCode::OK, &numbers.ttft(scope)),
            Signal::Tps => answer::json(StatusCode::OK, &numbers.tps(scope)),
        }
    }

    fn scope(
        self,
        now: InForce,
        before: Option<InForce>,
        runtime: Option<RuntimeLimit>,
    ) -> LimitScope {
        let declares = self.is_declared();
        let ignored = runtime.filter(|_| declares);
        let is_on = self.route.switch(switch_of(self.signal)).value;
        LimitScope {
            route: self.route.name.to_string(),
            ok: true,
            model: self.model().map(str::to_owned),
            before: before.and_then(|before| before.value),
            after: before.and(now.value),
            source: self.source(now).to_owned(),
            source_before: before.map(|before| self.source(before).to_owned()),
            layer: layer(now.source).to_owned(),
            override_by_model: self.of_models(),
            enforcing: is_on && self.states().any(|state| is_compared(&state)),
            static_by_model: by_model(self.options()),
            override_ttl_s: runtime.map(|(_, left)| left.map_or(0, seconds_up)),
            override_effective: runtime.map(|_| !declares),
            override_ignored_reason: ignored.map(|_| declared_wins(self.signal)),
            declares_metrics: declares,
            priority: PRIORITY.to_owned(),
            warning: self.warning(is_on),
        }
    }

    /// The limit in force. For a whole by-model route, it applies to the models without a limit of
    /// their own.
    fn in_force(self) -> InForce {
        if self.is_declared() {
            return InForce {
                value: None,
                source: ThresholdSource::Declared,
            };
        }
        if self.pool.is_none() && self.route.is_by_model() {
            let runtime = self.route.runtime_limit(self.signal, None);
            let below = self.options().limit;
            let Setting { value, source } = below.under(runtime.map(|(value, _)| Some(value)));
            return InForce {
                value,
                source: match (value, source) {
                    (None, _) => ThresholdSource::None,
                    (_, Source::Runtime) => ThresholdSource::Override,
                    (_, Source::Route) => ThresholdSource::Route,
                    (_, Source::Global | Source::Default | Source::DefaultInvalid) => {
                        ThresholdSource::Global
                    }
                },
            };
        }
        let state = self.states().next().unwrap_or_default();
        InForce {
            value: state.metrics.first().and_then(|row| row.threshold),
            source: state.source,
        }
    }

    /// The configuration layer of a threshold.
    fn source(self, of: InForce) -> &'static str {
        let SignalOptions {
            limit,
            limit_by_model,
            metrics,
            ..
        } = self.options();
        let source = match of.source {
            ThresholdSource::Declared => metrics.source,
            ThresholdSource::ModelOverride | ThresholdSource::Override => Source::Runtime,
            ThresholdSource::Model => limit_by_model.source,
            ThresholdSource::Route | ThresholdSource::Global | ThresholdSource::None => {
                limit.source
            }
        };
        source.as_str()
    }

    /// The limits of single models, for the page of the whole route.
    fn of_models(self) -> BTreeMap<String, f64> {
        let Self {
            route,
            signal,
            pool,
        } = self;
        let pools = route.pool_ids().zip(&route.spec().pools);
        let set = pools.filter(|_| pool.is_none()).filter_map(|(id, pool)| {
            let (limit, _) = route.runtime_limit(signal, Some(id))?;
            Some((pool.model.as_deref()?.to_owned(), limit))
        });
        set.collect()
    }

    fn is_declared(self) -> bool {
        spec_of(self.route, self.signal).table.is_some()
    }

    /// The limit that would apply without the override of this scope.
    fn shadowed(self) -> Option<f64> {
        if self.pool.is_none() && self.route.is_by_model() {
            return self.options().limit.value;
        }
        self.states().next().and_then(|state| state.shadowed)
    }

    /// The signal in the pools of the scope.
    fn states(self) -> impl Iterator<Item = SignalState> {
        let Self {
            route,
            signal,
            pool,
        } = self;
        let pools = route.pool_ids().zip(route.protections());
        pools
            .filter(move |(id, _)| pool.is_none_or(|pool| pool == *id))
            .map(move |(_, now)| match signal {
                Signal::Ttft => now.ttft,
                Signal::Tps => now.tps,
            })
    }

    fn options(&self) -> &SignalOptions {
        match self.signal {
            Signal::Ttft => &self.route.options.ttft,
            Signal::Tps => &self.route.options.tps,
        }
    }

    fn model(&self) -> Option<&str> {
        self.route.spec().pools[self.pool?.0].model.as_deref()
    }

    fn warning(self, is_on: bool) -> Option<String> {
        let signal = self.signal;
        if !is_on {
            Some(format!(
                "{signal} is switched off: nobody is refused for it; see _{signal}_toggle"
            ))
        } else if signal == Signal::Tps && self.route.spec().guard.adaptive.is_some() {
            Some("adaptive_cc is on: the limit moves the adaptive limit and refuses nobody by itself".to_owned())
        } else {
            None
        }
    }
}

/// A limit and the layer that it comes from.
#[derive(Clone, Copy)]
struct InForce {
    value: Option<f64>,
    source: ThresholdSource,
}

/// The numbers of an answer, in the signal's own unit.
struct Numbers {
    limit: Option<f64>,
    held: Option<f64>,
    configured: Option<f64>,
    shadowed: Option<f64>,
}

impl Numbers {
    fn ttft(self, scope: LimitScope) -> TtftLimit {
        TtftLimit {
            scope,
            limit_ms: self.limit,
            limit_override_ms: self.held,
            static_limit_ms: self.configured,
            shadowed_limit_ms: self.shadowed,
        }
    }

    fn tps(self, scope: LimitScope) -> TpsLimit {
        TpsLimit {
            scope,
            limit_tps: self.limit,
            limit_override_tps: self.held,
            static_limit_tps: self.configured,
            shadowed_limit_tps: self.shadowed,
        }
    }
}
