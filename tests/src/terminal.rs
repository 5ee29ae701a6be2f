//! Runs a program on its own terminal. The test types keys, and everything that is shown is kept,
//! both streams in order of arrival. The terminal is a pair from the kernel (pty(7)); nothing
//! interprets the output.

use std::fs::File;
use std::io::{Read, Write};
use std::process::Stdio;

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use tokio::process::{Child, Command};

use crate::wait::until_some;

/// A running program and the outer side of its terminal.
pub struct Terminal {
    child: Child,
    outside: File,
    shown: Vec<u8>,
}

impl Terminal {
    /// Starts `command` with all three streams on a new terminal of 80 columns and 24 lines.
    ///
    /// # Panics
    ///
    /// When no terminal is available, or the program cannot be started.
    pub fn start(mut command: Command) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let outside = openpt(flags).expect("a terminal");
        unlockpt(&outside).expect("our own terminal opens");
        let inside = ioctl_tiocgptpeer(&outside, flags).expect("a terminal has another side");
        fcntl_setfl(&outside, OFlags::RDWR | OFlags::NONBLOCK).expect("a terminal need not block");
        let size = Winsize {
            ws_row: 24,
            ws_col: 80,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&outside, size).expect("a terminal has a size");
        let stream = || Stdio::from(inside.try_clone().expect("a descriptor can be cloned"));
        command
            .stdin(stream())
            .stdout(stream())
            .stderr(stream())
            .kill_on_drop(true);
        let child = command
            .spawn()
            .unwrap_or_else(|error| panic!("start {command:?}: {error}"));
        Self {
            child,
            outside: outside.into(),
            shown: Vec::new(),
        }
    }

    /// Everything shown so far. Lines end with `\r\n`, and typed keys are echoed.
    pub fn shown(&mut self) -> String {
        let mut chunk = [0; 4096];
        // At its end, a terminal returns an error.
        while let Ok(read @ 1..) = self.outside.read(&mut chunk) {
            self.shown.extend_from_slice(&chunk[..read]);
        }
        String::from_utf8_lossy(&self.shown).into_owned()
    }

    /// Waits until the output satisfies `is_wanted`, and returns it.
    pub async fn until(&mut self, what: &str, is_wanted: impl Fn(&str) -> bool) -> String {
        until_some(what, || {
            let shown = self.shown();
            is_wanted(&shown).then_some(shown)
        })
        .await
    }

    /// Types keys.
    ///
    /// # Panics
    ///
    /// When nothing is left to read them.
    pub fn types(&mut self, keys: &str) {
        self.outside
            .write_all(keys.as_bytes())
            .expect("a terminal takes keys");
    }

    /// Sends the signal of Ctrl-C.
    ///
    /// # Panics
    ///
    /// When the program has ended.
    pub fn interrupt(&self) {
        let id = self.child.id().and_then(|id| i32::try_from(id).ok());
        let id = id.and_then(Pid::from_raw).expect("it still runs");
        kill_process(id, Signal::INT).expect("our own child takes signals");
    }

    /// Waits for the end. Returns the exit code and everything that was shown.
    ///
    /// # Panics
    ///
    /// When a signal ended it.
    pub async fn ended(mut self) -> (i32, String) {
        let status = until_some("the program on the terminal to end", || {
            // A full terminal would block the program.
            self.shown();
            self.child.try_wait().expect("a child can be asked")
        })
        .await;
        (status.code().expect("it ended by itself"), self.shown())
    }
}
