//! Explains a finished request from its receipt, which the router that served it keeps.

use proto::admin::Decisions;
use router_core::decision::Receipt;

use super::{ExplainArgs, receipt};
use crate::cmd::fleet;
use crate::exit::{Ended, Failure};
use crate::render::{Format, Screen};
use crate::settings::Settings;

/// The number of receipts that a router keeps for a route, and returns at once.
const RECEIPTS_ASKED: &str = "256";

/// Finds the receipt and prints it. With `--last` on several routers, prints the newest one.
///
/// # Errors
/// When no router has the receipt; also when a router that may have it cannot be reached or
/// refuses.
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
                "route {} does not remember request {id}: it keeps the last five minutes, and at least its last \
                 {RECEIPTS_ASKED} requests. Where the body log keeps records: llmctl logs --request-id {id} --show",
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
    // With `--last`, a router that did not answer may have a newer receipt. A receipt found by its
    // ID is the right one in any case.
    if args.last {
        return round.end(screen);
    }
    Ok(Ended::Fine)
}
