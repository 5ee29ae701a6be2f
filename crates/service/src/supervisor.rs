//! Reports the state of the process to the supervisor by systemd's notify protocol. Without a
//! notify socket this does nothing.

use sd_notify::NotifyState;

/// Reports that every port listens.
pub fn ready() {
    tell(&[NotifyState::Ready]);
}

/// Reports that a reload begins; [`ready`] reports its end. systemd uses the time to match it with
/// the reload that it requested.
pub fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(error) => tracing::debug!(%error, "no monotonic clock for the supervisor"),
    }
}

/// Reports that the process drains and then ends.
pub fn stopping() {
    tell(&[NotifyState::Stopping]);
}

fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::debug!(%error, "the supervisor was not notified");
    }
}
