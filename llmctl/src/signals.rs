//! The operator's Ctrl-C, and the same asked politely by a supervisor.

use tokio::signal::unix::{SignalKind, signal};

/// Waits for SIGINT or SIGTERM. Never ends when neither can be listened to.
///
/// # Cancel safety
/// Dropping the future loses nothing but the wait.
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
