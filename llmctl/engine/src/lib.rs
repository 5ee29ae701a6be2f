//! The simulated inference engine: what `llmctl engine` runs, what `llmctl up` puts behind the
//! router when there is no GPU, and what the tests send their requests to.
//!
//! Simulated are the model (two fixed sentences, for a length drawn from the seed and the prompt) and the passing of time. Real are the HTTP, the
//! queue before the slots, and the prefix cache: a conversation that comes back to the engine that
//! knows it gets its first token sooner. The same requests in the same order get the same answers.
//!
//! It serves chat, completions, embeddings, responses and models as OpenAI has them, messages and
//! their counting as Anthropic has them, health, metrics and slots as the engine imitated has
//! them, and for tests `/sim/faults`, `/sim/requests` and `/sim/stats`.
//!
//! Every engine is a set of owned tasks: it ends with its [`EngineHandle`].

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
mod reply;
mod server;
mod service;
mod slots;
mod stats;
mod status;
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
pub use faults::{Fault, HEADER as FAULT_HEADER, Kind as FaultKind, SpecError};
pub use length::Length;
pub use log::{Outcome, Seen};
pub use stats::Stats;
pub use text::REPLY_MAX;

use app::App;
use server::Ending;

/// How long requests in flight may take to finish once `llmctl engine` is told to end.
const DRAIN: Duration = Duration::from_secs(10);

/// The engine.
#[derive(Debug)]
pub struct Engine;

/// A running engine. Dropping it closes every connection at once; [`shutdown`](Self::shutdown)
/// and [`kill`](Self::kill) also wait until that is done.
#[derive(Debug)]
pub struct EngineHandle {
    /// Where it listens.
    pub addr: SocketAddr,
    app: App,
    ending: Ending,
    tasks: TaskTracker,
}

/// `llmctl engine` could not do its work.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The address could not be taken.
    #[error("listen on {addr}")]
    Listen {
        /// Address asked for.
        addr: SocketAddr,
        /// Why not.
        source: io::Error,
    },
}

impl Engine {
    /// Starts an engine on a listener.
    ///
    /// # Errors
    ///
    /// When the listener cannot tell its address.
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
    /// When no port can be taken.
    pub async fn local(options: Options) -> io::Result<EngineHandle> {
        Self::spawn(options, TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?)
    }
}

impl EngineHandle {
    /// Its base URL, without a slash at the end.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// What it has done and is doing.
    pub fn stats(&self) -> Stats {
        self.app.core.stats()
    }

    /// The last requests it received, oldest first.
    pub fn requests(&self) -> Vec<Seen> {
        self.app.log.read()
    }

    /// Replaces the faults in force.
    pub fn set_faults(&self, faults: Vec<Fault>) {
        self.app.faults.replace(faults);
    }

    /// Stops accepting, lets requests in flight finish for at most `grace`, then closes what is
    /// left.
    pub async fn shutdown(&self, grace: Duration) {
        self.ending.stop.cancel();
        if tokio::time::timeout(grace, self.tasks.wait())
            .await
            .is_err()
        {
            self.kill().await;
        }
    }

    /// Closes the listener and every connection at once, in the middle of whatever they carry.
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

/// A running engine as `llmctl engine` tells of it; its JSON form is stable.
#[derive(Clone, Debug, Serialize)]
pub struct Listening {
    /// Its base URL.
    pub listening: String,
    /// The models it serves.
    pub models: Vec<String>,
    /// Requests that run at once.
    pub slots: usize,
    /// Blocks of its prefix cache.
    pub cache_blocks: usize,
}

/// Runs `llmctl engine` until `ended` resolves, then lets requests in flight finish. `ready` is called
/// once the engine listens.
///
/// # Errors
///
/// When the address cannot be taken.
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
