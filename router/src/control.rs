//! The strings an operator can pull on a running router: reload, drain, cut.

use std::time::Duration;

use service::signals::Grace;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use router_config::report::Problem;

/// How long a process that a signal stops while it still starts may take to end.
const START: Duration = Duration::from_secs(20);

/// Reloads waiting at once; a further caller waits its turn.
const RELOADS_WAITING_MAX: usize = 8;

/// What a reload did.
#[derive(Clone, Debug)]
pub struct Reloaded {
    /// Names of the routes in force now, ascending.
    pub routes: Vec<String>,
    /// Every problem of every file; empty when all files are in force as they are on disk.
    pub problems: Vec<Problem>,
    /// True when some file has an error and its last good version, or nothing, is in force.
    pub refused: bool,
}

impl Reloaded {
    /// True when everything that the files say is in force.
    pub fn is_whole(&self) -> bool {
        !self.refused && !self.problems.iter().any(Problem::is_error)
    }
}

/// Held by whoever may pull a string. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Control {
    reload: mpsc::Sender<oneshot::Sender<Reloaded>>,
    drain: CancellationToken,
    cut: CancellationToken,
    grace: Grace,
}

/// Held by the composition root.
#[derive(Debug)]
pub struct Controlled {
    /// Reloads asked for.
    pub reload: mpsc::Receiver<oneshot::Sender<Reloaded>>,
    /// Cancelled when the process is to drain.
    pub drain: CancellationToken,
    /// Cancelled when the process is to end at once.
    pub cut: CancellationToken,
    /// How long the process may take to end once a signal asked it to.
    pub grace: Grace,
}

impl Control {
    /// Both ends of the strings.
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

    /// Reads every file again and says what came of it. `None` when the process is ending.
    /// Cancel safe: a reload once begun is carried out.
    pub async fn reload(&self) -> Option<Reloaded> {
        let (reply, answer) = oneshot::channel();
        self.reload.send(reply).await.ok()?;
        answer.await.ok()
    }

    /// How long the process may take to end once a signal asked it to.
    pub fn grace(&self) -> &Grace {
        &self.grace
    }

    /// Begins to drain; a second call ends the process at once.
    pub fn stop(&self) {
        if self.drain.is_cancelled() {
            self.cut.cancel();
        }
        self.drain.cancel();
    }

    /// Begins to drain; calling it again changes nothing.
    pub fn drain(&self) {
        self.drain.cancel();
    }
}
