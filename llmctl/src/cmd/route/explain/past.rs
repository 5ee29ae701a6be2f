//! What became of a request that is over: its receipt, from the router that served it.

use proto::admin::Decisions;
use router_core::decision::Receipt;

use super::{ExplainArgs, receipt};
use crate::cmd::fleet;
use crate::exit::{Ended, Failure};
use crate::render::{Format, Screen};
use crate::settings::Settings;

/// As many as a router keeps for a route, and gives at once.
const RECEIPTS_ASKED: &str = "256";

/// Finds the receipt and tells it: the newest, where several routers were asked for the last.
///
/// # Errors
/// When no router has it; when one that could have it cannot be reached or refuses.
pub(super) async fn run(
    args: &ExplainArgs,
    settings: &Settings,
    screen: &mut Screen,
) -> Result<Ended, Failure> {
    let mut query = vec![("n", if args.last { "1" } else { RECEIPTS_ASKED })];
    query.extend(args.request_id.as_deref().map(|id| ("request_id", id)));
    let round = fleet::each(settings, async |router| {
        router
            .get::<Decisions<Receipt>>(&[&args.name, "_decisions"], &query)
            .await
    })
    .await?;
    let told = round.whole().flat_map(|(_, told)| &told.decisions);
    let Some(past) = told.max_by_key(|receipt| receipt.at_unix_ms).cloned() else {
        round.end(screen)?;
        return Err(Failure::Wrong(match &args.request_id {
            Some(id) => format!(
                "route {} does not remember request {id}; it keeps its last {RECEIPTS_ASKED}",
                args.name
            ),
            None => format!("route {} has had no request yet", args.name),
        }));
    };
    if screen.format() == Format::Json {
        screen.json(&past)?;
    } else {
        receipt::show(&past, screen);
    }
    // Who did not answer may have had a newer last one; a request that was found is found.
    if args.last {
        return round.end(screen);
    }
    Ok(Ended::Fine)
}
