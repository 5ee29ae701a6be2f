//! `llmctl limit`: sets temporary thresholds on running routers.

use std::time::Duration;

use clap::{ArgGroup, Args, Subcommand};
use http::HeaderMap;
use proto::admin::{LimitScope, TpsLimit, TtftLimit};
use router_config::units;
use serde::Serialize;

use super::fleet::{self, Round};
use crate::client::Router;
use crate::exit::{Ended, Failure};
use crate::render::{Format, Paint, Screen, Table};
use crate::settings::Settings;

/// What may be limited.
#[derive(Debug, Subcommand)]
pub enum LimitCommand {
    /// Refuse while the average time to first token is at or above a limit
    #[command(
        group = ArgGroup::new("change").args(["ms", "reset"]),
        after_help = "Without --ms and --reset, the command shows the limit in force. A table of
metrics (ttft_metrics) takes precedence over it; the command says so then. A
limit of one model (--model) takes precedence over that of its route, and
stays when the route's is reset.

Examples:
  llmctl limit ttft                              what is in force, and who says so?
  llmctl limit ttft --ms 12000 --route chat      for two hours
  llmctl limit ttft --ms 8000 --model glm-4.7 --ttl 30m
  llmctl limit ttft --reset"
    )]
    Ttft(TtftArgs),
    /// Refuse while the average decode rate is at or below a limit
    #[command(
        group = ArgGroup::new("change").args(["tps", "reset"]),
        after_help = "Without --tps and --reset, the command shows the limit in force. With
adaptive_cc this limit moves the adaptive limit and refuses no request itself;
the command says so then. A limit of one model (--model) takes precedence over
that of its route, and stays when the route's is reset.

Examples:
  llmctl limit tps --tps 15 --route chat         for two hours
  llmctl limit tps --tps 15 --ttl 0              until it is reset or the router restarts
  llmctl limit tps --reset"
    )]
    Tps(TpsArgs),
}

/// What `llmctl limit ttft` takes.
#[derive(Debug, Args)]
pub struct TtftArgs {
    /// The limit, milliseconds
    #[arg(long, value_name = "N", value_parser = positive)]
    pub ms: Option<f64>,
    /// What both limits take
    #[command(flatten)]
    pub scope: ScopeArgs,
}

/// What `llmctl limit tps` takes.
#[derive(Debug, Args)]
pub struct TpsArgs {
    /// The limit, tokens per second
    #[arg(long, value_name = "N", value_parser = positive)]
    pub tps: Option<f64>,
    /// What both limits take
    #[command(flatten)]
    pub scope: ScopeArgs,
}

/// What both limits take.
#[derive(Debug, Args)]
pub struct ScopeArgs {
    /// Remove what was set, so that the files decide again
    #[arg(long)]
    pub reset: bool,
    /// This route only; else every route
    #[arg(long, value_name = "NAME")]
    pub route: Option<String>,
    /// This model only, of routes with peers_by_model
    #[arg(long, value_name = "MODEL")]
    pub model: Option<String>,
    /// How long it holds, 30m or bare seconds; 0 until it is reset. Default 2h
    #[arg(long, value_name = "TIME", value_parser = ttl, conflicts_with = "reset")]
    pub ttl: Option<Duration>,
}

/// Parses a number above 0.
fn positive(text: &str) -> Result<f64, String> {
    units::decimal(text)
        .filter(|number| *number > 0.0)
        .ok_or_else(|| "expected a number above 0; --reset removes a limit".to_owned())
}

fn ttl(text: &str) -> Result<Duration, String> {
    units::duration(text).ok_or_else(|| "expected a time such as 30m, 2h or 7200".to_owned())
}

/// One of the two limits.
#[derive(Clone, Copy, Debug)]
struct Kind {
    name: &'static str,
    endpoint: &'static str,
    parameter: &'static str,
    unit: &'static str,
}

const TTFT: Kind = Kind {
    name: "ttft",
    endpoint: "_ttft_limit",
    parameter: "ms",
    unit: "ms",
};

const TPS: Kind = Kind {
    name: "tps",
    endpoint: "_tps_limit",
    parameter: "tps",
    unit: "tok/s",
};

/// The layer name of a limit from a declared table of metrics.
const DECLARED: &str = "declared";

/// A limit on one route of one router, before and after the command.
#[derive(Debug, PartialEq, Serialize)]
struct Stand {
    limit: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    /// Absent when nothing was changed, and when there was no limit before.
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source_before: Option<String>,
    /// Absent without a limit, and with a declared table.
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<f64>,
    source: String,
    /// The source in more detail: of a model, of the route, or of a declared table.
    layer: String,
    /// Seconds until the runtime limit expires; 0 when it never does.
    #[serde(skip_serializing_if = "Option::is_none")]
    left_s: Option<u64>,
    /// The limit that would apply without the runtime limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    shadowed: Option<f64>,
    enforcing: bool,
    /// Warnings for the operator.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
    #[serde(skip)]
    unit: &'static str,
}

/// Shows or changes a limit.
///
/// # Errors
/// The worst failure, after the answers of the other routers and routes.
pub async fn run(
    command: &LimitCommand,
    settings: &Settings,
    screen: &mut Screen,
) -> Result<Ended, Failure> {
    let (kind, value, args) = match command {
        LimitCommand::Ttft(args) => (TTFT, args.ms, &args.scope),
        LimitCommand::Tps(args) => (TPS, args.tps, &args.scope),
    };
    if args.ttl.is_some() && value.is_none() {
        return Err(Failure::Usage(format!(
            "--ttl is the life of a limit that is set: give --{} too",
            kind.parameter
        )));
    }
    let change = change(kind, value, args);
    let model = args.model.as_deref();
    let ask = async |router: &Router, route: &str| {
        let path = [route, kind.endpoint];
        let mut query: Vec<(&str, &str)> =
            model.map(|model| ("model", model)).into_iter().collect();
        query.extend(change.iter().map(|(name, value)| (*name, value.as_str())));
        let answer = if change.is_empty() {
            router.get(&path, &query).await?
        } else {
            let (headers, body) = (HeaderMap::new(), Vec::new());
            router.post(&path, &query, headers, body).await?
        };
        Ok(match kind.name {
            "ttft" => ttft_stand(router.read_as(answer)?),
            _ => tps_stand(router.read_as(answer)?),
        })
    };
    let round = fleet::round(settings, args.route.as_deref(), model, ask).await?;
    if screen.format() == Format::Json {
        screen.json(&round.answers)?;
    } else {
        show(&round, screen);
    }
    round.end(screen)
}

/// The query parameters of a change; empty when the command only shows the limit.
fn change(kind: Kind, value: Option<f64>, args: &ScopeArgs) -> Vec<(&'static str, String)> {
    let mut change = Vec::new();
    if let Some(value) = value {
        change.push((kind.parameter, value.to_string()));
        change.extend(args.ttl.map(|ttl| ("ttl", ttl.as_secs_f64().to_string())));
    } else if args.reset {
        change.push(("reset", "1".to_owned()));
    }
    change
}

fn ttft_stand(answer: TtftLimit) -> Stand {
    stand(
        TTFT,
        answer.scope,
        answer.limit_ms,
        answer.shadowed_limit_ms,
    )
}

fn tps_stand(answer: TpsLimit) -> Stand {
    stand(
        TPS,
        answer.scope,
        answer.limit_tps,
        answer.shadowed_limit_tps,
    )
}

fn stand(kind: Kind, scope: LimitScope, value: Option<f64>, shadowed: Option<f64>) -> Stand {
    let models = of_models(kind, &scope);
    Stand {
        limit: kind.name,
        model: scope.model,
        before: scope.before,
        source_before: scope.source_before,
        value,
        source: scope.source,
        layer: scope.layer,
        left_s: scope.override_ttl_s,
        shadowed,
        enforcing: scope.enforcing,
        warnings: [scope.override_ignored_reason, scope.warning, models]
            .into_iter()
            .flatten()
            .collect(),
        unit: kind.unit,
    }
}

/// Models with a limit of their own. A limit of the route does not affect them.
fn of_models(kind: Kind, scope: &LimitScope) -> Option<String> {
    let (first, _) = scope.override_by_model.first_key_value()?;
    let models: Vec<_> = scope.override_by_model.keys().map(String::as_str).collect();
    Some(format!(
        "limits of their own were set for {}; `llmctl limit {} --model {first}` shows one, --reset removes it",
        models.join(", "),
        kind.name
    ))
}

fn show(round: &Round<Stand>, screen: &mut Screen) {
    let table = table(round);
    if !table.is_empty() {
        screen.table(&table);
    }
    let several = round.fine().count() > 1;
    for (router, route, stand) in round.fine() {
        for warning in &stand.warnings {
            let whose = if several {
                format!("{router}, route {route}: {warning}")
            } else {
                warning.clone()
            };
            screen.warn(&whose);
        }
    }
}

fn table(round: &Round<Stand>) -> Table {
    let changed = |stand: &Stand| stand.source_before.is_some();
    let is_change = round.fine().any(|(_, _, stand)| changed(stand));
    let mut head = vec!["router", "route", "model", "limit"];
    if is_change {
        head.extend(["before", "after"]);
    } else {
        head.push("stands");
    }
    head.extend(["holds", "else"]);
    let mut table = Table::new(&head);
    for (router, route, stand) in round.fine() {
        let plain = |text: &str| (text.to_owned(), Paint::Plain);
        let mut row = vec![
            plain(router),
            plain(route),
            plain(stand.model.as_deref().unwrap_or("-")),
            plain(stand.limit),
        ];
        let is_declared = stand.layer == DECLARED;
        let cell = |number: Option<f64>, source: &str| match is_declared {
            true => plain("declared table"),
            false => value(number, source, stand.unit),
        };
        let before = stand.source_before.as_deref();
        row.extend(before.map(|source| cell(stand.before, source)));
        row.push(cell(stand.value, &stand.source));
        row.push(plain(&holds(stand.left_s)));
        let below = stand.left_s.map(|_| match is_declared {
            true => "no effect".to_owned(),
            false => amount(stand.shadowed, stand.unit),
        });
        row.push(plain(below.as_deref().unwrap_or("-")));
        table.painted_row(row);
    }
    table
}

/// The limit as a cell, for example `12000 ms (runtime)`. Runtime values are highlighted.
fn value(value: Option<f64>, source: &str, unit: &str) -> (String, Paint) {
    let paint = match source {
        "runtime" => Paint::Yellow,
        _ => Paint::Plain,
    };
    match value {
        None => ("off".to_owned(), Paint::Plain),
        Some(_) => (format!("{} ({source})", amount(value, unit)), paint),
    }
}

fn amount(value: Option<f64>, unit: &str) -> String {
    value.map_or_else(|| "off".to_owned(), |value| format!("{value} {unit}"))
}

/// How long a runtime limit still applies.
pub(super) fn holds(left_s: Option<u64>) -> String {
    match left_s {
        None => "-".to_owned(),
        Some(0) => "until reset".to_owned(),
        Some(left) => format!("{left} s more"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cmd::fleet::testing::round;
    use crate::render::testing::capture;

    fn answer(extra: serde_json::Value) -> TtftLimit {
        let mut answer = json!({
            "route": "chat", "ok": true, "source": "runtime", "layer": "override",
            "enforcing": true, "declares_metrics": false, "priority": "",
        });
        let (all, extra) = (answer.as_object_mut().unwrap(), extra);
        all.extend(extra.as_object().unwrap().clone());
        serde_json::from_value(answer).unwrap()
    }

    #[test]
    fn a_change_shows_before_after_and_how_long() {
        let set = answer(json!({
            "source_before": "route", "before": 30000, "after": 12000, "limit_ms": 12000,
            "limit_override_ms": 12000, "override_ttl_s": 3600, "shadowed_limit_ms": 30000,
        }));
        let inert = answer(json!({
            "source": "route", "layer": "declared", "source_before": "route",
            "limit_override_ms": 12000, "override_ttl_s": 0, "override_ignored_reason": "ttft_metrics is declared and beats every limit",
        }));
        let reset = answer(json!({
            "model": "m1", "source": "default", "layer": "none", "source_before": "runtime", "before": 5,
        }));
        let left = answer(json!({
            "source": "default", "layer": "none", "source_before": "runtime", "before": 5,
            "override_by_model": {"m1": 7.0, "m2": 8.0},
        }));
        let round = round([
            ("http://10.0.0.5:8090", "chat", ttft_stand(set)),
            ("http://10.0.0.5:8090", "slo", ttft_stand(inert)),
            ("http://10.0.0.6:8090", "multi", ttft_stand(reset)),
            ("http://10.0.0.6:8090", "some", ttft_stand(left)),
        ]);
        let shown = capture(Format::Human, |screen| show(&round, screen));
        insta::assert_snapshot!("limit_changed", shown);
        let json = serde_json::to_string_pretty(&round.answers).unwrap();
        insta::assert_snapshot!("limit_changed_json", json);
    }

    #[test]
    fn a_look_shows_how_it_stands() {
        let now = answer(json!({"source": "global", "layer": "global", "limit_ms": 30000.5}));
        let shown = capture(Format::Human, |screen| {
            show(&round([("r", "chat", ttft_stand(now))]), screen);
        });
        insta::assert_snapshot!(shown, @r"
        ROUTER  ROUTE  LIMIT  STANDS
        r       chat   ttft   30000.5 ms (global)
        ");
    }

    #[test]
    fn what_is_no_limit_is_no_limit() {
        for text in ["0", "-1", "many", "NaN", "inf", "1e3", ""] {
            assert!(positive(text).is_err(), "{text}");
        }
        assert_eq!(positive("12.5"), Ok(12.5));
        assert_eq!(ttl("30m"), Ok(Duration::from_secs(1800)));
        assert!(ttl("soon").is_err());
    }
}
