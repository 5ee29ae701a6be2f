//! A certificate authority for one test, made with the `openssl` program, and a TLS acceptor with
//! its certificate.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tempfile::TempDir;

/// A certificate for `localhost`, 127.0.0.1 and 127.77.0.1, signed by a root that exists only in
/// this value.
pub struct Authority {
    directory: TempDir,
}

impl Authority {
    /// Makes both certificates. They are valid for two days.
    ///
    /// # Panics
    ///
    /// When the `openssl` program is missing or fails.
    pub fn make() -> Self {
        let directory = tempfile::Builder::new()
            .prefix("router-tls-")
            .tempdir()
            .expect("a temporary directory");
        let at = directory.path();
        fs::write(
            at.join("leaf.ext"),
            "subjectAltName=DNS:localhost,IP:127.0.0.1,IP:127.77.0.1\nbasicConstraints=CA:FALSE\n",
        )
        .expect("the directory is ours");
        let ec = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
        openssl(
            at,
            &format!(
                "req -x509 {ec} -keyout root.key -out root.pem -days 2 -subj /CN=router-test-root"
            ),
        );
        openssl(
            at,
            &format!("req {ec} -keyout leaf.key -out leaf.csr -subj /CN=localhost"),
        );
        openssl(
            at,
            "x509 -req -in leaf.csr -CA root.pem -CAkey root.key -CAcreateserial -out leaf.pem -days 2 -extfile leaf.ext",
        );
        Self { directory }
    }

    /// The file of the root certificate, for `SSL_CERT_FILE`.
    pub fn root(&self) -> PathBuf {
        self.directory.path().join("root.pem")
    }

    /// The certificate and its key.
    pub fn leaf(&self) -> [PathBuf; 2] {
        ["leaf.pem", "leaf.key"].map(|name| self.directory.path().join(name))
    }

    /// Accepts TLS with the leaf certificate.
    ///
    /// # Panics
    ///
    /// When the files have changed since they were made.
    pub fn acceptor(&self) -> tokio_rustls::TlsAcceptor {
        let at = self.directory.path();
        let chain = CertificateDer::pem_file_iter(at.join("leaf.pem"))
            .and_then(Iterator::collect)
            .expect("our own certificate");
        let key = PrivateKeyDer::from_pem_file(at.join("leaf.key")).expect("our own key");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("ring speaks the default versions")
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .expect("the key fits the certificate");
        Arc::new(config).into()
    }
}

fn openssl(directory: &Path, arguments: &str) {
    let output = Command::new("openssl")
        .current_dir(directory)
        .args(arguments.split(' '))
        .output();
    let output = output.unwrap_or_else(|error| panic!("run openssl: {error}"));
    assert!(
        output.status.success(),
        "openssl {arguments}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}
