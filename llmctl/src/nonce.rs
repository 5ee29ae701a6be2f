//! Texts that nobody had before.

use rand::TryRng;
use rand::rngs::SysRng;

use crate::exit::Failure;

/// 32 hex digits from the system's generator: good for a secret.
///
/// # Errors
/// When the system has no randomness to give.
pub(crate) fn nonce() -> Result<String, Failure> {
    let mut bytes = [0; 16];
    SysRng
        .try_fill_bytes(&mut bytes)
        .map_err(|error| Failure::Wrong(format!("the system gives no randomness: {error}")))?;
    Ok(format!("{:032x}", u128::from_be_bytes(bytes)))
}
