//! Converts signals to [`Control`] calls: TERM, INT and QUIT drain and then cut, HUP reloads.

use std::io;

use service::signals::{Signal, Signals};
use tokio::task::JoinSet;

use crate::control::Control;

/// Forwards signals until dropped.
///
/// # Errors
/// When the system refuses to install a handler.
pub fn listen(control: Control) -> io::Result<impl Future<Output = ()> + Send> {
    let mut signals = Signals::listen(control.grace().clone())?;
    let mut reloads = JoinSet::new();
    Ok(async move {
        loop {
            match signals.next().await {
                Signal::Stop => control.stop(),
                // A reload may hang on a disk, and a stop must not wait for it. One reload in the
                // queue covers all further signals.
                Signal::Reload => {
                    while reloads.try_join_next().is_some() {}
                    if reloads.len() < 2 {
                        let control = control.clone();
                        reloads.spawn(async move { control.reload().await });
                    }
                }
            }
        }
    })
}
