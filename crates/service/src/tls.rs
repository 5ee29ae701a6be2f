//! TLS from PEM files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ServerConfig, WebPkiClientVerifier};

/// The reason why TLS could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("read {}: {source}", path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: PemError,
    },
    /// A file holds no certificate.
    #[error("read {}: there is no certificate in it", .0.display())]
    Empty(PathBuf),
    /// Certificate and key do not match, or are of an unknown kind.
    #[error("use the certificate: {0}")]
    Rustls(#[from] rustls::Error),
    /// The client authorities are unusable.
    #[error("use the client authorities: {0}")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
}

/// Makes ring the process's TLS provider. Calling it again changes nothing.
pub fn install_crypto_provider() {
    // Fails only when a provider is already installed, which is what we want.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// A server's TLS configuration with this certificate chain and key. With `client_ca`, clients must
/// present a certificate that one of these authorities signed.
///
/// # Errors
/// When a file cannot be read or used.
pub fn server_config(
    cert: &Path,
    key: &Path,
    client_ca: Option<&Path>,
) -> Result<Arc<ServerConfig>, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?;
    let builder = match client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for authority in certificates(path)? {
                roots.add(authority)?;
            }
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build()?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    Ok(Arc::new(builder.with_single_cert(
        certificates(cert)?,
        private_key(key)?,
    )?))
}

/// The private key in a PEM file.
///
/// # Errors
/// [`TlsError::Pem`].
pub fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_file(path).map_err(|source| TlsError::Pem {
        path: path.to_owned(),
        source,
    })
}

/// The certificates in a PEM file, in file order.
///
/// # Errors
/// [`TlsError::Pem`], or [`TlsError::Empty`] when the file has no certificate.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let failed = |source| TlsError::Pem {
        path: path.to_owned(),
        source,
    };
    let certificates: Vec<_> = CertificateDer::pem_file_iter(path)
        .map_err(failed)?
        .collect::<Result<_, _>>()
        .map_err(failed)?;
    if certificates.is_empty() {
        return Err(TlsError::Empty(path.to_owned()));
    }
    Ok(certificates)
}
