//! Decides which records are printed.

use std::fmt::Write;
use std::str::FromStr;

use sha2::{Digest, Sha256};

use super::line::Line;

/// Longest session ID that records hold unchanged, bytes. Longer ones are stored as a hash.
const SESSION_BYTES_MAX: usize = 256;

/// The conditions on a record. Empty conditions are not checked.
#[derive(Clone, Debug, Default)]
pub(super) struct Filter {
    pub(super) route: Option<String>,
    /// The session in its stored form: see [`stored_session`].
    pub(super) session: Option<String>,
    pub(super) request_id: Option<String>,
    /// The requested model or the one that answered.
    pub(super) model: Option<String>,
    pub(super) owner: Option<String>,
    /// The peer's name or address.
    pub(super) peer: Option<String>,
    /// Any of these statuses matches; an empty list matches all.
    pub(super) status: Vec<StatusFilter>,
    /// The exchange ended at this time or later, milliseconds since the Unix epoch.
    pub(super) since_ms: Option<i64>,
    /// The exchange ended before this time.
    pub(super) until_ms: Option<i64>,
}

impl Filter {
    /// Whether a record matches. A record without an end time counts as of `hour_ms`, the start of
    /// the hour in which it was written: nothing proves that it is newer.
    pub(super) fn matches(&self, line: &Line<'_>, hour_ms: i64) -> bool {
        let is_of =
            |wanted: &Option<String>, found: &Option<String>| wanted.is_none() || wanted == found;
        is_of(&self.route, &line.route)
            && is_of(&self.session, &line.session_id)
            && (self.status.is_empty() || self.status.iter().any(|s| s.matches(line.status)))
            && is_of(&self.request_id, &line.request_id)
            && is_of(&self.owner, &line.tenant)
            && self
                .model
                .as_deref()
                .is_none_or(|model| line.is_of_model(model))
            && self
                .peer
                .as_deref()
                .is_none_or(|peer| line.is_of_peer(peer))
            && self.is_in_time(line.end_ms().unwrap_or(hour_ms))
    }

    fn is_in_time(&self, end_ms: i64) -> bool {
        self.since_ms.is_none_or(|since| end_ms >= since)
            && self.until_ms.is_none_or(|until| end_ms < until)
    }
}

/// A session ID in its stored form.
pub(super) fn stored_session(id: &str) -> String {
    if id.len() <= SESSION_BYTES_MAX {
        return id.to_owned();
    }
    let mut stored = String::from("sha256:");
    for byte in Sha256::digest(id) {
        // Writing to a string cannot fail.
        let _ = write!(stored, "{byte:02x}");
    }
    stored
}

/// One status, or a class of statuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusFilter {
    /// Exactly this status.
    Code(u16),
    /// All statuses with this first digit.
    Class(u16),
}

impl StatusFilter {
    fn matches(self, status: Option<u16>) -> bool {
        status.is_some_and(|status| match self {
            Self::Code(code) => status == code,
            Self::Class(hundreds) => status / 100 == hundreds,
        })
    }
}

impl FromStr for StatusFilter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "expected a status like 429, or a class like 5xx".to_owned();
        let lower = text.to_ascii_lowercase();
        let filter = match lower.strip_suffix("xx") {
            Some(hundreds) => Self::Class(hundreds.parse().map_err(|_| wrong())?),
            None => Self::Code(lower.parse().map_err(|_| wrong())?),
        };
        match filter {
            Self::Code(100..=599) | Self::Class(1..=5) => Ok(filter),
            _ => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-01-02T09:00:00Z.
    const HOUR_MS: i64 = 1_767_344_400_000;

    fn matches(filter: &Filter, record: &str) -> bool {
        filter.matches(&Line::read(record.as_bytes()).unwrap(), HOUR_MS)
    }

    #[test]
    fn a_status_or_a_class() {
        assert_eq!("429".parse(), Ok(StatusFilter::Code(429)));
        assert_eq!("5xx".parse(), Ok(StatusFilter::Class(5)));
        assert_eq!("4XX".parse(), Ok(StatusFilter::Class(4)));
        for text in ["", "xx", "9xx", "42", "1000", "4x", "ok", "-4xx"] {
            assert!(text.parse::<StatusFilter>().is_err(), "{text}");
        }
        let filter = Filter {
            status: vec![StatusFilter::Code(429), StatusFilter::Class(5)],
            ..Filter::default()
        };
        for (record, expected) in [
            (r#"{"status":429}"#, true),
            (r#"{"status":503}"#, true),
            (r#"{"status":404}"#, false),
            ("{}", false),
        ] {
            assert_eq!(matches(&filter, record), expected, "{record}");
        }
    }

    #[test]
    fn what_ended_since_is_wanted_and_what_does_not_say_is_as_old_as_its_hour() {
        let filter = Filter {
            since_ms: Some(1_767_348_000_000),
            ..Filter::default()
        };
        for (record, expected) in [
            (r#"{"ts_end":"2026-01-02T10:00:00Z"}"#, true),
            (r#"{"ts_end":"2026-01-02T09:59:59.999Z"}"#, false),
            (r#"{"ts":"2026-01-02T09:59:50Z","rt":10.0}"#, true),
            (r#"{"ts":"2026-01-02T09:59:50Z","rt":9.9}"#, false),
            (r#"{"ts":"once"}"#, false),
            ("{}", false),
        ] {
            assert_eq!(matches(&filter, record), expected, "{record}");
        }
    }

    #[test]
    fn a_long_session_id_is_found_by_its_hash() {
        assert_eq!(stored_session("s-1"), "s-1");
        let long = "x".repeat(257);
        let stored = stored_session(&long);
        assert!(
            stored.starts_with("sha256:") && stored.len() == 7 + 64,
            "{stored}"
        );
        let filter = Filter {
            session: Some(stored.clone()),
            ..Filter::default()
        };
        assert!(matches(&filter, &format!(r#"{{"session_id":"{stored}"}}"#)));
        assert!(!matches(&filter, r#"{"session_id":"s-1"}"#));
    }

    #[test]
    fn a_record_without_a_time_is_wanted_where_its_hour_is() {
        let of = |since_ms, until_ms| Filter {
            since_ms,
            until_ms,
            ..Filter::default()
        };
        assert!(matches(&of(Some(HOUR_MS), None), "{}"));
        assert!(matches(&of(None, Some(HOUR_MS + 1)), "{}"));
        assert!(!matches(&of(None, Some(HOUR_MS)), "{}"));
    }

    #[test]
    fn request_model_owner_and_peer_are_looked_up_by_what_operators_know() {
        let record = r#"{"request_id":"r-1","tenant":"alice","model_req":"gpt-4o","model":"qwen3","peer":"10.0.0.1:8000 (retry#1)","peer_name":"gpu-1"}"#;
        let by = |member: fn(&mut Filter) -> &mut Option<String>, value: &str| {
            let mut filter = Filter::default();
            *member(&mut filter) = Some(value.to_owned());
            matches(&filter, record)
        };
        assert!(by(|f| &mut f.request_id, "r-1") && !by(|f| &mut f.request_id, "r"));
        assert!(by(|f| &mut f.owner, "alice") && !by(|f| &mut f.owner, "bob"));
        for model in ["gpt-4o", "qwen3"] {
            assert!(by(|f| &mut f.model, model), "{model}");
        }
        for peer in ["gpu-1", "10.0.0.1:8000"] {
            assert!(by(|f| &mut f.peer, peer), "{peer}");
        }
        assert!(!by(|f| &mut f.model, "m") && !by(|f| &mut f.peer, "10.0.0.1:80"));
    }
}
