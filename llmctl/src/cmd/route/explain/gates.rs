//! The load gates of an explanation, one line each. Pure text.

use router::explain::words::Line;
use router_core::admission::Gate;
use router_core::decision::GateFacts;

use crate::render::tame;

/// Every gate with its numbers, in the order in which the router checks them.
pub(super) fn gate_lines(gates: &[GateFacts]) -> Vec<Line> {
    let line = |gate: &GateFacts| (gate.gate.as_str(), gate_line(gate));
    gates
        .iter()
        // The label column is as wide as its longest label.
        .map(|gate| match gate.gate {
            Gate::Concurrency => ("room", gate_line(gate)),
            Gate::Ttft | Gate::Tps => line(gate),
        })
        .collect()
}

fn gate_line(gate: &GateFacts) -> String {
    let Some(limit) = gate.limit else {
        return "no threshold: measured, never refused".to_owned();
    };
    let unit = match gate.gate {
        Gate::Concurrency => "",
        Gate::Ttft => " ms",
        Gate::Tps => " tokens per second",
    };
    let compared = match (gate.gate, gate.value) {
        (Gate::Concurrency, value) => {
            let in_flight = value.unwrap_or_default();
            let most = limit.ceil();
            format!("{in_flight} in flight; {most} may run")
        }
        (_, None) => format!("no average yet; threshold {limit:.1}{unit}"),
        (_, Some(value)) => {
            let name = gate.metric.as_deref().unwrap_or("it");
            format!(
                "{} averages {value:.1}, threshold {limit:.1}{unit}",
                tame(name)
            )
        }
    };
    let verdict = match (gate.acts, gate.trips) {
        (false, true) => ": trips, but refuses nobody",
        (false, false) => "; refuses nobody",
        (true, true) => ": stands against it",
        (true, false) => "",
    };
    let probes = gate
        .probes_left
        .filter(|_| gate.trips && gate.acts)
        .map_or(String::new(), |left| format!(", {left} probe slots left"));
    let held = if gate.held {
        "; turn 1 is held out"
    } else {
        ""
    };
    format!("{compared}{verdict}{probes}{held}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(gate: Gate) -> GateFacts {
        GateFacts {
            gate,
            acts: true,
            trips: false,
            metric: (gate != Gate::Concurrency).then(|| "p80".into()),
            value: None,
            limit: None,
            probes_left: None,
            held: false,
        }
    }

    #[test]
    fn each_gate_shows_its_numbers() {
        let lines = gate_lines(&[
            GateFacts {
                value: Some(6.0),
                limit: Some(5.1),
                trips: true,
                ..gate(Gate::Concurrency)
            },
            GateFacts {
                value: Some(12_500.25),
                limit: Some(12_000.0),
                trips: true,
                probes_left: Some(3),
                held: true,
                ..gate(Gate::Ttft)
            },
            GateFacts {
                acts: false,
                ..gate(Gate::Tps)
            },
            GateFacts {
                limit: Some(20.0),
                ..gate(Gate::Tps)
            },
            GateFacts {
                acts: false,
                trips: true,
                value: Some(7.0),
                limit: Some(20.0),
                ..gate(Gate::Tps)
            },
        ]);
        let text: Vec<String> = lines
            .iter()
            .map(|(label, text)| format!("{label}: {text}"))
            .collect();
        insta::assert_snapshot!(text.join("\n"), @r"
        room: 6 in flight; 6 may run: stands against it
        ttft: p80 averages 12500.2, threshold 12000.0 ms: stands against it, 3 probe slots left; turn 1 is held out
        tps: no threshold: measured, never refused
        tps: no average yet; threshold 20.0 tokens per second
        tps: p80 averages 7.0, threshold 20.0 tokens per second: trips, but refuses nobody
        ");
    }
}
