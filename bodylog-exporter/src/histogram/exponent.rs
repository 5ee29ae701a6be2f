//! From a value to its exponential bucket, exactly: logarithms round, and a value on an edge must
//! not change sides.

/// `2^(i/8) / 2` for `i` in `0..8`: the edges of schema 3 between 0.5 and 1.
const FRACTIONS: [f64; 8] = [
    0.5,
    0.545_253_866_332_628_8,
    0.594_603_557_501_360_5,
    0.648_419_777_325_504_8,
    std::f64::consts::FRAC_1_SQRT_2,
    0.771_105_412_703_970_4,
    0.840_896_415_253_714_6,
    0.917_004_043_204_671_3,
];

/// The bucket of a positive, finite, normal or subnormal value at a schema from 3 down to -4.
pub(super) fn index(schema: i8, value: f64) -> i32 {
    debug_assert!(value > 0.0 && value.is_finite());
    let (fraction, exponent) = split(value);
    if schema > 0 {
        // Schema s uses every 2^(3-s)-th edge of schema 3.
        let step = 1_usize << (3 - schema);
        let within = FRACTIONS
            .iter()
            .step_by(step)
            .filter(|edge| **edge < fraction)
            .count();
        let per_octave = FRACTIONS.len() / step;
        // Both fit: at most 8 edges in an octave, exponents within ±1100.
        within as i32 + (exponent - 1) * per_octave as i32
    } else {
        let whole = if fraction == 0.5 {
            exponent - 1
        } else {
            exponent
        };
        let shift = u32::from(schema.unsigned_abs());
        // The ceiling of whole / 2^shift.
        (whole + (1 << shift) - 1) >> shift
    }
}

/// `value = fraction * 2^exponent` with a fraction in `[0.5, 1)`.
fn split(value: f64) -> (f64, i32) {
    const EXPONENT_MASK: u64 = 0x7ff << 52;
    let bits = value.to_bits();
    if bits & EXPONENT_MASK == 0 {
        // Subnormal: scaled up exactly, then down again in the exponent.
        let (fraction, exponent) = split(value * 2_f64.powi(64));
        return (fraction, exponent - 64);
    }
    // 11 bits.
    let biased = ((bits & EXPONENT_MASK) >> 52) as i32;
    let fraction = f64::from_bits((bits & !EXPONENT_MASK) | (1022 << 52));
    (fraction, biased - 1022)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_belong_to_the_bucket_they_end() {
        for schema in -4..=3_i8 {
            for exponent in [-40, -16, -1, 0, 1, 16, 40] {
                let edge = 2_f64.powi(exponent);
                let factor = 2_f64.powi(i32::from(schema));
                let expected = (f64::from(exponent) * factor).ceil() as i32;
                assert_eq!(
                    index(schema, edge),
                    expected,
                    "schema {schema}, 2^{exponent}"
                );
                let above = f64::from_bits(edge.to_bits() + 1);
                let next = (f64::from(exponent) * factor).floor() as i32 + 1;
                assert_eq!(
                    index(schema, above),
                    next,
                    "schema {schema}, above 2^{exponent}"
                );
            }
        }
    }

    #[test]
    fn every_value_lies_within_its_bucket() {
        let mut value = 1e-12;
        while value < 1e12 {
            for schema in -4..=3_i8 {
                let growth = 2_f64.powf(2_f64.powi(-i32::from(schema)));
                let at = index(schema, value);
                let upper = growth.powi(at);
                let lower = growth.powi(at - 1);
                assert!(
                    lower < value * (1.0 + 1e-9) && value <= upper * (1.0 + 1e-9),
                    "{value} at schema {schema}: {lower}..{upper}"
                );
            }
            value *= 1.037;
        }
    }

    #[test]
    fn the_smallest_number_has_a_bucket() {
        assert_eq!(index(0, f64::MIN_POSITIVE), -1022);
        assert_eq!(index(0, f64::from_bits(1)), -1074);
    }
}
