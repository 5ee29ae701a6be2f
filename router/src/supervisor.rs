//! What the process that started us is told about our life: systemd's notify protocol. Without a
//! notify socket nobody listens and nothing happens.

use sd_notify::NotifyState;

/// Both ports listen.
pub(crate) fn ready() {
    tell(&[NotifyState::Ready]);
}

/// A reload begins; [`ready`] tells of its end. systemd takes the time to match it with the reload
/// it asked for.
pub(crate) fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(error) => tracing::debug!(%error, "no monotonic clock for the supervisor"),
    }
}

/// The process drains and then ends.
pub(crate) fn stopping() {
    tell(&[NotifyState::Stopping]);
}

fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::debug!(%error, "the supervisor was not notified");
    }
}
