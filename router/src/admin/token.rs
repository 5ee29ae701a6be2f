//! The admin token. The file is read again for each request with a token, so a rotated secret works
//! at once.

use std::io;
use std::path::Path;

use http::header::{self, HeaderMap};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tokio::io::AsyncReadExt;

use service::log::Throttle;

use super::access::Token;
use crate::clock::now;

/// Maximum size of the token file, bytes. Real tokens are one line.
const FILE_MAX: u64 = 4096;

/// Compares the caller's token with the one in `file`. A file that cannot be read, is empty or is
/// too large gives nobody access.
pub(super) async fn check(file: Option<&Path>, headers: &HeaderMap) -> Token {
    let Some(file) = file else {
        return Token::NotConfigured;
    };
    let Some(shown) = bearer(headers) else {
        return Token::Wrong;
    };
    match read(file).await {
        Ok(token) if same(shown, token.trim_ascii()) => Token::Right,
        Ok(_) => Token::Wrong,
        Err(error) => {
            static LINES: Throttle = Throttle::new();
            if let Some(unsaid) = LINES.pass(now()) {
                tracing::warn!(file = %file.display(), %error, unsaid, "admin token unusable");
            }
            Token::Wrong
        }
    }
}

async fn read(file: &Path) -> io::Result<Vec<u8>> {
    let mut token = Vec::new();
    tokio::fs::File::open(file)
        .await?
        .take(FILE_MAX + 1)
        .read_to_end(&mut token)
        .await?;
    if token.len() as u64 > FILE_MAX {
        return Err(io::Error::other("it is larger than 4096 bytes"));
    }
    if token.trim_ascii().is_empty() {
        return Err(io::Error::other("it is empty"));
    }
    Ok(token)
}

/// Whether two secrets are equal. Compares their digests, so that timing does not reveal the length
/// either.
fn same(shown: &[u8], token: &[u8]) -> bool {
    Sha256::digest(shown).ct_eq(&Sha256::digest(token)).into()
}

fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(header::AUTHORIZATION)?.as_bytes();
    let space = value.iter().position(|byte| *byte == b' ')?;
    let (scheme, token) = value.split_at(space);
    scheme
        .eq_ignore_ascii_case(b"bearer")
        .then(|| token.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn shown(file: &Path, authorization: &str) -> Token {
        let mut headers = HeaderMap::new();
        headers.insert(header::AUTHORIZATION, authorization.parse().unwrap());
        check(Some(file), &headers).await
    }

    #[tokio::test]
    async fn only_the_files_token_is_right() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("token");
        std::fs::write(&file, "tok-1\n").unwrap();
        for right in ["Bearer tok-1", "bearer tok-1", "BEARER  tok-1"] {
            assert_eq!(shown(&file, right).await, Token::Right, "{right}");
        }
        for wrong in [
            "Bearer tok-2",
            "Bearer tok-1x",
            "Bearer",
            "Bearer ",
            "Basic tok-1",
            "tok-1",
        ] {
            assert_eq!(shown(&file, wrong).await, Token::Wrong, "{wrong}");
        }
        assert_eq!(check(Some(&file), &HeaderMap::new()).await, Token::Wrong);
        std::fs::write(&file, "tok-2").unwrap();
        assert_eq!(shown(&file, "Bearer tok-2").await, Token::Right);
    }

    #[tokio::test]
    async fn an_unusable_file_lets_nobody_in() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("token");
        assert_eq!(shown(&file, "Bearer x").await, Token::Wrong);
        for content in [String::new(), " \n".into(), "x".repeat(5000)] {
            std::fs::write(&file, &content).unwrap();
            for shown_text in ["Bearer ", &format!("Bearer {content}")] {
                let shown_text = shown_text.trim_end_matches('\n');
                assert_eq!(shown(&file, shown_text).await, Token::Wrong);
            }
        }
        assert_eq!(check(None, &HeaderMap::new()).await, Token::NotConfigured);
    }
}
