//! One receipt: its facts in words, and its times as a waterfall.

use maud::{Markup, html};
use router_core::decision::{Choice, Receipt};

use super::parts::millis;
use crate::explain::words;

/// Width of the waterfall in its own units.
const WIDE: f64 = 100.0;

pub(super) fn render(receipt: &Receipt) -> Markup {
    html! {
        (waterfall(receipt))
        dl {
            dt { "id" } dd { code { (receipt.request_id) } }
            @for (label, text) in words::lines(receipt) { dt { (label) } dd { (text) } }
        }
    }
}

/// Waiting for a slot, waiting for the first byte, streaming.
fn waterfall(receipt: &Receipt) -> Markup {
    let whole = receipt.duration_ms.max(1);
    let waited = match &receipt.decision {
        Choice::Send { facts, .. } => facts.waited_ms.unwrap_or(0).min(whole),
        Choice::Wait { .. } => whole,
        Choice::Refuse(_) | Choice::Rule { .. } => 0,
    };
    let first = receipt.ttft_ms.map_or(whole, |ms| ms.clamp(waited, whole));
    let parts = [
        ("wait", "waited for a slot", 0, waited),
        ("prefill", "until the first byte", waited, first),
        ("stream", "streamed", first, whole),
    ];
    let parts: Vec<_> = parts
        .into_iter()
        .filter(|(_, _, from, to)| to > from)
        .collect();
    let spoken: Vec<String> = parts
        .iter()
        .map(|(_, what, from, to)| format!("{what} {}", millis((to - from) as f64)))
        .collect();
    let share = |ms: u64| ms as f64 / whole as f64 * WIDE;
    html! {
        figure.waterfall {
            svg role="img" aria-label=(spoken.join(", ")) viewBox="0 0 100 6" preserveAspectRatio="none" {
                @for (class, _, from, to) in &parts {
                    rect class=(class) x=(format!("{:.2}", share(*from))) width=(format!("{:.2}", share(to - from))) height="6" {}
                }
            }
            figcaption { (spoken.join(" · ")) }
        }
    }
}
