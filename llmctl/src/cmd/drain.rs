//! `llmctl drain`: running routers stop taking new requests, finish the running ones, and exit.

use clap::Args;
use http::HeaderMap;
use proto::admin::Drain;

use super::fleet;
use crate::exit::{Ended, Failure};
use crate::render::{Format, Screen, Table};
use crate::settings::Settings;

/// What `llmctl drain` takes.
#[derive(Debug, Args)]
#[command(
    after_help = "A draining router reports not ready at once, so that load balancers stop using
it. It accepts requests for server.drain_delay more, waits at most
server.drain_timeout for the requests in flight, and ends. A drain cannot be
taken back. On a terminal the command asks first; --yes skips that.

Examples:
  llmctl drain
  llmctl drain --yes --router http://10.0.0.5:8090 --token-file token
  llmctl status --watch --router http://10.0.0.5:8090     what is still in flight?"
)]
pub struct DrainArgs {
    /// Do not ask
    #[arg(long, short)]
    pub yes: bool,
}

/// Asks every router to drain.
///
/// # Errors
/// The worst failure, after the answers of the other routers; also when the operator answers no.
pub async fn run(
    args: &DrainArgs,
    settings: &Settings,
    screen: &mut Screen,
) -> Result<Ended, Failure> {
    let urls: Vec<&str> = settings.routers.iter().map(|url| url.as_str()).collect();
    if !args.yes && !screen.confirm(&format!("Drain and end {}?", urls.join(", "))) {
        return Err(Failure::Wrong("nothing was drained".to_owned()));
    }
    let round = fleet::each(settings, async |router| {
        router
            .post::<Drain>(&["_drain"], &[], HeaderMap::new(), Vec::new())
            .await
    })
    .await?;
    if screen.format() == Format::Json {
        screen.json(&round.answers)?;
    } else {
        let mut table = Table::new(&["router", "state"]);
        for (router, _) in round.whole() {
            table.row([router, "draining"]);
        }
        if !table.is_empty() {
            screen.table(&table);
        }
    }
    round.end(screen)
}
