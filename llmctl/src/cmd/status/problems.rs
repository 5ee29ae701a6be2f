//! PROBLEMS, at the top of the page: the router's own findings, or those derived from its other
//! pages.

use proto::admin::Severity;
use serde::Serialize;

use super::age::age_words;
use super::findings::{Finding, findings};
use super::seen::Seen;
use crate::render::{Paint, Screen, tame};

/// The problems, from the router's findings or derived from its pages.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Problems<'a> {
    Said(&'a [proto::admin::Finding]),
    Computed(Vec<Finding>),
}

impl<'a> Problems<'a> {
    /// The problems of a router.
    pub(super) fn of(seen: &'a Seen) -> Self {
        match &seen.findings {
            Some(said) => Self::Said(&said.findings),
            None => Self::Computed(findings(&seen.status, &seen.recent)),
        }
    }
}

/// Prints the problems, each with the first place to look below it.
pub(super) fn show(problems: &Problems<'_>, screen: &mut Screen) {
    let count = match problems {
        Problems::Said(said) => said.len(),
        Problems::Computed(computed) => computed.len(),
    };
    if count == 0 {
        return;
    }
    screen.heading("PROBLEMS");
    match problems {
        Problems::Said(said) => said.iter().for_each(|finding| show_said(finding, screen)),
        Problems::Computed(computed) => {
            for finding in computed {
                let text = subject(finding.route.as_deref(), None, &finding.text);
                screen.paragraph("  ", 6, Paint::Yellow, &text);
                look(&finding.attempt, screen);
            }
        }
    }
    screen.line("");
}

/// The severity is printed as a word; the colour only repeats it.
fn show_said(finding: &proto::admin::Finding, screen: &mut Screen) {
    let paint = match finding.severity {
        Severity::Critical => Paint::Red,
        Severity::Warning => Paint::Yellow,
        Severity::Info => Paint::Plain,
    };
    // Most texts name the peer themselves.
    let is_named = |peer: &&str| !finding.text.contains(*peer);
    let peer = finding.peer.as_deref().filter(is_named);
    let text = subject(finding.route.as_deref(), peer, &finding.text);
    let when = match finding.last_s {
        0 => format!("for {}", age_words(finding.age_s)),
        last => format!(
            "for {}, last {} ago",
            age_words(finding.age_s),
            age_words(last)
        ),
    };
    let severity = finding.severity.as_str();
    screen.paragraph("  ", 6, paint, &format!("{severity}: {text} ({when})"));
    look(&finding.look, screen);
}

fn subject(route: Option<&str>, peer: Option<&str>, text: &str) -> String {
    let parts = [route, peer].into_iter().flatten().map(tame);
    let named: Vec<_> = parts.collect();
    match named.as_slice() {
        [] => tame(text).into_owned(),
        named => format!("{}: {}", named.join(" "), tame(text)),
    }
}

fn look(place: &str, screen: &mut Screen) {
    if !place.is_empty() {
        screen.paragraph("      ", 8, Paint::Plain, &tame(place));
    }
}
