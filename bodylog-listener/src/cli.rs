//! The command line of `bodylog-listener`.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use ipnet::IpNet;
use service::cli::{address, blank_is_unset};
use service::listener::Inherited;
use service::log::{self, LogFormat};
use service::signals::{Grace, Signal, Signals};
use service::{healthcheck, supervisor, tls};
use tokio::net::TcpListener;

use crate::config::{Config, Durability, MinFree, Secret};
use crate::run::{Listeners, run};
use service::renewed::Renewed;

/// Success.
const FINE: u8 = 0;
/// The listener could not start.
const WRONG: u8 = 1;

/// Longest time after a signal for storing the frames already taken. Then the process exits by
/// force. Senders of version 2 send unacknowledged frames again.
const END: Duration = Duration::from_secs(45);

/// Largest token file, bytes. A real token is one line.
const TOKEN_MAX: usize = 4096;

/// Stores what the router ships: each exchange once, on disk before it is acknowledged.
#[derive(Debug, Parser)]
#[command(name = "bodylog-listener", version, after_help = EXAMPLES)]
struct Args {
    /// Root of the files; made if it is missing.
    #[arg(
        long,
        env = "BODYLOG_DIR",
        value_name = "DIR",
        default_value = "/var/lib/bodylog"
    )]
    dir: PathBuf,
    /// Where frames come in: a port on every address, or address and port.
    #[arg(long, env = "BODYLOG_LISTEN", value_name = "[ADDR:]PORT", default_value = "9999", value_parser = address)]
    listen: SocketAddr,
    /// Where HTTP is served.
    #[arg(long, env = "BODYLOG_HTTP_LISTEN", value_name = "[ADDR:]PORT", default_value = "9998", value_parser = address, global = true)]
    http_listen: SocketAddr,
    /// Days full records are kept.
    #[arg(long, env = "BODYLOG_KEEP_DAYS", value_name = "DAYS", default_value = "7", value_parser = clap::value_parser!(u32).range(1..))]
    keep_days: u32,
    /// Days slim rows are kept.
    #[arg(long, env = "BODYLOG_DETAILS_KEEP_DAYS", value_name = "DAYS", default_value = "365", value_parser = clap::value_parser!(u32).range(1..))]
    details_keep_days: u32,
    /// Most bytes of all files together, as 500g, or off. The oldest go first.
    #[arg(long, env = "BODYLOG_MAX_BYTES", value_name = "SIZE", default_value = "off", value_parser = size_or_off)]
    max_bytes: SizeOrOff,
    /// Room to keep free on the disk, as 10% or 50g. Below a half of it bodies are left out, below a
    /// tenth nothing is stored.
    #[arg(long, env = "BODYLOG_MIN_FREE", value_name = "SHARE", default_value = "10%", value_parser = min_free)]
    min_free: MinFree,
    /// Most bytes of frames in memory.
    #[arg(long, env = "BODYLOG_MEMORY", value_name = "SIZE", default_value = "512m", value_parser = memory)]
    memory: usize,
    /// Largest frame taken; senders are told, and leave bodies out of what is larger.
    #[arg(long, env = "BODYLOG_MAX_FRAME", value_name = "SIZE", default_value = "64m", value_parser = max_frame)]
    max_frame: u32,
    /// When a frame counts as stored.
    #[arg(
        long,
        env = "BODYLOG_DURABILITY",
        value_name = "MODE",
        default_value = "batch"
    )]
    durability: Durability,
    /// File with the token that senders and HTTP callers from elsewhere must show.
    #[arg(long, env = "BODYLOG_TOKEN_FILE", value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Certificate chain of the frame port, PEM.
    #[arg(
        long,
        env = "BODYLOG_TLS_CERT",
        value_name = "FILE",
        requires = "tls_key"
    )]
    tls_cert: Option<PathBuf>,
    /// Its key, PEM.
    #[arg(
        long,
        env = "BODYLOG_TLS_KEY",
        value_name = "FILE",
        requires = "tls_cert"
    )]
    tls_key: Option<PathBuf>,
    /// Authorities whose certificates senders must show, PEM.
    #[arg(
        long,
        env = "BODYLOG_TLS_CLIENT_CA",
        value_name = "FILE",
        requires = "tls_cert"
    )]
    tls_client_ca: Option<PathBuf>,
    /// Networks senders may connect from, as 10.0.0.0/8; all of them if there is none. With a token,
    /// senders of version 1 must be named here.
    #[arg(long, env = "BODYLOG_ALLOW", value_name = "CIDR", value_delimiter = ',', value_parser = network)]
    allow: Vec<IpNet>,
    /// Most connections of senders. Default: 1024, or fewer where the limit on open files is low.
    #[arg(long, env = "BODYLOG_MAX_CONNECTIONS", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_connections: Option<u32>,
    /// Form of log lines.
    #[arg(
        long,
        env = "BODYLOG_LOG_FORMAT",
        value_name = "FORMAT",
        default_value = "text"
    )]
    log_format: LogFormat,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Clone, Copy, Debug, Subcommand)]
enum Command {
    /// Ask the HTTP port of this machine whether the process is up: 0 yes, 1 no. For images without
    /// a shell.
    Healthcheck {
        /// Ask whether it does its work, too.
        #[arg(long)]
        ready: bool,
    },
}

/// A limit that can be off.
#[derive(Clone, Copy, Debug)]
struct SizeOrOff(Option<u64>);

const EXAMPLES: &str = "\
Examples:
  bodylog-listener --dir /var/lib/bodylog
  bodylog-listener --dir ./log --listen 127.0.0.1:9999 --http-listen 127.0.0.1:9998
  bodylog-listener --token-file /etc/bodylog/token --allow 10.0.0.0/8

Signals: TERM, INT and QUIT stop accepting and store what was taken; a second one ends at once. Token
and certificates are read again when their files are renewed; HUP does nothing besides.
RUST_LOG sets the log level; log lines go to stderr.";

/// Runs the program.
pub fn main() -> ExitCode {
    let matches = blank_is_unset(Args::command()).get_matches();
    let args = Args::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let done = match args.command {
        Some(Command::Healthcheck { ready }) => {
            let path = if ready { "/readyz" } else { "/healthz" };
            healthcheck::run(args.http_listen, path).map_err(|sick| sick.to_string())
        }
        None => start(args),
    };
    ExitCode::from(match done {
        Ok(()) => {
            log::flush(log::FLUSH);
            FINE
        }
        Err(message) => {
            log::last_words(&format!("bodylog-listener: {message}"));
            WRONG
        }
    })
}

fn start(args: Args) -> Result<(), String> {
    let setup = log::Setup {
        format: args.log_format,
        target: "bodylog_listener",
        silenced: &[],
    };
    log::init(setup).map_err(|error| format!("the log cannot be set up: {error}"))?;
    let addresses = (args.listen, args.http_listen);
    let config = configured(args)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("the runtime cannot start: {error}"))?;
    let ended = runtime.block_on(serve(config, addresses));
    // After a second signal, blocking work is abandoned.
    runtime.shutdown_background();
    ended
}

fn configured(args: Args) -> Result<Config, String> {
    let mut config = Config::new(args.dir);
    config.keep_days = args.keep_days;
    config.details_keep_days = args.details_keep_days;
    config.max_bytes = args.max_bytes.0;
    config.min_free = args.min_free;
    config.memory = args.memory;
    config.max_frame = args.max_frame;
    config.durability = args.durability;
    config.allow = args.allow;
    config.max_connections = match args.max_connections {
        Some(most) => most as usize,
        None => config
            .max_connections
            .min(service::limits::connections_max()),
    };
    if let Some(file) = args.token_file {
        let from = file.clone();
        config.token = Some(Renewed::new("token", vec![file], move || token(&from))?);
    }
    if let (Some(cert), Some(key)) = (args.tls_cert, args.tls_key) {
        let client_ca = args.tls_client_ca;
        let files = [&cert, &key].into_iter().chain(&client_ca).cloned();
        let tls = Renewed::new("certificate", files.collect(), move || {
            tls::server_config(&cert, &key, client_ca.as_deref()).map_err(|error| error.to_string())
        });
        config.tls = Some(tls.map_err(|error| format!("TLS cannot be used: failed to {error}"))?);
    }
    Ok(config)
}

fn token(file: &Path) -> Result<Secret, String> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| format!("cannot read the token file {}: {error}", file.display()))?;
    let token = text.trim();
    if token.is_empty() || token.len() > TOKEN_MAX {
        return Err(format!(
            "the token file {} must hold 1 to {TOKEN_MAX} bytes",
            file.display()
        ));
    }
    Ok(Secret::new(token))
}

async fn serve(config: Config, (frames, http): (SocketAddr, SocketAddr)) -> Result<(), String> {
    let mut inherited = Inherited::from_env();
    let listeners = Listeners {
        frames: inherited
            .listen(0, frames)
            .map_err(|error| error.to_string())?,
        http: Some(
            inherited
                .listen(1, http)
                .map_err(|error| error.to_string())?,
        ),
    };
    let line = ready_line(&listeners);
    let mut signals = Signals::listen(Grace::new(END))
        .map_err(|error| format!("signals cannot be handled: {error}"))?;
    let (first, told) = tokio::sync::oneshot::channel();
    let stopped = async {
        let _ = told.await;
    };
    let running = run(config, listeners, stopped, || {
        if let Ok(out) = log::stdout() {
            out.offer(format!("{line}\n").as_bytes());
        }
        supervisor::ready();
    });
    let signalled = async {
        let mut first = Some(first);
        loop {
            if signals.next().await == Signal::Reload {
                tracing::info!(
                    "there is nothing to reload: each connection checks whether files were renewed"
                );
                continue;
            }
            match first.take() {
                Some(first) => {
                    supervisor::stopping();
                    let _ = first.send(());
                }
                None => return,
            }
        }
    };
    tokio::select! {
        ended = running => ended.map_err(|error| format!("failed to {error}")),
        () = signalled => Err("stopped before everything was stored".into()),
    }
}

fn ready_line(listeners: &Listeners) -> String {
    let name = |listener: &TcpListener| {
        listener
            .local_addr()
            .map_or_else(|_| "?".into(), |address| address.to_string())
    };
    let http = listeners.http.as_ref().map(name).unwrap_or_default();
    format!(
        "bodylog-listener ready: frames tcp://{} http http://{http}",
        name(&listeners.frames)
    )
}

fn network(text: &str) -> Result<IpNet, String> {
    let text = text.trim();
    text.parse::<IpNet>()
        .or_else(|_| text.parse::<IpAddr>().map(IpNet::from))
        .map_err(|_| "expected a network, as 10.0.0.0/8, or an address".to_owned())
}

/// Bytes, 1024-based: `10m`, `1g`, or a bare number.
fn size(text: &str) -> Result<u64, String> {
    let wrong = || "expected a size, as 500m or 2g".to_owned();
    let text = text.trim().to_ascii_lowercase();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match &text[digits.len()..] {
        "" | "b" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return Err(wrong()),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    number.checked_mul(1 << shift).ok_or_else(wrong)
}

fn size_or_off(text: &str) -> Result<SizeOrOff, String> {
    if text.eq_ignore_ascii_case("off") {
        return Ok(SizeOrOff(None));
    }
    size(text).map(|size| SizeOrOff(Some(size)))
}

fn min_free(text: &str) -> Result<MinFree, String> {
    let Some(percent) = text.trim().strip_suffix('%') else {
        return size(text).map(MinFree::Bytes);
    };
    percent
        .parse()
        .ok()
        .filter(|percent| (0.0..=90.0).contains(percent))
        .map(MinFree::Percent)
        .ok_or_else(|| "expected a share from 0% to 90%".to_owned())
}

/// At least the largest frame plus some room, and at most what one semaphore permit can count.
fn memory(text: &str) -> Result<usize, String> {
    let bytes = size(text)?;
    if !(128 << 20..=4 << 30).contains(&bytes) {
        return Err("expected a size from 128m to 4g".to_owned());
    }
    usize::try_from(bytes).map_err(|_| "it is too large for this machine".to_owned())
}

/// At least room for any metadata, and at most the limit of the format.
fn max_frame(text: &str) -> Result<u32, String> {
    let largest = proto::frame::MAX_PAYLOAD;
    let bytes = u32::try_from(size(text)?).unwrap_or(u32::MAX);
    if !(2 << 20..=largest).contains(&bytes) {
        return Err("expected a size from 2m to 64m".to_owned());
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn values_are_read_as_people_write_them() {
        assert_eq!(size("2g").unwrap(), 2 << 30);
        assert_eq!(size(" 7 ").unwrap(), 7);
        assert!(size("2x").is_err() && size("").is_err() && size("99999999t").is_err());
        assert_eq!(min_free("2.5%").unwrap(), MinFree::Percent(2.5));
        assert_eq!(min_free("1g").unwrap(), MinFree::Bytes(1 << 30));
        assert!(min_free("nan%").is_err() && min_free("95%").is_err());
        assert!(memory("64m").is_err() && memory("1g").is_ok());
        assert_eq!(max_frame("2m").unwrap(), 2 << 20);
        assert_eq!(max_frame("64m").unwrap(), proto::frame::MAX_PAYLOAD);
        assert!(max_frame("1m").is_err() && max_frame("65m").is_err() && max_frame("5g").is_err());
        assert_eq!(network("10.0.0.7").unwrap().to_string(), "10.0.0.7/32");
        assert!(size_or_off("off").unwrap().0.is_none());
    }
}
