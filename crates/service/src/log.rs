//! Log output. Events go to stderr, as text or JSON, filtered by `RUST_LOG`. Lines for other
//! programs (the ready line, the access lines) go to stdout.
//!
//! Neither stream ever waits for its reader: see [`LogWriter`].

mod throttle;
mod writer;

use std::io::{self, IsTerminal, Write};
use std::panic::{self, PanicHookInfo};
use std::time::Duration;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};

pub use throttle::Throttle;
pub use writer::{LogWriter, dropped, flush, stderr, stdout};

/// How long a program waits at its end for its last lines to reach their reader.
pub const FLUSH: Duration = Duration::from_secs(1);

/// The format of log events and access lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// For human readers.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// The log could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// `RUST_LOG` is not a valid filter.
    #[error("RUST_LOG {found:?} is not a log filter (for example info, or {target}=debug,warn)")]
    Filter {
        /// The value of `RUST_LOG`.
        found: String,
        /// A valid target of the program.
        target: &'static str,
        /// The reason.
        #[source]
        source: tracing_subscriber::filter::ParseError,
    },
    /// `RUST_LOG` is not UTF-8.
    #[error("RUST_LOG is not UTF-8")]
    NotUnicode,
    /// No thread or descriptor for the writer.
    #[error("start the log's writer")]
    Writer(#[source] io::Error),
    /// The process already has a subscriber.
    #[error("set the process's log subscriber")]
    Init(#[from] TryInitError),
}

/// The log settings of a program.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// The format of the lines.
    pub format: LogFormat,
    /// The program's own target, for the example in an error.
    pub target: &'static str,
    /// Targets that are silent unless `RUST_LOG` names them.
    pub silenced: &'static [&'static str],
}

/// From now on, log events go to stderr, at `info` unless `RUST_LOG` says otherwise.
///
/// # Errors
/// When `RUST_LOG` cannot be parsed, or a subscriber is already set.
pub fn init(setup: Setup) -> Result<(), LogError> {
    let text = match std::env::var("RUST_LOG") {
        Ok(text) => text,
        Err(std::env::VarError::NotPresent) => String::new(),
        Err(std::env::VarError::NotUnicode(_)) => return Err(LogError::NotUnicode),
    };
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter(text, setup)?)
        .with_writer(Events(stderr().map_err(LogError::Writer)?));
    match setup.format {
        LogFormat::Text => subscriber.with_ansi(colours()).finish().try_init()?,
        LogFormat::Json => subscriber.json().flatten_event(true).finish().try_init()?,
    }
    // The default hook writes to stderr and would wait for its reader.
    panic::set_hook(Box::new(log_panic));
    Ok(())
}

/// Writes one line to stderr and waits briefly until it is written. For the reason why a program
/// ends.
pub fn last_words(line: &str) {
    let line = format!("{line}\n");
    match stderr() {
        Ok(writer) => {
            writer.offer(line.as_bytes());
            flush(FLUSH);
        }
        // No other channel is left to report this.
        Err(_) => drop(io::stderr().write_all(line.as_bytes())),
    }
}

fn log_panic(panicked: &PanicHookInfo<'_>) {
    let location = panicked.location().map(ToString::to_string);
    let thread = std::thread::current();
    tracing::error!(
        location,
        thread = thread.name(),
        payload = panicked.payload_as_str(),
        "panicked: this is a bug"
    );
}

/// Passes the line of each event to the writer.
#[derive(Debug)]
struct Events(LogWriter);

impl<'a> MakeWriter<'a> for Events {
    type Writer = Event<'a>;

    fn make_writer(&'a self) -> Event<'a> {
        Event(&self.0)
    }
}

/// One event, which the subscriber writes in one piece.
#[derive(Debug)]
struct Event<'a>(&'a LogWriter);

impl Write for Event<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.offer(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The filter from `RUST_LOG`. Its directives override the silenced targets.
fn filter(text: String, setup: Setup) -> Result<EnvFilter, LogError> {
    let silenced = setup.silenced.iter().map(|target| format!("{target}=off"));
    let asked = match text.trim() {
        "" => LevelFilter::INFO.to_string(),
        asked => asked.to_owned(),
    };
    let directives: Vec<_> = silenced.chain([asked]).collect();
    EnvFilter::builder()
        .with_default_directive(LevelFilter::INFO.into())
        .parse(directives.join(","))
        .map_err(|source| LogError::Filter {
            found: text,
            target: setup.target,
            source,
        })
}

/// Colours only on a terminal, and only when `NO_COLOR` is unset or empty.
fn colours() -> bool {
    io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETUP: Setup = Setup {
        format: LogFormat::Text,
        target: "router",
        silenced: &[],
    };

    #[test]
    fn an_empty_filter_means_info() {
        assert_eq!(filter(String::new(), SETUP).unwrap().to_string(), "info");
    }

    #[test]
    fn a_filter_that_cannot_be_read_is_an_error_that_shows_it() {
        let error = filter("router=loud".into(), SETUP).unwrap_err().to_string();
        assert!(error.contains("\"router=loud\""), "{error}");
        assert!(error.contains("router=debug,warn"), "{error}");
    }

    #[test]
    fn a_silenced_target_speaks_only_when_it_is_named() {
        let setup = Setup {
            silenced: &["kube_client", "kube_runtime"],
            ..SETUP
        };
        for (text, shown, hidden) in [
            ("", "info", None),
            ("debug", "debug", None),
            (
                "kube_client=warn",
                "kube_client=warn",
                Some("kube_client=off"),
            ),
        ] {
            let filter = filter(text.to_owned(), setup).unwrap().to_string();
            assert!(filter.split(',').any(|part| part == shown), "{filter}");
            assert!(filter.contains("kube_runtime=off"), "{filter}");
            let is_silent = filter.contains("kube_client=off");
            assert_eq!(is_silent, hidden.is_none(), "{filter}");
        }
    }
}
