//! Writes whole numbers without a fraction: `60`, not `60.0`. A fraction stays as it is.

use serde::Serializer;

/// Up to this number every whole `f64` is exact.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// Serializes a whole number as an integer.
pub(crate) fn whole<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    if value.fract() == 0.0 && value.abs() <= EXACT {
        serializer.serialize_i64(*value as i64)
    } else {
        serializer.serialize_f64(*value)
    }
}

/// [`whole`] for an optional number.
pub(crate) fn whole_opt<S: Serializer>(
    value: &Option<f64>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => whole(value, serializer),
        None => serializer.serialize_none(),
    }
}
