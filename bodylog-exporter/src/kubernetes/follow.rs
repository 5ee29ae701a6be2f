//! Follows one kind of object: a list, then its changes. The protocol is kube's; this adds what
//! happens after failures.

use std::fmt::Debug;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

use super::client::{is_of_transport, why};
use super::fleet::{Heard, Name, Weigh};
use crate::resolver::{Health, Source};

/// How long the server keeps a watch open; a dead connection is noticed a little later.
const WATCH_SECONDS: u32 = 60;

/// Pause after the first failure in a row; it doubles from there.
const PAUSE_MIN: Duration = Duration::from_millis(500);

/// What to follow, and how.
#[derive(Debug)]
pub(super) struct Followed<K> {
    pub(super) api: Api<K>,
    /// Only objects with these labels.
    pub(super) labels: Option<String>,
    pub(super) source: Source,
    pub(super) health: Arc<Health>,
    /// Longest pause between two attempts.
    pub(super) pause_max: Duration,
    /// Most of a list that is remembered, by weight.
    pub(super) room: usize,
    /// The kind need not exist in the cluster; then there are no objects.
    pub(super) may_be_absent: bool,
}

/// How to continue after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// As kube does: it repeats the request, or lists again.
    GoOn,
    /// With a list, because something was missed.
    ListAnew,
}

impl<K> Followed<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    /// Follows until `say` returns false. `of` returns an object's name and the used part of it.
    ///
    /// Cancel safe: it leaves nothing behind.
    pub(super) async fn follow<T: Weigh>(
        self,
        of: impl Fn(K) -> Option<(Name, Option<T>)>,
        mut say: impl AsyncFnMut(Heard<T>) -> bool,
    ) {
        let mut failures = 0;
        let mut had_any = false;
        loop {
            let config = watcher::Config {
                label_selector: self.labels.clone(),
                timeout: Some(WATCH_SECONDS),
                ..watcher::Config::default()
            };
            let mut events = pin!(watcher(self.api.clone(), config));
            let mut list = Vec::new();
            let mut room = self.room;
            while let Some(event) = events.next().await {
                let heard = match event {
                    Ok(Event::Init) => {
                        list.clear();
                        room = self.room;
                        continue;
                    }
                    Ok(Event::InitApply(object)) => {
                        if let Some((name, Some(one))) = of(object)
                            && let Some(left) = room.checked_sub(one.weight())
                        {
                            room = left;
                            list.push((name, one));
                        }
                        continue;
                    }
                    Ok(Event::InitDone) => {
                        had_any |= !list.is_empty();
                        Some(Heard::All(std::mem::take(&mut list)))
                    }
                    Ok(Event::Apply(object)) => of(object).map(|(name, one)| match one {
                        Some(one) => Heard::One(name, one),
                        None => Heard::Gone(name),
                    }),
                    Ok(Event::Delete(object)) => of(object).map(|(name, _)| Heard::Gone(name)),
                    Err(error) if self.may_be_absent && !had_any && is_absent(&error) => {
                        tracing::debug!(asked_for = %self.source, "the cluster does not know the kind");
                        self.health.answered(&self.source);
                        if !say(Heard::All(Vec::new())).await {
                            return;
                        }
                        tokio::time::sleep(self.pause_max).await;
                        continue;
                    }
                    Err(error) => {
                        let next = self.failed(&error);
                        tokio::time::sleep(pause(failures, self.pause_max)).await;
                        failures += 1;
                        match next {
                            Next::GoOn => continue,
                            Next::ListAnew => break,
                        }
                    }
                };
                failures = 0;
                if let Some(heard) = heard
                    && !say(heard).await
                {
                    return;
                }
            }
        }
    }

    fn failed(&self, error: &watcher::Error) -> Next {
        use watcher::Error;
        match error {
            // The server forgot the version at which the watch continued. That happens.
            Error::WatchError(status) if status.code == 410 => Next::GoOn,
            Error::WatchStartFailed(kube::Error::Api(status)) if status.code == 410 => {
                Next::ListAnew
            }
            Error::WatchError(status) => {
                self.health
                    .failed(&self.source, &format!("status {}", status.code));
                Next::GoOn
            }
            Error::WatchFailed(error) => {
                self.health.failed(&self.source, &why(error));
                // An event that was not taken is lost; a broken connection loses nothing.
                match is_of_transport(error) {
                    true => Next::GoOn,
                    false => Next::ListAnew,
                }
            }
            Error::InitialListFailed(error) | Error::WatchStartFailed(error) => {
                self.health.failed(&self.source, &why(error));
                Next::GoOn
            }
            Error::NoResourceVersion => {
                self.health.failed(&self.source, "an object has no version");
                Next::ListAnew
            }
        }
    }
}

fn is_absent(error: &watcher::Error) -> bool {
    let watcher::Error::InitialListFailed(kube::Error::Api(status)) = error else {
        return false;
    };
    status.code == 404
}

/// Pause before the next attempt, after this many failures in a row.
fn pause(failures: u32, max: Duration) -> Duration {
    let factor = 1_u32.checked_shl(failures).unwrap_or(u32::MAX);
    PAUSE_MIN.saturating_mul(factor).min(max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let max = Duration::from_secs(30);
        let seconds = [0, 1, 2, 5, 6, 40].map(|failures| pause(failures, max).as_secs_f64());
        assert_eq!(seconds, [0.5, 1.0, 2.0, 16.0, 30.0, 30.0]);
    }
}
