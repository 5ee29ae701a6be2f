//! Signals, and the guarantee that TERM ends the program.
//!
//! A thread with its own runtime receives the signals. So a signal is handled whatever the rest of
//! the program waits for, and when the program has not ended in time, this thread ends it.

use std::future::pending;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use crate::log;

/// The most signals that wait to be handled. More of the same change nothing.
const WAITING_MAX: usize = 8;

/// How long a program may take to end after the second signal.
const HURRIED: Duration = Duration::from_secs(5);

/// Exit code of a program that did not end in time.
const OVERDUE: i32 = 1;

/// The request that a signal stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// TERM, INT or QUIT. The first one asks for an orderly end, the second one for an immediate
    /// end.
    Stop,
    /// HUP: read the files again.
    Reload,
}

/// How long a program may take to end after a signal. Shared and changeable, because a reload may
/// change it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Grace(Arc<AtomicU64>);

impl Grace {
    /// The grace of a program that may take `limit` to end.
    pub fn new(limit: Duration) -> Self {
        Self(Arc::new(AtomicU64::new(millis(limit))))
    }

    /// Changes the limit.
    pub fn set(&self, limit: Duration) {
        self.0.store(millis(limit), Ordering::Relaxed);
    }

    fn get(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }
}

fn millis(limit: Duration) -> u64 {
    u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)
}

/// The signals sent to this process, in order.
#[derive(Debug)]
pub struct Signals(mpsc::Receiver<Signal>);

impl Signals {
    /// Receives the signals from now on. A program that has not ended within `grace` after a signal
    /// is ended with exit code 1.
    ///
    /// # Errors
    /// When the system refuses a handler or a thread.
    pub fn listen(grace: Grace) -> io::Result<Self> {
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        let source = {
            let _entered = runtime.enter();
            Source::new()?
        };
        std::thread::Builder::new()
            .name("signals".into())
            .spawn(move || runtime.block_on(watch(source, &sender, &grace)))?;
        Ok(Self(receiver))
    }

    /// The next signal.
    ///
    /// Cancel safe.
    pub async fn next(&mut self) -> Signal {
        match self.0.recv().await {
            Some(signal) => signal,
            // The thread ends only with the process.
            None => pending().await,
        }
    }
}

struct Source {
    stop: [tokio::signal::unix::Signal; 3],
    reload: tokio::signal::unix::Signal,
}

impl Source {
    fn new() -> io::Result<Self> {
        Ok(Self {
            stop: [
                signal(SignalKind::terminate())?,
                signal(SignalKind::interrupt())?,
                signal(SignalKind::quit())?,
            ],
            reload: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> Signal {
        let [term, int, quit] = &mut self.stop;
        tokio::select! {
            _ = term.recv() => Signal::Stop,
            _ = int.recv() => Signal::Stop,
            _ = quit.recv() => Signal::Stop,
            _ = self.reload.recv() => Signal::Reload,
        }
    }
}

async fn watch(mut source: Source, sender: &mpsc::Sender<Signal>, grace: &Grace) {
    let mut end: Option<Instant> = None;
    loop {
        let overdue = async {
            match end {
                Some(end) => sleep_until(end).await,
                None => pending().await,
            }
        };
        let signal = tokio::select! {
            signal = source.next() => signal,
            () = overdue => end_now(),
        };
        if signal == Signal::Stop {
            end = next_end(end, Instant::now(), grace.get());
        }
        // If the channel is full, the program has enough signals to handle.
        let _ = sender.try_send(signal);
    }
}

/// The deadline of a program that was asked to stop at `now`. A second signal shortens it; no
/// signal extends it.
fn next_end(end: Option<Instant>, now: Instant, grace: Duration) -> Option<Instant> {
    match end {
        None => now.checked_add(grace),
        Some(end) => Some(end.min(now + HURRIED)),
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "it is what remains when the program does not end by itself"
)]
fn end_now() -> ! {
    tracing::error!("the program did not end in time after a signal: it is ended now");
    log::flush(log::FLUSH);
    std::process::exit(OVERDUE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_signal_shortens_the_time_and_none_extends_it() {
        let now = Instant::now();
        let minute = Duration::from_secs(60);
        let first = next_end(None, now, minute);
        assert_eq!(first, Some(now + minute));
        let second = next_end(first, now + Duration::from_secs(1), minute);
        assert_eq!(second, Some(now + Duration::from_secs(1) + HURRIED));
        assert_eq!(
            next_end(second, now + Duration::from_secs(2), minute),
            second
        );
        assert_eq!(next_end(first, now + minute, minute), first);
    }
}
