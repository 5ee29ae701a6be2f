//! Prints a finished request from its receipt.

use router::explain::words::lines;
use router_core::decision::Receipt;

use super::words::show_lines;
use crate::render::{Screen, tame};

/// Prints a receipt.
pub(super) fn show(receipt: &Receipt, screen: &mut Screen) {
    screen.heading(&format!(
        "request {} on route {}: {}",
        tame(&receipt.request_id),
        receipt.route,
        receipt.status
    ));
    screen.line("");
    show_lines(screen, &lines(receipt));
}
