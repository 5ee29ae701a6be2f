//! The receipt of a finished request in words, one labelled line for each fact. Pure text, the same
//! in `llmctl route explain` and in the console.
//!
//! Names come from clients and engines as they are: whoever shows a line escapes it.

use chrono::DateTime;
use router_core::admission::{Gate, Gates, Refusal, Slow};
use router_core::decision::{Attempt, Choice, Facts, PriorityClass, Reading, Receipt};
use router_core::health::Failure;

/// One labelled line: label and text.
pub type Line = (&'static str, String);

/// Describes a finished request.
pub fn lines(receipt: &Receipt) -> Vec<Line> {
    let mut lines = vec![
        ("arrived", arrival(receipt.at_unix_ms)),
        ("request", format!("{} {}", receipt.method, receipt.path)),
        (
            "session",
            format!("{} (from {})", receipt.session, receipt.source),
        ),
    ];
    if let Some(model) = &receipt.model {
        lines.push(("model", model.to_string()));
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
            .map_or(String::new(), |reason| format!("; finished by {}", reason));
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
        .map_or(String::new(), |ms| format!(", first token after {ms} ms"));
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
        (Some(error), Some(failure)) => format!("{}: {}", kind(failure), error),
        (Some(error), None) => error.to_string(),
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

/// The numbers of the admission.
pub fn facts_lines(facts: &Facts) -> Vec<Line> {
    vec![
        (
            "tier",
            format!(
                "{} is active, with {} unbanned",
                facts.tier,
                counted(facts.healthy_peers, "peer")
            ),
        ),
        (
            "admitted",
            format!(
                "{} in flight, limit {}{}{}",
                facts.in_flight,
                facts.limit,
                scaled(facts.factor),
                facts.adaptive.map_or(String::new(), |_| format!(
                    " (adaptive, at most {})",
                    facts.pool_limit
                ))
            ),
        ),
        (
            "peer",
            format!(
                "{} in flight of {} before this request",
                facts.peer_in_flight, facts.peer_slots
            ),
        ),
    ]
}

/// A refusal in one sentence, with its numbers.
pub fn refusal_line(refusal: &Refusal) -> String {
    match refusal {
        Refusal::NoHealthyPeer { peers: 0, .. } => {
            "no_healthy_peer: the pool has no peers".to_owned()
        }
        Refusal::NoHealthyPeer {
            peers,
            banned,
            stale,
            ejected,
            draining,
        } => {
            let named = banned + stale + ejected + draining;
            let out = [
                (*stale, "not to be read"),
                (*ejected, "ejected"),
                (*draining, "draining"),
                (peers.saturating_sub(named), "disabled"),
            ];
            let out = out.iter().filter(|(count, _)| *count > 0);
            let out: String = out.map(|(count, why)| format!(", {count} {why}")).collect();
            let peers = counted(*peers, "peer");
            format!("no_healthy_peer: of {peers} {banned} banned{out}")
        }
        Refusal::ConcurrencyLimit(full) => format!(
            "concurrency_limit: {} in flight, limit {}{}{}{} over {} of tier {}",
            full.in_flight,
            full.limit,
            scaled(full.factor),
            full.share
                .map_or(String::new(), |share| format!(" × share {share}")),
            warmth(full.bucket, full.turn),
            counted(full.healthy_peers, "unbanned peer"),
            full.tier,
        ),
        Refusal::TtftLimit(slow) => format!(
            "ttft_limit: {} averages {:.1} ms, threshold {} ms{}",
            slow.metric,
            slow.ewma,
            slow.threshold,
            graded(slow)
        ),
        Refusal::TpsLimit(slow) => format!(
            "tps_limit: {} averages {:.1} tokens per second, threshold {}{}",
            slow.metric,
            slow.ewma,
            slow.threshold,
            graded(slow)
        ),
    }
}

/// The amount that `session_prio` adds to a threshold.
fn graded(slow: &Slow) -> String {
    let tolerance = slow.tolerance.map_or(String::new(), |tolerance| {
        format!(", tolerance {tolerance}")
    });
    let held = if slow.held {
        "; turn 1 is held out until the average is low again"
    } else {
        ""
    };
    format!("{tolerance}{}{held}", warmth(slow.bucket, slow.turn))
}

/// The bucket of a request; empty while `session_prio` is off.
fn warmth(bucket: Option<u32>, turn: Option<u32>) -> String {
    match (bucket, turn) {
        (None, _) => String::new(),
        (Some(bucket), Some(turn)) => format!(" (turn {turn}, bucket from turn {bucket})"),
        (Some(bucket), None) => format!(" (no usable header, bucket from turn {bucket})"),
    }
}

fn scaled(factor: f64) -> String {
    if factor == 1.0 {
        String::new()
    } else {
        format!(" × {factor}")
    }
}

fn counted(count: u32, noun: &str) -> String {
    if count == 1 {
        format!("1 {noun}")
    } else {
        format!("{count} {noun}s")
    }
}

/// The results of the gates for a request that was placed.
pub fn passed_lines(facts: &Facts) -> Vec<Line> {
    let mut lines: Vec<Line> = facts
        .grade
        .map(|grade| ("priority", grade_line(grade)))
        .into_iter()
        .collect();
    let named = |gates: Gates| {
        let names: Vec<&str> = gates.iter().map(Gate::as_str).collect();
        names.join(", ")
    };
    if !facts.probes.is_empty() {
        lines.push((
            "probe",
            format!("let through by a probe slot of {}", named(facts.probes)),
        ));
    }
    if !facts.tripped.is_empty() {
        let text = format!(
            "{} would have refused it, were the master switch on",
            named(facts.tripped)
        );
        lines.push(("tripped", text));
    }
    lines.extend(
        facts
            .waited_ms
            .map(|waited| ("waited", format!("{waited} ms for a slot"))),
    );
    lines
}

fn grade_line(grade: PriorityClass) -> String {
    let who = match grade.turn {
        Some(turn) => format!("turn {turn}, bucket from turn {}", grade.bucket),
        None => format!("no usable header, bucket from turn {}", grade.bucket),
    };
    format!(
        "{who}: {} of the limit, tolerance {}",
        grade.share, grade.tolerance
    )
}

/// The signals at the time when a request was placed.
pub fn reading_lines(facts: &Facts) -> Vec<Line> {
    let line = |reading: Reading, unit: &str| match reading.ewma {
        Some(ewma) => format!("averaged {ewma:.1}, threshold {} {unit}", reading.threshold),
        None => format!("no average yet; threshold {} {unit}", reading.threshold),
    };
    let ttft = facts.ttft.map(|reading| ("ttft", line(reading, "ms")));
    let tps = facts
        .tps
        .map(|reading| ("tps", line(reading, "tokens per second")));
    ttft.into_iter().chain(tps).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_gates_made_of_a_request_is_told() {
        let facts = Facts {
            grade: Some(PriorityClass {
                bucket: 2,
                turn: Some(3),
                share: 0.88,
                tolerance: 1.1,
            }),
            ttft: Some(Reading {
                metric: 0,
                ewma: Some(6850.0),
                threshold: 6000.0,
            }),
            probes: [Gate::Ttft].into_iter().collect(),
            tripped: [Gate::Concurrency, Gate::Tps].into_iter().collect(),
            waited_ms: Some(120),
            ..Facts::default()
        };
        let lines = [passed_lines(&facts), reading_lines(&facts)].concat();
        let text: Vec<String> = lines
            .iter()
            .map(|(label, text)| format!("{label}: {text}"))
            .collect();
        insta::assert_snapshot!(text.join("\n"), @r"
        priority: turn 3, bucket from turn 2: 0.88 of the limit, tolerance 1.1
        probe: let through by a probe slot of ttft
        tripped: concurrency, tps would have refused it, were the master switch on
        waited: 120 ms for a slot
        ttft: averaged 6850.0, threshold 6000 ms
        ");
    }
}
