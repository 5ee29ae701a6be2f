//! `GET /metrics` with the names and types of the imitated engine.
//!
//! The page reproduces other programs' pages, including the form of their numbers. So it is written
//! by hand: a metrics library has conventions of its own.

mod llamacpp;
mod page;
mod sglang;
mod vllm;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header;

use crate::app::{self, App};
use crate::dialect::Dialect;
use crate::stats::Counters;

/// One scrape.
pub(crate) async fn metrics(State(app): State<App>) -> Response {
    let reading = Reading::of(&app);
    let page = match app.options.dialect {
        Dialect::Vllm => vllm::page(&reading),
        Dialect::Sglang => sglang::page(&reading),
        Dialect::Llamacpp => llamacpp::current(&reading),
        Dialect::LlamacppOld => llamacpp::old(&reading),
    };
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    let mut response = ([(header::CONTENT_TYPE, kind)], page.into_text()).into_response();
    if app.options.dialect.is_llamacpp() {
        let started = app::unix(app.started).into();
        response
            .headers_mut()
            .insert("process-start-time-unix", started);
    }
    response
}

/// All values for a page.
#[derive(Debug)]
struct Reading {
    running: f64,
    waiting: f64,
    /// From 0 to 1.
    kv_usage: f64,
    /// Capacity of the prefix cache.
    cache_blocks: usize,
    counters: Counters,
    model: String,
}

impl Reading {
    fn of(app: &App) -> Self {
        let stats = app.core.stats();
        Self {
            running: number(stats.running),
            waiting: number(stats.waiting),
            kv_usage: app.core.kv_usage(),
            cache_blocks: app.core.cache_capacity(),
            counters: app.core.counted(),
            model: app.options.models.first().cloned().unwrap_or_default(),
        }
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "counts of a simulation stay far below 2^52"
)]
fn number(count: u64) -> f64 {
    count as f64
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}
