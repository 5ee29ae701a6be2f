//! The simulated inference engine: `llmctl engine` runs it, `llmctl up` puts it behind the router
//! when there is no GPU, and the tests send requests to it.
//!
//! The model is simulated (two fixed sentences, with a length drawn from the seed and the prompt),
//! and so are the delays. The HTTP, the queue before the slots, and the prefix cache are real: a
//! conversation that returns to the same engine gets its first token sooner. The same requests in
//! the same order get the same answers.
//!
//! It serves chat, completions, embeddings, responses, conversations, files, transcriptions, image
//! edits, realtime sessions in text and models as OpenAI does, messages and token counting as Anthropic does, health, metrics and slots as the imitated engine does, and for tests
//! `/sim/faults`, `/sim/requests` and `/sim/stats`.
//!
//! Every engine is a set of owned tasks, which end with its [`EngineHandle`].

mod answer;
mod anthropic;
mod app;
mod args;
mod cache;
mod compute;
mod connection;
mod control;
mod dialect;
mod duration;
mod failure;
mod faults;
mod generate;
mod length;
mod log;
mod metrics;
mod openai;
mod prompt;
mod realtime;
mod reply;
mod server;
mod service;
mod slots;
mod stats;
mod status;
mod stored;
mod text;
mod tokens;
mod tools;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use serde::Serialize;
use tokio::net::TcpListener;
use tokio_util::task::TaskTracker;

pub use args::{Args, MEDIAN_TOKENS, Options};
pub use cache::BLOCK;
pub use compute::Pace;
pub use dialect::Dialect;
pub use duration::parse as parse_duration;
pub use faults::{Fault, HEADER as FAULT_HEADER, Kind as FaultKind, SpecError};
pub use length::Length;
pub use log::{Outcome, Seen};
pub use stats::Stats;
pub use text::REPLY_MAX;

use app::App;
use server::Ending;

/// Grace period for requests in flight when `llmctl engine` stops.
const DRAIN: Duration = Duration::from_secs(10);

/// The engine.
#[derive(Debug)]
pub struct Engine;

/// A running engine. Dropping it closes every connection at once; [`shutdown`](Self::shutdown) and
/// [`kill`](Self::kill) also wait until the connections are closed.
#[derive(Debug)]
pub struct EngineHandle {
    /// The address of the listener.
    pub addr: SocketAddr,
    app: App,
    ending: Ending,
    tasks: TaskTracker,
}

/// `llmctl engine` could not start.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The address could not be bound.
    #[error("listen on {addr}")]
    Listen {
        /// The requested address.
        addr: SocketAddr,
        /// The cause.
        source: io::Error,
    },
}

impl Engine {
    /// Starts an engine on a listener.
    ///
    /// # Errors
    ///
    /// When the listener does not return its address.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime.
    pub fn spawn(options: Options, listener: TcpListener) -> io::Result<EngineHandle> {
        let addr = listener.local_addr()?;
        let app = App::new(options);
        let (ending, tasks) = (Ending::default(), TaskTracker::new());
        tasks.spawn(server::accept(
            listener,
            app.clone(),
            ending.clone(),
            tasks.clone(),
        ));
        tasks.close();
        Ok(EngineHandle {
            addr,
            app,
            ending,
            tasks,
        })
    }

    /// Starts an engine on a free port of 127.0.0.1.
    ///
    /// # Errors
    ///
    /// When no port can be bound.
    pub async fn local(options: Options) -> io::Result<EngineHandle> {
        Self::spawn(options, TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?)
    }
}

impl EngineHandle {
    /// The base URL, without a slash at the end.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// A snapshot of the statistics.
    pub fn stats(&self) -> Stats {
        self.app.core.stats()
    }

    /// The last received requests, oldest first.
    pub fn requests(&self) -> Vec<Seen> {
        self.app.log.read()
    }

    /// Replaces the current faults.
    pub fn set_faults(&self, faults: Vec<Fault>) {
        self.app.faults.replace(faults);
    }

    /// Stops accepting, waits at most `grace` for requests in flight, then closes the rest.
    pub async fn shutdown(&self, grace: Duration) {
        self.ending.stop.cancel();
        if tokio::time::timeout(grace, self.tasks.wait())
            .await
            .is_err()
        {
            self.kill().await;
        }
    }

    /// Closes the listener and every connection at once, also in the middle of an answer.
    pub async fn kill(&self) {
        self.ending.abort.cancel();
        self.tasks.wait().await;
    }
}

impl Drop for EngineHandle {
    fn drop(&mut self) {
        self.ending.abort.cancel();
    }
}

/// A running engine as `llmctl engine` prints it; the JSON form is stable.
#[derive(Clone, Debug, Serialize)]
pub struct Listening {
    /// The base URL.
    pub listening: String,
    /// The served models.
    pub models: Vec<String>,
    /// The slots.
    pub slots: usize,
    /// The blocks of the prefix cache.
    pub cache_blocks: usize,
}

/// Runs `llmctl engine` until `ended` resolves, then waits for requests in flight. Calls `ready`
/// once the engine listens.
///
/// # Errors
///
/// When the address cannot be bound.
pub async fn run(
    args: Args,
    ready: impl FnOnce(&Listening),
    ended: impl Future<Output = ()>,
) -> Result<(), RunError> {
    let addr = SocketAddr::new(args.host, args.port);
    let options = Options::from(args);
    let mut told = Listening {
        listening: String::new(),
        models: options.models.clone(),
        slots: options.slots,
        cache_blocks: options.cache_blocks,
    };
    let listen = |source| RunError::Listen { addr, source };
    let listener = TcpListener::bind(addr).await.map_err(listen)?;
    let engine = Engine::spawn(options, listener).map_err(listen)?;
    told.listening = engine.url();
    ready(&told);
    ended.await;
    engine.shutdown(DRAIN).await;
    Ok(())
}
