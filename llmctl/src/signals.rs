//! The signals that stop a command: the operator's Ctrl-C, and SIGTERM from a supervisor.

use tokio::signal::unix::{SignalKind, signal};

/// Waits for SIGINT or SIGTERM. Never returns when neither signal can be received.
///
/// # Cancel safety
/// Dropping the future only ends the wait.
pub(crate) async fn interrupted() {
    let terminated = async {
        match signal(SignalKind::terminate()) {
            Ok(mut signals) => {
                signals.recv().await;
            }
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        Ok(()) = tokio::signal::ctrl_c() => {}
        () = terminated => {}
    }
}
