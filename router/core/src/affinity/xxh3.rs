//! `xxh3_64` of one prefix before many short texts.
//!
//! A placement by rendezvous hashes `session ‖ 0x00 ‖ host:port` for every peer of a pool. Inputs of
//! 17 to 240 bytes are summed from products of 16 bytes each, so the products that lie within the
//! prefix are the same for all addresses of one length. They are computed once, and the bytes of the
//! prefix that share a product with an address are put in place once. An address then costs one to
//! four products.
//!
//! The hash is XXH3 with seed 0 and the default secret (Collet, "xxHash", `xxhash.h`). The result is
//! that of `xxhash_rust`, bit for bit; a test compares the two for every length.

/// Longest address that is hashed here. Longer ones are rare.
pub(super) const ADDRESS_MAX: usize = 31;

/// Zeros before an address.
const BEFORE: usize = 8;

/// An address between zeros. Eight bytes read from `BEFORE - n` are `n` zeros and the beginning of
/// the address, so the last bytes of a prefix are combined with them without a shift.
#[derive(Clone, Debug)]
pub(super) struct Piece([u8; BEFORE + ADDRESS_MAX + 1]);

impl Piece {
    /// The first bytes of an address.
    pub(super) fn new(address: &[u8]) -> Self {
        let mut piece = [0; BEFORE + ADDRESS_MAX + 1];
        let places = piece.iter_mut().skip(BEFORE).take(ADDRESS_MAX);
        places.zip(address).for_each(|(to, from)| *to = *from);
        Self(piece)
    }

    /// Eight bytes. `from` is at most [`ADDRESS_MAX`]; the mask tells the compiler.
    #[inline]
    fn read(&self, from: usize) -> u64 {
        read(&self.0, from & ADDRESS_MAX).unwrap_or_default()
    }
}

/// The first 192 bytes of the secret of XXH3.
const SECRET: [u8; 192] = [
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c,
    0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f,
    0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
    0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c,
    0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
    0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
    0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d,
    0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64,
    0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
    0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e,
    0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce,
    0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
];

const PRIME64_1: u64 = 0x9e37_79b1_85eb_ca87;

/// Most products that an address of [`ADDRESS_MAX`] bytes can be part of.
const MIXES_MAX: usize = 4;

/// The hash of one prefix and any address of one length.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// Length of the addresses.
    pub(super) address: usize,
    /// The rounds that come first, where the address is part of them.
    inner: Option<Sum>,
    outer: Sum,
}

/// A sum of products.
#[derive(Clone, Copy, Debug)]
struct Sum {
    /// Sum of the products within the prefix.
    base: u64,
    /// The products that include bytes of the address.
    mixes: [Mix; MIXES_MAX],
    count: usize,
}

/// One product of two halves of eight bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Mix {
    low: Half,
    high: Half,
}

/// Eight bytes of the input, already combined with the secret where the prefix provides them.
#[derive(Clone, Copy, Debug, Default)]
struct Half {
    known: u64,
    /// Position in the piece of the bytes that the address provides; 0 where it provides none.
    from: usize,
}

impl Plan {
    /// The plan for addresses of this length after `prefix`. `None` where the hash of the input is
    /// no sum of products, and for a long address.
    pub(super) fn new(prefix: &[u8], address: usize) -> Option<Self> {
        let length = prefix.len() + address;
        if address > ADDRESS_MAX || !(17..=240).contains(&length) {
            return None;
        }
        let mut first = Sum::new((length as u64).wrapping_mul(PRIME64_1));
        if length <= 128 {
            // Pairs of products from both ends towards the middle.
            for pair in 0..=(length - 1) / 32 {
                first.mix(prefix, pair * 16, pair * 32)?;
                first.mix(prefix, length - (pair + 1) * 16, pair * 32 + 16)?;
            }
            return Some(Self {
                address,
                inner: None,
                outer: first,
            });
        }
        for round in 0..8 {
            first.mix(prefix, round * 16, round * 16)?;
        }
        let depends = first.count > 0;
        let mut outer = Sum::new(if depends { 0 } else { avalanche(first.base) });
        for round in 8..length / 16 {
            outer.mix(prefix, round * 16, (round - 8) * 16 + 3)?;
        }
        outer.mix(prefix, length - 16, 136 - 17)?;
        Some(Self {
            address,
            inner: depends.then_some(first),
            outer,
        })
    }

    /// `xxh3_64(prefix ‖ address)`. The address has the length of the plan.
    #[inline]
    pub(super) fn hash(&self, address: &Piece) -> u64 {
        let inner = self.inner.as_ref().map_or(0, |sum| sum.hash(0, address));
        self.outer.hash(inner, address)
    }
}

impl Sum {
    fn new(base: u64) -> Self {
        Self {
            base,
            mixes: [Mix::default(); MIXES_MAX],
            count: 0,
        }
    }

    /// Adds the product of the 16 bytes of the input at `at` and of the secret at `secret`.
    fn mix(&mut self, prefix: &[u8], at: usize, secret: usize) -> Option<()> {
        let mix = Mix {
            low: Half::new(prefix, at, secret)?,
            high: Half::new(prefix, at + 8, secret + 8)?,
        };
        if mix.low.from | mix.high.from == 0 {
            self.base = self.base.wrapping_add(fold(mix.low.known, mix.high.known));
        } else {
            *self.mixes.get_mut(self.count)? = mix;
            self.count += 1;
        }
        Some(())
    }

    #[inline]
    fn hash(&self, before: u64, address: &Piece) -> u64 {
        let mixes = self.mixes.iter().take(self.count);
        let products = mixes.map(|mix| fold(mix.low.of(address), mix.high.of(address)));
        let base = self.base.wrapping_add(before);
        avalanche(products.fold(base, u64::wrapping_add))
    }
}

impl Half {
    fn new(prefix: &[u8], at: usize, secret: usize) -> Option<Self> {
        let of_prefix = prefix.get(at..).unwrap_or_default();
        let mut known = [0; 8];
        let own = of_prefix.len().min(8);
        known[..own].copy_from_slice(&of_prefix[..own]);
        Some(Self {
            known: u64::from_le_bytes(known) ^ read(&SECRET, secret)?,
            from: (at + BEFORE).saturating_sub(prefix.len()),
        })
    }

    #[inline]
    fn of(&self, address: &Piece) -> u64 {
        self.known ^ address.read(self.from)
    }
}

#[inline]
fn read(bytes: &[u8], at: usize) -> Option<u64> {
    let eight = bytes.get(at..)?.first_chunk()?;
    Some(u64::from_le_bytes(*eight))
}

#[inline]
fn fold(one: u64, other: u64) -> u64 {
    let product = u128::from(one) * u128::from(other);
    product as u64 ^ (product >> 64) as u64
}

#[inline]
fn avalanche(mut value: u64) -> u64 {
    value ^= value >> 37;
    value = value.wrapping_mul(0x1656_6791_9e37_79f9);
    value ^ (value >> 32)
}

#[cfg(test)]
mod tests {
    use xxhash_rust::xxh3::xxh3_64;

    use super::*;

    #[test]
    fn every_length_hashes_as_the_whole_text_does() {
        let text: Vec<u8> = (0_u32..300).map(|n| (n * 167 % 251) as u8).collect();
        let mut planned = 0;
        for prefix in 0..240 {
            for address in 0..=ADDRESS_MAX {
                let Some(plan) = Plan::new(&text[..prefix], address) else {
                    continue;
                };
                planned += 1;
                let piece = Piece::new(&text[prefix..prefix + address]);
                let whole = xxh3_64(&text[..prefix + address]);
                assert_eq!(plan.hash(&piece), whole, "{prefix} + {address} bytes");
            }
        }
        assert_eq!(planned, 7_062, "lengths with a plan");
    }

    #[test]
    fn inputs_of_another_kind_have_no_plan() {
        for (prefix, address) in [(2, 14), (230, 11), (40, ADDRESS_MAX + 1)] {
            assert!(Plan::new(&vec![b's'; prefix], address).is_none());
        }
    }
}
