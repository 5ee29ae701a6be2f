//! One connection: its number, whether it carries a request, and its idle time-out.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::realtime::Session;

/// An accepted connection.
#[derive(Debug)]
pub(crate) struct Connection {
    /// Connections are numbered from 0 in the order of acceptance.
    pub(crate) id: u64,
    pub(crate) peer: SocketAddr,
    /// Number of requests on this connection, the current one included.
    pub(crate) served: AtomicU64,
    /// Whether the connection ends with a reset instead of a normal close.
    pub(crate) reset: AtomicBool,
    /// The session that takes the connection over when HTTP has ended.
    pub(crate) session: Mutex<Option<Session>>,
    /// Start of the idle time after an answer; `None` before the first answer and while busy.
    idle_since: watch::Sender<Option<Instant>>,
}

/// Marks the connection as busy while this guard lives.
#[derive(Debug)]
pub(crate) struct Busy(Arc<Connection>);

impl Connection {
    pub(crate) fn new(id: u64, peer: SocketAddr) -> Arc<Self> {
        Arc::new(Self {
            id,
            peer,
            served: AtomicU64::new(0),
            reset: AtomicBool::new(false),
            session: Mutex::default(),
            idle_since: watch::Sender::new(None),
        })
    }

    /// Marks the connection as busy; HTTP/1 carries one request at a time.
    pub(crate) fn busy(self: &Arc<Self>) -> Busy {
        self.idle_since.send_replace(None);
        Busy(Arc::clone(self))
    }

    /// Returns when the connection has been idle for the current limit.
    pub(crate) async fn idled_out(&self, mut limit: watch::Receiver<Option<Duration>>) {
        let mut idle_since = self.idle_since.subscribe();
        loop {
            let since = *idle_since.borrow_and_update();
            let allowed = *limit.borrow_and_update();
            let expiry = since.zip(allowed).map(|(since, allowed)| since + allowed);
            let expired = async {
                match expiry {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            // Both senders still exist: we own one, the other belongs to the engine that runs this
            // task.
            tokio::select! {
                () = expired => return,
                _ = idle_since.changed() => {}
                _ = limit.changed() => {}
            }
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.idle_since.send_replace(Some(Instant::now()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn idleness_counts_from_the_last_answer_and_not_before_the_first() {
        let connection = Connection::new(0, ([127, 0, 0, 1], 1).into());
        let (_limit, limits) = watch::channel(Some(Duration::from_secs(5)));
        let started = Instant::now();
        let idled_out = connection.idled_out(limits);
        let traffic = async {
            tokio::time::sleep(Duration::from_secs(60)).await;
            drop(connection.busy());
            tokio::time::sleep(Duration::from_secs(4)).await;
            let busy = connection.busy();
            tokio::time::sleep(Duration::from_secs(60)).await;
            drop(busy);
        };
        tokio::join!(idled_out, traffic);
        assert_eq!(
            Instant::now() - started,
            Duration::from_secs(60 + 4 + 60 + 5)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_limit_set_later_applies_to_a_connection_already_idle() {
        let connection = Connection::new(0, ([127, 0, 0, 1], 1).into());
        let (limit, limits) = watch::channel(None);
        drop(connection.busy());
        let started = Instant::now();
        let change = async {
            tokio::time::sleep(Duration::from_secs(3)).await;
            limit.send_replace(Some(Duration::from_secs(5)));
        };
        tokio::join!(connection.idled_out(limits), change);
        assert_eq!(Instant::now() - started, Duration::from_secs(5));
    }
}
