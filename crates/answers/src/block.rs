//! 64 bytes of a text, searched at once. Each search returns a mask with one bit for each byte, the
//! first byte lowest.

use wide::u8x32;

pub(crate) const BLOCK: usize = 64;

/// The last control character that a JSON string must not contain unescaped.
pub(crate) const CONTROL_MAX: u8 = 0x1f;

/// 64 bytes of a body. Bytes beyond its end are zero.
pub(crate) struct Block([u8x32; 2]);

impl Block {
    /// `None` when the body ends before `at`.
    #[inline]
    pub(crate) fn at(body: &[u8], at: usize) -> Option<Self> {
        let rest = body.get(at..)?;
        match rest.first_chunk() {
            Some(whole) => Some(Self::of(whole)),
            None => Self::padded(rest),
        }
    }

    #[cold]
    fn padded(rest: &[u8]) -> Option<Self> {
        let mut bytes = [0; BLOCK];
        bytes[..rest.len()].copy_from_slice(rest);
        (!rest.is_empty()).then(|| Self::of(&bytes))
    }

    #[inline]
    fn of(bytes: &[u8; BLOCK]) -> Self {
        let (halves, _) = bytes.as_chunks();
        Self([u8x32::new(halves[0]), u8x32::new(halves[1])])
    }

    /// The bytes that equal `byte`.
    #[inline]
    pub(crate) fn equal(&self, byte: u8) -> u64 {
        let byte = u8x32::splat(byte);
        self.mask(|bytes| bytes.simd_eq(byte))
    }

    /// The bytes that equal one of `wanted`.
    #[inline]
    pub(crate) fn any<const N: usize>(&self, wanted: [u8; N]) -> u64 {
        self.mask(|bytes| {
            let equal = wanted.iter().map(|byte| bytes.simd_eq(u8x32::splat(*byte)));
            equal.fold(u8x32::ZERO, |any, one| any | one)
        })
    }

    /// Whether a byte is a control character.
    #[inline]
    pub(crate) fn has_controls(&self) -> bool {
        let least = self.0[0].min(self.0[1]);
        is_control(least).to_bitmask() != 0
    }

    /// The control characters.
    #[inline]
    pub(crate) fn controls(&self) -> u64 {
        self.mask(is_control)
    }

    #[inline]
    fn mask(&self, test: impl Fn(u8x32) -> u8x32) -> u64 {
        // Not `map`, which is called once for each half where the compiler does not inline it.
        let [low, high] = self.0;
        u64::from(test(low).to_bitmask()) | u64::from(test(high).to_bitmask()) << 32
    }
}

#[inline]
fn is_control(bytes: u8x32) -> u8x32 {
    bytes.min(u8x32::splat(CONTROL_MAX)).simd_eq(bytes)
}
