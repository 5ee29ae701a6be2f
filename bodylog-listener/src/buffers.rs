//! Buffers that are used again, for frames and for lines: memory that comes fresh from the system
//! costs a fault per page.

use std::collections::VecDeque;

use bytes::BytesMut;
use parking_lot::Mutex;

/// Most buffers of either kind that are kept.
const KEPT_MAX: usize = 16;
/// Largest buffer for lines that is kept, bytes.
const LEN_MAX: usize = 1 << 20;

/// Buffers nobody uses at the moment; for all connections together, a score of MiB at most.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    lines: Mutex<Vec<Vec<u8>>>,
    frames: Mutex<VecDeque<BytesMut>>,
}

impl Buffers {
    /// An empty buffer for lines, with room if there is one.
    pub(crate) fn take(&self) -> Vec<u8> {
        self.lines.lock().pop().unwrap_or_default()
    }

    /// Takes a buffer for lines back.
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

    /// An empty receive buffer with room for so many bytes, if the frames of one are gone.
    pub(crate) fn reclaim(&self, bytes: usize) -> Option<BytesMut> {
        let mut kept = self.frames.lock();
        let at = kept.iter_mut().rposition(|old| old.try_reclaim(bytes))?;
        kept.remove(at)
    }

    /// Keeps a receive buffer for the time when nobody holds its frames any more. The oldest one
    /// makes room for it.
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
