//! Describes a finished request from its receipt.

use chrono::DateTime;
use router_core::decision::{Attempt, Choice, Receipt};
use router_core::health::Failure;

use super::gates::{passed_lines, reading_lines};
use super::words::{Line, facts_lines, refusal_line, show_lines};
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

fn lines(receipt: &Receipt) -> Vec<Line> {
    let mut lines = vec![
        ("arrived", arrival(receipt.at_unix_ms)),
        (
            "request",
            format!("{} {}", tame(&receipt.method), tame(&receipt.path)),
        ),
        (
            "session",
            format!(
                "{} (from {})",
                tame(&receipt.session),
                tame(&receipt.source)
            ),
        ),
    ];
    if let Some(model) = &receipt.model {
        lines.push(("model", tame(model).into_owned()));
    }
    match &receipt.decision {
        Choice::Send { mode, facts } => {
            lines.push(("mode", mode.as_str().to_owned()));
            lines.extend(facts_lines(facts));
            lines.extend(passed_lines(facts));
            lines.extend(reading_lines(facts));
        }
        Choice::Wait { ahead } => lines.push((
            "waited",
            format!("for a slot until it ended; {ahead} before it when it came"),
        )),
        Choice::Refuse(refusal) => lines.push(("refused", refusal_line(refusal))),
        Choice::Rule { name, condition } => {
            let (name, condition) = (tame(name), tame(condition));
            lines.push(("refused", format!("by content rule `{name}`: {condition}")));
        }
    }
    let last = receipt.attempts.len().saturating_sub(1);
    for (at, attempt) in receipt.attempts.iter().enumerate() {
        let ended = attempt_end(receipt, attempt, at == last);
        lines.push(("attempt", format!("{}: {ended}", attempt.peer)));
    }
    if let Some(usage) = &receipt.usage {
        let finish = receipt
            .finish_reason
            .as_deref()
            .map_or(String::new(), |reason| {
                format!("; finished by {}", tame(reason))
            });
        lines.push((
            "tokens",
            format!(
                "{} of prompt ({} from the cache), {} generated{finish}",
                usage.prompt, usage.cached, usage.completion
            ),
        ));
    }
    let ttft = receipt
        .ttft_ms
        .map_or(String::new(), |ms| format!(", first byte after {ms} ms"));
    let gone = if receipt.client_gone {
        "; the client left before the end"
    } else {
        ""
    };
    lines.push((
        "ended",
        format!(
            "{} after {} ms{ttft}{gone}",
            receipt.status, receipt.duration_ms
        ),
    ));
    lines
}

/// The result of one attempt. Only the last one can have served the request.
fn attempt_end(receipt: &Receipt, attempt: &Attempt, is_last: bool) -> String {
    let seconds = receipt.duration_ms as f64 / 1000.0;
    match (&attempt.error, attempt.failure) {
        (Some(error), Some(failure)) => format!("{}: {}", kind(failure), tame(error)),
        (Some(error), None) => tame(error).into_owned(),
        (None, Some(Failure::ServerError)) => format!("answered {}", receipt.status),
        (None, Some(failure)) => kind(failure).to_owned(),
        (None, None) if is_last && receipt.client_gone && receipt.ttft_ms.is_none() => {
            format!("waited {seconds:.1} s, no byte; the client left")
        }
        (None, None) if receipt.status >= 400 => format!("answered {}", receipt.status),
        (None, None) => "served it".to_owned(),
    }
}

fn kind(failure: Failure) -> &'static str {
    match failure {
        Failure::NoConnection => "no connection",
        Failure::Reset => "closed the connection before the first byte",
        Failure::NoFirstByte => "no first byte in time",
        Failure::ServerError => "answered with a server error",
        Failure::Cut => "the answer was cut off",
        Failure::Stall => "the answer stalled",
    }
}

fn arrival(at_unix_ms: u64) -> String {
    let at = i64::try_from(at_unix_ms)
        .ok()
        .and_then(DateTime::from_timestamp_millis);
    at.map_or_else(
        || format!("{at_unix_ms} ms since 1970"),
        |at| at.format("%Y-%m-%d %H:%M:%S%.3f UTC").to_string(),
    )
}
