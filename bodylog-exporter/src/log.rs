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

/// What the Kubernetes client logs of its own is silent unless it is asked for by name: it repeats
/// what this program says, and shows answers that it does not understand.
const SILENT: &str = "kube_client=off,kube_runtime=off";

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
    let filter = filter(text)?;
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr);
    match format {
        LogFormat::Text => subscriber.with_ansi(colours()).finish().try_init()?,
        LogFormat::Json => subscriber.json().flatten_event(true).finish().try_init()?,
    }
    Ok(())
}

/// The filter that `RUST_LOG` means; later parts of it win.
fn filter(text: String) -> Result<EnvFilter, LogError> {
    let level = match text.trim() {
        "" => LevelFilter::INFO.to_string(),
        text => text.to_owned(),
    };
    EnvFilter::builder()
        .parse(format!("{SILENT},{level}"))
        .map_err(|_| LogError::Filter { found: text })
}

/// Colours only on a terminal, and not where `NO_COLOR` has a value.
fn colours() -> bool {
    io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kubernetes_client_is_silent_unless_it_is_named() {
        for (text, shown, hidden) in [
            ("", "info", None),
            ("debug", "debug", None),
            (
                "kube_client=warn",
                "kube_client=warn",
                Some("kube_client=off"),
            ),
        ] {
            let filter = filter(text.to_owned()).unwrap().to_string();
            assert!(filter.split(',').any(|part| part == shown), "{filter}");
            assert!(filter.contains("kube_runtime=off"), "{filter}");
            let is_silent = filter.contains("kube_client=off");
            assert_eq!(is_silent, hidden.is_none(), "{filter}");
        }
    }
}
