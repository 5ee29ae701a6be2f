//! How the API server is reached, and what is shown of a failed answer.

use std::fs;
use std::io;
use std::str::FromStr;

use kube::Client;
use kube::client::ClientBuilder;

use super::guard::{Guard, Refused};

/// Set in every container of a cluster.
const SERVICE_HOST: &str = "KUBERNETES_SERVICE_HOST";

/// Exists if the process has a service account; the credential lies beside it.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

/// Longest cause shown for an error.
const CAUSE_MAX: usize = 200;

/// The API server to ask.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ApiServer {
    /// The cluster's, if the process runs in one and has a service account.
    #[default]
    Auto,
    /// None.
    Off,
    /// One behind `kubectl proxy`, or another that needs neither TLS nor a credential.
    At(http::Uri),
}

/// The text names no API server.
#[derive(Debug, thiserror::Error)]
#[error("neither auto, off, nor a URL like http://127.0.0.1:8001")]
pub struct NoApiServer;

impl FromStr for ApiServer {
    type Err = NoApiServer;

    fn from_str(text: &str) -> Result<Self, NoApiServer> {
        match text {
            "auto" => return Ok(Self::Auto),
            "off" => return Ok(Self::Off),
            _ => {}
        }
        let url: http::Uri = text.parse().map_err(|_| NoApiServer)?;
        let is_plain = url.scheme() == Some(&http::uri::Scheme::HTTP)
            && url.host().is_some_and(|host| !host.is_empty())
            && url
                .authority()
                .is_some_and(|all| !all.as_str().contains('@'))
            && url.query().is_none();
        is_plain.then_some(Self::At(url)).ok_or(NoApiServer)
    }
}

impl ApiServer {
    /// Its configuration; `None` if no cluster is asked.
    ///
    /// # Errors
    /// When the process runs in a cluster whose files cannot be used.
    pub(super) fn config(&self) -> Result<Option<kube::Config>, kube::config::InClusterError> {
        match self {
            Self::Off => Ok(None),
            Self::At(url) => Ok(Some(kube::Config::new(url.clone()))),
            Self::Auto => {
                let is_in_cluster = std::env::var_os(SERVICE_HOST).is_some_and(|v| !v.is_empty());
                if !is_in_cluster {
                    return Ok(None);
                }
                if is_missing(SERVICE_ACCOUNT) {
                    tracing::info!("no service account here, Kubernetes is not asked");
                    return Ok(None);
                }
                kube::Config::incluster().map(Some)
            }
        }
    }
}

fn is_missing(path: &str) -> bool {
    fs::metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// A client whose answers are bounded in size and, except for watches, in time.
pub(super) fn client(config: &kube::Config, guard: &Guard) -> Result<Client, kube::Error> {
    let mut config = config.clone();
    config.connect_timeout = Some(guard.timeout);
    config.write_timeout = Some(guard.timeout);
    // The caller retries, and logs that.
    config.default_retry = false;
    Ok(ClientBuilder::try_from(config)?.with_layer(guard).build())
}

/// Why an answer failed, without its text, which may hold anything.
pub(super) fn why(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => format!("status {}", status.code),
        kube::Error::SerdeError(_) | kube::Error::FromUtf8(_) => "it is not understood".to_owned(),
        kube::Error::Auth(_) => "the service account's token cannot be read".to_owned(),
        error => cause(error),
    }
}

/// Whether the connection failed, not its content.
pub(super) fn is_of_transport(error: &kube::Error) -> bool {
    use kube::Error::{HyperError, ReadEvents, Service};
    matches!(error, HyperError(_) | ReadEvents(_) | Service(_)) && refused(error).is_none()
}

/// The innermost cause, if it is one of the transport.
fn cause(error: &kube::Error) -> String {
    if let Some(refused) = refused(error) {
        return refused.to_string();
    }
    let innermost = causes(error).last();
    let mut cause = innermost.map_or_else(String::new, ToString::to_string);
    cause.truncate(cause.floor_char_boundary(CAUSE_MAX));
    cause
}

fn refused(error: &kube::Error) -> Option<&Refused> {
    causes(error).find_map(|cause| cause.downcast_ref())
}

/// The error and its sources.
fn causes<'e>(
    error: &'e (dyn std::error::Error + 'static),
) -> impl Iterator<Item = &'e (dyn std::error::Error + 'static)> {
    std::iter::successors(Some(error), |error| {
        // Its source is that of what it holds.
        let held = error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref);
        match held {
            Some(held) => Some(held as &dyn std::error::Error),
            None => error.source(),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_api_server_is_found_named_or_none() {
        let parse = |text: &str| text.parse::<ApiServer>();
        assert_eq!(parse("auto").unwrap(), ApiServer::Auto);
        assert_eq!(parse("off").unwrap(), ApiServer::Off);
        let at = ApiServer::At(http::Uri::from_static("http://127.0.0.1:8001/base"));
        assert_eq!(parse("http://127.0.0.1:8001/base").unwrap(), at);
        for bad in [
            "",
            "on",
            "127.0.0.1:8001",
            "https://a",
            "http://u:p@a",
            "http://",
            "http://a?b",
        ] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_cause_is_the_innermost_and_says_what_was_cut() {
        use kube::Error::{ReadEvents, Service};
        let broken = || io::Error::other(io::Error::new(io::ErrorKind::BrokenPipe, "broken pipe"));
        assert_eq!(why(&Service(Box::new(broken()))), "broken pipe");
        assert!(is_of_transport(&ReadEvents(broken())));
        let cut = ReadEvents(io::Error::other(Refused::TooLarge));
        assert_eq!(why(&cut), Refused::TooLarge.to_string());
        assert!(!is_of_transport(&cut));
        let odd = serde_json::from_str::<u8>("secret").unwrap_err();
        assert_eq!(why(&kube::Error::SerdeError(odd)), "it is not understood");
    }
}
