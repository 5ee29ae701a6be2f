//! Signals become pulls on the [`Control`]: TERM, INT and QUIT drain and then cut, HUP reloads.

use std::io;

use tokio::signal::unix::{SignalKind, signal};

use crate::control::Control;

/// Passes signals on until dropped.
///
/// # Errors
/// When the system refuses a handler.
pub fn listen(control: Control) -> io::Result<impl Future<Output = ()> + Send> {
    let mut term = signal(SignalKind::terminate())?;
    let mut int = signal(SignalKind::interrupt())?;
    let mut quit = signal(SignalKind::quit())?;
    let mut hup = signal(SignalKind::hangup())?;
    Ok(async move {
        loop {
            tokio::select! {
                _ = term.recv() => control.stop(),
                _ = int.recv() => control.stop(),
                _ = quit.recv() => control.stop(),
                _ = hup.recv() => {
                    control.reload().await;
                }
            }
        }
    })
}
