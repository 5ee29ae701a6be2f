//! The only way from a program to a pipe whose reader may have stopped reading.
//!
//! A line is copied into a bounded queue and written by a dedicated thread. Offering a line never
//! waits: when the queue is full, the line is dropped and counted.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// Bytes that may wait in one queue; as many again may be on their way to the reader. This absorbs
/// a reader that stalls for a second at 8000 access lines per second.
const WAITING_MAX: usize = 1 << 20;

/// Capacity that an idle queue keeps, in bytes.
const KEPT: usize = 64 << 10;

/// A queue of lines and the thread that writes them. Cheap to clone.
#[derive(Clone, Debug)]
pub struct LogWriter(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    queue: Mutex<Queue>,
    /// Signals that there is something to write.
    filled: Condvar,
    /// Signals that everything has been written.
    emptied: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: Vec<u8>,
    lines: u64,
    is_writing: bool,
    dropped: u64,
}

impl LogWriter {
    /// Starts the thread that writes to `out`.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start(name: &str, out: impl Write + Send + 'static) -> io::Result<Self> {
        let writer = Self(Arc::default());
        let inner = Arc::clone(&writer.0);
        thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || inner.write_to(out))?;
        Ok(writer)
    }

    /// Takes one line with its newline, or drops and counts it. Never waits for the reader.
    pub fn offer(&self, line: &[u8]) {
        let mut queue = self.0.queue.lock();
        if queue.waiting.len() + line.len() > WAITING_MAX {
            queue.dropped += 1;
            return;
        }
        queue.waiting.extend_from_slice(line);
        queue.lines += 1;
        drop(queue);
        self.0.filled.notify_one();
    }

    /// Lines lost so far because the reader was too slow or is gone.
    pub fn dropped(&self) -> u64 {
        self.0.queue.lock().dropped
    }

    /// Waits until everything offered so far is written, at most `limit`. Blocks the thread.
    /// Returns `false` on a time-out.
    pub fn flush(&self, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        let mut queue = self.0.queue.lock();
        while queue.is_writing || !queue.waiting.is_empty() {
            if self.0.emptied.wait_until(&mut queue, end).timed_out() {
                return false;
            }
        }
        true
    }
}

impl Inner {
    fn write_to(&self, mut out: impl Write) {
        let mut batch = Vec::new();
        loop {
            let lines = self.next(&mut batch);
            let written = out.write_all(&batch).and_then(|()| out.flush());
            let mut queue = self.queue.lock();
            queue.is_writing = false;
            if written.is_err() {
                queue.dropped += lines;
            }
            if queue.waiting.is_empty() {
                self.emptied.notify_all();
            }
        }
    }

    /// Waits for lines and moves them into `batch`. Returns how many.
    fn next(&self, batch: &mut Vec<u8>) -> u64 {
        batch.clear();
        batch.shrink_to(KEPT);
        let mut queue = self.queue.lock();
        while queue.waiting.is_empty() {
            self.filled.wait(&mut queue);
        }
        std::mem::swap(&mut queue.waiting, batch);
        queue.is_writing = true;
        std::mem::take(&mut queue.lines)
    }
}

static STDOUT: OnceLock<LogWriter> = OnceLock::new();
static STDERR: OnceLock<LogWriter> = OnceLock::new();

/// The process's writer to standard output. The first call starts it.
///
/// # Errors
/// When the system gives no thread or descriptor.
pub fn stdout() -> io::Result<LogWriter> {
    started(&STDOUT, "log-stdout", &io::stdout())
}

/// The process's writer to standard error. The first call starts it.
///
/// # Errors
/// When the system gives no thread or descriptor.
pub fn stderr() -> io::Result<LogWriter> {
    started(&STDERR, "log-stderr", &io::stderr())
}

fn started(slot: &OnceLock<LogWriter>, name: &str, stream: &impl AsFd) -> io::Result<LogWriter> {
    if let Some(writer) = slot.get() {
        return Ok(writer.clone());
    }
    // A separate descriptor. The handle of the standard library is a lock: a stuck write would hold
    // it, and a panic elsewhere would wait for it.
    let out = File::from(stream.as_fd().try_clone_to_owned()?);
    let writer = LogWriter::start(name, out)?;
    Ok(slot.get_or_init(|| writer).clone())
}

/// Lines lost so far on both streams.
pub fn dropped() -> u64 {
    let lost = |slot: &OnceLock<LogWriter>| slot.get().map_or(0, LogWriter::dropped);
    lost(&STDOUT) + lost(&STDERR)
}

/// Waits until both streams are written, at most `limit` for both together. Blocks the thread.
pub fn flush(limit: Duration) {
    let end = Instant::now() + limit;
    for writer in [&STDERR, &STDOUT].into_iter().filter_map(OnceLock::get) {
        writer.flush(end.saturating_duration_since(Instant::now()));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    /// Blocks in its first write until it is released, then counts the lines that it gets.
    struct Stuck {
        go_on: Option<Receiver<()>>,
        lines: Arc<Mutex<u64>>,
    }

    impl Write for Stuck {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if let Some(go_on) = self.go_on.take() {
                go_on.recv().unwrap();
            }
            *self.lines.lock() += bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn stuck() -> (LogWriter, SyncSender<()>, Arc<Mutex<u64>>) {
        let (release, go_on) = sync_channel(1);
        let lines = Arc::default();
        let out = Stuck {
            go_on: Some(go_on),
            lines: Arc::clone(&lines),
        };
        (LogWriter::start("test", out).unwrap(), release, lines)
    }

    #[test]
    fn a_stuck_reader_costs_lines_and_each_is_counted() {
        let (writer, release, lines) = stuck();
        let line = [b"x".repeat(1023), b"\n".to_vec()].concat();
        let offered = 3 * (WAITING_MAX / line.len()) as u64;
        for _ in 0..offered {
            writer.offer(&line);
        }
        assert!(!writer.flush(Duration::ZERO));
        let dropped = writer.dropped();
        assert!(dropped > 0 && dropped < offered, "{dropped}");
        release.send(()).unwrap();
        assert!(writer.flush(LONG));
        assert_eq!(*lines.lock() + writer.dropped(), offered);
    }

    /// A pipe whose reader is gone.
    struct Broken;

    impl Write for Broken {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_that_nobody_can_read_are_counted() {
        let writer = LogWriter::start("test", Broken).unwrap();
        writer.offer(b"one\n");
        writer.offer(b"two\n");
        assert!(writer.flush(LONG));
        assert_eq!(writer.dropped(), 2);
    }
}
