//! The notation of a fault: `KIND[=VALUE][@CONDITION…]`.
//!
//! | kind | value | does |
//! |---|---|---|
//! | `400` to `599` | probability, default 1 | answers with this status |
//! | `refuse` | duration, optional | closes the listener, so that new connections are refused |
//! | `reset` | – | resets the connection (RST) without a byte of an answer |
//! | `cut-before-headers` | – | closes the connection (FIN) without a byte of an answer |
//! | `slow-header` | duration | waits before it handles the request |
//! | `slow-ttft` | duration | adds to the time to the first token, in the slot and after a stream's head |
//! | `hang` | chunks, optional | never answers, or falls silent after this many chunks; 0 is after the head |
//! | `stall` | `CHUNKS:DURATION` | pauses once after this many chunks, then goes on |
//! | `cut-stream` | chunks | closes the connection after this many chunks of the answer |
//! | `end-stream` | chunks | ends the answer after this many chunks as if it were whole, without its terminator |
//! | `big-chunk` | bytes | makes the first piece of text this long |
//! | `close-idle` | duration | closes connections idle for this long after an answer |
//!
//! Conditions: a probability (`@0.3`), a count (`@x2`: the first two matching requests), a path
//! prefix with any method (`@/v1/models`; without a prefix, POST under `/v1/`), `@reused` (only on
//! a connection that has carried a request before). So `hang@/metrics` blocks one page, and plain
//! `hang` blocks generation while `/v1/models` and `/metrics` answer.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use http::{Method, StatusCode};

use super::Facts;
use crate::duration;

/// Maximum length of a piece of text for `big-chunk`: 64 MiB.
const BIG_CHUNK_MAX: usize = 64 << 20;

/// One fault with its conditions.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// The kind of the fault.
    pub kind: Kind,
    conditions: Conditions,
    /// The original notation.
    text: String,
}

/// The effect of a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Answers with this status, in the form of the engine's own errors.
    Status(StatusCode),
    /// Refuses new connections, for this time or without end; open connections stay.
    Refuse(Option<Duration>),
    /// Resets the connection without an answer.
    Reset,
    /// Adds to the time to the first token.
    SlowTtft(Duration),
    /// Pauses once after this number of chunks.
    Stall(u32, Duration),
    /// Ends the answer after this number of chunks as if it were complete.
    EndStream(u32),
    /// Waits this long before it handles the request.
    SlowHeader(Duration),
    /// Closes the connection without an answer.
    CutBeforeHeaders,
    /// Closes the connection after this number of chunks of the answer.
    CutStream(u32),
    /// Stops sending after this number of chunks; `None` = before the headers.
    Hang(Option<u32>),
    /// Makes the first piece of text this many bytes long.
    BigChunk(usize),
    /// Closes a connection that was idle for this time after an answer.
    CloseIdle(Duration),
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Conditions {
    probability: Option<f64>,
    times: Option<u64>,
    path: Option<String>,
    reused: bool,
}

/// An invalid fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("fault `{fault}`: {problem}")]
pub struct SpecError {
    fault: String,
    problem: String,
}

impl Fault {
    /// Parses a comma-separated list.
    ///
    /// # Errors
    ///
    /// The first invalid fault.
    pub fn list(text: &str) -> Result<Vec<Self>, SpecError> {
        text.split(',')
            .map(str::trim)
            .filter(|spec| !spec.is_empty())
            .map(str::parse)
            .collect()
    }

    pub(crate) fn times(&self) -> Option<u64> {
        self.conditions.times
    }

    pub(crate) fn probability(&self) -> f64 {
        self.conditions.probability.unwrap_or(1.0)
    }

    pub(crate) fn strikes_connection(&self, reused: bool) -> bool {
        reused || !self.conditions.reused
    }

    pub(crate) fn matches(&self, facts: Facts<'_>) -> bool {
        let here = match &self.conditions.path {
            Some(prefix) => facts.path.starts_with(prefix.as_str()),
            None => facts.method == Method::POST && facts.path.starts_with("/v1/"),
        };
        here && self.strikes_connection(facts.reused)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Fault {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let read = || {
            let mut parts = text.trim().split('@');
            let head = parts.next().unwrap_or_default();
            let (name, value) = head
                .split_once('=')
                .map_or((head, None), |(name, value)| (name, Some(value)));
            let mut conditions = Conditions::default();
            let kind = kind(name, value, &mut conditions)?;
            parts.try_for_each(|part| conditions.read(part))?;
            if kind.is_of_connections() && conditions != Conditions::default() {
                return Err(format!(
                    "{name} is about connections and takes no condition"
                ));
            }
            Ok(Self {
                kind,
                conditions,
                text: text.trim().to_owned(),
            })
        };
        read().map_err(|problem| SpecError {
            fault: text.to_owned(),
            problem,
        })
    }
}

fn kind(name: &str, value: Option<&str>, conditions: &mut Conditions) -> Result<Kind, String> {
    let needed = |what: &str| value.ok_or_else(|| format!("needs a value, {name}=<{what}>"));
    let alone = |kind| match value {
        None => Ok(kind),
        Some(_) => Err("takes no value".to_owned()),
    };
    if let Some(status) = error_status(name) {
        conditions.probability = value.map(probability).transpose()?;
        return Ok(Kind::Status(status));
    }
    Ok(match name {
        "refuse" => Kind::Refuse(value.map(duration::parse).transpose()?),
        "reset" => alone(Kind::Reset)?,
        "slow-ttft" => Kind::SlowTtft(duration::parse(needed("duration")?)?),
        "stall" => {
            let value = needed("chunks:duration")?;
            let (chunks, pause) = value
                .split_once(':')
                .ok_or_else(|| format!("found `{value}`; stall=<chunks:duration> is needed"))?;
            Kind::Stall(number(chunks)?, duration::parse(pause)?)
        }
        "end-stream" => Kind::EndStream(number(needed("chunks")?)?),
        "slow-header" => Kind::SlowHeader(duration::parse(needed("duration")?)?),
        "close-idle" => Kind::CloseIdle(duration::parse(needed("duration")?)?),
        "cut-stream" => Kind::CutStream(number(needed("chunks")?)?),
        "hang" => Kind::Hang(value.map(number).transpose()?),
        "big-chunk" => match number(needed("bytes")?)? {
            bytes if bytes <= BIG_CHUNK_MAX => Kind::BigChunk(bytes),
            bytes => return Err(format!("found {bytes}; at most {BIG_CHUNK_MAX} bytes")),
        },
        "cut-before-headers" => alone(Kind::CutBeforeHeaders)?,
        _ => {
            return Err(format!(
                "unknown kind `{name}`; known: 400 to 599, refuse, reset, cut-before-headers, slow-header, slow-ttft, \
                 hang, stall, cut-stream, end-stream, big-chunk, close-idle"
            ));
        }
    })
}

/// Parses an error status.
fn error_status(name: &str) -> Option<StatusCode> {
    let status = StatusCode::from_bytes(name.as_bytes()).ok()?;
    (status.is_client_error() || status.is_server_error()).then_some(status)
}

impl Kind {
    /// Whether the fault concerns connections instead of single requests.
    pub(crate) fn is_of_connections(&self) -> bool {
        matches!(self, Self::Refuse(_) | Self::CloseIdle(_))
    }
}

impl Conditions {
    fn read(&mut self, part: &str) -> Result<(), String> {
        if part == "reused" {
            self.reused = true;
        } else if part.starts_with('/') {
            self.path = Some(part.to_owned());
        } else if let Some(times) = part.strip_prefix('x') {
            self.times = Some(number(times)?);
        } else {
            self.probability = Some(probability(part)?);
        }
        Ok(())
    }
}

fn probability(text: &str) -> Result<f64, String> {
    let found = text.parse::<f64>().ok().filter(|p| (0.0..=1.0).contains(p));
    found.ok_or_else(|| format!("found `{text}`; a probability is a number from 0 to 1, other conditions are xN, /path and reused"))
}

fn number<N: FromStr>(text: &str) -> Result<N, String> {
    text.parse()
        .map_err(|_| format!("found `{text}`; a whole number is needed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_reads_and_prints_as_written() {
        for text in [
            "429",
            "429=0.5",
            "500",
            "503=1",
            "slow-header=250ms",
            "cut-stream=0",
            "cut-before-headers",
            "hang",
            "hang=3",
            "404@/v1/messages",
            "refuse",
            "refuse=5s",
            "reset@0.5",
            "slow-ttft=2s",
            "stall=3:250ms",
            "end-stream=2",
            "big-chunk=70000",
            "close-idle=2s",
            "503@/v1/models@x2",
            "hang@0.1",
            "cut-before-headers@reused",
        ] {
            assert_eq!(text.parse::<Fault>().unwrap().to_string(), text);
        }
        assert_eq!("hang=3".parse::<Fault>().unwrap().kind, Kind::Hang(Some(3)));
    }

    #[test]
    fn a_wrong_fault_says_what_was_found_and_what_is_allowed() {
        for (text, says) in [
            ("flood", "known: 400 to 599"),
            ("200", "unknown kind"),
            ("reset=1", "takes no value"),
            ("refuse@x1", "takes no condition"),
            ("stall=3", "chunks:duration"),
            ("429=2", "from 0 to 1"),
            ("429=NaN", "from 0 to 1"),
            ("cut-stream", "cut-stream=<chunks>"),
            ("cut-stream=-1", "`-1`"),
            ("slow-header=1d", "`1d`"),
            ("503@y2", "`y2`"),
            ("cut-before-headers=1", "takes no value"),
            ("close-idle=1s@x2", "takes no condition"),
            ("big-chunk=99999999999", "at most"),
            ("", "unknown kind"),
        ] {
            let error = text.parse::<Fault>().unwrap_err().to_string();
            assert!(
                error.contains(says) && error.contains(text),
                "{text}: {error}"
            );
        }
    }

    #[test]
    fn a_list_is_separated_by_commas() {
        assert_eq!(Fault::list("429@x1, hang=2 ,").unwrap().len(), 2);
        assert!(Fault::list("429,bad").is_err());
    }
}
