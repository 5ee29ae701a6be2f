//! Buffers for lines, used again: memory that comes fresh from the system costs a fault per page.

use parking_lot::Mutex;

/// Most buffers kept.
const KEPT_MAX: usize = 16;
/// Largest buffer kept, bytes.
const LEN_MAX: usize = 1 << 20;

/// Buffers nobody uses at the moment, 16 MiB at most.
#[derive(Debug, Default)]
pub(crate) struct Buffers(Mutex<Vec<Vec<u8>>>);

impl Buffers {
    /// An empty buffer, with room if there is one.
    pub(crate) fn take(&self) -> Vec<u8> {
        self.0.lock().pop().unwrap_or_default()
    }

    /// Takes a buffer back.
    pub(crate) fn give(&self, mut buffer: Vec<u8>) {
        if !(1..=LEN_MAX).contains(&buffer.capacity()) {
            return;
        }
        buffer.clear();
        let mut kept = self.0.lock();
        if kept.len() < KEPT_MAX {
            kept.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back_empty() {
        let buffers = Buffers::default();
        buffers.give(Vec::with_capacity(100));
        let mut buffer = buffers.take();
        assert!(buffer.is_empty() && buffer.capacity() >= 100);
        buffer.push(1);
        buffers.give(buffer);
        assert!(buffers.take().is_empty());
        assert_eq!(buffers.take().capacity(), 0);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let buffers = Buffers::default();
        buffers.give(Vec::with_capacity(LEN_MAX + 1));
        assert!(buffers.0.lock().is_empty());
        for _ in 0..2 * KEPT_MAX {
            buffers.give(Vec::with_capacity(1));
        }
        assert_eq!(buffers.0.lock().len(), KEPT_MAX);
    }
}
