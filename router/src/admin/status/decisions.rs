//! `_decisions`: the last receipts, newest first.

use std::sync::Arc;

use http::StatusCode;
use proto::admin::Decisions;
use router_core::decision::Receipt;

use crate::admin::answer::{self, Answer};
use crate::admin::query::{Params, Refused};
use crate::state::Route;

/// Default number of receipts.
const SHOWN: usize = 20;

/// The last `?n=` receipts of some routes, limited to the number that they keep, or the receipt of
/// `?request_id=`.
pub(super) fn recent<'r>(
    routes: impl IntoIterator<Item = &'r Arc<Route>>,
    params: &Params,
) -> Result<Answer, Refused> {
    let n = params.count("n")?.unwrap_or(SHOWN);
    let request_id = params.get("request_id")?;
    let mut decisions: Vec<Receipt> = Vec::new();
    for route in routes {
        let ring = &route.state.decisions;
        match request_id {
            Some(id) => decisions.extend(ring.find(id)),
            None => decisions.extend(ring.last(n)),
        }
    }
    decisions.sort_by_key(|receipt| std::cmp::Reverse(receipt.at_unix_ms));
    decisions.truncate(n);
    Ok(answer::json(StatusCode::OK, &Decisions { decisions }))
}
