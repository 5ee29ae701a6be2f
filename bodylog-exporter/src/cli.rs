//! The command line of `bodylog-exporter`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use service::cli::{address, blank_is_unset};
use service::healthcheck;
use service::http::CONNECTIONS;
use service::limits::connections_max;
use service::listener::Inherited;
use service::log::{self, LogFormat};
use service::signals::{Grace, Signal, Signals};
use service::tls::install_crypto_provider;
use tokio_util::sync::CancellationToken;

use crate::epoch::ColdStart;
#[cfg(feature = "kubernetes")]
use crate::kubernetes::{ApiServer, KubernetesConfig, api_name};
use crate::poll::RouterUrl;
use crate::run::{Config, POLL_INTERVAL, POLL_PREFIX, run};

/// Turns the rows of a body-log directory into Prometheus metrics. Counts each row once, across
/// restarts, crashes, and rotated or compressed files.
#[derive(Debug, Parser)]
#[command(
    name = "bodylog-exporter",
    version,
    after_help = EXAMPLES,
    subcommand_precedence_over_arg = true
)]
struct Args {
    /// The listener's directory. Rows are read from its `details` directory.
    #[arg(
        long,
        env = "BODYLOG_DIR",
        value_name = "DIR",
        default_value = "/var/lib/bodylog"
    )]
    dir: PathBuf,
    /// File for positions and counts; its directory must be writable. Default:
    /// `exporter.checkpoint` in --dir.
    #[arg(long, env = "BODYLOG_EXPORTER_CHECKPOINT", value_name = "FILE")]
    checkpoint: Option<PathBuf>,
    /// If there is no checkpoint, count all existing rows instead of only new ones.
    #[arg(
        long,
        env = "BODYLOG_EXPORTER_FROM_START",
        value_parser = clap::builder::FalseyValueParser::new()
    )]
    from_start: bool,
    /// Address of /metrics, /healthz and /readyz: a port on all addresses, or address and port.
    #[arg(
        long,
        env = "BODYLOG_EXPORTER_LISTEN",
        value_name = "[ADDR:]PORT",
        default_value = "9110",
        value_parser = address,
        global = true
    )]
    listen: SocketAddr,
    /// Admin URLs of routers to poll.
    #[arg(
        long,
        env = "BODYLOG_EXPORTER_ROUTER",
        value_name = "URL",
        value_delimiter = ',',
        num_args = 1..
    )]
    router: Vec<RouterUrl>,
    /// File with the routers' admin token, for routers on other machines.
    #[arg(long, env = "BODYLOG_EXPORTER_TOKEN_FILE", value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Seconds between two polls of the routers.
    #[arg(
        long,
        env = "BODYLOG_EXPORTER_POLL_INTERVAL",
        value_name = "SECONDS",
        default_value_t = POLL_INTERVAL.as_secs(),
        value_parser = clap::value_parser!(u64).range(1..=3600)
    )]
    poll_interval: u64,
    /// Prefix of the names of polled metrics.
    #[arg(
        long,
        env = "BODYLOG_EXPORTER_POLL_PREFIX",
        value_name = "TEXT",
        default_value = POLL_PREFIX,
        value_parser = poll_prefix
    )]
    poll_prefix: String,
    /// Most connections of scrapers and probes. Default: 256, or fewer where the limit on open files
    /// is low.
    #[arg(long, env = "BODYLOG_EXPORTER_MAX_CONNECTIONS", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_connections: Option<u32>,
    #[cfg(feature = "kubernetes")]
    #[command(flatten)]
    kubernetes: KubernetesArgs,
    /// Format of log lines.
    #[arg(
        long,
        env = "BODYLOG_EXPORTER_LOG_FORMAT",
        value_name = "FORMAT",
        default_value = "text"
    )]
    log_format: LogFormat,
    #[command(subcommand)]
    command: Option<Command>,
}

/// Routes, services and replicas from a cluster.
#[cfg(feature = "kubernetes")]
#[derive(Debug, clap::Args)]
struct KubernetesArgs {
    /// The API server that maps addresses in rows to pods: the one of the cluster that the exporter
    /// runs in, none, or the URL of `kubectl proxy`.
    #[arg(
        long,
        env = "BODYLOG_EXPORTER_KUBERNETES",
        value_name = "auto|off|URL",
        default_value = "auto"
    )]
    kubernetes: ApiServer,
    /// API group of ModelRoutes.
    #[arg(
        long,
        env = "MODELROUTE_GROUP",
        value_name = "GROUP",
        default_value_t = KubernetesConfig::default().group,
        value_parser = api_name
    )]
    modelroute_group: String,
    /// API version of ModelRoutes.
    #[arg(
        long,
        env = "MODELROUTE_VERSION",
        value_name = "VERSION",
        default_value_t = KubernetesConfig::default().version,
        value_parser = api_name
    )]
    modelroute_version: String,
    /// Plural name of ModelRoutes.
    #[arg(
        long,
        env = "MODELROUTE_PLURAL",
        value_name = "NAME",
        default_value_t = KubernetesConfig::default().plural,
        value_parser = api_name
    )]
    modelroute_plural: String,
    /// Seconds between two requests for the owners of pods. Changes of routes and pods are watched.
    #[arg(
        long,
        env = "ROUTE_DISCOVERY_INTERVAL_SECONDS",
        value_name = "SECONDS",
        default_value_t = KubernetesConfig::default().interval.as_secs(),
        value_parser = clap::value_parser!(u64).range(1..=3600)
    )]
    route_discovery_interval: u64,
    /// Time-out for one answer of the API server, in milliseconds.
    #[arg(
        long,
        env = "ROUTE_DISCOVERY_TIMEOUT_MS",
        value_name = "MILLISECONDS",
        default_value_t = KubernetesConfig::default().timeout.as_millis() as u64,
        value_parser = clap::value_parser!(u64).range(1..=600_000)
    )]
    route_discovery_timeout_ms: u64,
    /// For routers that do not list their routes: poll only routes with this `spec.nginx.service`.
    #[arg(long, env = "OPENRESTY_SERVICE", value_name = "NAME")]
    service: Option<String>,
}

#[cfg(feature = "kubernetes")]
impl KubernetesArgs {
    fn config(self) -> KubernetesConfig {
        KubernetesConfig {
            server: self.kubernetes,
            group: self.modelroute_group,
            version: self.modelroute_version,
            plural: self.modelroute_plural,
            router: self.service,
            interval: Duration::from_secs(self.route_discovery_interval),
            timeout: Duration::from_millis(self.route_discovery_timeout_ms),
        }
    }
}

#[derive(Clone, Copy, Debug, Subcommand)]
enum Command {
    /// Check whether the exporter on this machine is up: exit status 0 yes, 1 no. For images
    /// without a shell.
    Healthcheck {
        /// Also check whether it is ready.
        #[arg(long)]
        ready: bool,
    },
}

/// Time limit of the last commit after a signal. After it the process is ended by force, and the
/// next start continues from the checkpoint.
const END: Duration = Duration::from_secs(20);

const EXAMPLES: &str = "\
Examples:
  bodylog-exporter --dir /var/lib/bodylog
  bodylog-exporter --dir /data --checkpoint /state/exporter.checkpoint --router http://router:8090
  curl localhost:9110/metrics

The directory may be mounted read-only when the checkpoint lies elsewhere. TERM, INT and QUIT commit
and end; a second one ends at once. There is nothing to reload, so HUP does nothing. RUST_LOG sets the
log level; log lines go to stderr.";

/// Whether text is a valid prefix of a metric name.
fn poll_prefix(text: &str) -> Result<String, String> {
    let is_start = |b: u8| b.is_ascii_alphabetic() || b == b'_';
    let is_name = text.bytes().next().is_some_and(is_start)
        && text.bytes().all(|b| is_start(b) || b.is_ascii_digit());
    is_name.then(|| text.to_owned()).ok_or_else(|| {
        "a prefix has letters, digits and underscores, and no digit first".to_owned()
    })
}

/// Runs the program. Returns 0 after a signal, 1 if it could not start.
pub fn main() -> ExitCode {
    let matches = blank_is_unset(Args::command()).get_matches();
    let args = Args::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    if let Some(Command::Healthcheck { ready }) = args.command {
        let path = if ready { "/readyz" } else { "/healthz" };
        return match healthcheck::run(args.listen, path) {
            Ok(()) => ExitCode::SUCCESS,
            Err(sick) => {
                log::last_words(&format!("bodylog-exporter: {sick}"));
                ExitCode::FAILURE
            }
        };
    }
    match serve(args) {
        Ok(()) => {
            log::flush(log::FLUSH);
            ExitCode::SUCCESS
        }
        Err(error) => {
            log::last_words(&format!("bodylog-exporter: failed to {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn serve(args: Args) -> anyhow::Result<()> {
    let setup = log::Setup {
        format: args.log_format,
        target: "bodylog_exporter",
        // The Kubernetes client repeats our own log lines, and logs the text of answers that it
        // does not understand.
        silenced: &["kube_client", "kube_runtime"],
    };
    log::init(setup).context("set up the log")?;
    install_crypto_provider();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("start the runtime")?;
    let ended = runtime.block_on(serve_until_stopped(args));
    // After a second signal the process does not wait for blocking work.
    runtime.shutdown_background();
    ended
}

async fn serve_until_stopped(args: Args) -> anyhow::Result<()> {
    let mut signals = Signals::listen(Grace::new(END)).context("handle signals")?;
    let listener = Inherited::from_env()
        .listen(0, args.listen)
        .map_err(|error| anyhow::anyhow!("listen on {}: {}", error.address, error.source))?;
    let address = listener.local_addr().context("tell the address")?;
    let config = Config {
        checkpoint: args.checkpoint,
        cold_start: match args.from_start {
            true => ColdStart::Start,
            false => ColdStart::End,
        },
        routers: args.router,
        token_file: args.token_file,
        poll_interval: Duration::from_secs(args.poll_interval),
        poll_prefix: args.poll_prefix,
        max_connections: match args.max_connections {
            Some(most) => most as usize,
            None => CONNECTIONS.total.min(connections_max()),
        },
        #[cfg(feature = "kubernetes")]
        kubernetes: Some(args.kubernetes.config()),
        ..Config::new(args.dir)
    };
    let stop = CancellationToken::new();
    let running = run(config, listener, stop.clone(), || {
        // The parent process reads the address from this line.
        if let Ok(out) = log::stdout() {
            out.offer(format!("bodylog-exporter ready: http://{address}\n").as_bytes());
        }
    });
    let signalled_twice = async {
        stopped(&mut signals).await;
        stop.cancel();
        stopped(&mut signals).await;
    };
    tokio::select! {
        ran = running => Ok(ran?),
        () = signalled_twice => Err(anyhow::anyhow!("commit: stopped before that was done")),
    }
}

/// Waits for the next signal that ends the process.
async fn stopped(signals: &mut Signals) {
    while signals.next().await == Signal::Reload {
        tracing::info!("there is nothing to reload");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn words_are_read_as_people_write_them() {
        let read = |words: &[&str]| Args::try_parse_from([&["bodylog-exporter"], words].concat());
        for words in [
            &["--router", "http://a:1", "http://b:2"][..],
            &["--router", "http://a:1", "--router", "http://b:2"],
            &["--router", "http://a:1,http://b:2", "healthcheck"],
        ] {
            let labels = read(words).unwrap().router;
            let labels: Vec<_> = labels.iter().map(RouterUrl::label).collect();
            assert_eq!(labels, ["a:1", "b:2"], "{words:?}");
        }
    }

    #[test]
    fn a_prefix_begins_a_metric_name() {
        assert_eq!(poll_prefix("llm_router_").unwrap(), "llm_router_");
        for bad in ["", "9x_", "a-b", "a b"] {
            assert!(poll_prefix(bad).is_err(), "{bad:?}");
        }
    }
}
