//! `llmctl status`: shows one page about the current state of each router.

mod age;
mod compare;
mod differences;
mod findings;
mod gates;
mod page;
mod problems;
mod recent;
mod seen;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::time::Duration;

use clap::Args;
use proto::admin::{Decisions, Findings, Owners, Routes};
use router_core::decision::Receipt;
use serde::Serialize;

use self::problems::Problems;
use self::recent::Recent;
use self::seen::Seen;
use super::fleet::{self, Round};
use crate::client::Router;
use crate::exit::{Ended, Failure};
use crate::render::{Format, Paint, Screen, tame};
use crate::settings::Settings;
use crate::signals;

/// What `llmctl status` takes.
#[derive(Debug, Args)]
#[command(
    after_help = "PROBLEMS come first, worst on top, each with its numbers and the first place
to look. Averages (EWMA) stand beside their thresholds. TTFT P50 and FAILED
cover the last 256 requests. HITS is the share of prompt tokens that came from
prefix caches; FIRST and LATER are the hit rates of first and later requests
of sessions, over five minutes. With several routers, a table with one column
each comes first and marks what DIFFERS; peers and options that differ follow
below it. Routers that cannot be reached do not hide the others; the exit code
is 3 then, or 1 when a router refused.

Examples:
  llmctl status
  llmctl status --watch --route chat
  llmctl status --router http://10.0.0.5:8090 --router http://10.0.0.6:8090 --token-file token
  llmctl status --output json"
)]
pub struct StatusArgs {
    /// Show this route only
    #[arg(long, value_name = "NAME")]
    pub route: Option<String>,
    /// Ask again every two seconds, until Ctrl-C
    #[arg(long)]
    pub watch: bool,
}

/// Poll interval of `--watch`.
const WATCH_PAUSE: Duration = Duration::from_secs(2);

/// The number of receipts that a router returns at once.
const RECEIPTS_ASKED: &str = "256";

/// One router's answer; its JSON form is stable.
#[derive(Debug, Serialize)]
struct Answer<'a> {
    router: &'a str,
    #[serde(flatten)]
    said: Said<'a>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Said<'a> {
    Seen {
        /// The answer of `GET /_routes`.
        status: &'a Routes,
        /// The findings: from `GET /_findings`, or derived from other pages of a router without
        /// this endpoint.
        findings: Problems<'a>,
        /// A summary of the last requests, by route.
        recent: &'a BTreeMap<String, Recent>,
    },
    Failed {
        error: &'a str,
    },
}

/// Asks the routers and prints the page, once or until Ctrl-C.
///
/// # Errors
/// When the page cannot be written, or a router did not answer: the worst such failure, after the
/// answers of the others. With `--watch`, failures are printed and the routers are asked again.
pub async fn run(
    args: &StatusArgs,
    settings: &Settings,
    screen: &mut Screen,
) -> Result<Ended, Failure> {
    if !args.watch {
        return look(args, settings, screen).await;
    }
    let mut interrupted = pin!(signals::interrupted());
    while !screen.is_closed() {
        if let Err(failure) = look(args, settings, screen).await {
            screen.error(&failure.to_string());
        }
        screen.flush();
        tokio::select! {
            () = tokio::time::sleep(WATCH_PAUSE) => {}
            () = &mut interrupted => break,
        }
    }
    Ok(Ended::Fine)
}

async fn look(
    args: &StatusArgs,
    settings: &Settings,
    screen: &mut Screen,
) -> Result<Ended, Failure> {
    let round = fleet::each(settings, async |router| see(router, args).await).await?;
    if args.watch {
        // Clear the screen only now, so that the last page stays until the new one is ready. Clear
        // it before a failure is printed, because that goes to stderr and stdout may be written
        // later.
        screen.clear();
        screen.flush();
    }
    if screen.format() == Format::Json {
        screen.json(&answers(&round))?;
    } else {
        let differences = differences::find(&round, settings).await?;
        show(&round, &differences, screen);
    }
    let known = round
        .whole()
        .any(|(_, seen)| !seen.status.routes.is_empty());
    let names: BTreeSet<String> = round
        .whole()
        .flat_map(|(_, seen)| seen.names.iter().cloned())
        .collect();
    let ended = round.end(screen)?;
    match &args.route {
        Some(name) if !known => Err(no_such_route(name, &names)),
        _ => Ok(ended),
    }
}

/// The failure for a route that no router has.
fn no_such_route(name: &str, names: &BTreeSet<String>) -> Failure {
    let known: Vec<_> = names.iter().map(|name| tame(name)).collect();
    let known = match known.as_slice() {
        [] => "there is none".to_owned(),
        known => format!("there are: {}", known.join(", ")),
    };
    Failure::Wrong(format!("no router has a route `{name}`; {known}"))
}

/// Asks one router.
async fn see(router: &Router, args: &StatusArgs) -> Result<Seen, Failure> {
    let mut status: Routes = router.get(&["_routes"], &[]).await?;
    let names = status
        .routes
        .iter()
        .map(|route| route.name.clone())
        .collect();
    let path = match &args.route {
        Some(name) => {
            status.routes.retain(|route| route.name == *name);
            vec![name.as_str(), "_decisions"]
        }
        None => vec!["_decisions"],
    };
    let receipts = if status.routes.is_empty() {
        Vec::new()
    } else {
        // A page without receipts is better than no page: older routers describe their decisions in
        // another form.
        let told = router
            .get::<Decisions<Receipt>>(&path, &[("n", RECEIPTS_ASKED)])
            .await;
        told.map(|told| told.decisions).unwrap_or_default()
    };
    // Older routers do not have this endpoint.
    let mut findings = router.get::<Findings>(&["_findings"], &[]).await.ok();
    if let (Some(findings), Some(name)) = (&mut findings, &args.route) {
        let is_of = |finding: &proto::admin::Finding| {
            finding.route.as_ref().is_none_or(|route| route == name)
        };
        findings.findings.retain(is_of);
    }
    let owners = router.get::<Owners>(&["_owners"], &[]).await;
    Ok(Seen {
        findings,
        owners: owners.map(|page| page.owners).unwrap_or_default(),
        names,
        recent: recent::digest(&receipts),
        status,
    })
}

fn answers(round: &Round<Seen>) -> Vec<Answer<'_>> {
    let answers = round.answers.iter().map(|answer| Answer {
        router: &answer.router,
        said: match &answer.said {
            fleet::Said::Fine(seen) => Said::Seen {
                status: &seen.status,
                findings: Problems::of(seen),
                recent: &seen.recent,
            },
            fleet::Said::Failed { error } => Said::Failed { error },
        },
    });
    answers.collect()
}

fn show(round: &Round<Seen>, differences: &[String], screen: &mut Screen) {
    if round.answers.len() > 1 {
        let replicas: Vec<_> = round
            .answers
            .iter()
            .map(|answer| {
                let status = match &answer.said {
                    fleet::Said::Fine(seen) => Some(&seen.status),
                    fleet::Said::Failed { .. } => None,
                };
                (&*answer.router, status)
            })
            .collect();
        screen.table(&compare::table(&replicas));
        for difference in differences {
            screen.paragraph("  ", 4, Paint::Yellow, difference);
        }
        screen.line("");
    }
    // Failures go to stderr, after the pages.
    for (router, seen) in round.whole() {
        page::show(router, seen, screen);
    }
}
