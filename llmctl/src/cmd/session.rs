//! `llmctl session`: shows where a session lives, and releases it.

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};
use http::HeaderMap;
use proto::admin::{FLAT_POOL, FinishedSession, SessionHome, Sessions};
use serde::Serialize;

use super::fleet::{self, Round};
use crate::client::Router;
use crate::exit::{Ended, Failure};
use crate::render::{Format, Screen, Table};
use crate::settings::Settings;

/// What `llmctl session` takes.
#[derive(Debug, Subcommand)]
pub enum SessionCommand {
    /// Show where a session lives
    #[command(
        after_help = "Only routes that remember sessions know: those with `affinity: sticky_least_loaded`, and with
`affinity_max_load_factor`. Looking does not keep a session alive. Routers do not share what
they remember: name each with --router.

Examples:
  llmctl session show conversation-12345
  llmctl session show conversation-12345 --route chat --output json"
    )]
    Show(SessionArgs),
    /// Release a session, so that its next request is placed anew
    #[command(
        after_help = "Finish a session after its last answer: requests that run are not cancelled. Releasing one
twice, or one that never was, changes nothing and is no error.

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
                Ok(Found {
                    remembered: found.remembered,
                    homes: found.homes.unwrap_or_default(),
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
    let mut table = Table::new(&["router", "route", "pool", "lives on", "age", "idle"]);
    for (router, route, found) in round.fine() {
        for home in &found.homes {
            let pool = match home.pool.as_str() {
                FLAT_POOL => "-",
                model => model,
            };
            let (age, idle) = (seconds(home.age_s), seconds(home.idle_s));
            table.row([router, route, pool, &home.name, &age, &idle]);
        }
        if found.homes.is_empty() {
            let nowhere = match found.remembered {
                true => "nowhere",
                false => "(not remembered)",
            };
            table.row([router, route, "-", nowhere, "-", "-"]);
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
        let found = |remembered, homes| Found { remembered, homes };
        let round = round([
            ("http://r:8090", "chat", found(true, vec![home])),
            ("http://r:8090", "code", found(true, Vec::new())),
            ("http://r:8090", "embed", found(false, Vec::new())),
        ]);
        let shown = capture(Format::Human, |screen| screen.table(&homes(&round)));
        insta::assert_snapshot!(shown, @r"
        ROUTER         ROUTE  LIVES ON          AGE  IDLE
        http://r:8090  chat   gpu-a             75s  3s
        http://r:8090  code   nowhere           -    -
        http://r:8090  embed  (not remembered)  -    -
        ");
    }
}
