//! TLS to the listener. The PEM files are read for each connection, so renewed files take effect
//! without a restart.

use std::io;
use std::sync::Arc;

use hyper_rustls::ConfigBuilderExt;
use rustls::pki_types::{InvalidDnsNameError, ServerName};
use rustls::{ClientConfig, RootCertStore};
use service::tls::{certificates, private_key};
use tokio::net::TcpStream;
use tokio::task::spawn_blocking;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::settings::Tls;

/// The reason TLS is not available.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TlsError {
    #[error(transparent)]
    Files(#[from] service::tls::TlsError),
    #[error("use the system's certificate store")]
    Store(#[source] io::Error),
    #[error("use the certificates")]
    Rustls(#[from] rustls::Error),
    #[error("know it by its name")]
    Name(#[from] InvalidDnsNameError),
    #[error("agree on TLS with it")]
    Handshake(#[source] io::Error),
    #[error("prepare TLS: a bug")]
    Panicked,
}

/// Starts TLS on a connection to `address`. The certificate must name its host.
pub(super) async fn over(
    stream: TcpStream,
    address: &str,
    tls: &Tls,
) -> Result<TlsStream<TcpStream>, TlsError> {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let name = ServerName::try_from(host.to_owned())?;
    let tls = tls.clone();
    let config = spawn_blocking(move || client_config(&tls)).await;
    let config = config.map_err(|_| TlsError::Panicked)??;
    TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
        .map_err(TlsError::Handshake)
}

fn client_config(tls: &Tls) -> Result<ClientConfig, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let builder = match &tls.ca_file {
        None => builder
            .try_with_platform_verifier()
            .map_err(|error| TlsError::Store(io::Error::other(error)))?,
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for authority in certificates(path)? {
                roots.add(authority)?;
            }
            builder.with_root_certificates(roots)
        }
    };
    let Some((cert, key)) = &tls.identity else {
        return Ok(builder.with_no_client_auth());
    };
    Ok(builder.with_client_auth_cert(certificates(cert)?, private_key(key)?)?)
}
