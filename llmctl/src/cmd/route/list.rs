//! `llmctl route list`: lists every route with its main properties, from files or from running
//! routers.

use clap::Args;
use proto::admin::{RouteStatus, Routes};
use router_config::load::RouteLoad;
use router_config::valid::{self, AffinityKind};
use router_core::balance::Balance;
use serde::Serialize;
use serde_json::json;

use super::files::{by_name, loaded, shown};
use crate::client::Router;
use crate::exit::{Ended, Failure};
use crate::render::{Format, Paint, Screen, Table};
use crate::settings::{Settings, Subject};

/// What `llmctl route list` takes.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  llmctl route list
  llmctl route list --routes /etc/llm-router/routes
  llmctl route list --router http://10.0.0.5:8090 --output json")]
pub struct ListArgs {}

/// One route; its JSON form is stable.
#[derive(Debug, Serialize)]
struct Row {
    name: String,
    /// `ok`, `invalid`, or `stale`: a running router uses an older version of the file.
    status: RouteStatus,
    file: String,
    #[serde(flatten)]
    facts: Option<Facts>,
}

/// The properties of a usable route.
#[derive(Debug, Serialize)]
struct Facts {
    models: Vec<String>,
    peers: usize,
    max_concurrency: u64,
    /// The options; absent from running routers, which list their routes without them.
    #[serde(flatten)]
    placement: Option<Placement>,
}

#[derive(Debug, Serialize)]
struct Placement {
    affinity: AffinityName,
    balance: Balance,
}

#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum AffinityName {
    Hash,
    StickyLeastLoaded,
    None,
}

/// Lists the routes.
///
/// # Errors
/// When the main file is invalid, or a router cannot be reached.
pub async fn run(
    _args: &ListArgs,
    settings: &Settings,
    screen: &mut Screen,
) -> Result<Ended, Failure> {
    let rows: Vec<Row> = match settings.subject()? {
        Subject::Files => by_name(&loaded(settings)?)
            .into_iter()
            .map(of_file)
            .collect(),
        Subject::Live => {
            let router = Router::new(settings.one_router()?, settings.token.clone())?;
            let status: Routes = router.get(&["_routes"], &[]).await?;
            status.routes.into_iter().map(of_router).collect()
        }
    };
    if screen.format() == Format::Json {
        screen.json(&rows)?;
    } else if rows.is_empty() {
        screen.line("no routes");
    } else {
        screen.table(&table(&rows));
    }
    Ok(Ended::Fine)
}

fn of_file(route: &RouteLoad) -> Row {
    Row {
        name: route.name.to_string(),
        status: match &route.result {
            Ok(_) if route.flaws.is_empty() => RouteStatus::Ok,
            Ok(_) => RouteStatus::Partly,
            Err(_) => RouteStatus::Invalid,
        },
        file: route.path.display().to_string(),
        facts: route.result.as_ref().ok().map(facts),
    }
}

fn facts(route: &valid::Route) -> Facts {
    let peers = || route.pools.iter().flat_map(|pool| &pool.peers);
    let affinity = match route.options.affinity.value {
        AffinityKind::Hash => AffinityName::Hash,
        AffinityKind::StickyLeastLoaded => AffinityName::StickyLeastLoaded,
        AffinityKind::None => AffinityName::None,
    };
    Facts {
        models: route
            .pools
            .iter()
            .filter_map(|pool| pool.model.as_deref().map(str::to_owned))
            .collect(),
        peers: peers().count(),
        max_concurrency: peers()
            .filter(|peer| peer.enabled)
            .map(|peer| u64::from(peer.max_concurrency))
            .sum(),
        placement: Some(Placement {
            affinity,
            balance: route.options.balance.value,
        }),
    }
}

fn of_router(route: proto::admin::Route) -> Row {
    let peers = || route.pools.iter().flat_map(|pool| &pool.peers);
    let facts = Facts {
        models: route
            .pools
            .iter()
            .filter_map(|pool| pool.model.clone())
            .collect(),
        peers: peers().count(),
        max_concurrency: peers()
            .filter(|peer| peer.enabled)
            .map(|peer| u64::from(peer.max))
            .sum(),
        placement: None,
    };
    let usable = route.status != RouteStatus::Invalid;
    Row {
        name: route.name,
        status: route.status,
        file: route.path,
        facts: usable.then_some(facts),
    }
}

fn table(rows: &[Row]) -> Table {
    let options = rows.iter().any(|row| {
        row.facts
            .as_ref()
            .is_some_and(|facts| facts.placement.is_some())
    });
    let mut head = vec!["route", "status", "peers", "max"];
    head.extend(
        options
            .then_some(["affinity", "balance"])
            .into_iter()
            .flatten(),
    );
    head.push("file");
    let mut table = Table::new(&head);
    for row in rows {
        let (status, paint) = match row.status {
            RouteStatus::Ok => ("ok", Paint::Green),
            RouteStatus::Partly => ("partly", Paint::Yellow),
            RouteStatus::Stale => ("stale", Paint::Yellow),
            RouteStatus::Invalid => ("invalid", Paint::Red),
        };
        let facts = row.facts.as_ref();
        let dash = |text: Option<String>| (text.unwrap_or_else(|| "-".to_owned()), Paint::Plain);
        let mut cells = vec![(row.name.clone(), Paint::Plain), (status.to_owned(), paint)];
        cells.push(dash(facts.map(|facts| facts.peers.to_string())));
        cells.push(dash(facts.map(|facts| facts.max_concurrency.to_string())));
        if options {
            let placement = facts.and_then(|facts| facts.placement.as_ref());
            cells.push(dash(placement.map(|p| shown(&json!(p.affinity)))));
            cells.push(dash(placement.map(|p| shown(&json!(p.balance)))));
        }
        cells.push((row.file.clone(), Paint::Plain));
        table.painted_row(cells);
    }
    table
}
