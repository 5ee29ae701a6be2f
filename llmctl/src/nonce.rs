//! Random values for identifiers and secrets.

use rand::TryRng;
use rand::rngs::SysRng;

use crate::exit::Failure;

/// 32 hex digits from the system's random generator: good enough for a secret.
///
/// # Errors
/// When the system provides no randomness.
pub(crate) fn nonce() -> Result<String, Failure> {
    Ok(format!("{:032x}", u128::from_be_bytes(random()?)))
}

/// Bytes from the system's random generator (getrandom).
///
/// # Errors
/// When the system provides no randomness.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], Failure> {
    let mut bytes = [0; N];
    SysRng
        .try_fill_bytes(&mut bytes)
        .map_err(|error| Failure::Wrong(format!("the system gives no randomness: {error}")))?;
    Ok(bytes)
}
