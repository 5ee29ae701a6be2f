//! `llmctl session`: shows where a session lives, and releases it.

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};
use http::HeaderMap;
use proto::admin::{FLAT_POOL, FinishedSession, SessionHome, Sessions};
use serde::Serialize;
use serde_json::Value;

use super::fleet::{self, Round};
use crate::client::Router;
use crate::exit::{Ended, Failure};
use crate::render::{Format, Screen, Table};
use crate::settings::Settings;

/// Maximum number of pools of one route that are asked for the home by hash.
const POOLS_MAX: usize = 32;

/// What `llmctl session` takes.
#[derive(Debug, Subcommand)]
pub enum SessionCommand {
    /// Show where a session lives
    #[command(
        after_help = "Routes with `affinity: sticky_least_loaded` or `affinity_max_load_factor`
remember where a session lives. Routers do not share this memory: name each
router with --router. Other routes compute a session's home from its id; the
column BY says which applies. Looking at a session does not keep it alive.

Examples:
  llmctl session show conversation-12345
  llmctl session show conversation-12345 --route chat --output json"
    )]
    Show(SessionArgs),
    /// Release a session, so that its next request is placed anew
    #[command(
        after_help = "Finish a session after its last answer; running requests are not cancelled.
Releasing a session twice, or an unknown one, changes nothing and is no error.

Examples:
  llmctl session finish conversation-12345
  llmctl session finish conversation-12345 --router http://10.0.0.5:8090 --router http://10.0.0.6:8090"
    )]
    Finish(SessionArgs),
}

/// Which session.
#[derive(Debug, Args)]
pub struct SessionArgs {
    /// The session id, as clients send it
    #[arg(value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
    pub id: String,
    /// This route only; else every route
    #[arg(long, value_name = "NAME")]
    pub route: Option<String>,
}

/// The peer of a session on one route of one router.
#[derive(Debug, PartialEq, Serialize)]
struct Found {
    remembered: bool,
    homes: Vec<SessionHome>,
    /// The homes by hash, on routes that remember no sessions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    computed: Vec<Computed>,
}

/// The home of a session by hash.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Computed {
    pool: String,
    peer: String,
    name: String,
    /// The placement function.
    algorithm: String,
    /// The peer that the session would get now, where that is another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    now: Option<String>,
}

/// Number of pools of one route in which the session was released.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Released {
    released: u32,
}

/// Shows or releases a session.
///
/// # Errors
/// The worst failure, after the answers of the other routers and routes.
pub async fn run(
    command: SessionCommand,
    settings: &Settings,
    screen: &mut Screen,
) -> Result<Ended, Failure> {
    match command {
        SessionCommand::Show(args) => {
            let ask = async |router: &Router, route: &str| {
                let query = [("session_id", args.id.as_str())];
                let found: Sessions = router.get(&[route, "_sessions"], &query).await?;
                let computed = match found.remembered {
                    true => Vec::new(),
                    false => computed(router, route, &args.id, found.pools.keys()).await,
                };
                Ok(Found {
                    remembered: found.remembered,
                    homes: found.homes.unwrap_or_default(),
                    computed,
                })
            };
            let round = fleet::round(settings, args.route.as_deref(), None, ask).await?;
            show(round, screen, homes)
        }
        SessionCommand::Finish(args) => {
            let ask = async |router: &Router, route: &str| {
                let query = [("session_id", args.id.as_str())];
                let path = [route, "finish_session"];
                let done: FinishedSession = router
                    .post(&path, &query, HeaderMap::new(), Vec::new())
                    .await?;
                Ok(Released {
                    released: done.released,
                })
            };
            let round = fleet::round(settings, args.route.as_deref(), None, ask).await?;
            show(round, screen, releases)
        }
    }
}

/// The homes of a session in the pools of a route that places by hash.
async fn computed(
    router: &Router,
    route: &str,
    id: &str,
    pools: impl Iterator<Item = &String>,
) -> Vec<Computed> {
    let mut homes = Vec::new();
    for pool in pools.take(POOLS_MAX) {
        let mut query = vec![("sid", id)];
        if pool != FLAT_POOL {
            query.push(("model", pool));
        }
        // A route without peers refuses the question; there is no home then.
        let Ok(answer) = router.get::<Value>(&[route, "_route_debug"], &query).await else {
            continue;
        };
        let text = |key: &str| answer[key].as_str().map(str::to_owned);
        let (Some(peer), Some(name)) = (text("natural_peer"), text("natural_target")) else {
            continue;
        };
        homes.push(Computed {
            pool: pool.clone(),
            now: text("actual_pick").filter(|now| *now != name),
            peer,
            name,
            algorithm: text("algorithm").unwrap_or_default(),
        });
    }
    homes
}

fn show<T: Serialize>(
    round: Round<T>,
    screen: &mut Screen,
    table: impl FnOnce(&Round<T>) -> Table,
) -> Result<Ended, Failure> {
    if screen.format() == Format::Json {
        screen.json(&round.answers)?;
    } else {
        let table = table(&round);
        if !table.is_empty() {
            screen.table(&table);
        }
    }
    round.end(screen)
}

fn homes(round: &Round<Found>) -> Table {
    let mut table = Table::new(&[
        "router", "route", "pool", "lives on", "age", "idle", "by", "now on",
    ]);
    for (router, route, found) in round.fine() {
        for home in &found.homes {
            let pool = match home.pool.as_str() {
                FLAT_POOL => "-",
                model => model,
            };
            let (age, idle) = (seconds(home.age_s), seconds(home.idle_s));
            table.row([router, route, pool, &home.name, &age, &idle, "memory", "-"]);
        }
        for home in &found.computed {
            let pool = match home.pool.as_str() {
                FLAT_POOL => "-",
                model => model,
            };
            let now = home.now.as_deref().unwrap_or("-");
            let cells = [
                router,
                route,
                pool,
                &home.name,
                "-",
                "-",
                &home.algorithm,
                now,
            ];
            table.row(cells);
        }
        if found.homes.is_empty() && found.computed.is_empty() {
            let nowhere = match found.remembered {
                true => "nowhere",
                false => "(not remembered)",
            };
            table.row([router, route, "-", nowhere, "-", "-", "-", "-"]);
        }
    }
    table
}

fn releases(round: &Round<Released>) -> Table {
    let mut table = Table::new(&["router", "route", "released"]);
    for (router, route, done) in round.fine() {
        table.row([router, route, &done.released.to_string()]);
    }
    table
}

fn seconds(time: f64) -> String {
    format!("{time:.0}s")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::fleet::testing::round;
    use crate::render::testing::capture;

    #[test]
    fn a_look_names_the_peer_or_says_why_there_is_none() {
        let home = SessionHome {
            pool: FLAT_POOL.to_owned(),
            peer: "10.0.0.7:8000".to_owned(),
            name: "gpu-a".to_owned(),
            age_s: 75.4,
            idle_s: 3.2,
        };
        let found = |remembered, homes| Found {
            remembered,
            homes,
            computed: Vec::new(),
        };
        let computed = Computed {
            pool: FLAT_POOL.to_owned(),
            peer: "10.0.0.8:8000".to_owned(),
            name: "gpu-b".to_owned(),
            algorithm: "rendezvous".to_owned(),
            now: Some("gpu-c".to_owned()),
        };
        let hashed = Found {
            computed: vec![computed],
            ..found(false, Vec::new())
        };
        let round = round([
            ("http://r:8090", "chat", found(true, vec![home])),
            ("http://r:8090", "code", found(true, Vec::new())),
            ("http://r:8090", "embed", found(false, Vec::new())),
            ("http://r:8090", "hash", hashed),
        ]);
        let shown = capture(Format::Human, |screen| screen.table(&homes(&round)));
        insta::assert_snapshot!(shown, @r"
        ROUTER         ROUTE  LIVES ON          AGE  IDLE  BY          NOW ON
        http://r:8090  chat   gpu-a             75s  3s    memory      -
        http://r:8090  code   nowhere           -    -     -           -
        http://r:8090  embed  (not remembered)  -    -     -           -
        http://r:8090  hash   gpu-b             -    -     rendezvous  gpu-c
        ");
    }
}
