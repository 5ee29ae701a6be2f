//! The command line of `router`.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::FalseyValueParser;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use service::cli::blank_is_unset;
use service::healthcheck::Unhealthy;
use service::limits::raise_descriptor_limit;
use service::tls::install_crypto_provider;

use crate::control::Control;
use crate::healthcheck;
use crate::{AccessLines, Ended, Options, Ready, StartError, run, signals};
use router_config::Loaded;
use router_config::load::Sources;
use router_config::report::{self, Style};
use service::log::{self, LogFormat};

/// Success.
const FINE: u8 = 0;
/// A file is invalid, the router could not start, or it cut requests at the end.
const WRONG: u8 = 1;
/// No router answered.
const UNREACHABLE: u8 = 3;

/// Routes LLM requests: a session stays on the engine that remembers it, the rest goes where there
/// is room.
#[derive(Debug, Parser)]
#[command(name = "router", version, after_help = EXAMPLES)]
struct Args {
    /// The main file. Without it: ./router.yaml, then /etc/llm-router/router.yaml; none is fine.
    #[arg(long, env = "LLM_ROUTER_CONFIG", value_name = "FILE", global = true)]
    config: Option<PathBuf>,
    /// Check every file, report every problem and exit: 0 fine, 1 errors.
    #[arg(long, env = "LLM_ROUTER_CHECK", value_parser = FalseyValueParser::new())]
    check: bool,
    /// Public address, in place of `server.listen`.
    #[arg(long, env = "LLM_ROUTER_LISTEN", value_name = "ADDR:PORT")]
    listen: Option<SocketAddr>,
    /// Admin address, in place of `server.admin_listen`.
    #[arg(
        long,
        env = "LLM_ROUTER_ADMIN_LISTEN",
        value_name = "ADDR:PORT",
        global = true
    )]
    admin_listen: Option<SocketAddr>,
    /// Form of log and access lines.
    #[arg(
        long,
        env = "LLM_ROUTER_LOG_FORMAT",
        value_name = "FORMAT",
        default_value = "text"
    )]
    log_format: LogFormat,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Ask the local admin port whether the process is up: 0 yes, 3 no answer. For images without a
    /// shell.
    Healthcheck {
        /// Ask whether it can serve, too: 1, with the reason, when no peer is usable or the key file
        /// could not be read.
        #[arg(long)]
        ready: bool,
    },
}

const EXAMPLES: &str = "\
Examples:
  router --config router.yaml
  router --config router.yaml --check
  LLM_ROUTER_LISTEN=127.0.0.1:8080 router

Signals: TERM, INT and QUIT drain (a second one ends at once), HUP reloads. Files that change reload
by themselves. RUST_LOG sets the log level; log lines go to stderr, access lines to stdout.";

/// Runs the program.
pub fn main() -> ExitCode {
    let matches = blank_is_unset(Args::command()).get_matches();
    let args = Args::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let sources = Sources {
        config: args.config.clone(),
        ..Sources::default()
    };
    let code = match args.command {
        Some(Command::Healthcheck { ready }) => healthcheck(&sources, args.admin_listen, ready),
        None if args.check => check(&router_config::load(&sources)),
        None => serve(sources, &args),
    };
    ExitCode::from(code)
}

/// Reports the problems that a start would find.
fn check(loaded: &Loaded) -> u8 {
    let _ = write!(
        io::stderr(),
        "{}",
        report::render(&loaded.problems, style())
    );
    if loaded.has_errors() {
        return WRONG;
    }
    let main = loaded
        .main
        .path
        .as_ref()
        .map_or("no main file".into(), |path| path.display().to_string());
    let _ = writeln!(
        io::stdout(),
        "ok: {main}, {} route files",
        loaded.routes.len()
    );
    FINE
}

fn style() -> Style {
    use std::io::IsTerminal;
    let colour =
        io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty());
    if colour { Style::Colour } else { Style::Plain }
}

fn serve(sources: Sources, args: &Args) -> u8 {
    let format = args.log_format;
    let setup = log::Setup {
        format,
        target: "router",
        silenced: &[],
    };
    if let Err(error) = log::init(setup) {
        return fail(&format!("the log cannot be set up: {error}"));
    }
    raise_descriptor_limit();
    install_crypto_provider();
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => return fail(&format!("the runtime cannot start: {error}")),
    };
    let options = Options {
        sources,
        listen: args.listen,
        admin_listen: args.admin_listen,
        access_lines: AccessLines::Stdout,
        log_format: format,
    };
    let ended = runtime.block_on(serve_until_stopped(options));
    // A task that hangs on a disk must not keep the process alive.
    runtime.shutdown_background();
    match ended {
        Ok(ended) => {
            log::flush(log::FLUSH);
            match ended {
                Ended::Drained => FINE,
                Ended::Cut => WRONG,
            }
        }
        Err(StartError::Config(problems)) => {
            log::last_words(report::render(&problems, style()).trim_end());
            fail("the main configuration is invalid")
        }
        Err(error) => fail(&error.to_string()),
    }
}

async fn serve_until_stopped(options: Options) -> Result<Ended, StartError> {
    let (control, controlled) = Control::new();
    let passing = signals::listen(control.clone()).map_err(StartError::Signals)?;
    let format = options.log_format;
    let running = run(options, control, controlled, |ready| {
        if let Ok(out) = log::stdout() {
            out.offer(format!("{}\n", ready_line(ready, format)).as_bytes());
        }
    });
    tokio::select! {
        ended = running => ended,
        () = passing => unreachable!("signals are passed on for ever"),
    }
}

/// The ready line, which gives a parent process the addresses. It comes before the access lines, so
/// it is JSON when they are.
fn ready_line(ready: &Ready, format: LogFormat) -> String {
    let Ready { public, admin } = ready;
    match format {
        LogFormat::Text => format!("router ready: public http://{public} admin http://{admin}"),
        LogFormat::Json => serde_json::json!({
            "level": "INFO",
            "message": "router ready",
            "public": format!("http://{public}"),
            "admin": format!("http://{admin}"),
        })
        .to_string(),
    }
}

fn healthcheck(sources: &Sources, admin: Option<SocketAddr>, ready: bool) -> u8 {
    let configured = || {
        router_config::load(sources)
            .main
            .result
            .ok()
            .map(|main| main.server.admin_listen)
    };
    let Some(address) = admin.or_else(configured) else {
        return fail("the main configuration is invalid, so the admin address is not known");
    };
    match healthcheck::run(address, ready) {
        Ok(()) => FINE,
        Err(sick) => {
            let code = fail(&sick.to_string());
            match sick {
                Unhealthy::Unreachable { .. } => UNREACHABLE,
                Unhealthy::Unready(_) => code,
            }
        }
    }
}

fn fail(message: &str) -> u8 {
    log::last_words(&format!("router: {message}"));
    WRONG
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stdout_is_json_from_its_first_line_on_when_asked_for() {
        let ready = Ready {
            public: SocketAddr::from(([127, 0, 0, 1], 8080)),
            admin: SocketAddr::from(([127, 0, 0, 1], 8090)),
        };
        let line = ready_line(&ready, LogFormat::Json);
        let line: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(line["admin"], "http://127.0.0.1:8090");
        assert_eq!(
            ready_line(&ready, LogFormat::Text),
            "router ready: public http://127.0.0.1:8080 admin http://127.0.0.1:8090"
        );
    }

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }
}
