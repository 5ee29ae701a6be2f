//! Texts that nobody had before.

use rand::TryRng;
use rand::rngs::SysRng;

use crate::exit::Failure;

/// 32 hex digits from the system's generator: good for a secret.
///
/// # Errors
/// When the system has no randomness to give.
pub(crate) fn nonce() -> Result<String, Failure> {
    Ok(format!("{:032x}", u128::from_be_bytes(random()?)))
}

/// Bytes from the system's generator (getrandom).
///
/// # Errors
/// When the system has no randomness to give.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], Failure> {
    let mut bytes = [0; N];
    SysRng
        .try_fill_bytes(&mut bytes)
        .map_err(|error| Failure::Wrong(format!("the system gives no randomness: {error}")))?;
    Ok(bytes)
}
