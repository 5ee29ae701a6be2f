//! What became of a request that is over: its receipt, from the router that served it.

use proto::admin::Decisions;
use router_core::decision::Receipt;

use super::{ExplainArgs, receipt};
use crate::client::Router;
use crate::exit::{Ended, Failure};
use crate::render::{Format, Screen};
use crate::settings::Settings;

/// As many as a router keeps for a route, and gives at once.
const RECEIPTS_ASKED: &str = "256";

/// Finds the receipt and tells it.
///
/// # Errors
/// When no router has it; when the only routers that could have it cannot be reached or refuse.
pub(super) async fn run(
    args: &ExplainArgs,
    settings: &Settings,
    screen: &mut Screen,
) -> Result<Ended, Failure> {
    let mut kept = 0;
    for url in &settings.routers {
        let router = Router::new(url, settings.token.clone())?;
        let query = [("n", if args.last { "1" } else { RECEIPTS_ASKED })];
        let answer: Decisions<Receipt> = router.get(&[&args.name, "_decisions"], &query).await?;
        kept += answer.decisions.len();
        let wanted = |past: &&Receipt| {
            args.request_id
                .as_deref()
                .is_none_or(|id| *past.request_id == *id)
        };
        if let Some(past) = answer.decisions.iter().find(wanted) {
            if screen.format() == Format::Json {
                screen.json(past)?;
            } else {
                receipt::show(past, screen);
            }
            return Ok(Ended::Fine);
        }
    }
    Err(Failure::Wrong(match &args.request_id {
        Some(id) => format!(
            "request {id} is not among the {kept} that route {} remembers",
            args.name
        ),
        None => format!("route {} has had no request yet", args.name),
    }))
}
