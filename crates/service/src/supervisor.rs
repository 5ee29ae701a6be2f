//! What the process that started us learns about our state: systemd's notify protocol. Without a
//! notify socket nothing happens.

use sd_notify::NotifyState;

/// Every port listens.
pub fn ready() {
    tell(&[NotifyState::Ready]);
}

/// A reload begins; [`ready`] reports its end. systemd takes the time to match it with the reload
/// that it asked for.
pub fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(error) => tracing::debug!(%error, "no monotonic clock for the supervisor"),
    }
}

/// The process drains and then ends.
pub fn stopping() {
    tell(&[NotifyState::Stopping]);
}

fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::debug!(%error, "the supervisor was not notified");
    }
}
