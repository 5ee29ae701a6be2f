//! Control requests to a running router: reload, drain, cut.

use std::time::Duration;

use service::signals::Grace;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use router_config::report::Problem;

/// Time that the process has to end when a signal stops it during the start.
const START: Duration = Duration::from_secs(20);

/// Maximum number of waiting reloads; further callers wait until there is room.
const RELOADS_WAITING_MAX: usize = 8;

/// The result of a reload.
#[derive(Clone, Debug)]
pub struct Reloaded {
    /// Names of the routes in force, ascending.
    pub routes: Vec<String>,
    /// Every problem of every file; empty when all files are in force as they are on disk.
    pub problems: Vec<Problem>,
    /// True when some file has an error, so that its last good version is in force, or nothing.
    pub refused: bool,
}

impl Reloaded {
    /// True when all files are in force as they are on disk.
    pub fn is_whole(&self) -> bool {
        !self.refused && !self.problems.iter().any(Problem::is_error)
    }
}

/// The sending side, for the parts that may control the process. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Control {
    reload: mpsc::Sender<oneshot::Sender<Reloaded>>,
    drain: CancellationToken,
    cut: CancellationToken,
    grace: Grace,
}

/// The receiving side, for the composition root.
#[derive(Debug)]
pub struct Controlled {
    /// Requested reloads.
    pub reload: mpsc::Receiver<oneshot::Sender<Reloaded>>,
    /// Cancelled when the process has to drain.
    pub drain: CancellationToken,
    /// Cancelled when the process has to end at once.
    pub cut: CancellationToken,
    /// Time that the process has to end after a signal.
    pub grace: Grace,
}

impl Control {
    /// Both sides of the control.
    pub fn new() -> (Self, Controlled) {
        let (sender, receiver) = mpsc::channel(RELOADS_WAITING_MAX);
        let (drain, cut) = (CancellationToken::new(), CancellationToken::new());
        let grace = Grace::new(START);
        let control = Self {
            reload: sender,
            drain: drain.clone(),
            cut: cut.clone(),
            grace: grace.clone(),
        };
        (
            control,
            Controlled {
                reload: receiver,
                drain,
                cut,
                grace,
            },
        )
    }

    /// Reads every file again and returns the result. `None` when the process is ending. Cancel
    /// safe: a reload that has started is completed.
    pub async fn reload(&self) -> Option<Reloaded> {
        let (reply, answer) = oneshot::channel();
        self.reload.send(reply).await.ok()?;
        answer.await.ok()
    }

    /// The time that the process has to end after a signal.
    pub fn grace(&self) -> &Grace {
        &self.grace
    }

    /// Starts the drain; a second call ends the process at once.
    pub fn stop(&self) {
        if self.drain.is_cancelled() {
            self.cut.cancel();
        }
        self.drain.cancel();
    }

    /// Starts the drain; further calls change nothing.
    pub fn drain(&self) {
        self.drain.cancel();
    }
}
