//! Reusable buffers for frames and lines. Fresh memory from the system costs a page fault per page.

use std::collections::VecDeque;

use bytes::BytesMut;
use parking_lot::Mutex;

/// Most buffers kept of each kind.
const KEPT_MAX: usize = 16;
/// Largest line buffer that is kept, bytes.
const LEN_MAX: usize = 1 << 20;

/// Unused buffers, shared by all connections. About 20 MiB at most.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    lines: Mutex<Vec<Vec<u8>>>,
    frames: Mutex<VecDeque<BytesMut>>,
}

impl Buffers {
    /// An empty line buffer, a kept one if available.
    pub(crate) fn take(&self) -> Vec<u8> {
        self.lines.lock().pop().unwrap_or_default()
    }

    /// Returns a line buffer.
    pub(crate) fn give(&self, mut buffer: Vec<u8>) {
        if !(1..=LEN_MAX).contains(&buffer.capacity()) {
            return;
        }
        buffer.clear();
        let mut kept = self.lines.lock();
        if kept.len() < KEPT_MAX {
            kept.push(buffer);
        }
    }

    /// An empty receive buffer with room for this many bytes, if the frames of a kept buffer are
    /// gone.
    pub(crate) fn reclaim(&self, bytes: usize) -> Option<BytesMut> {
        let mut kept = self.frames.lock();
        let at = kept.iter_mut().rposition(|old| old.try_reclaim(bytes))?;
        kept.remove(at)
    }

    /// Keeps a receive buffer until all its frames are dropped. When too many are kept, the oldest
    /// is discarded.
    pub(crate) fn retire(&self, mut buffer: BytesMut) {
        buffer.clear();
        let mut kept = self.frames.lock();
        if kept.len() >= KEPT_MAX {
            kept.pop_front();
        }
        kept.push_back(buffer);
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
        assert!(buffers.lines.lock().is_empty());
        for _ in 0..2 * KEPT_MAX {
            buffers.give(Vec::with_capacity(1));
            buffers.retire(BytesMut::with_capacity(1));
        }
        assert_eq!(buffers.lines.lock().len(), KEPT_MAX);
        assert_eq!(buffers.frames.lock().len(), KEPT_MAX);
    }

    #[test]
    fn a_receive_buffer_is_used_again_once_its_frames_are_gone() {
        let buffers = Buffers::default();
        let mut buffer = BytesMut::with_capacity(1000);
        buffer.extend_from_slice(b"frame and the start of another");
        let frame = buffer.split_to(5).freeze();
        buffers.retire(buffer);
        assert!(buffers.reclaim(1000).is_none());
        assert_eq!(&frame[..], b"frame");
        drop(frame);
        assert!(buffers.reclaim(1001).is_none());
        let again = buffers.reclaim(1000).expect("it is free");
        assert!(again.is_empty() && again.capacity() >= 1000);
        assert!(buffers.reclaim(1).is_none());
    }
}
