//! Tests of TLS and mutual TLS on the frame port.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::BytesMut;
use proto::codec::{Codec, Decoded};
use proto::frame::Frame;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_util::codec::Decoder;

use super::harness::{Home, Running, bytes_of, hello};
use service::renewed::Renewed;
use service::tls::server_config;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/tls")
        .join(name)
}

fn client(with_certificate: bool) -> TlsConnector {
    let certificate = |name| CertificateDer::from_pem_file(fixture(name)).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(certificate("ca.pem")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = if with_certificate {
        let key = PrivateKeyDer::from_pem_file(fixture("client.key")).unwrap();
        builder
            .with_client_auth_cert(vec![certificate("client.pem")], key)
            .unwrap()
    } else {
        builder.with_no_client_auth()
    };
    TlsConnector::from(Arc::new(config))
}

/// Whether a sender over TLS gets a WELCOME.
async fn is_welcomed(listener: &Running, with_certificate: bool) -> bool {
    let stream = TcpStream::connect(listener.frames).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let Ok(mut stream) = client(with_certificate).connect(name, stream).await else {
        return false;
    };
    let _ = stream
        .write_all(&bytes_of(&Frame::Hello(hello("p", 1, 1))))
        .await;
    let mut buffer = BytesMut::new();
    loop {
        if let Some(decoded) = Codec::default().decode(&mut buffer).unwrap() {
            return matches!(decoded, Decoded::Frame(Frame::Welcome(_)));
        }
        match stream.read_buf(&mut buffer).await {
            Ok(0) | Err(_) => return false,
            Ok(_) => {}
        }
    }
}

#[tokio::test]
async fn senders_are_served_over_tls_and_not_without() {
    let mut home = Home::new();
    let config = server_config(&fixture("server.pem"), &fixture("server.key"), None).unwrap();
    home.config.tls = Some(Renewed::fixed(config));
    let listener = home.start().await;
    assert!(is_welcomed(&listener, false).await);
    let mut plain = listener.connect().await;
    plain.send(&Frame::Hello(hello("p", 1, 1))).await;
    let mut answer = Vec::new();
    let _ = plain.stream.read_to_end(&mut answer).await;
    assert!(!answer.starts_with(b"LBL2"));
}

#[tokio::test]
async fn a_certificate_is_asked_of_senders_where_there_are_authorities() {
    let mut home = Home::new();
    let authorities = fixture("ca.pem");
    let config = server_config(
        &fixture("server.pem"),
        &fixture("server.key"),
        Some(&authorities),
    );
    home.config.tls = Some(Renewed::fixed(config.unwrap()));
    let listener = home.start().await;
    assert!(is_welcomed(&listener, true).await);
    assert!(!is_welcomed(&listener, false).await);
}

#[test]
fn files_that_are_of_no_use_are_named() {
    let error = server_config(&fixture("missing.pem"), &fixture("server.key"), None).unwrap_err();
    assert!(error.to_string().contains("missing.pem"), "{error}");
    let error = server_config(&fixture("server.key"), &fixture("server.key"), None).unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("server.key: there is no certificate in it"),
        "{error}"
    );
    let error = server_config(&fixture("server.pem"), &fixture("client.key"), None).unwrap_err();
    assert!(
        error.to_string().starts_with("use the certificate: "),
        "{error}"
    );
}
