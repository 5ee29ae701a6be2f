//! `llmctl up`: runs a router, its engines and its body log in one process, without any
//! preparation.
//!
//! The router, the listener and the exporter run the code of their own binaries and read ordinary
//! files. The engines are those of `llmctl engine`. Everything listens on loopback only: this
//! command is for trials.

mod files;
mod greeting;
mod peers;
mod ports;
mod recording;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use router::control::Control;
use router::{AccessLines, Options, Ready, StartError};
use router_config::Sources;
use router_config::report::{self, Style};
use service::log::{self, LogFormat};

use self::files::{Access, Workspace, keys_text, main_text, route_text, write_new};
use self::greeting::Up;
use self::peers::Behind;
use self::ports::Ports;
use self::recording::{Frames, Recording};
use crate::exit::{Ended, Failure};
use crate::nonce::nonce;
use crate::render::{Format, Screen};

/// Grace period of the engines after the router has ended. The router has already waited for its
/// own requests.
const ENGINE_GRACE: Duration = Duration::from_secs(1);

/// What `llmctl up` takes.
#[derive(Debug, Args)]
#[command(
    after_help = "Files: router.yaml and routes/chat.yaml, in --dir (kept) or in a temporary
directory (removed at the end). Existing files in --dir are used as they are,
and engines are started at the addresses that they name. The router reloads
changed files by itself. Every exchange is recorded below bodylog/ in the same
directory, as `bodylog:` in router.yaml says.

Everything listens on 127.0.0.1 and asks for no key.

Examples:
  llmctl up
  llmctl up --engines 5 --port 9000
  llmctl up --backend http://10.0.0.11:8000 --backend http://10.0.0.12:8000 --dir ./trial"
)]
pub struct UpArgs {
    /// A real engine to put behind the router instead of simulated ones; repeat for more
    #[arg(long = "backend", value_name = "URL")]
    pub backends: Vec<String>,
    /// Directory for the files, kept at the end
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Public port, 0 for a free one; the admin port is ten above it, or a free one [default: 8080]
    #[arg(long, value_name = "PORT")]
    pub port: Option<u16>,
    /// How many simulated engines [default: 3]
    #[arg(long, value_name = "N", conflicts_with = "backends", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub engines: Option<u16>,
}

/// Runs until a signal stops it: the first Ctrl-C drains, a second one ends at once.
///
/// # Errors
/// When a port is in use, a file is invalid, or the router cannot start.
pub async fn run(args: &UpArgs, screen: &mut Screen) -> Result<Ended, Failure> {
    let workspace = Workspace::open(args.dir.as_deref())?;
    let ports = Ports::choose(args.port, workspace.main_file().exists())?;
    let mut frames = None;
    if let Ports::Chosen { public, admin } = ports {
        let free = Frames::free().await?;
        let text = main_text(public, admin, free.address()?);
        let is_ours = write_new(&workspace.main_file(), &text, Access::Usual)?;
        frames = is_ours.then_some(free);
    }
    write_new(
        &workspace.key_file(),
        &keys_text(&nonce()?),
        Access::Private,
    )?;
    let behind = Behind::start(args, &workspace, screen).await?;
    write_new(
        &workspace.route_file(),
        &route_text(&behind.new_peers()),
        Access::Usual,
    )?;
    let served = serve(&workspace, ports, frames, &behind, screen).await;
    behind.stop(ENGINE_GRACE).await;
    served
}

async fn serve(
    workspace: &Workspace,
    ports: Ports,
    frames: Option<Frames>,
    behind: &Behind,
    screen: &mut Screen,
) -> Result<Ended, Failure> {
    // With JSON output, a parent program reads one line from stdout and nothing after it.
    let (log_format, access_lines) = if screen.format() == Format::Json {
        (LogFormat::Json, AccessLines::Stderr)
    } else {
        (LogFormat::Text, AccessLines::Stdout)
    };
    let setup = log::Setup {
        format: log_format,
        target: "router",
        silenced: &[],
    };
    log::init(setup)
        .map_err(|error| Failure::Usage(format!("the log cannot be set up: {error}")))?;
    service::limits::raise_descriptor_limit();
    service::tls::install_crypto_provider();
    let mut recording = Recording::start(workspace, frames).await?;
    let (listen, admin_listen) = ports.overrides();
    let sources = Sources {
        config: Some(workspace.main_file()),
        ..Sources::default()
    };
    let options = Options {
        sources,
        listen,
        admin_listen,
        access_lines,
        log_format,
    };
    let (control, controlled) = Control::new();
    let signals = router::signals::listen(control.clone())
        .map_err(|error| Failure::Wrong(format!("signals cannot be handled: {error}")))?;
    let running = router::run(options, control, controlled, |ready| {
        if let Some(recording) = &mut recording {
            recording.export(ready.admin);
        }
        greet(ready, workspace, behind, recording.as_ref(), screen);
    });
    let ended = tokio::select! {
        ended = running => ended,
        () = signals => unreachable!("signals are passed on for ever"),
    };
    // Stop the recording after the router, because the router delivers its last records while it
    // ends.
    if let Some(recording) = recording {
        recording.stop().await;
    }
    match ended {
        Ok(router::Ended::Drained) => Ok(Ended::Fine),
        Ok(router::Ended::Cut) => Ok(Ended::Wrong),
        Err(StartError::Config(problems)) => Err(Failure::Wrong(format!(
            "the main file is invalid\n{}",
            report::render(&problems, Style::Plain).trim_end()
        ))),
        Err(error) => Err(Failure::Wrong(error.to_string())),
    }
}

fn greet(
    ready: &Ready,
    workspace: &Workspace,
    behind: &Behind,
    recording: Option<&Recording>,
    screen: &mut Screen,
) {
    let up = Up {
        openai_base_url: format!("http://{}/v1", ready.public),
        public: ready.public,
        admin: ready.admin,
        route: files::ROUTE.to_owned(),
        model: behind.model.clone(),
        peers: behind.urls(),
        simulated: behind.is_simulated(),
        dir: workspace.path().to_owned(),
        dir_is_temporary: workspace.is_temporary(),
        records: recording.map(|recording| recording.dir.clone()),
        exporter: recording.map(|recording| recording.exporter.clone()),
    };
    if screen.format() == Format::Json {
        // One line, so that a parent program can read a single line.
        let line = serde_json::to_string(&up).unwrap_or_default();
        screen.line(&line);
    } else {
        let program = std::env::args()
            .next()
            .unwrap_or_else(|| "llmctl".to_owned());
        let greeting = up.greeting(&program);
        screen.text(&greeting);
    }
}
