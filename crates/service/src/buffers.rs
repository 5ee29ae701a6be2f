//! Reuses the buffers of large request bodies.
//!
//! New memory for a body of a megabyte costs more in page faults than everything else that the
//! router does with the body. A buffer returns when its request has been answered. The idle memory
//! is bounded.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;

/// Smaller bodies come from the allocator, which itself keeps blocks of this size.
const BUFFER_MIN: usize = 64 << 10;
/// Larger buffers go back to the system, because few requests need one.
const BUFFER_MAX: usize = 4 << 20;
/// Idle bytes kept, over all buffers.
const IDLE_MAX: usize = 32 << 20;

/// The idle buffers of a process. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Buffers {
    idle: Arc<Mutex<Idle>>,
}

#[derive(Debug, Default)]
struct Idle {
    buffers: Vec<BytesMut>,
    bytes: usize,
}

impl Buffers {
    /// An empty buffer of at least `capacity` bytes.
    pub fn take(&self, capacity: usize) -> BytesMut {
        if capacity >= BUFFER_MIN {
            let mut idle = self.idle.lock();
            // The buffer that was returned last is most likely still in the CPU cache.
            let fits = idle
                .buffers
                .iter()
                .rposition(|buffer| buffer.capacity() >= capacity);
            if let Some(at) = fits {
                let buffer = idle.buffers.swap_remove(at);
                idle.bytes -= buffer.capacity();
                return buffer;
            }
        }
        BytesMut::with_capacity(capacity)
    }

    /// Keeps the buffer of a body for reuse, if nobody else holds it and there is room.
    pub fn give(&self, body: Bytes) {
        if body.len() < BUFFER_MIN {
            return;
        }
        let Ok(mut buffer) = body.try_into_mut() else {
            return;
        };
        buffer.clear();
        let capacity = buffer.capacity();
        if !(BUFFER_MIN..=BUFFER_MAX).contains(&capacity) {
            return;
        }
        let mut idle = self.idle.lock();
        if idle.bytes + capacity <= IDLE_MAX {
            idle.bytes += capacity;
            idle.buffers.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(len: usize) -> Bytes {
        let mut body = BytesMut::with_capacity(len);
        body.resize(len, b'x');
        body.freeze()
    }

    #[test]
    fn a_buffer_is_used_again_when_nobody_holds_it() {
        let buffers = Buffers::default();
        let first = body(BUFFER_MIN);
        let address = first.as_ptr();
        buffers.give(first);
        let again = buffers.take(BUFFER_MIN);
        assert_eq!((again.as_ptr(), again.len()), (address, 0));
        let held = again.freeze();
        let shared = body(BUFFER_MIN);
        let other = shared.clone();
        buffers.give(shared);
        assert_eq!(buffers.idle.lock().buffers.len(), 0);
        drop((held, other));
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let buffers = Buffers::default();
        buffers.give(body(BUFFER_MIN - 1));
        buffers.give(body(BUFFER_MAX + 1));
        assert_eq!(buffers.idle.lock().bytes, 0);
        for _ in 0..IDLE_MAX / BUFFER_MAX + 3 {
            buffers.give(body(BUFFER_MAX));
        }
        assert_eq!(buffers.idle.lock().bytes, IDLE_MAX);
    }
}
