//! Where log events go: stderr, as text or JSON, filtered by `RUST_LOG`.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};

/// How log events are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// The log could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// `RUST_LOG` is no filter.
    #[error(
        "RUST_LOG {found:?} is not a log filter (for example info, or bodylog_exporter=debug,warn)"
    )]
    Filter {
        /// Its text.
        found: String,
    },
    /// `RUST_LOG` is not UTF-8.
    #[error("RUST_LOG is not UTF-8")]
    NotUnicode,
    /// The process already has a subscriber.
    #[error("set the process's log subscriber")]
    Init(#[from] TryInitError),
}

/// Sends log events to stderr from here on, at `info` unless `RUST_LOG` says otherwise.
///
/// # Errors
/// When `RUST_LOG` cannot be read, or a subscriber is already set.
pub fn init(format: LogFormat) -> Result<(), LogError> {
    let text = match std::env::var("RUST_LOG") {
        Ok(text) => text,
        Err(std::env::VarError::NotPresent) => String::new(),
        Err(std::env::VarError::NotUnicode(_)) => return Err(LogError::NotUnicode),
    };
    let filter = EnvFilter::builder()
        .with_default_directive(LevelFilter::INFO.into())
        .parse(&text)
        .map_err(|_| LogError::Filter { found: text })?;
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr);
    match format {
        LogFormat::Text => subscriber.with_ansi(colours()).finish().try_init()?,
        LogFormat::Json => subscriber.json().flatten_event(true).finish().try_init()?,
    }
    Ok(())
}

/// Colours only on a terminal, and not where `NO_COLOR` has a value.
fn colours() -> bool {
    io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}
