//! The requests that ended last, from the receipts that each route keeps.

use chrono::DateTime;
use maud::{Markup, html};
use router_core::decision::{Choice, Receipt};

use super::fleet::link;
use super::parts::{millis, or_dash};
use super::receipt;
use crate::admin::query::{Params, Refused};
use crate::state::RouteTable;

/// Maximum number of shown requests.
const SHOWN: usize = 100;

/// Which requests are shown. Texts match anywhere; empty ones match everything.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Filter {
    route: String,
    peer: String,
    session: String,
    model: String,
    status: String,
}

impl Filter {
    /// Reads a filter from a query.
    ///
    /// # Errors
    /// A text for the client.
    pub(super) fn of(params: &Params) -> Result<Self, Refused> {
        params.only(&["view", "route", "peer", "session", "model", "status"])?;
        let text = |name| Ok::<_, Refused>(params.get(name)?.unwrap_or_default().to_owned());
        Ok(Self {
            route: text("route")?,
            peer: text("peer")?,
            session: text("session")?,
            model: text("model")?,
            status: text("status")?,
        })
    }

    fn takes(&self, receipt: &Receipt) -> bool {
        let status = receipt.status.to_string();
        let peer = receipt
            .attempts
            .iter()
            .any(|attempt| attempt.peer.as_str().contains(&self.peer));
        (self.route.is_empty() || *receipt.route == *self.route)
            && (self.peer.is_empty() || peer)
            && receipt.session.contains(&self.session)
            && receipt
                .model
                .as_deref()
                .unwrap_or_default()
                .contains(&self.model)
            && status.starts_with(self.status.trim_end_matches('x'))
    }
}

pub(super) fn render(table: &RouteTable, filter: &Filter) -> Markup {
    let mut receipts: Vec<Receipt> = Vec::new();
    for route in table.routes() {
        let all = route.state.decisions.last(usize::MAX);
        receipts.extend(
            all.into_iter()
                .filter(|receipt| filter.takes(receipt))
                .take(SHOWN),
        );
    }
    receipts.sort_by_key(|receipt| std::cmp::Reverse(receipt.at_unix_ms));
    receipts.truncate(SHOWN);
    let names: Vec<&str> = table.routes().map(|route| &*route.name).collect();
    html! {
        h1 { "Requests" }
        p.quiet { "The last requests that ended, newest first. Each route keeps its last 256. No prompt is shown or kept." }
        (filters(filter, &names))
        @if receipts.is_empty() { p.quiet { "No request matches." } }
        @else { ol.requests { @for receipt in &receipts { (request(receipt)) } } }
    }
}

fn filters(filter: &Filter, routes: &[&str]) -> Markup {
    let texts = [
        ("peer", "Peer", &filter.peer),
        ("session", "Session", &filter.session),
        ("model", "Model", &filter.model),
        ("status", "Status", &filter.status),
    ];
    html! {
        form.filters role="search" aria-label="Filter requests" {
            label { "Route" select name="route" {
                option value="" selected[filter.route.is_empty()] { "all" }
                @for name in routes { option value=(name) selected[*name == filter.route] { (name) } }
            } }
            @for (name, label, value) in texts {
                label { (label) input name=(name) value=(value) size="10" autocomplete="off"; }
            }
        }
    }
}

fn request(receipt: &Receipt) -> Markup {
    let tokens = receipt
        .usage
        .map(|usage| format!("{} → {} tokens", usage.prompt, usage.completion));
    let fails = receipt.status >= 400 || receipt.client_gone;
    html! {
        li data-key=(receipt.request_id) {
            details {
                summary {
                    time { (clock(receipt.at_unix_ms)) }
                    span.status.bad[fails] { (receipt.status) }
                    span.what { a href=(link(&receipt.route)) { (receipt.route) } " " (receipt.model.as_deref().unwrap_or("no model")) }
                    span.where { (end(receipt)) }
                    span.n { (or_dash(tokens)) }
                    span.n { (millis(receipt.duration_ms as f64)) }
                }
                (receipt::render(receipt))
            }
        }
    }
}

/// Where the request ended.
fn end(receipt: &Receipt) -> String {
    match (&receipt.decision, receipt.attempts.last()) {
        (Choice::Refuse(_) | Choice::Rule { .. }, None) => "refused".to_owned(),
        (_, None) => "no peer".to_owned(),
        (_, Some(last)) => last.peer.to_string(),
    }
}

fn clock(at_unix_ms: u64) -> String {
    let at = i64::try_from(at_unix_ms)
        .ok()
        .and_then(DateTime::from_timestamp_millis);
    at.map_or_else(String::new, |at| at.format("%H:%M:%S").to_string())
}
